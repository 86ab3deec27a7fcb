"""The graph of a pipeline, made by the calls of the SDK that a plugin would make.

Each node becomes one or several calls of the SDK. Of several vertices, the vertex with state gets
the id of the node, and the others get derived ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from bicycle_runtime.endpoints.checking import Checks, label_of
from bicycle_runtime.endpoints.named_functions import PROCESS, FunctionMissingError, found_function
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.expressions.sql.steps import ComputedFields, Where
from bicycle_runtime.pipelines.aggregates import (
    AggregateTuple,
    aggregate_of,
    result_names,
    wanted_aggregates,
)
from bicycle_runtime.pipelines.builtin_functions import FLAT_MAPS, MAPS, Keep
from bicycle_runtime.pipelines.computed import without_fields
from bicycle_runtime.pipelines.edges import Input
from bicycle_runtime.pipelines.errors import PIPELINE_INVALID
from bicycle_runtime.pipelines.http_calls import CallServer
from bicycle_runtime.pipelines.key_rules import sources_before, timed_ids
from bicycle_runtime.pipelines.lookup_files import (
    CompletedFromFile,
    CompletedOnColumns,
    FoundInFile,
)
from bicycle_runtime.pipelines.lookup_tables import LookupInTable
from bicycle_runtime.pipelines.nodes import CheckedPipeline, Node
from bicycle_runtime.pipelines.operator_keys import Join, disorder_of, size_ms
from bicycle_runtime.pipelines.queries import bind_query
from bicycle_runtime.pipelines.record_functions import (
    ClockTrigger,
    CountRow,
    CountText,
    FieldKey,
    FirstOfKey,
    JoinedRow,
    LateRow,
    RecordKey,
    RunningRow,
    TimeOf,
    TypedRecord,
    WindowRow,
    WithMessage,
    goes_to,
    lower_text,
)
from bicycle_runtime.pipelines.values import ErrorRule
from bicycle_sdk import ProcessFunction, StreamEnvironment
from bicycle_sdk.aggregations import everything
from bicycle_sdk.datastream import KeyedStream
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.failures import error_policy, retry
from bicycle_sdk.graph import ErrorAction, ErrorPolicy
from bicycle_sdk.settings import VertexSettings
from bicycle_sdk.time import WatermarkStrategy
from bicycle_sdk.windows import tumbling_windows
from bicycle_sdk.windows.triggers import PurgingTrigger

_LATE = "late"
_QUESTION_RECORDS_MAX = 500
# These do nothing that can fail for a record.
_NEVER_FAIL = frozenset({"union", "rate_limit"})


def build_pipeline(
    env: StreamEnvironment, pipeline: CheckedPipeline, *, of_plugins: bool = False
) -> None:
    """Add the streams of a pipeline to an environment.

    Args:
        env: The environment.
        pipeline: The pipeline.
        of_plugins: Whether it may name functions of installed plugins only.

    Raises:
        PIPELINE_INVALID: a function that it names is not there, or a call is not possible.
    """
    pipeline.settings.apply_to(env)
    _Building(env, pipeline, partial(found_function, of_plugins=of_plugins)).build()


class _Building:
    """The streams after the nodes that were built; their side outputs by node and tag."""

    def __init__(
        self, env: StreamEnvironment, pipeline: CheckedPipeline, find: Callable[[str], Any]
    ) -> None:  # fmt: skip
        self._env = env
        self._find = find
        self._pipeline = pipeline
        self._checks = Checks(pipeline.document, PIPELINE_INVALID)
        self._streams: dict[str, Any] = {}
        self._side_outputs: dict[tuple[str, str], Any] = {}
        self._timed = timed_ids(pipeline.nodes)
        self._owners: dict[str, Node] = {}  # by ids of vertices
        self._tags = {
            (each.node, each.output)
            for node in pipeline.nodes
            for each in node.inputs
            if each.output is not None
        }

    def build(self) -> None:
        for node in self._pipeline.nodes:
            self._build(node)
        self._checks.raise_problems()

    def _build(self, node: Node) -> None:
        """Add one node; a missing function is reported later, with all missing ones."""
        count = len(self._env.vertices)
        if any(each.node not in self._streams for each in node.inputs):
            return
        try:
            stream = _MAKERS[node.operator](self, node)
        except FunctionMissingError as error:
            config = "config" if node.path[0] == "vertices" else ""
            path = (*node.path, *([config] if config else []), "function")
            self._checks.note(path, f"unsupported {label_of(path)}: {error}")
            return
        except StreamDefinitionError as error:
            self._checks.note(node.path, f"{label_of(node.path)}: {error.summary}")
            return
        self._streams[node.id] = stream
        document = self._pipeline.document
        location = f"{document.file}:{document.key_position(node.path).line}"
        for vertex in self._env.vertices[count:]:
            vertex.location = location
            owner = self._owners.setdefault(vertex.final_id, node)
            if owner is not node:
                text = f"its vertex {vertex.final_id!r} has the same id as a vertex of {owner.id!r}"
                self._checks.note((*node.path, "id"), f"{text}: choose another id")

    # --- inputs and settings -----------------------------------------------------------------

    def _input(self, node: Node, index: int = 0) -> Any:
        """Return the input stream of a node, with the partitioning of its edge."""
        given = node.inputs[index]
        stream = self._streams[given.node] if given.output is None else self._side_output(given)
        match given.partition:
            case "forward":
                return stream
            case "hash":
                if isinstance(stream, KeyedStream) or node.operator in ("key_by", "count", "join"):
                    return stream
                is_first = all(each.partition != "hash" for each in node.inputs[:index])
                suffix = "-by" if is_first else f"-by-{index + 1}"
                return stream.key_by(RecordKey()).uid(node.id + suffix)
            case "global":
                return stream.global_()
            case word:
                return getattr(stream, word)()

    def _side_output(self, given: Input) -> Any:
        assert given.output is not None
        found = self._side_outputs.get((given.node, given.output))
        if found is None:
            source = self._streams[given.node]
            found = source.side_output(given.output).uid(f"{given.node}-{given.output}")
        self._side_outputs[given.node, given.output] = found
        return found

    def _key(self, node: Node) -> Any:
        """Return the keyed input: a single key for all records of an unkeyed stream."""
        stream = self._input(node)
        if isinstance(stream, KeyedStream):
            return stream
        return stream.key_by(everything).uid(f"{node.id}-key")

    def _set(self, stream: Any, node: Node, *, suffix: str = "") -> Any:
        """Set a vertex's id and the node's settings; return the stream after it."""
        settings: VertexSettings = stream
        settings.uid(node.id + suffix)
        settings.name(f"{node.name or node.id}{suffix}")
        if node.parallelism is not None:
            settings.set_parallelism(node.parallelism)
        rule = self._pipeline.rule_of(node)
        if rule is not None and node.operator not in _NEVER_FAIL:
            policy, rate = _policy(rule)
            settings.on_error(policy, max_error_rate=rate)
        return stream

    # --- sources, sinks, time ----------------------------------------------------------------

    def _source(self, node: Node) -> Any:
        reads_time = self._reads_time(node)
        spec = node.spec
        stream = self._set(self._env.add_source(spec.source(with_times=reads_time)), node)
        if spec.fields is not None:
            typed = TypedRecord(spec.fields, is_csv=spec.is_csv)
            stream = self._set(stream.map(typed), node, suffix="-fields")
        if spec.adds_message:
            stream = self._set(stream.process(WithMessage()), node, suffix="-message")
        return stream

    def _sink(self, node: Node) -> Any:
        sink = node.spec.sink(is_timed=node.id in self._timed)
        return self._set(self._input(node).sink_to(sink), node)

    def _time(self, node: Node) -> Any:
        spec = node.spec
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.bounded_out_of_orderness(
            duration_ms(disorder_of(spec))
        )
        idle_ms = duration_ms(spec.idle_timeout)
        strategy = strategy.with_idle_timeout(idle_ms or None)
        field = spec.field or self._field_of_source(node)
        if field is not None:
            strategy = strategy.with_timestamps(TimeOf(field))
        return self._set(self._input(node).assign_timestamps(strategy), node)

    def _field_of_source(self, node: Node) -> str | None:
        """Return the field with the time, where a source before does not read it itself."""
        sources = sources_before(node, {each.id: each for each in self._pipeline.nodes})
        fields = {each.spec.time_field for each in sources if not self._reads_time(each)}
        return fields.pop() if fields else None

    def _reads_time(self, source: Node) -> bool:
        """Return whether a source reads event times from its records itself.

        If its records go only to the operator of time, that operator reads them, on columns.
        """
        if not source.spec.reads_time:
            return False
        behind = [
            node
            for node in self._pipeline.nodes
            if any(each.node == source.id for each in node.inputs)
        ]
        return any(node.operator != "time" for node in behind)

    # --- record by record --------------------------------------------------------------------

    def _map(self, node: Node) -> Any:
        spec, expressions = node.spec, self._pipeline.expressions.get(node.id)
        if expressions is None and spec.drop is None:
            return self._call(node, MAPS, "map")
        names = self._pipeline.given.get(node.id, ())
        function: Callable[[Any], Any] = without_fields(spec.drop or (), names)
        if expressions is not None:
            function = ComputedFields(expressions.compiled, kept=expressions.kept)
        return self._set(self._input(node).map(function), node)

    def _flat_map(self, node: Node) -> Any:
        return self._call(node, FLAT_MAPS, "flat_map")

    def _call(self, node: Node, words: Mapping[str, Any], call: str) -> Any:
        default = next(iter(words)) if call == "flat_map" else "identity"
        name = node.spec.function or default
        function = words[name] if name in words else self._find(name)
        return self._set(self._with_function(node, function, call), node)

    def _with_function(self, node: Node, function: Any, call: str) -> Any:
        stream = self._input(node)
        if not isinstance(function, PROCESS):
            return getattr(stream, call)(function)
        if isinstance(function, ProcessFunction):
            return stream.process_fn(function)
        return stream.process(function)

    def _filter(self, node: Node) -> Any:
        spec, expressions = node.spec, self._pipeline.expressions.get(node.id)
        function: Any
        if expressions is not None:
            function = Where(expressions.compiled)
        elif spec.function is not None:
            function = self._find(spec.function)
        else:
            value = "" if spec.value is None else _text(spec.value)
            function = Keep(spec.predicate or "non_empty", value, spec.field)
        return self._set(self._with_function(node, function, "filter"), node)

    def _process(self, node: Node) -> Any:
        function = self._find(node.spec.function or node.name or node.id)
        if not isinstance(function, PROCESS):
            raise FunctionMissingError("it is not a function class for process; use it with map")
        return self._set(self._with_function(node, function, "process"), node)

    def _rate_limit(self, node: Node) -> Any:
        limited = self._input(node).rate_limit(node.spec.per_second, burst=node.spec.burst)
        return self._set(limited, node)

    def _union(self, node: Node) -> Any:
        first, *others = (self._input(node, index) for index in range(len(node.inputs)))
        return self._set(first.union(*others), node)

    def _split(self, node: Node) -> Any:
        """Filter records with any output, then the records of each output, in columns.

        All of them have the name of the split, which identifies it in letters, metrics and errors.
        """
        names = sorted(name for split, name in self._tags if split == node.id)
        goes = goes_to(node.spec, names)
        chosen = self._set(self._input(node).filter(goes(None)), node)
        for output in names:
            branch = self._set(chosen.filter(goes(output)), node, suffix=f"-{output}")
            self._side_outputs[node.id, output] = branch.name(node.name or node.id)
        return chosen

    def _enrich(self, node: Node) -> Any:
        spec, stream = node.spec, self._input(node)
        if spec.how == "inner":
            stream = self._set(stream.filter(FoundInFile(spec)), node, suffix="-known")
        names = self._pipeline.given.get(node.id)
        complete = CompletedFromFile(spec)
        if names is not None and spec.fields is not None:
            complete = CompletedOnColumns(spec, names)
        return self._set(stream.map(complete), node)

    def _http_call(self, node: Node) -> Any:
        spec, stream = node.spec, self._input(node)
        call = stream.async_io_ordered if spec.ordered else stream.async_io_unordered
        return self._ask(node, partial(call, CallServer(spec), capacity=spec.capacity))

    def _lookup(self, node: Node) -> Any:
        call = partial(self._input(node).async_io_batches, LookupInTable(node.spec))
        return self._ask(node, partial(call, max_size=_QUESTION_RECORDS_MAX))

    def _ask(self, node: Node, call: Callable[..., Any]) -> Any:
        """Return the stream of a call to another system; retries belong to the call."""
        rule, again = node.on_error, None
        if isinstance(rule, ErrorRule) and rule.retries:
            backoff = timedelta(milliseconds=duration_ms(rule.backoff))
            again = retry(rule.retries, backoff=backoff)
            rule = msgspec.structs.replace(rule, retries=0)
        called = call(timeout=timedelta(milliseconds=duration_ms(node.spec.timeout)), retry=again)
        return self._set(called, replace(node, on_error=rule))

    # --- by key ------------------------------------------------------------------------------

    def _key_by(self, node: Node) -> Any:
        spec = node.spec
        selector: Callable[[Any], Any] = RecordKey()
        if spec.function is not None:
            selector = self._find(spec.function)
        elif spec.field is not None or spec.fields is not None:
            selector = FieldKey(spec.fields or [spec.field])
        return self._set(self._input(node).key_by(selector), node)

    def _dedup(self, node: Node) -> Any:
        spec = node.spec
        keyed = self._input(node).key_by(FieldKey(spec.fields)).uid(f"{node.id}-key")
        ttl_ms = None if spec.within is None else duration_ms(spec.within)
        return self._set(keyed.process_fn(FirstOfKey(ttl_ms)), node)

    def _count(self, node: Node) -> Any:
        stream = self._input(node)
        if isinstance(stream, KeyedStream):
            counted = self._set(stream.count(), node)
            return self._set(counted.map(CountRow()), node, suffix="-rows")
        keyed = stream.key_by(lower_text).uid(f"{node.id}-key")
        counted = self._set(keyed.count(), node)
        return self._set(counted.map(CountText()), node, suffix="-rows")

    def _reduce(self, node: Node) -> Any:
        spec, keyed = node.spec, self._key(node)
        if spec.function is not None:
            return self._set(keyed.reduce(self._find(spec.function)), node)
        functions = [aggregate_of(agg, field) for _, agg, field in wanted_aggregates(spec)]
        function = functions[0] if len(functions) == 1 else AggregateTuple(functions)
        running = self._set(keyed.aggregate(function), node)
        rows = running.map(RunningRow(result_names(spec), spec.key_name))
        return self._set(rows, node, suffix="-rows")

    def _window(self, node: Node) -> Any:
        spec = node.spec
        windowed = self._open_windows(node)
        if spec.keep is not None:
            windowed = windowed.allowed_lateness(duration_ms(spec.keep))
        has_late = (node.id, _LATE) in self._tags
        if has_late:
            windowed = windowed.late_to(_LATE)
        functions = [aggregate_of(agg, field) for _, agg, field in wanted_aggregates(spec)]
        results = self._set(windowed.aggregate(*functions), node)
        if has_late:
            late = results.side_output(_LATE).uid(f"{node.id}-{_LATE}-records").map(LateRow())
            self._side_outputs[node.id, _LATE] = late.uid(f"{node.id}-{_LATE}")
        rows = results.map(WindowRow(result_names(spec), spec.key_name))
        return self._set(rows, node, suffix="-rows")

    def _open_windows(self, node: Node) -> Any:
        spec, keyed = node.spec, self._key(node)
        offset = 0 if spec.offset is None else duration_ms(spec.offset)
        size = size_ms(spec)
        match spec.type:
            case "tumbling":
                if node.id not in self._timed:
                    trigger = PurgingTrigger(ClockTrigger(size))
                    return keyed.global_window().trigger(trigger)
                return keyed.tumbling_window(size, offset=offset)
            case "sliding":
                return keyed.sliding_window(size, duration_ms(spec.slide), offset=offset)
            case "session":
                return keyed.session_window(duration_ms(spec.gap))
            case "count":
                return keyed.count_window(spec.records, spec.every)
        raise AssertionError(spec.type)

    def _join(self, node: Node) -> Any:
        left, right = (
            self._input(node, index).key_by(FieldKey(node.spec.on)).uid(f"{node.id}-{side}")
            for index, side in enumerate(("left", "right"))
        )
        late_to = _LATE if (node.id, _LATE) in self._tags else None
        names = self._pipeline.given.get(node.id, ())
        row = JoinedRow(node.spec.on, node.spec.prefix, names)
        return self._set(_join_streams(node.spec, left, right, row, late_to=late_to), node)

    def _sql(self, node: Node) -> Any:
        count, rule = len(self._env.vertices), self._pipeline.rule_of(node)
        tables = [
            replace(table, stream=self._input(node, index))
            for index, table in enumerate(self._pipeline.queries.tables[node.id])
        ]
        policy, rate = _policy("fail" if rule is None else rule)
        policy = error_policy(policy, max_error_rate=rate)
        stream = bind_query(self._checks, node, tables).add_to(self._env, policy)
        for vertex in self._env.vertices[count:]:
            vertex.parallelism = node.parallelism
        return stream if node.name is None else stream.name(node.name)


_MAKERS: Mapping[str, Callable[[_Building, Node], Any]] = {
    "source": _Building._source,
    "sink": _Building._sink,
    "time": _Building._time,
    "map": _Building._map,
    "flat_map": _Building._flat_map,
    "filter": _Building._filter,
    "process": _Building._process,
    "rate_limit": _Building._rate_limit,
    "union": _Building._union,
    "split": _Building._split,
    "enrich": _Building._enrich,
    "http_call": _Building._http_call,
    "lookup": _Building._lookup,
    "key_by": _Building._key_by,
    "dedup": _Building._dedup,
    "count": _Building._count,
    "reduce": _Building._reduce,
    "window": _Building._window,
    "join": _Building._join,
    "sql": _Building._sql,
}


def _policy(rule: str | ErrorRule) -> tuple[ErrorPolicy, float | None]:
    """Return a rule as the SDK has it, and the share of errors that ends the job."""
    if isinstance(rule, str):
        return ErrorPolicy(action=ErrorAction(rule)), None
    policy = error_policy(ErrorPolicy(action=ErrorAction(rule.action)))
    if rule.retries:
        backoff = timedelta(milliseconds=duration_ms(rule.backoff))
        policy = retry(rule.retries, backoff=backoff).then(policy)
    return policy, rule.max_error_rate


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _join_streams(spec: Join, left: Any, right: Any, row: JoinedRow, *, late_to: str | None) -> Any:
    """Return the stream of two keyed streams that are joined.

    Args:
        spec: How.
        left: One side.
        right: The other.
        row: Makes one record of two.
        late_to: Output for late rows; a table join has no such output.
    """
    match spec.type:
        case "interval":
            assert spec.upper is not None
            bounds = duration_ms(spec.lower), duration_ms(spec.upper)
            return left.interval_join(right, *bounds, row, how=spec.how, late_to=late_to)
        case "window":
            assert spec.size is not None
            windows = tumbling_windows(duration_ms(spec.size))
            return left.window_join(right, windows, row, how=spec.how, late_to=late_to)
        case "as_of":
            tolerance = None if spec.tolerance is None else duration_ms(spec.tolerance)
            return left.as_of_join(right, row, tolerance=tolerance, how=spec.how, late_to=late_to)
        case "table":
            return left.table_join(right, row, how=spec.how)
