"""Conversion of pipelines to SQL files.

Each operator becomes a clause or a view. An operator without a counterpart is refused with its
reason; all are reported at once. Ids of operators differ, so a job with the file starts with empty
state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bicycle_runtime.endpoints.checking import Checks
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.expressions.sql.tree import type_of
from bicycle_runtime.pipelines.aggregates import wanted_aggregates
from bicycle_runtime.pipelines.conversion import changed_keys
from bicycle_runtime.pipelines.errors import PIPELINE_NOT_SQL
from bicycle_runtime.pipelines.nodes import CheckedPipeline, Node
from bicycle_runtime.pipelines.operator_keys import disorder_of, size_ms
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.option_values import decimal_digits

_TYPES: Mapping[str, str] = {
    "string": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP(3)", "json": "JSON",
}  # fmt: skip
_OF_KEYS = ("window", "reduce", "count")
# The types of fields for which an aggregate, or equality, means the same in SQL.
_NUMBERS, _EQUAL = ("int", "float", "decimal"), ("string", "int", "bool")
_AGGREGATES: Mapping[str, tuple[str, Sequence[str]]] = {
    "sum": ("sum({})", _NUMBERS), "avg": ("avg({})", ("int", "float")),
    "min": ("min({})", ("string", *_NUMBERS)), "max": ("max({})", ("string", *_NUMBERS)),
    "distinct": ("count(DISTINCT {})", _EQUAL),
}  # fmt: skip
_PREDICATES: Mapping[str, str] = {
    "equals": "{} = {}", "contains": "contains({}, {})", "starts_with": "starts_with({}, {})",
    "ends_with": "ends_with({}, {})",
}  # fmt: skip
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
_LINE_MAX = 90
_TIMES = "Times of results are texts in UTC; the pipeline writes times as its source has them."


class _RefusedError(Exception):  # it ends the conversion of one operator
    """The reason for which an operator has no counterpart in SQL."""

    def __init__(self, reason: str, *keys: str) -> None:
        super().__init__(reason)
        self.keys = keys


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


def quote(name: str) -> str:
    """Return a name in an SQL text.

    Example:
        >>> quote("price"), quote("order"), quote("a-b")
        ('price', '"order"', '"a-b"')
    """
    is_plain = name.isidentifier() and name.isascii() and not _RESERVED.fullmatch(name)
    return name if is_plain else '"{}"'.format(name.replace('"', '""'))


_RESERVED = re.compile(
    "ALL|AND|ANY|AS|BETWEEN|BY|CASE|CAST|CROSS|CURRENT_DATE|CURRENT_TIMESTAMP|DATE"
    "|DEFAULT|DESC|DISTINCT|ELSE|END|EXISTS|FALSE|FILTER|FOR|FROM|FULL|GROUP|HAVING|IN"
    "|INNER|INTERVAL|INTO|IS|JOIN|LEFT|LIKE|LIMIT|NOT|NULL|OFFSET|ON|OR|ORDER|OUTER|OVER"
    "|PARTITION|PRIMARY|RIGHT|ROWS|SELECT|SET|TABLE|THEN|TIME|TIMESTAMP|TO|TRUE|UNION"
    "|UNIQUE|UNNEST|USING|VALUES|WATERMARK|WHEN|WHERE|WINDOW|WITH",
    re.IGNORECASE,
)


def _alias(text: str, name: str) -> str:
    return text if text == quote(name) else f"{text} AS {quote(name)}"


def _items(items: Sequence[str]) -> str:
    whole = ", ".join(items)
    return whole if len(whole) <= _LINE_MAX else "\n  " + ",\n  ".join(items)


def _text(value: Any) -> str:
    return "'{}'".format(str(value).replace("'", "''"))


def _interval(ms: int) -> str:
    whole = next(
        (f"'{ms // size}' {unit}" for unit, size in _UNITS if ms and ms % size == 0),
        f"'{ms}' MILLISECOND",
    )
    return f"INTERVAL {whole}"


_UNITS = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1_000))


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

    def text(self) -> str:
        if not isinstance(self._pipeline.on_error, str | None):
            self._checks.note(("on_error",), "on_error: SQL files have fail, skip and dead_letter")
        for node in self._pipeline.nodes:
            try:
                self._check(node)
                _MAKERS.get(node.operator, _Conversion._refuse)(self, node)
            except _RefusedError as refused:
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
            found[_text(f"properties.{name}")] = value
        if self._pipeline.on_error is not None:
            found["on_error"] = self._pipeline.on_error
        lines = [
            f"SET {name} = {value if isinstance(value, int) else _text(value)};"
            for name, value in found.items()
        ]
        if lines:
            yield "\n".join(lines) + "\n"

    def _check(self, node: Node) -> None:
        """Refuse settings of a node that SQL files have for the whole job only."""
        for name in ("parallelism", "on_error"):
            if getattr(node, name) is not None:
                raise _RefusedError(f"SQL files set {name} for the whole job")
        for each in node.inputs:
            if each.output == "late":
                raise _RefusedError("late records have other fields in SQL: read VIEW$late")
            if each.partition not in ("forward", "hash"):
                raise _RefusedError(f"its edge has the partition {each.partition}")

    def _refuse(self, node: Node) -> None:
        raise _RefusedError(_NO_ROWS[node.operator])

    # --- relations ---------------------------------------------------------------------------

    def _input(self, node: Node, index: int = 0) -> tuple[str, Mapping[str, str]]:
        """Return the name and the fields of a relation that a node reads."""
        given = node.inputs[index]
        before = self._by_id[given.node]
        if before.id not in self._names:
            raise _RefusedError("")  # The reason is that of its input.
        fields, name = self._pipeline.queries.fields.get(before.id), self._names[before.id]
        if fields is None:
            raise _RefusedError(f"the fields of the records of {before.id} are unknown")
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
            name: ", ".join(_literal(each, word) for each in given)
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
            raise _RefusedError("it calls a function", "function")
        if condition is None:
            condition = _predicate(node.spec, fields)
        self._view(self._name(node), f"SELECT * FROM {quote(name)}\nWHERE {condition}")

    def _map(self, node: Node) -> None:
        spec, (name, fields) = node.spec, self._input(node)
        compiled = self._pipeline.expressions.get(node.id)
        if spec.function is not None or (compiled is None and spec.drop is None):
            raise _RefusedError("it calls a function", "function")
        texts = dict(spec.set or spec.select or {})
        if compiled is not None:
            for key, tree in zip(compiled.compiled.names, compiled.compiled.trees, strict=True):
                if type_of(tree) == "JSON":  # A pipeline has its text.
                    texts[key] = f"CAST({texts[key]} AS VARCHAR)"
        dropped = () if spec.select is not None else spec.drop or ()
        kept = {} if spec.select is not None else {key: quote(key) for key in fields}
        values = {key: text for key, text in {**kept, **texts}.items() if key not in dropped}
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
            raise _RefusedError("its query has views or functions", "query")
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
            raise _RefusedError("its key is not a single field")
        if any(each.operator not in _OF_KEYS for each in self._readers(node)):
            raise _RefusedError("in SQL, only windows have keys")
        self._same(node)

    def _window(self, node: Node) -> None:
        spec, (name, fields) = node.spec, self._input(node)
        key = self._by_id[node.inputs[0].node]
        if key.operator != "key_by":
            raise _RefusedError("its records have no key")
        if spec.keep is not None:
            raise _RefusedError("late records update its results, which needs keys of rows", "keep")
        time = self._pipeline.queries.times.get(node.inputs[0].node)
        if time is None or fields.get(time) != "timestamp":
            raise _RefusedError("it needs an event time in a field of the type timestamp")
        if fields.get(key.spec.field) not in _EQUAL:
            raise _RefusedError(f"the key {key.spec.field} is not a string, int or bool")
        bounds = ("start", "end")
        items = [f"epoch_ms(window_{word}) AS window_{word}_ms" for word in bounds]
        items += [_alias(quote(key.spec.field), spec.key_name)]
        items += [
            f"{_aggregate(agg, field, fields)} AS {quote(result)}"
            for result, agg, field in wanted_aggregates(spec)
        ]
        window = _window_call(spec, quote(name), quote(time), quote(key.spec.field))
        self._view(
            self._name(node),
            f"SELECT {_items(items)}\nFROM TABLE({window})\n"
            f"GROUP BY {quote(key.spec.field)}, window_start, window_end",
        )

    # --- sources and sinks -------------------------------------------------------------------

    def _source(self, node: Node) -> None:
        spec = node.spec
        if spec.fields is None:
            raise _RefusedError("add `fields` with types, which become the columns")
        if spec.adds_message:
            raise _RefusedError("SQL has no columns for the message", "with_message")
        columns = [
            f"  {quote(name)} {_sql_type(word)}{'' if word.endswith('?') else ' NOT NULL'}"
            for name, word in spec.fields.items()
        ]
        for time in self._readers(node):
            if time.operator != "time":
                continue
            field = self._pipeline.queries.times.get(time.id)
            if field is None or spec.fields.get(field, "").removesuffix("?") != "timestamp":
                raise _RefusedError("the event time must be a field of the type timestamp")
            delay = _interval(duration_ms(disorder_of(time.spec)))
            columns.append(f"  WATERMARK FOR {quote(field)} AS {quote(field)} - {delay}")
        self._table(self._name(node), columns, node)

    def _time(self, node: Node) -> None:
        source = self._by_id[node.inputs[0].node]
        if source.operator != "source" or self._readers(source) != [node]:
            raise _RefusedError("a table has one event time: let only `time` read its source")
        self._same(node)

    def _sink(self, node: Node) -> None:
        name, fields = self._input(node)
        options = node.spec.all_options
        columns, key = node.spec.value_of("columns"), _key_of(node.spec)
        if isinstance(columns, Sequence):
            columns = {each: fields[each] for each in columns if each in fields}
        if columns is None:
            if "columns" in options and node.word != "console":
                raise _RefusedError(
                    "without `columns`, rows have the columns event_time and payload"
                )
            columns = fields
        types = {each: _sql_type(fields[each], digits=38) for each in columns}
        values = {each: quote(each) for each in columns}
        if not isinstance(node.spec.value_of("columns"), Mapping):
            times = [each for each in columns if fields[each] == "timestamp"]
            types |= dict.fromkeys(times, "VARCHAR")  # As values of pipelines.
            values |= {each: f"CAST({quote(each)} AS VARCHAR)" for each in times}
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
        pairs = [("kind", node.word)]
        for key, value in given.items():
            if isinstance(value, str | int | float):
                shown = str(value)
                pairs.append((key, shown.lower() if isinstance(value, bool) else shown))
            else:
                raise _RefusedError(f"{key} is a table or a list, but options of SQL are texts")
        options = ", ".join(
            f"{key if key.isidentifier() else _text(key)} = {_text(value)}" for key, value in pairs
        )
        body = ",\n".join(columns)
        self._tables.append(f"CREATE TABLE {quote(name)} (\n{body}\n) WITH ({options});\n")


_MAKERS: Mapping[str, Callable[[_Conversion, Node], None]] = {
    "source": _Conversion._source, "sink": _Conversion._sink, "time": _Conversion._time,
    "filter": _Conversion._filter, "map": _Conversion._map, "union": _Conversion._union,
    "split": _Conversion._same, "sql": _Conversion._sql, "key_by": _Conversion._key_by,
    "window": _Conversion._window,
}  # fmt: skip


def _sql_type(word: str, *, digits: int = 0) -> str:
    """Return the type of a column; ``digits`` are the least digits of decimals."""
    plain = word.removesuffix("?")
    found = decimal_digits(plain)
    return _TYPES[plain] if found is None else f"DECIMAL({max(found[0], digits)}, {found[1]})"


def _base(word: str | None) -> str:
    return (word or "").partition("(")[0]


def _key_of(spec: Any) -> list[str]:
    """Return the fields that identify a row of a sink."""
    key = spec.value_of("keys") or spec.value_of("key_field") or []
    return [key] if isinstance(key, str) else list(key)


def _literal(value: Any, word: str | None) -> str:
    """Return a value that is compared with a field.

    Raises:
        _RefusedError: equality of values of this type means something else in SQL.
    """
    if word == "string" and isinstance(value, str):
        return _text(value)
    if word == "int" and str(value).removeprefix("-").isdecimal():
        return str(value)
    raise _RefusedError(f"{value!r} is compared with a field of the type {word or 'unknown'}")


def _predicate(spec: Any, fields: Mapping[str, str]) -> str:
    field, word = spec.field, spec.predicate or "non_empty"
    if field is None:
        raise _RefusedError("it tests the whole record")
    if word == "exists":
        return f"{quote(field)} IS NOT NULL"
    if word not in _PREDICATES or (word != "equals" and fields.get(field) != "string"):
        raise _RefusedError(f"{word} has no counterpart for a field of this type", "predicate")
    return _PREDICATES[word].format(quote(field), _literal(spec.value, fields.get(field)))


def _aggregate(word: str, field: str | None, fields: Mapping[str, str]) -> str:
    if word == "count" or field is None:
        return "count(*)"
    call, types = _AGGREGATES[word]
    if _base(fields.get(field)) not in types:
        shown = fields.get(field) or "unknown"
        raise _RefusedError(f"{word} of a field of the type {shown} has another result in SQL")
    return call.format(quote(field))


def _window_call(spec: Any, table: str, time: str, key: str) -> str:
    size = _interval(size_ms(spec))
    offset = "" if spec.offset is None else f", {_interval(duration_ms(spec.offset))}"
    match spec.type:
        case "tumbling":
            return f"TUMBLE(TABLE {table}, DESCRIPTOR({time}), {size}{offset})"
        case "sliding":
            slide = _interval(duration_ms(spec.slide))
            return f"HOP(TABLE {table}, DESCRIPTOR({time}), {slide}, {size}{offset})"
        case "session":
            gap = _interval(duration_ms(spec.gap))
            return f"SESSION(TABLE {table} PARTITION BY {key}, DESCRIPTOR({time}), {gap})"
    raise _RefusedError("SQL has no windows of a number of records", "type")
