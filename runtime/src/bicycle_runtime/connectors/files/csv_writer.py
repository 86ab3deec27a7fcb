"""Staging records as CSV: a header, then one row per record. Nested values are written as JSON.

Records may be staged with their event times, as a field of JSON lines or a column of CSV. A file
source reads these with the same ``timestamp_field``. Only records with named fields can have one
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from bicycle_runtime.connectors.lines import UnencodableError, json_lines
from bicycle_runtime.connectors.staging import StagedWriter
from bicycle_runtime.contract import EventTimes, WriterTask
from bicycle_runtime.formats.csv_values import (
    CellError,
    cell_text,
    column_names,
    csv_text,
    declared_names,
    named_cells,
    row_of,
)
from bicycle_runtime.formats.record_types import encode_model
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import Vector


class CsvWriter(StagedWriter):
    """Writes one CSV file.

    The columns are the fields of the declared record type when it has any, else the fields of the
    first record: names of a dict or dataclass, ``field_1`` … of a tuple or list, ``value`` of
    anything else.

    Args:
        task: Where to stage.
        file_name: Name below the task's prefix.
        record_type: Declared type of the records, or None.
    """

    def __init__(self, task: WriterTask, file_name: str, record_type: Any) -> None:
        super().__init__(task, file_name, self._rows)
        self._names = declared_names(record_type)

    def heading(self) -> bytes:
        """Return the header line."""
        return csv_text([self._names]).encode()

    def details(self) -> Mapping[str, Any]:
        """Return the header line, which a part has once."""
        return {"header": self.heading().decode()}

    def _rows(self, values: Sequence[Any]) -> bytes:
        if not values:
            return b""
        columns = _columns_of(values)
        names = self._names or (column_names(values[0]) if columns is None else list(columns))
        try:
            rows: Iterable[Any]
            if columns is None:
                rows = (row_of(value, names) for value in values)
            else:
                rows = _cells_of(columns, names, len(values), by_index=_is_tuple(values))
            data = csv_text(rows).encode()
        except (CellError, UnicodeEncodeError) as error:
            culprit = error.value if isinstance(error, CellError) else values[0]
            raise UnencodableError("CSV", culprit, error) from error
        self._names = names  # Only now: a record that cannot be written names no columns.
        return data


class TimedJsonWriter(StagedWriter):
    """Writes JSON objects with one field more.

    Args:
        task: Where to stage.
        file_name: Name below the task's prefix.
        time_field: Name of the field; one of that name that a record has is replaced.
    """

    def __init__(self, task: WriterTask, file_name: str, time_field: str) -> None:
        super().__init__(task, file_name, b"".join)
        self._field = time_field
        self._to_json = msgspec.json.Encoder().encode

    def prepare(self, values: Sequence[Any], times: EventTimes) -> list[bytes]:
        """Return one line per record."""
        timed = _timed_records(values, times, self._field)
        if timed is not None:
            return json_lines(timed).splitlines(keepends=True)
        return list(map(self.prepare_one, values, times or repeat(None)))

    def prepare_one(self, value: Any, time_ms: int | None) -> bytes:
        """Return the line of a record.

        Raises:
            ValueError: the record has no event time, or no fields.
        """
        record = msgspec.to_builtins(value, str_keys=True, enc_hook=encode_model)
        if not isinstance(record, dict):
            raise ValueError(_no_fields(value, self._field))
        return self._to_json({**record, self._field: _require_time(time_ms, self._field)}) + b"\n"


class TimedCsvWriter(CsvWriter):
    """Writes CSV rows with one column more.

    Args:
        task: Where to stage.
        file_name: Name below the task's prefix.
        record_type: Declared type of the records, or None.
        time_field: Name of the column; one of that name that a record has is replaced.
    """

    def __init__(self, task: WriterTask, file_name: str, record_type: Any, time_field: str) -> None:
        super().__init__(task, file_name, record_type)
        self._field = time_field
        if self._names and time_field not in self._names:
            self._names = [*self._names, time_field]

    def prepare(self, values: Sequence[Any], times: EventTimes) -> Any:
        """Return the cells of each record, by column.

        Raises:
            ValueError: a record has no event time.
            UnencodableError: a record has no form in CSV.
        """
        timed: Sequence[Any] | None = _timed_records(values, times, self._field)
        if timed is None:
            timed = list(map(self._with_time, values, times or repeat(None)))
        return super().prepare(timed, times)

    def _with_time(self, value: Any, time_ms: int | None) -> dict[str, Any]:
        return {**named_cells(value), self._field: _require_time(time_ms, self._field)}


def _columns_of(records: Sequence[Any]) -> dict[str, Vector] | None:
    """Return records as columns by name, or None if they are not in columns."""
    form = records.form if isinstance(records, Frame) else None
    if not isinstance(records, Frame) or form is None or form.kind is None:
        return None
    kind, names = form.kind, form.names
    if _is_tuple(records):
        numbered = (f"field_{number + 1}" for number in range(len(names)))
        names = getattr(kind, "_fields", None) or tuple(numbered)
    elif kind is not dict and set(declared_names(kind)) != {*names}:
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    columns = dict(zip(names, records.columns(), strict=True))
    return (
        columns if kind is dict else {name: columns[name] for name in declared_names(kind) or names}
    )


def _is_tuple(records: Sequence[Any]) -> bool:
    form = records.form if isinstance(records, Frame) else None
    kind = None if form is None else form.kind
    return kind is not None and issubclass(kind, tuple)


def _cells_of(
    columns: Mapping[str, Vector], names: Sequence[str], count: int, *, by_index: bool
) -> Iterator[tuple[Any, ...]]:
    """Return the cells of each row; see ``row_of``.

    hot path: 1.3 us a row with three plain columns, text included; 5.1 from dicts.
    """
    if by_index and len(columns) == len(names):
        columns = dict(zip(names, columns.values(), strict=True))
    unknown = columns.keys() - set(names)
    if unknown or (by_index and len(columns) != len(names)):
        raise CellError(columns, f"they have fields that are not in the header: {sorted(unknown)}")
    lists = (columns.get(name) or Vector.constant(None, count) for name in names)
    plain = (v.each() if v.kinds <= _PLAIN else map(cell_text, v.each()) for v in lists)
    return zip(*plain, strict=True)


_PLAIN = frozenset({str, int, float, bool, type(None)})


def _timed_records(records: Sequence[Any], times: EventTimes, field: str) -> Frame | None:
    """Return dicts in columns with a time field added, or None for other records.

    Raises:
        ValueError: one of them has no event time.
    """
    columns = _columns_of(records)
    if columns is None or _is_tuple(records):
        return None
    count = len(records)
    known = [_require_time(time_ms, field) for time_ms in times or [None] * count]
    columns[field] = Vector(count, known)
    return Frame.of(RecordForm(dict, tuple(columns)), list(columns.values()), count)


def _require_time(time_ms: int | None, field: str) -> int:
    if time_ms is None:
        raise ValueError(
            f"the record has no event time for the field {field!r}; call assign_timestamps(…) on "
            "the stream"
        )
    return time_ms


def _no_fields(value: Any, field: str) -> str:
    kind = type(value).__qualname__
    return f"a record of type {kind} is not a JSON object, so it cannot have the field {field!r}"
