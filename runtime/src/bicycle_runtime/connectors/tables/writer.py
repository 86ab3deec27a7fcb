"""Staging of rows: a Parquet file per subtask and epoch, with each row's folder.

Rows wait in memory until there are enough for a row group, and no longer: the memory of a writer
does not grow with the epoch. Within a row group rows are sorted by folder, so that the part of one
folder is completed without reading the groups of others. A file with the limits of a part ends
there, so that it can become a part as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.compute as pc
from pyarrow import parquet

from bicycle_runtime.connectors.staging import StagedStream
from bicycle_runtime.connectors.tables.partitions import PARTITION, Partitioning
from bicycle_runtime.contract import EventTimes, StagedFile, WriterTask
from bicycle_runtime.frames.table_columns import TableColumns
from bicycle_sdk.sinks import Compression

_COUNTED_MAX = 64  # So many folders of a staged file are counted; others are small.
GROUP_ROWS = 122_880
_GROUP_BYTES = 32 << 20
_SAMPLE_PIECES, _PIECE_ROWS = 16, 128
_RATIO = 0.6180339887498949  # the golden one
_DISTINCT_SHARE_MAX = 0.99
SMALL_GROUP_ROWS = 16_384  # Of rows of many folders, so that few are read for one of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWriterFactory:
    """Opens writers of one table; picklable.

    ``roll_rows`` and ``roll_bytes`` end a staged file. ``check`` raises ValueError where the table
    would not take a row.
    """

    columns: TableColumns
    partitioning: Partitioning | None
    compression: Compression
    roll_rows: int
    roll_bytes: int
    check: Callable[[pyarrow.RecordBatch], None] | None = None

    def open(self, task: WriterTask) -> TableWriter:
        """Return a writer for one subtask and epoch."""
        return TableWriter(task, self)


def parquet_writer(stream: Any, first: pyarrow.Table, compression: str) -> parquet.ParquetWriter:
    """Return a writer of a Parquet file whose pages have checksums.

    Args:
        stream: Gets the file.
        first: The rows that are written first; they determine which columns have dictionaries.
        compression: Of the pages.
    """
    return parquet.ParquetWriter(
        stream,
        first.schema,
        compression=compression,
        use_dictionary=_find_dictionary_columns(first),
        write_page_checksum=True,
        store_schema=True,
    )


def _find_dictionary_columns(rows: pyarrow.Table) -> list[str] | bool:
    """Return the columns with repeated values; True for all, if some are nested.

    hot path: a dictionary of values that are all different takes 35 ns a row, and more bytes.
    """
    if any(field.type.num_fields for field in rows.schema):
        return True
    sample = rows
    if rows.num_rows > _SAMPLE_PIECES * _PIECE_ROWS:
        # Places that follow no period of the rows; slices, since picking rows takes 20 ns for each.
        room = rows.num_rows - _PIECE_ROWS
        starts = (int(number * _RATIO % 1 * room) for number in range(_SAMPLE_PIECES))
        sample = pyarrow.concat_tables([rows.slice(start, _PIECE_ROWS) for start in starts])
    distinct_max = _DISTINCT_SHARE_MAX * sample.num_rows
    return [
        name
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        if pc.count_distinct(column).as_py() <= distinct_max
    ]


class TableWriter:
    """A writer that stages Parquet files.

    Args:
        task: Where to stage.
        table: The table, and its format.
    """

    def __init__(self, task: WriterTask, table: TableWriterFactory) -> None:
        self._task = task
        self._table = table
        self._schema = table.columns.schema
        if table.partitioning is not None:
            self._schema = table.partitioning.without_field(self._schema)
            self._schema = self._schema.append(pyarrow.field(PARTITION, pyarrow.string()))
        self._waiting: list[pyarrow.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._file: _StagedTable | None = None
        self._finished: list[StagedFile] = []

    def prepare(self, values: Sequence[Any], times: EventTimes) -> pyarrow.RecordBatch:
        """Return records as columns; raise when one of them does not fit."""
        batch = self._table.columns.batch(values, times)
        if self._table.check is not None:
            self._table.check(batch)
        if self._table.partitioning is None:
            return batch
        folders = self._table.partitioning.folders(batch, times)
        kept = batch.select(self._schema.names[:-1])
        return pyarrow.RecordBatch.from_arrays([*kept.columns, folders], schema=self._schema)

    def prepare_one(self, value: Any, time_ms: int | None) -> pyarrow.RecordBatch:
        """Return one record as columns; raise the reason if it does not fit."""
        return self.prepare([value], [time_ms])

    def write(self, values: Any) -> None:
        """Take rows: columns of ``prepare``, or several of ``prepare_one``."""
        for batch in [values] if isinstance(values, pyarrow.RecordBatch) else values:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> list[StagedFile]:
        """Make everything durable."""
        self._flush()
        self._end_file()
        return self._finished

    def abort(self) -> None:
        """Drop all data, with this attempt's finished files, which are collected."""
        self._waiting.clear()
        if self._file is not None:
            self._file.abort()
        for file in self._finished:
            self._task.storage.delete(file.path)

    def _flush(self) -> None:
        if not self._waiting_rows:
            return
        table = pyarrow.Table.from_batches(self._waiting, schema=self._schema)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if self._table.partitioning is not None:
            order = pc.sort_indices(table, sort_keys=[(PARTITION, "ascending")])
            self._open(table).write(table.take(order), SMALL_GROUP_ROWS)
            return
        while table.num_rows:
            file = self._open(table)
            room = self._table.roll_rows - file.record_count
            file.write(table.slice(0, room), GROUP_ROWS)
            table = table.slice(room)
            is_full = file.record_count >= self._table.roll_rows
            if is_full or file.byte_count >= self._table.roll_bytes:
                self._end_file()

    def _open(self, first: pyarrow.Table) -> _StagedTable:
        if self._file is None:
            path = f"{self._task.prefix}/rows-{len(self._finished):04}.parquet"
            self._file = _StagedTable(self._task, path, first, self._table.compression)
        return self._file

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._finished.append(file.finish())


