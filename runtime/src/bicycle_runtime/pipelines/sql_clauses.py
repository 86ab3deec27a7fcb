"""Clauses, types and names of the SQL files that pipelines become."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.pipelines.operator_keys import size_ms
from bicycle_sdk.option_values import decimal_digits

_TYPES: Mapping[str, str] = {
    "string": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP(3)", "json": "JSON",
}  # fmt: skip
# The types of fields for which an aggregate, or equality, means the same in SQL.
_NUMBERS, EQUAL = ("int", "float", "decimal"), ("string", "int", "bool")
_AGGREGATES: Mapping[str, tuple[str, Sequence[str]]] = {
    "sum": ("sum({})", _NUMBERS), "avg": ("avg({})", ("int", "float")),
    "min": ("min({})", ("string", *_NUMBERS)), "max": ("max({})", ("string", *_NUMBERS)),
    "distinct": ("count(DISTINCT {})", EQUAL),
}  # fmt: skip
_PREDICATES: Mapping[str, str] = {
    "equals": "{} = {}", "contains": "contains({}, {})", "starts_with": "starts_with({}, {})",
    "ends_with": "ends_with({}, {})",
}  # fmt: skip
# The types of columns that are declared otherwise than their field.
_COLUMN_TYPES: Mapping[tuple[str, str], str] = {
    ("int", "float"): "DOUBLE", ("timestamp", "datetime"): "TIMESTAMP(3)",
    ("timestamp", "string"): "VARCHAR", ("decimal", "decimal"): "DECIMAL(38, 9)",
}  # fmt: skip


class NotInSqlError(Exception):  # it ends the conversion of one operator
    """The reason for which an operator has no counterpart in SQL."""

    def __init__(self, reason: str, *keys: str) -> None:
        super().__init__(reason)
        self.keys = keys


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


def text_literal(value: Any) -> str:
    """Return a text value in an SQL text."""
    return "'{}'".format(str(value).replace("'", "''"))


def interval(ms: int) -> str:
    """Return a duration as an INTERVAL of its greatest whole unit."""
    whole = next(
        (f"'{ms // size}' {unit}" for unit, size in _UNITS if ms and ms % size == 0),
        f"'{ms}' MILLISECOND",
    )
    return f"INTERVAL {whole}"


_UNITS = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1_000))


def sql_type(word: str, *, digits: int = 0) -> str:
    """Return the type of a column; ``digits`` are the least digits of decimals."""
    plain = word.removesuffix("?")
    found = decimal_digits(plain)
    return _TYPES[plain] if found is None else f"DECIMAL({max(found[0], digits)}, {found[1]})"


def column_type(name: str, field: str, declared: str | None) -> str:
    """Return the type of a column, by the type of its field and its declared type.

    Raises:
        NotInSqlError: SQL writes other values of this type, or none.
    """
    if declared is None:  # Times are texts, as values of pipelines.
        return "VARCHAR" if field == "timestamp" else sql_type(field, digits=38)
    found = _COLUMN_TYPES.get((_base(field), declared))
    if found is None and _base(declared) != _base(field):
        raise NotInSqlError(f"the column {name} is {declared}, but its field is {field}", "columns")
    return found or sql_type(declared)


def _base(word: str | None) -> str:
    return (word or "").partition("(")[0]


def literal(value: Any, word: str | None) -> str:
    """Return a value that is compared with a field.

    Raises:
        NotInSqlError: equality of values of this type means something else in SQL.
    """
    if word == "string" and isinstance(value, str):
        return text_literal(value)
    if word == "int" and str(value).removeprefix("-").isdecimal():
        return str(value)
    raise NotInSqlError(f"{value!r} is compared with a field of the type {word or 'unknown'}")


def predicate(spec: Any, fields: Mapping[str, str]) -> str:
    """Return the condition of a filter with a predicate.

    Raises:
        NotInSqlError: it has no counterpart in SQL.
    """
    field, word = spec.field, spec.predicate or "non_empty"
    if field is None:
        raise NotInSqlError("it tests the whole record")
    if word == "exists":
        return f"{quote(field)} IS NOT NULL"
    if word not in _PREDICATES or (word != "equals" and fields.get(field) != "string"):
        raise NotInSqlError(f"{word} has no counterpart for a field of this type", "predicate")
    return _PREDICATES[word].format(quote(field), literal(spec.value, fields.get(field)))


def aggregate(word: str, field: str | None, fields: Mapping[str, str]) -> str:
    """Return the call of an aggregate over a field.

    Raises:
        NotInSqlError: its result differs in SQL.
    """
    if word == "count" or field is None:
        return "count(*)"
    call, types = _AGGREGATES[word]
    if _base(fields.get(field)) not in types:
        shown = fields.get(field) or "unknown"
        raise NotInSqlError(f"{word} of a field of the type {shown} has another result in SQL")
    return call.format(quote(field))


def window_call(spec: Any, table: str, time: str, key: str) -> str:
    """Return the table function of a window.

    Raises:
        NotInSqlError: SQL has no such windows.
    """
    size = interval(size_ms(spec))
    offset = "" if spec.offset is None else f", {interval(duration_ms(spec.offset))}"
    match spec.type:
        case "tumbling":
            return f"TUMBLE(TABLE {table}, DESCRIPTOR({time}), {size}{offset})"
        case "sliding":
            slide = interval(duration_ms(spec.slide))
            return f"HOP(TABLE {table}, DESCRIPTOR({time}), {slide}, {size}{offset})"
        case "session":
            gap = interval(duration_ms(spec.gap))
            return f"SESSION(TABLE {table} PARTITION BY {key}, DESCRIPTOR({time}), {gap})"
    raise NotInSqlError("SQL has no windows of a number of records", "type")
