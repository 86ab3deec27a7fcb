"""Records as rows of ``COPY``: text columns, escaped, checked against the table.

Rows that the server would refuse are refused here, record by record, so that ``on_error`` can
settle them; once an epoch is sealed it is too late.

Source: PostgreSQL, COPY, "Text Format".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow

from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import EventTimes, WriterTask
from bicycle_runtime.frames.arrays import listed_values
from bicycle_runtime.frames.table_columns import TableColumns

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_SPECIAL = ("\\", "\t", "\n", "\r", "\0")
_NULL = "\\N"
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLimits:
    """The limits of a table's column; None means no limit."""

    is_required: bool = False
    number_max: int | None = None
    length_max: int | None = None
    is_jsonb: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWriterFactory:
    """Opens writers; picklable. ``limits`` are those of each column, by name.

    A row is a deletion where ``delete_field`` is true; it needs no values but its keys.
    """

    columns: TableColumns
    limits: Mapping[str, ColumnLimits]
    delete_field: str

    def open(self, task: WriterTask) -> CopyWriter:
        """Return a writer for one subtask and epoch."""
        return CopyWriter(task, self)


class CopyWriter(StagedWriter):
    """Stages rows in the form in which the server takes them.

    Args:
        task: Where to stage.
        table: Columns and limits.
    """

    def __init__(self, task: WriterTask, table: CopyWriterFactory) -> None:
        super().__init__(task, "rows.copy", b"".join)
        self._table = table

    def prepare(self, values: Sequence[Any], times: EventTimes) -> list[bytes]:
        """Return the row of each record."""
        batch = self._table.columns.batch(values, times)
        _check_required(batch, self._table)
        texts = [
            _texts(name, column, self._table.limits.get(name, ColumnLimits()))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        # hot path: one join per row; csv.writer and a format string take half as long again.
        return [("\t".join(row) + "\n").encode() for row in zip(*texts, strict=True)]


def _check_required(rows: pyarrow.RecordBatch, table: CopyWriterFactory) -> None:
    """Raise ValueError where a row that is not a deletion lacks a required value."""
    required = [name for name, limits in table.limits.items() if limits.is_required]
    names = [name for name in required if rows.column(name).null_count]
    if names and table.delete_field:
        flags = listed_values(rows.column(table.delete_field))
        rows = rows.filter(pyarrow.array([flag is not True for flag in flags]))
    for name in names:
        if rows.column(name).null_count:
            raise ValueError(f"field {name!r} is None, but its column is NOT NULL")


def _texts(name: str, column: pyarrow.Array, limits: ColumnLimits) -> list[str]:
    """Return the text of each value."""
    values = listed_values(column)
    if limits.number_max is not None:
        _check_numbers(name, values, limits.number_max)
    kind = column.type
    if pyarrow.types.is_string(kind):
        return _plain_texts(name, values, limits)
    to_text: Callable[[Any], str] = str
    if pyarrow.types.is_boolean(kind):
        to_text = _bool_text
    elif pyarrow.types.is_binary(kind):
        to_text = _bytes_text
    elif pyarrow.types.is_duration(kind):
        to_text = _interval_text
    elif pyarrow.types.is_nested(kind):
        to_text = partial(_json_text, name, limits)
    if column.null_count:
        return [_NULL if value is None else to_text(value) for value in values]
    return list(map(to_text, values))


def _check_numbers(name: str, values: Sequence[Any], most: int) -> None:
    for value in values:
        if value is not None and not -most - 1 <= value <= most:
            raise ValueError(f"field {name!r} is {value}, but its column allows at most {most}")


def _plain_texts(name: str, values: Sequence[Any], limits: ColumnLimits) -> list[str]:
    most, words = limits.length_max, limits.words
    for value in values if most is not None or words else ():
        if value is not None and most is not None and len(value) > most:
            raise ValueError(
                f"field {name!r} has {len(value)} characters, but its column allows at most {most}"
            )
        if value is not None and words and value not in words:
            raise ValueError(f"field {name!r} must be one of {', '.join(words)}, got {value!r}")
    texts = [_NULL if value is None else value for value in values]
    joined = "".join(value for value in values if value is not None)
    if not any(letter in joined for letter in _SPECIAL):
        return texts
    if "\0" in joined:
        raise ValueError(
            f"field {name!r} contains a zero byte, which PostgreSQL does not support in text"
        )
    return [_NULL if value is None else value.translate(_ESCAPES) for value in values]


def _bool_text(value: bool) -> str:
    return "t" if value else "f"


def _bytes_text(value: bytes) -> str:
    return f"\\\\x{value.hex()}"


def _interval_text(value: timedelta) -> str:
    return f"{value // timedelta(microseconds=1)} microseconds"


def _json_text(name: str, limits: ColumnLimits, value: Any) -> str:
    text = _encode(value).decode()
    if limits.is_jsonb and _ZERO.search(text):
        raise ValueError(f"field {name!r} contains a zero character, which jsonb does not support")
    return text.translate(_ESCAPES)


def values_of_row(row: bytes, schema: pyarrow.Schema) -> dict[str, Any]:
    """Return the values of a row that a writer staged, by column."""
    texts = row.decode().removesuffix("\n").split("\t")
    return {
        field.name: None if text == _NULL else _value_of(text, field.type)
        for field, text in zip(schema, texts, strict=True)
    }


def _value_of(text: str, kind: pyarrow.DataType) -> Any:
    text = _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), text)
    kinds = pyarrow.types
    if kinds.is_string(kind):
        return text
    if kinds.is_boolean(kind):
        return text == "t"
    if kinds.is_binary(kind):
        return bytes.fromhex(text[2:])
    if kinds.is_duration(kind):
        return timedelta(microseconds=int(text.partition(" ")[0]))
    if kinds.is_nested(kind):
        return msgspec.json.decode(text)
    return msgspec.convert(text, _read_type(kind), strict=False)


def _read_type(kind: pyarrow.DataType) -> Any:
    kinds = pyarrow.types
    pairs: Sequence[tuple[Callable[[Any], bool], Any]] = (
        (kinds.is_integer, int), (kinds.is_floating, float), (kinds.is_timestamp, datetime),
        (kinds.is_date, date), (kinds.is_time, time),
    )  # fmt: skip
    return next((found for is_kind, found in pairs if is_kind(kind)), Decimal)