class _StagedTable:
    """One staged file of rows."""

    def __init__(
        self, task: WriterTask, path: str, first: pyarrow.Table, compression: Compression
    ) -> None:
        self.record_count = 0
        self._counts: Counter[str] = Counter()
        self._has_folders = PARTITION in first.schema.names
        self._stream = StagedStream(task, path)
        sink = pyarrow.PythonFile(_Counting(self._stream), mode="w")
        self._writer = parquet_writer(sink, first, compression)

    @property
    def byte_count(self) -> int:
        """Bytes that the library has written by now."""
        return self._stream.byte_count

    def write(self, table: pyarrow.Table, group_rows: int) -> None:
        """Write rows, in groups of at most so many."""
        try:
            self._writer.write_table(table, row_group_size=group_rows)
        except OSError as error:
            self._stream.fail(error)
        self.record_count += table.num_rows
        if self._has_folders:
            for each in table.column(PARTITION).value_counts().to_pylist():
                self._counts[each["values"]] += each["counts"]

    def finish(self) -> StagedFile:
        """Make the file durable, and return its description."""
        try:
            self._writer.close()
        except OSError as error:
            self._stream.fail(error)
        counts = dict(self._counts.most_common(_COUNTED_MAX)) if self._has_folders else {}
        return self._stream.finish(self.record_count, {"counts": counts} if counts else {})

    def abort(self) -> None:
        """Drop the file."""
        self._stream.abort()


class _Counting:
    """The face of a staged file towards the library."""

    closed = False

    def __init__(self, stream: StagedStream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._stream.add(view)
        return len(view)

    def tell(self) -> int:
        return self._stream.byte_count

    def flush(self) -> None:
        """Do nothing: no data are buffered here."""

    def close(self) -> None:
        """Do nothing: the file ends with its context."""
