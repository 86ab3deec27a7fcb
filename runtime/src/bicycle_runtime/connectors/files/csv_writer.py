"""Staging records as CSV: a header, then one row per record. Nested values are written as JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from bicycle_runtime.connectors.errors import RecordUnencodableError
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.operators.io import WriterTask

__all__ = ["CsvWriter", "named_cells"]


class CsvWriter(StagedWriter):
    """Writes one CSV file.

    The columns are the fields of the declared record type when it has any, else those of the first
    record: names of a dict or dataclass, ``field_1`` … of a tuple or list, ``value`` of anything
    else.

    Args:
        task: Where to stage.
        file_name: Name below the task's prefix.
        record_type: Declared type of the records, or None.
    """

    def __init__(self, task: WriterTask, file_name: str, record_type: Any) -> None:
        super().__init__(task, file_name, self._rows)
        self._names = _declared_names(record_type)
        self._header = ""

    def details(self) -> Mapping[str, Any]:
        """Return the header line, which a part has once."""
        return {"header": self._header}

    def _rows(self, values: list[Any]) -> bytes:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if not self._header:
            self._names = self._names or _names(values[0])
            writer.writerow(self._names)
            self._header = buffer.getvalue()
        writer.writerows([self._row(value) for value in values])
        return buffer.getvalue().encode()

    def _row(self, value: Any) -> list[Any]:
        cells = _cells(value)
        if isinstance(cells, dict):
            unknown = cells.keys() - set(self._names)
            if unknown:
                raise _unencodable(value, f"it has fields that the header lacks: {sorted(unknown)}")
            return [_text(cells.get(name)) for name in self._names]
        if len(cells) != len(self._names):
            raise _unencodable(value, f"it has {len(cells)} fields, the header {len(self._names)}")
        return [_text(cell) for cell in cells]


def _declared_names(record_type: Any) -> list[str]:
    if dataclasses.is_dataclass(record_type):
        return [field.name for field in dataclasses.fields(record_type)]
    if hasattr(record_type, "_fields"):
        return list(record_type._fields)
    if typing.is_typeddict(record_type):
        return list(typing.get_type_hints(record_type))
    return []


def _names(value: Any) -> list[str]:
    if hasattr(value, "_fields"):
        return list(value._fields)
    cells = _cells(value)
    if isinstance(cells, dict):
        return [str(name) for name in cells]
    if isinstance(value, (tuple, list)):
        return [f"field_{number}" for number in range(1, len(cells) + 1)]
    return ["value"]


def named_cells(value: Any) -> dict[str, Any]:
    """Return the cells of a record by column."""
    cells = _cells(value)
    return cells if isinstance(cells, dict) else dict(zip(_names(value), cells, strict=True))


def _cells(value: Any) -> dict[str, Any] | list[Any]:
    if isinstance(value, dict):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return list(value)
    return [value]


def _text(cell: Any) -> Any:
    if cell is None or isinstance(cell, (str, int, float)):
        return cell
    try:
        return msgspec.json.encode(cell).decode().strip('"')
    except TypeError as error:
        raise _unencodable(cell, str(error)) from error


def _unencodable(value: Any, reason: str) -> RecordUnencodableError:
    return RecordUnencodableError(
        format_name="csv", record_type=type(value).__qualname__, reason=reason
    )
