"""The lowering of plans to streams, by calls of the SDK.

A node with two readers becomes one stream. Ids of operators consist of the name of their view or
table and their kind; the id of a window also has a digest of its definition, because its state
belongs to exactly these keys, aggregates and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from bicycle_runtime.endpoints.sources import SourceKeys
from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.located import offsets
from bicycle_runtime.expressions.sql.nested import json_value
from bicycle_runtime.tables.aggregates import function_of
from bicycle_runtime.tables.catalog import Catalog, Table
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.functions import (
    EventTime,
    SqlCondition,
    SqlRecord,
    SqlRow,
    UnnestItems,
    WithClock,
)
from bicycle_runtime.tables.joined import lower_join, lower_lookup, row_type
from bicycle_runtime.tables.keys import decoded_key, encoded_key
from bicycle_runtime.tables.lateness import LATE_TAG, late_fields, late_values
from bicycle_runtime.tables.plans import (
    CLOCK,
    AggregateCall,
    CallRows,
    ClockRows,
    FilterRows,
    JoinRows,
    LateRows,
    OneRow,
    Plan,
    PlanColumn,
    Project,
    Scan,
    SortRows,
    UnionAll,
    Unnest,
    WindowAggregate,
    digest_of,
    has_order,
    offset_in,
    unique_field,
)
from bicycle_runtime.tables.row_functions import NO_TIMES, CalledRows, FirstRows
from bicycle_runtime.tables.sharing import EqualPlans, read_fields
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.aggregations import everything
from bicycle_sdk.expressions import Expression, col, lit
from bicycle_sdk.failures import OnError
from bicycle_sdk.time import WatermarkStrategy
from bicycle_sdk.windows.aggregates import Count

_NAME_MAX = 60
_NULLS = frozenset({type(None)})


class Lowering:
    """The streams of a file.

    Args:
        env: The environment to which they are added.
        catalog: The tables.
        names: The names of views, by the identity of their plan.
        on_error: The policy for records that fail.
        plans: All plans, if they are known: columns that none of them reads are not computed.
    """

    def __init__(
        self, env: StreamEnvironment, catalog: Catalog, names: Mapping[int, str], on_error: OnError,
        *, plans: Iterable[Plan] | None = None,
    ) -> None:  # fmt: skip
        self._env, self._catalog, self._names = env, catalog, names
        self._on_error = on_error
        self._read = None if plans is None else read_fields(plans)
        self._equal = EqualPlans(names)
        self._streams: dict[int, tuple[Plan, Any]] = {}  # With its plan, whose id stays in use.
        self._windows: dict[int, Any] = {}
        self._written: dict[int, Plan] = {}
        self._ids: set[str] = set()
        self._ends: dict[str, list[Any]] = {}  # The vertices that write to a table.
        self._located: dict[int, Any] = {}  # Vertices with a location, by identity.

    def set_policy(self, on_error: OnError) -> None:
        """Set the policy for records that fail in vertices that are added later."""
        self._on_error = on_error

    def has(self, plan: Plan) -> bool:
        """Return whether a plan has a stream."""
        return id(plan) in self._streams

    def save(self) -> Any:
        """Return the streams that exist, for ``restore``."""
        return dict(self._streams), dict(self._windows), set(self._ids)

    def restore(self, saved: Any) -> None:
        """Forget the streams that were added after a ``save``."""
        self._streams, self._windows, self._ids = saved

    def write(self, table: Table, plans: Sequence[Plan]) -> None:
        """Write the rows of plans to a table; a second call has further plans.

        The rows of all plans are written to one sink.
        """
        stored = table.stored_columns if table.kind != "parquet" else ()  # It has texts of JSON.
        json = {column.name.text for column in stored if "JSON" in column.type}
        for plan in plans:
            if id(plan) not in self._written:
                self._written[id(plan)] = decode_json(plan, json)
        at = table.definition.name.at
        with self.locating(self._catalog.text.location(at)):
            stream, *others = [self._query(self._written[id(plan)], table.name) for plan in plans]
            self._remove(self._ends.pop(table.name, []))
            known = len(self._env.vertices)
            keys = self._catalog.sink(table, at)
            assert keys is not None  # A wrong table is reported before.
            if others:
                stream = self._set(stream.union(*others), table.name, "all", "UNION ALL")
            sink = stream.sink_to(keys.sink(is_timed=all(plan.time is not None for plan in plans)))
            rows = plans[0] if len(plans) == 1 else None
            self._set(sink, table.name, "", f"INSERT INTO {table.name}", rows=rows)
            self._ends[table.name] = self._env.vertices[known:]

    @contextmanager
    def locating(self, location: str) -> Iterator[None]:
        """Set the location of the vertices that are added, unless they have one of a plan."""
        begin = len(self._env.vertices)
        yield
        for vertex in self._env.vertices[begin:]:
            if id(vertex) not in self._located:
                vertex.location, self._located[id(vertex)] = location, vertex

    def collect(self, name: str, plan: Plan) -> None:
        """Collect the rows of a plan under a name."""
        self._set(self._query(plan, name).collect(name), name, "", name, rows=plan)

    def _locate(self, step: Any) -> Any:
        """Set the locations of the expressions of a step; return it."""
        text = self._catalog.text
        step.locations = {at: text.location(at) for at in offsets(step.compiled.trees)}
        return step

    def _record(self, columns: Sequence[PlanColumn], values: Sequence[Expression]) -> Any:
        return self._locate(SqlRecord([column.field for column in columns], values))

    def _remove(self, vertices: Sequence[Any]) -> None:
        ids = {id(vertex) for vertex in vertices}
        self._env.vertices[:] = [each for each in self._env.vertices if id(each) not in ids]
        self._env.edges[:] = [each for each in self._env.edges if id(each.target) not in ids]
        self._ids -= {vertex.final_id for vertex in vertices}

    def records(self, plan: Plan, owner: str, step: Any = None, kind: Any = None) -> Any:
        """Return the stream of a plan.

        Args:
            plan: The plan.
            owner: The beginning of the ids, unless the plan is that of a view.
            step: A function that makes a record of each row, or None.
            kind: The type of the records.
        """
        rows = self._query(plan, owner)
        if step is None:
            return rows
        found = self._set(rows.map(step), owner, "records", f"records of {owner}", rows=plan)
        self._env.vertices[-1].output_type = kind
        return found

    def _query(self, plan: Plan, owner: str) -> Any:
        """Return the stream of a query; ids of others do not depend on its parts."""
        self._equal = EqualPlans(self._names)
        return self._stream(plan, owner)

    def _stream(self, plan: Plan, owner: str) -> Any:
        plan = self._equal.first(plan)
        found = self._streams.get(id(plan))
        if found is None:
            owner, at = self._names.get(id(plan), owner), offset_in(plan)
            location = None if at is None else self._catalog.text.location(at)
            with nullcontext() if location is None else self.locating(location):
                found = self._streams[id(plan)] = plan, self._lower(plan, owner)
        return found[1]

    def _lower(self, plan: Plan, owner: str) -> Any:
        match plan:
            case Scan():
                return self._scan(plan)
            case FilterRows():
                stream = self._stream(plan.input, owner).filter(
                    self._locate(SqlCondition(plan.condition))
                )
                return self._set(stream, owner, "where", f"WHERE {plan.text}", rows=plan)
            case Project():
                stream = self._stream(plan.input, owner).map(
                    self._record(plan.columns, plan.values)
                )
                names = ", ".join(column.name for column in plan.columns)
                return self._set(stream, owner, "select", f"SELECT {names}", rows=plan)
            case UnionAll():
                first, *others = [self._stream(each, owner) for each in plan.inputs]
                return self._set(first.union(*others), owner, "union", "UNION ALL")
        return _LOWERED[type(plan)](self, plan, owner)

    def _join(self, plan: JoinRows, owner: str) -> Any:
        def name(stream: Any, word: str, title: str) -> Any:
            return self._set(stream, owner, word, title)

        left = self._stream(plan.left, owner)
        if isinstance(plan.right, Scan) and plan.right.is_lookup:
            keys = self._catalog.source(plan.right.table, 0)
            assert keys is not None  # A wrong table is reported before.
            return lower_lookup(plan, left, keys.options(), name=name, locate=self._locate)
        right = self._stream(plan.right, owner)
        return lower_join(plan, left, right, name=name, locate=self._locate)

    def _late(self, plan: LateRows, owner: str) -> Any:
        late = self._window_results(plan.window, plan.view).side_output(LATE_TAG)
        rows = late.map(self._record(plan.columns, late_values(plan)))
        return self._set(rows, owner, "late", f"late rows of {plan.window.window.kind}")

    def _unnest(self, plan: Unnest, owner: str) -> Any:
        kept, added = plan.input.columns, plan.columns[len(plan.input.columns) :]
        values = [*(each.read() for each in kept), plan.value]
        stream = self._stream(plan.input, owner).map(self._record([*kept, added[0]], values))
        stream = self._set(stream, owner, "array", f"array {added[0].name}")
        rows = UnnestItems([each.field for each in added], is_outer=plan.is_outer)
        return self._set(stream.flat_map(rows), owner, "unnest", f"UNNEST {added[0].name}")

    def _one(self, plan: OneRow, owner: str) -> Any:  # noqa: ARG002 - as the others
        return self._set(self._env.from_collection([{}]), owner, "row", "one row")

    def _call(self, plan: CallRows, owner: str) -> Any:
        kept, added = plan.input.columns, plan.columns[len(plan.input.columns) :]
        arguments = [
            PlanColumn("", unique_field(f"argument_{at}", plan.columns), tree.type_of(value))
            for at, value in enumerate(plan.arguments)
        ]
        name, columns = plan.function.name, plan.function.columns
        values = [*(each.read() for each in kept), *plan.arguments]
        rows = self._stream(plan.input, owner).map(self._record([*kept, *arguments], values))
        rows = self._set(rows, owner, "arguments", f"arguments of {name}")
        fields = {each.name: own.field for each, own in zip(columns, added, strict=True)}
        call = CalledRows(
            plan.call, [each.field for each in arguments], fields, is_outer=plan.is_outer
        )
        rows = self._set(rows.flat_map(call), owner, "call", f"LATERAL {name}")
        read: list[Expression] = [each.read() for each in kept]
        for own, each in zip(added, columns, strict=True):
            value = tree.column(col(own.field), own.type)
            is_known = not plan.is_outer and not each.is_nullable
            read.append(tree.call("not_null", value) if is_known else value)
        return self._set(
            rows.map(self._record(plan.columns, read)), owner, "called", f"rows of {name}"
        )

    def _sort(self, plan: SortRows, owner: str) -> Any:
        given, columns = plan.input, plan.input.columns
        values = [each.read() for each in columns]
        rows = self._stream(given, owner).map(self._locate(SqlRow(values, row_type(values))))
        rows = self._set(rows, owner, "sort-rows", "columns of sorted rows", rows=given)
        rows = rows.assign_timestamps(NO_TIMES)
        rows = self._set(rows, owner, "sort-time", "end of the input", rows=given)
        keyed = self._set(rows.key_by(everything), owner, "sort-key", "all rows", rows=given)
        fields = [each.field for each in columns]
        keys = [(fields.index(each.field), each) for each in plan.keys]
        first = FirstRows(
            fields[: len(plan.columns)], row_type(values),
            [(at, each.is_descending, each.nulls_first) for at, each in keys], limit=plan.limit,
            offset=plan.offset, is_sorted=plan.is_sorted,
        )  # fmt: skip
        parts = [plan.text, str(plan.keys), *(f"{each.field} {each.type}" for each in columns)]
        word = f"sort-{digest_of(parts)}"
        return self._set(keyed.process_fn(first), owner, word, plan.text, rows=plan)

    def _set(
        self, stream: Any, owner: str, word: str, name: str, *, rows: Plan | None = None
    ) -> Any:
        """Set id, name and error policy of the last vertex, one subtask for an order."""
        base = f"{owner}-{word}" if word else owner
        found, count = base, 1
        while found in self._ids:
            count += 1
            found = f"{base}-{count}"
        self._ids.add(found)
        stream.uid(found)
        stream.name(name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…")
        if word not in ("union", "all"):  # They have no records that could fail.
            stream.on_error(self._on_error)
        if rows is not None and has_order(rows):
            self._env.vertices[-1].parallelism = 1  # Several subtasks would lose the order.
        return stream

    def _scan(self, plan: Scan) -> Any:
        table, stream = plan.table, plan.table.stream
        uid = table.uid or table.name
        if stream is None:
            keys = self._catalog.source(table, table.definition.name.at)
            assert isinstance(keys, SourceKeys)  # A wrong table is reported before.
            stream = self._env.add_source(keys.source())
            stream = self._set(stream, uid, "source", f"FROM {table.name}")
        pairs = list(zip(plan.columns, plan.values, strict=True))
        if self._read is not None:
            read = {*self._read[id(plan)], plan.time}
            pairs = [pair for pair in pairs if pair[0].field in read] or pairs[:1]
        rows = stream.map(self._record(*zip(*pairs, strict=True)))
        rows = self._set(rows, uid, "rows", f"columns of {table.name}")
        watermark = table.definition.watermark
        if watermark is None or plan.time is None or table.is_timed:
            return rows
        return self._assign_time(rows, plan, uid, watermark.delay_ms)

    def _assign_time(self, rows: Any, plan: Plan, owner: str, delay_ms: int) -> Any:
        column = next(each for each in plan.columns if each.field == plan.time)
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.bounded_out_of_orderness(
            delay_ms
        ).with_timestamps(EventTime(column.field))
        timed = rows.assign_timestamps(strategy)
        return self._set(timed, owner, "time", f"WATERMARK FOR {column.name}")

    def _clock(self, plan: ClockRows, owner: str) -> Any:
        rows = self._stream(plan.input, owner).process_fn(WithClock(plan.columns[-1].field))
        return self._assign_time(self._set(rows, owner, "clock", CLOCK), plan, owner, 0)

    # --- windows -----------------------------------------------------------------------------

    def _window(self, plan: WindowAggregate, owner: str) -> Any:
        rows = self._window_results(plan, owner).map(self._record(plan.columns, _results(plan)))
        return self._set(rows, owner, "results", f"columns of {plan.window.kind}")

    def _window_results(self, plan: WindowAggregate, owner: str) -> Any:
        """Return the stream of a window, whose results and late rows may have readers."""
        if id(plan) not in self._windows:
            late = bool(plan.late_readers)
            self._windows[id(plan)] = late, self._aggregate(plan, owner)
        has_late, found = self._windows[id(plan)]
        if plan.late_readers and not has_late:
            problem = f"the window of {owner} has been read without late rows; read them first"
            raise SqlProblem(0, problem)
        return found

    def _aggregate(self, plan: WindowAggregate, owner: str) -> Any:
        encoded = [encoded_key(value) for value in plan.keys]
        keys = [
            PlanColumn(f"k{at}", f"k{at}", tree.type_of(value)) for at, value in enumerate(encoded)
        ]
        given = [each for each in plan.aggregates if each.value is not None]
        arguments = {
            id(each): PlanColumn(f"a{at}", f"a{at}", tree.type_of(_value(each)))
            for at, each in enumerate(given)
        }
        late = late_fields(plan)
        columns = [*keys, *arguments.values(), *late]
        stream = self._stream(plan.input, owner)
        if columns:
            values = [*encoded, *map(_value, given), *(each.read() for each in plan.input.columns)]
            values = values[: len(columns)]
            stream = stream.map(self._record(columns, values))
            stream = self._set(stream, owner, "arguments", "arguments of the aggregates")
        chosen: list[Any] = [col(each.field) for each in keys] or [everything]
        keyed = stream.key_by(*chosen)
        names = ", ".join(column.name for column in plan.columns[: len(keys)])
        keyed = self._set(keyed, owner, "key", f"GROUP BY {names or 'window'}")
        windowed = _assign(keyed, plan).allowed_lateness(plan.lateness_ms)
        windowed = windowed.late_to(LATE_TAG) if late else windowed
        functions = [function_of(each, arguments.get(id(each))) for each in plan.aggregates]
        results = windowed.aggregate(*(functions or [Count()]))
        word = f"window-{_digest(plan)}"
        return self._set(results, owner, word, f"{plan.window.kind} {owner}")


_LOWERED: Mapping[type[Plan], Callable[[Lowering, Any, str], Any]] = {
    WindowAggregate: Lowering._window, JoinRows: Lowering._join, LateRows: Lowering._late,
    ClockRows: Lowering._clock, SortRows: Lowering._sort, CallRows: Lowering._call,
    OneRow: Lowering._one, Unnest: Lowering._unnest,
}  # fmt: skip


def decode_json(plan: Plan, names: Collection[str]) -> Plan:
    """Return a plan of which some JSON columns have values instead of texts."""
    if not names:
        return plan
    values = tuple(
        Expression("converted", _NULLS, json_value, col(column.field))
        if column.name in names
        else column.read()
        for column in plan.columns
    )
    return Project(columns=plan.columns, time=plan.time, input=plan, values=values)


def _value(aggregate: AggregateCall) -> Expression:
    assert aggregate.value is not None
    return aggregate.value


def _assign(keyed: Any, plan: WindowAggregate) -> Any:
    lengths = plan.window.intervals_ms
    offset = lengths.get("OFFSET", 0)
    match plan.window.kind:
        case "TUMBLE":
            return keyed.tumbling_window(lengths["SIZE"], offset=offset)
        case "HOP":
            return keyed.sliding_window(lengths["SIZE"], lengths["SLIDE"], offset=offset)
        case "CUMULATE":
            return keyed.cumulative_window(lengths["STEP"], lengths["SIZE"], offset=offset)
        case _:
            return keyed.session_window(lengths["GAP"])


def _results(plan: WindowAggregate) -> list[Expression]:
    """Return the values of a window's result: keys, bounds, aggregates."""
    key_count, function_count = len(plan.keys), len(plan.aggregates)
    key, value = col("key"), col("value")
    parts = [key if key_count == 1 else Expression("item", key, lit(at)) for at in range(key_count)]
    end = tree.column("end", "BIGINT")
    last = tree.call("subtract", end, tree.literal(1))
    bounds = [tree.call("epoch_ms", part) for part in (tree.column("start", "BIGINT"), end, last)]
    results = [
        value if function_count == 1 else Expression("item", value, lit(at))
        for at in range(function_count)
    ]
    return [
        *(
            decoded_key(part, value, each.type)
            for part, value, each in zip(parts, plan.keys, plan.columns, strict=False)
        ),
        *bounds,
        *(
            _result(tree.column(part, aggregate.type), aggregate)
            for part, aggregate in zip(results, plan.aggregates, strict=True)
        ),
    ]


def _result(value: Expression, aggregate: AggregateCall) -> Expression:
    python = aggregate.python
    is_kept = python is None or python.python.returns_null
    return value if is_kept else tree.call("not_null", value)


def _digest(plan: WindowAggregate) -> str:
    """Return a digest of the parts of a window on which its state depends."""
    parts = [
        plan.window.kind,
        *(f"{name}={length}" for name, length in sorted(plan.window.intervals_ms.items())),
        *(tree.to_text(encoded_key(value)) for value in plan.keys),
        *(f"{each.function} {each.is_distinct}" for each in plan.aggregates),
        *("*" if each.value is None else tree.to_text(each.value) for each in plan.aggregates),
    ]
    return digest_of(parts)
