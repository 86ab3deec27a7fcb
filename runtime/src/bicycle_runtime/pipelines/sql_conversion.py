"""Conversion of pipelines to SQL files.

Each operator becomes a clause or a view. An operator without a counterpart is refused with its
reason; all are reported at once. Ids of operators differ, so a job with the file starts with empty
state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.expressions.sql.tree import type_of
from bicycle_runtime.pipelines.aggregates import wanted_aggregates
from bicycle_runtime.pipelines.conversion import changed_keys
from bicycle_runtime.pipelines.errors import PIPELINE_NOT_SQL
from bicycle_runtime.pipelines.key_rules import timed_ids
from bicycle_runtime.pipelines.nodes import CheckedPipeline, Node
from bicycle_runtime.pipelines.operator_keys import disorder_of
from bicycle_runtime.pipelines.sql_clauses import (
    EQUAL,
    NotInSqlError,
    aggregate,
    column_type,
    interval,
    literal,
    predicate,
    quote,
    sql_type,
    text_literal,
    window_call,
)
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.time import IDLE_TIMEOUT_MS

_OF_KEYS = ("window", "reduce", "count")
# Keys of sources and sinks that SQL has as clauses.
_CLAUSES = ("fields", "time_field", "columns", "keys", "key_field")
_NO_ROWS: Mapping[str, str] = {
    "flat_map": "a function returns any number of records",
    "process": "a function processes the records",
    "count": "running counts change with each record",
    "reduce": "running aggregates change with each record",
    "dedup": "SQL files cannot keep the first of several rows",
    "rate_limit": "SQL has no rates",
    "enrich": "SQL files cannot look up rows of a file",
    "lookup": "the cache of a lookup has no counterpart",
    "http_call": "SQL has no requests",
    "join": "the row of a joined pair has no counterpart; write the join as a step `sql`",
}
_TIME_TEXT = ("timestamp", "VARCHAR")
_LINE_MAX = 90
_TIMES = "Times of results are texts in UTC; the pipeline writes times as its source has them."


def sql_of_pipeline(pipeline: CheckedPipeline, check: Callable[..., None]) -> str:
    """Return the text of an SQL file that computes the same rows.

    Args:
        pipeline: The pipeline.
        check: ``check_sql``; checks the text.

    Raises:
        PIPELINE_NOT_SQL: with each operator that has no counterpart in SQL.
    """
    conversion = _Conversion(pipeline)
    text = conversion.text()
    conversion.require_valid(text, check)
    return text


def _alias(text: str, name: str) -> str:
    return text if text == quote(name) else f"{text} AS {quote(name)}"


def _items(items: Sequence[str]) -> str:
    whole = ", ".join(items)
    return whole if len(whole) <= _LINE_MAX else "\n  " + ",\n  ".join(items)


class _Conversion:
    """The statements of a pipeline: each operator reads a relation and adds one."""

    def __init__(self, pipeline: CheckedPipeline) -> None:
        self._pipeline = pipeline
        self._checks = Checks(pipeline.document, PIPELINE_NOT_SQL)
        self._names: dict[str, str] = {}  # Of tables and views, by the ids of nodes.
        self._remarks: dict[str, None] = {}
        self._tables: list[str] = []
        self._rest: list[str] = []
        self._by_id = {node.id: node for node in pipeline.nodes}
        self._timed = timed_ids(pipeline.nodes)

    def text(self) -> str:
        if not isinstance(self._pipeline.on_error, str | None):
            self._checks.note(("on_error",), "on_error: SQL files have fail, skip and dead_letter")
        for node in self._pipeline.nodes:
            try:
                self._check(node)
                _MAKERS.get(node.operator, _Conversion._refuse)(self, node)
            except NotInSqlError as refused:
                if not str(refused):
                    continue
                below = () if node.path[0] != "vertices" or not refused.keys else ("config",)
                path = (*node.path, *below, *refused.keys)
                self._checks.note(path, f"{node.id} ({node.operator}): {refused}")
        self._checks.raise_problems()
        parts = [self._head(), *self._settings(), *self._tables, *self._rest]
        return "\n".join(parts)

    def require_valid(self, text: str, check: Callable[..., None]) -> None:
        """Refuse a text that SQL rejects, such as a key of a type that it does not have."""
        try:
            check(text, file=self._pipeline.document.file)
        except BicycleError as error:
            if error.code != SQL_INVALID.code:
                raise
            for each in error.facts["problems"]:
                self._checks.note((), f"its SQL text is not valid: {each['text']}")
            self._checks.raise_problems()

    # --- the file ----------------------------------------------------------------------------

    def _head(self) -> str:
        pipeline = self._pipeline
        found = [f"-- Converted from {pipeline.document.file} by `bicycle pipeline convert`."]
        found += [f"-- {line}" for line in pipeline.description.splitlines()]
        found += [f"-- {remark}" for remark in self._remarks]
        if pipeline.tests:
            found.append("-- The tests of the pipeline are not converted.")
        return "\n".join(found) + "\n"

    def _settings(self) -> Iterator[str]:
        found = dict(changed_keys(self._pipeline.settings))
        for name, value in found.pop("properties", {}).items():
            found[text_literal(f"properties.{name}")] = value
        if self._pipeline.on_error is not None:
            found["on_error"] = self._pipeline.on_error
        lines = [
            f"SET {name} = {value if isinstance(value, int) else text_literal(value)};"
            for name, value in found.items()
        ]
        if lines:
            yield "\n".join(lines) + "\n"

    def _check(self, node: Node) -> None:
        """Refuse settings of a node that SQL files have for the whole job only."""
        for name in ("parallelism", "on_error"):
            if getattr(node, name) is not None:
                raise NotInSqlError(f"SQL files set {name} for the whole job")
        for each in node.inputs:
            if each.output == "late":
                raise NotInSqlError("late records have other fields in SQL: read VIEW$late")
            if each.partition not in ("forward", "hash"):
                raise NotInSqlError(f"its edge has the partition {each.partition}")

    def _refuse(self, node: Node) -> None:
        raise NotInSqlError(_NO_ROWS[node.operator])

    # --- relations ---------------------------------------------------------------------------

    def _input(self, node: Node, index: int = 0) -> tuple[str, Mapping[str, str]]:
        """Return the name and the fields of a relation that a node reads."""
        given = node.inputs[index]
        before = self._by_id[given.node]
        if before.id not in self._names:
            raise NotInSqlError("")  # The reason is that of its input.
        fields, name = self._pipeline.queries.fields.get(before.id), self._names[before.id]
        if fields is None:
            raise NotInSqlError(f"the fields of the records of {before.id} are unknown")
        if given.output is None:
            return name, fields
        output = f"{name}_{given.output}"
        if output not in self._names.values():
            self._names[f"{before.id} {given.output}"] = output
            condition = self._output_condition(before, given.output, fields)
            self._view(output, f"SELECT * FROM {quote(name)} WHERE {condition}")
        return output, fields

    def _output_condition(self, split: Node, output: str, fields: Mapping[str, str]) -> str:
        """Return the condition of the records of an output of a split."""
        spec, outputs = split.spec, split.spec.outputs
        if outputs is None:  # Values are names of outputs.
            inputs = [each for reader in self._readers(split) for each in reader.inputs]
            outputs = {each.output: [each.output] for each in inputs if each.node == split.id}
        field, word = quote(spec.field), fields.get(spec.field)
        values = {
            name: ", ".join(literal(each, word) for each in given)
            for name, given in outputs.items()
        }
        found = [f"{field} IN ({values[output]})"] if output in values else []
        if output == spec.default:
            found.append(f"{field} NOT IN ({', '.join(values.values())}) OR {field} IS NULL")
        return " OR ".join(found)

    def _readers(self, node: Node) -> list[Node]:
        nodes = self._pipeline.nodes
        return [each for each in nodes if any(given.node == node.id for given in each.inputs)]

    def _name(self, node: Node) -> str:
        name = node.id.replace("-", "_")
        while name in self._names.values():
            name += "_"
        self._names[node.id] = name
        return name

    def _view(self, name: str, query: str) -> None:
        self._rest.append(f"CREATE VIEW {quote(name)} AS\n{query};\n")

    def _same(self, node: Node) -> None:
        """Note that a node changes no row."""
        self._names[node.id] = self._input(node)[0]

    def _filter(self, node: Node) -> None:
        name, fields = self._input(node)
        condition = node.spec.where
        if node.spec.function is not None:
            raise NotInSqlError("it calls a function", "function")
        if condition is None:
            condition = predicate(node.spec, fields)
        self._view(self._name(node), f"SELECT * FROM {quote(name)}\nWHERE {condition}")

    def _map(self, node: Node) -> None:
        spec, (name, fields) = node.spec, self._input(node)
        compiled = self._pipeline.expressions.get(node.id)
        if spec.function is not None or (compiled is None and spec.drop is None):
            raise NotInSqlError("it calls a function", "function")
        texts = dict(spec.set or spec.select or {})
        if compiled is not None:
            for key, tree in zip(compiled.compiled.names, compiled.compiled.trees, strict=True):
                if type_of(tree) == "JSON":  # A pipeline has its text.
                    texts[key] = f"CAST({texts[key]} AS VARCHAR)"
        kept = () if spec.select is not None else set(fields) - set(spec.drop or ())
        values = {key: quote(key) for key in fields if key in kept} | texts
        items = [_alias(text, key) for key, text in values.items()]
        self._view(self._name(node), f"SELECT {_items(items)}\nFROM {quote(name)}")

    def _union(self, node: Node) -> None:
        parts = []
        for index in range(len(node.inputs)):
            name, fields = self._input(node, index)
            parts.append(f"SELECT {', '.join(map(quote, fields))} FROM {quote(name)}")
        self._view(self._name(node), "\nUNION ALL ".join(parts))

    def _sql(self, node: Node) -> None:
        query = node.spec.query.strip().rstrip(";").rstrip()
        if query.upper().startswith("CREATE"):
            raise NotInSqlError("its query has views or functions", "query")
        tables = [
            (table.name, self._input(node, index)[0])
            for index, table in enumerate(self._pipeline.queries.tables[node.id])
        ]
        names = ", ".join(
            f"{quote(name)} AS (SELECT * FROM {quote(own)})" for name, own in tables if name != own
        )
        if query.upper().startswith("WITH") and names:
            query = f"SELECT * FROM ({query})"
        self._view(self._name(node), f"WITH {names}\n{query}" if names else query)

    # --- windows -----------------------------------------------------------------------------

    def _key_by(self, node: Node) -> None:
        if node.spec.field is None:
            raise NotInSqlError("its key is not a single field")
        if any(each.operator not in _OF_KEYS for each in self._readers(node)):
            raise NotInSqlError("in SQL, only windows have keys")
        self._same(node)

    def _window(self, node: Node) -> None:
        spec, (name, fields) = node.spec, self._input(node)
        key = self._by_id[node.inputs[0].node]
        if key.operator != "key_by":
            raise NotInSqlError("its records have no key")
        if spec.keep is not None:
            raise NotInSqlError("late records update its results, which needs keys of rows", "keep")
        time = self._pipeline.queries.times.get(node.inputs[0].node)
        if time is None or fields.get(time) != "timestamp":
            raise NotInSqlError("it needs an event time in a field of the type timestamp")
        if fields.get(key.spec.field) not in EQUAL:
            raise NotInSqlError(f"the key {key.spec.field} is not a string, int or bool")
        bounds = ("start", "end")
        items = [f"epoch_ms(window_{word}) AS window_{word}_ms" for word in bounds]
        items += [_alias(quote(key.spec.field), spec.key_name)]
        items += [
            f"{aggregate(agg, field, fields)} AS {quote(result)}"
            for result, agg, field in wanted_aggregates(spec)
        ]
        window = window_call(spec, quote(name), quote(time), quote(key.spec.field))
        self._view(
            self._name(node),
            f"SELECT {_items(items)}\nFROM TABLE({window})\n"
            f"GROUP BY {quote(key.spec.field)}, window_start, window_end",
        )

    # --- sources and sinks -------------------------------------------------------------------

    def _source(self, node: Node) -> None:
        spec = node.spec
        if spec.fields is None:
            raise NotInSqlError("add `fields` with types, which become the columns")
        if spec.adds_message:
            raise NotInSqlError("SQL has no columns for the message", "with_message")
        columns = [
            f"  {quote(name)} {sql_type(word)}{'' if word.endswith('?') else ' NOT NULL'}"
            for name, word in spec.fields.items()
        ]
        for time in self._readers(node):
            if time.operator != "time":
                continue
            field = self._pipeline.queries.times.get(time.id)
            if field is None or spec.fields.get(field, "").removesuffix("?") != "timestamp":
                raise NotInSqlError("the event time must be a field of the type timestamp")
            delay = interval(duration_ms(disorder_of(time.spec)))
            columns.append(f"  WATERMARK FOR {quote(field)} AS {quote(field)} - {delay}")
        self._table(self._name(node), columns, node)

    def _time(self, node: Node) -> None:
        source = self._by_id[node.inputs[0].node]
        if source.operator != "source" or self._readers(source) != [node]:
            raise NotInSqlError("a table has one event time: let only `time` read its source")
        if duration_ms(node.spec.idle_timeout) != IDLE_TIMEOUT_MS:
            raise NotInSqlError("tables of SQL have the idle timeout 10s", "idle_timeout")
        self._same(node)

    def _sink(self, node: Node) -> None:
        name, fields = self._input(node)
        options = node.spec.all_options
        columns, key = node.spec.value_of("columns"), _key_of(node.spec)
        if isinstance(columns, Sequence):
            columns = {each: fields[each] for each in columns if each in fields}
        if columns is None:
            if "columns" in options and node.word != "console":
                raise NotInSqlError(
                    "without `columns`, rows have the columns event_time and payload"
                )
            columns = fields
        declared = node.spec.value_of("columns")
        words = declared if isinstance(declared, Mapping) else {}
        types = {each: column_type(each, fields[each], words.get(each)) for each in columns}
        times = {each for each in columns if (fields[each], types[each]) == _TIME_TEXT}
        values = {
            each: f"CAST({quote(each)} AS VARCHAR)" if each in times else quote(each)
            for each in columns
        }
        self._remarks |= dict.fromkeys([_TIMES] if times else ())
        items = [f"  {quote(name)} {word}" for name, word in types.items()]
        if key:
            items.append(f"  PRIMARY KEY ({', '.join(map(quote, key))})")
        target = self._name(node)
        self._table(target, items, node)
        self._rest.append(
            f"INSERT INTO {quote(target)}\nSELECT {', '.join(values.values())} "
            f"FROM {quote(name)};\n"
        )

    def _table(self, name: str, columns: Sequence[str], node: Node) -> None:
        given = {
            key: value for key, value in changed_keys(node.spec).items() if key not in _CLAUSES
        }
        if node.id in self._timed and node.operator == "sink":
            # A query may lose the event time, on which these defaults depend.
            timed, others = (node.spec.sink_properties(is_timed=each) for each in (True, False))
            given |= {key: timed[key] for key in timed if timed[key] and key not in others}
        pairs = [("kind", node.word)]
        for key, value in given.items():
            if isinstance(value, str | int | float):
                shown = str(value)
                pairs.append((key, shown.lower() if isinstance(value, bool) else shown))
            else:
                raise NotInSqlError(f"{key} is a table or a list, but options of SQL are texts")
        options = ", ".join(
            f"{key if key.isidentifier() else text_literal(key)} = {text_literal(value)}"
            for key, value in pairs
        )
        body = ",\n".join(columns)
        self._tables.append(f"CREATE TABLE {quote(name)} (\n{body}\n) WITH ({options});\n")


_MAKERS: Mapping[str, Callable[[_Conversion, Node], None]] = {
    "source": _Conversion._source, "sink": _Conversion._sink, "time": _Conversion._time,
    "filter": _Conversion._filter, "map": _Conversion._map, "union": _Conversion._union,
    "split": _Conversion._same, "sql": _Conversion._sql, "key_by": _Conversion._key_by,
    "window": _Conversion._window,
}  # fmt: skip


def _key_of(spec: Any) -> list[str]:
    """Return the fields that identify a row of a sink."""
    key = spec.value_of("keys") or spec.value_of("key_field") or []
    return [key] if isinstance(key, str) else list(key)
