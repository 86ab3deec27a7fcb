"""Folders of a table: which one a row belongs to, by a field or by a date.

A folder is called ``field=value`` or ``dt=date``, as Hive does and every reader of data sets knows.
Values are percent-encoded, so that no value leads out of its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.connectors.errors import COLUMNS_WRONG
from bicycle_runtime.contract import ConnectorSpec, EventTimes
from bicycle_runtime.frames.table_columns import TIMES, TableColumns

PARTITION = "__partition"  # The column in which staged rows name their folder.

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """The partitioning of rows into folders.

    ``field`` is a column, or empty if the event time counts; ``date_format`` is a format of
    ``strftime``, empty if the value itself names the folder. ``is_kept`` means that the column
    stays in the files: a reader takes the value of a field from the name of the folder.
    """

    field: str
    date_format: str

    @property
    def is_kept(self) -> bool:
        """Return whether the column remains in the files."""
        return bool(self.date_format)

    def check(self, spec: ConnectorSpec, columns: TableColumns) -> None:
        """Refuse a field that is not a column, or an invalid format.

        Raises:
            COLUMNS_WRONG: so it is.
        """
        names = columns.schema.names
        problem = ""
        if self.field and self.field not in names:
            problem = f"the partition field {self.field!r} is not a column"
        elif self.field and self.date_format and not _is_time(columns.schema, self.field):
            problem = (
                f"the partition field {self.field!r} is neither a time or date, nor ms since 1970"
            )
        elif self.field and not self.date_format and _is_nested(columns.schema, self.field):
            problem = f"the partition field {self.field!r} has values that cannot be folder names"
        elif not self.is_kept and len(names) == 1:
            problem = (
                "the partition field is the only column, but its values are stored in folder "
                "names only"
            )
        if problem:
            hint = f"columns are {', '.join(names)}; a date format is e.g. '%Y-%m-%d' or '%Y-%m'"
            raise COLUMNS_WRONG(vertex=spec.vertex_id, problem=problem, hint=hint)

    def folders(self, batch: pyarrow.RecordBatch, times: EventTimes) -> pyarrow.Array:
        """Return the folder of each row.

        Raises:
            ValueError: a row has no event time, or a value that is too long for a folder.
        """
        if not self.date_format:
            return self._by_value(batch.column(self.field))
        if self.field:
            found = batch.column(self.field)
            if pyarrow.types.is_integer(found.type):
                found = found.cast(TIMES)
        else:
            found = _times(times, batch.num_rows)
        return self._by_date(found)

    def without_field(self, schema: pyarrow.Schema) -> pyarrow.Schema:
        """Return the schema of the files."""
        if self.is_kept:
            return schema
        return schema.remove(schema.get_field_index(self.field))

    def _by_date(self, times: pyarrow.Array) -> pyarrow.Array:
        if pyarrow.types.is_date(times.type):
            times = times.cast(TIMES)
        seconds = pc.floor_temporal(times, unit="second").cast(pyarrow.timestamp("s", "UTC"))
        # hot path: rows of one batch are close together, so few seconds are formatted.
        known = seconds.dictionary_encode()
        names = pc.strftime(known.dictionary, format=self.date_format).to_pylist()
        return _name_folders(known, [_folder("dt", name) for name in names], "dt")

    def _by_value(self, values: pyarrow.Array) -> pyarrow.Array:
        if not pyarrow.types.is_string(values.type):
            values = values.cast(pyarrow.string())
        known = values.dictionary_encode()
        names = [_folder(self.field, value) for value in known.dictionary.to_pylist()]
        return _name_folders(known, names, self.field)


def _name_folders(
    known: pyarrow.DictionaryArray, names: Sequence[str], field: str
) -> pyarrow.Array:
    indexes = known.indices.fill_null(len(names))
    return pyarrow.array([*names, _folder(field, "")]).take(indexes)


def _folder(field: str, value: str) -> str:
    name = f"{quote(field, safe='')}={quote(value, safe=':+, ') if value else _NO_VALUE}"
    if len(name) > _NAME_BYTES_MAX:
        raise ValueError(f"the value {value[:40]!r}… of {field!r} is too long for a folder name")
    return name


def _times(times: EventTimes, count: int) -> pyarrow.Array:
    found = pyarrow.array(times if times is not None else [None] * count, TIMES)
    if found.null_count:
        raise ValueError(
            "the record has no event time to choose its folder; call assign_timestamps(…) on the "
            "stream, or set a partition field"
        )
    return found


def _is_time(schema: pyarrow.Schema, name: str) -> bool:
    found: Any = schema.field(name).type
    kinds = pyarrow.types
    return bool(kinds.is_timestamp(found) or kinds.is_date(found) or kinds.is_integer(found))


def _is_nested(schema: pyarrow.Schema, name: str) -> bool:
    found: Any = schema.field(name).type
    return bool(pyarrow.types.is_nested(found) or pyarrow.types.is_binary(found))
