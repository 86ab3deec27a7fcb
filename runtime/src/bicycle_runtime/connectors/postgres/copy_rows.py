"""Records as rows of ``COPY``: text columns, escaped, checked against what the table takes.

What the server would refuse is refused here, record by record, so that ``on_error`` can settle it;
once an epoch is sealed there is nobody to ask.

Source: PostgreSQL, COPY, "Text Format".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow

from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.connectors.tables.columns import TableColumns
from bicycle_runtime.contract import EventTimes, WriterTask

__all__ = ["ColumnLimits", "CopyWriter", "CopyWriterFactory"]

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_SPECIAL = ("\\", "\t", "\n", "\r", "\0")
_NULL = "\\N"
_encode = msgspec.json.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLimits:
    """What a column of the table takes; None where it takes all of the type."""

    is_required: bool = False
    number_max: int | None = None
    length_max: int | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWriterFactory:
    """Opens writers; picklable. ``limits`` are those of each column, by name."""

    columns: TableColumns
    limits: Mapping[str, ColumnLimits]

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
        super().__init__(task, "rows.copy", b"".join, takes_rows=True)
        self._table = table

    def prepare(self, values: Sequence[Any], times: EventTimes) -> list[bytes]:
        """Return the row of each record."""
        batch = self._table.columns.batch(values, times)
        texts = [
            _texts(name, column, self._table.limits.get(name, ColumnLimits()))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        # hot path: one join per row; csv.writer and a format string take half as long again.
        return [("\t".join(row) + "\n").encode() for row in zip(*texts, strict=True)]

    def prepare_one(self, value: Any, time_ms: int | None) -> bytes:
        """Return the row of one record."""
        return self.prepare([value], [time_ms])[0]


def _texts(name: str, column: pyarrow.Array, limits: ColumnLimits) -> list[str]:
    """Return the text of each value."""
    if limits.is_required and column.null_count:
        raise ValueError(f"field {name!r} is None, and its column is NOT NULL")
    values = column.to_pylist()
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
        to_text = _json_text
    if column.null_count:
        return [_NULL if value is None else to_text(value) for value in values]
    return list(map(to_text, values))


def _check_numbers(name: str, values: Sequence[Any], most: int) -> None:
    for value in values:
        if value is not None and not -most - 1 <= value <= most:
            raise ValueError(f"field {name!r} is {value}, and its column takes up to {most}")


def _plain_texts(name: str, values: Sequence[Any], limits: ColumnLimits) -> list[str]:
    most, words = limits.length_max, limits.words
    for value in values if most is not None or words else ():
        if value is not None and most is not None and len(value) > most:
            raise ValueError(f"field {name!r} has {len(value)} letters, its column takes {most}")
        if value is not None and words and value not in words:
            raise ValueError(f"field {name!r} is {value!r}, its column takes {', '.join(words)}")
    texts = [_NULL if value is None else value for value in values]
    joined = "".join(value for value in values if value is not None)
    if not any(letter in joined for letter in _SPECIAL):
        return texts
    if "\0" in joined:
        raise ValueError(f"field {name!r} has a zero byte, which no text of PostgreSQL has")
    return [_NULL if value is None else value.translate(_ESCAPES) for value in values]


def _bool_text(value: bool) -> str:
    return "t" if value else "f"


def _bytes_text(value: bytes) -> str:
    return f"\\\\x{value.hex()}"


def _interval_text(value: timedelta) -> str:
    return f"{value // timedelta(microseconds=1)} microseconds"


def _json_text(value: Any) -> str:
    return _encode(value).decode().translate(_ESCAPES)
