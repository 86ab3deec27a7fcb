"""Parquet files to records: rows by number, in batches, with the needed columns.

An offset is the number of a row. How many rows a file has is known when it is read, so a file is
taken like a compressed one: read until its end shows. Between epochs a file stays open where the
last slice ended; otherwise row groups before the slice are skipped unread. pyarrow does the work.
"""

from __future__ import annotations

import typing
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec import inspect

from bicycle_runtime.base.user_code import decoding_problem
from bicycle_runtime.connectors.errors import NO_PARQUET_FILE
from bicycle_runtime.connectors.files.reader import locate_file
from bicycle_runtime.connectors.typed_rows import (
    columns_for,
    records_of,
    row_text,
    with_event_times,
)
from bicycle_runtime.contract import BadRecord, Slice, SourceBatch
from bicycle_runtime.formats.typed_values import kinds_in
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.rows import is_open_mapping

_BATCH_ROWS = 4_096
_FEW_ROWS = 64
_BATCH_BYTES = 16 << 20  # of a batch of records
_DECODED_BYTES = 64 << 20  # of rows that are decoded at one time, at most
_VALUE_BYTES = 16
_OPEN_FILES_MAX = 16
# In days since 1970, a day within those of Python: a zone moves a time by less.
_DAYS_MIN, _DAYS_MAX = -719_161, 2_932_895
_SPAN_DAYS_MAX = 999_999_998
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S = 86_400


class ParquetReader:
    """Reads slices of Parquet files; ``Slice.details`` as for other files.

    Args:
        record_type: The type to which rows are converted; None or dict leaves dicts.
        timestamp_field: Column with the event time, or an empty text.
    """

    def __init__(self, record_type: Any, timestamp_field: str = "") -> None:
        self._record_type, self._timestamp_field = record_type, timestamp_field
        self._columns = columns_for(record_type)
        self._has_dicts = _wants_dicts(record_type)
        self._open: OrderedDict[str, _Rows] = OrderedDict()
        self._gives_fields = False

    def __reduce__(self) -> tuple[type, tuple[Any, str]]:
        """Return the call that makes this reader in another process, without open files."""
        return type(self), (self._record_type, self._timestamp_field)

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the rows of the slice, as many as its limit allows.

        Raises:
            INPUT_CHANGED: the file is not the planned one any more.
            NO_PARQUET_FILE: it is not, or not wholly, a Parquet file.
        """
        rows = self._rows(part)
        limit = part.details["records"]
        end = part.end if limit is None else min(part.end, part.start + limit)
        is_done = False
        try:
            while (found := rows.take(end)) is not None:
                yield self._batch(found, first=rows.position - found.num_rows)
            if rows.position == part.start:
                yield SourceBatch(values=[], offsets=(), next_offset=part.start)
            is_done = True
        finally:
            self._put_away(part.shard, rows, is_kept=is_done)

    def give_fields(self) -> bool:
        """Switch to frames; return whether the rows' type allows it."""
        self._gives_fields = is_open_mapping(self._record_type)
        return self._gives_fields

    def close(self) -> None:
        """Close the files that are kept open."""
        while self._open:
            self._open.popitem()[1].close()

    def _rows(self, part: Slice) -> _Rows:
        path = locate_file(part)
        kept = self._open.pop(part.shard, None)
        if kept is not None:
            if kept.position == part.start and kept.path == path:
                return kept
            kept.close()
        return _Rows(path, part.start, self._columns)

    def _put_away(self, shard: str, rows: _Rows, *, is_kept: bool) -> None:
        if not is_kept:
            rows.close()
            return
        self._open[shard] = rows
        if len(self._open) > _OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()

    def _batch(self, rows: Any, *, first: int) -> SourceBatch:
        end = first + rows.num_rows
        offsets = range(first, end)
        leaves = chain.from_iterable(map(_leaves, rows.columns))
        if self._gives_fields and all(map(_fits_python, leaves)):
            batch = SourceBatch(values=Frame.of_arrow(rows), offsets=offsets, next_offset=end)
            if not self._timestamp_field:
                return batch
            batch = with_event_times(batch, b"", self._timestamp_field)
            if not batch.failures:
                return batch
        found = _python_rows(rows, offsets, has_dicts=self._has_dicts)
        batch = records_of(
            found.rows, self._record_type, found.offsets, end, timestamp_field=self._timestamp_field
        )
        if found.failures:
            failures = [*found.failures, *batch.failures]
            batch.failures = sorted(failures, key=lambda failure: failure.offset)
        return batch


class _Rows:
    """The rows of one open file from a position on."""

    def __init__(self, path: str, start: int, columns: list[str] | None) -> None:
        self.path = path
        self.position = start
        self._columns = columns
        self._held: Any = None
        self._batches = self._decode(start)

    def take(self, end: int) -> Any:
        """Return some rows before ``end`` as an Arrow batch, or None at the end."""
        held = self._held
        if self.position >= end or (held is None and (held := next(self._batches, None)) is None):
            return None
        count = end - self.position
        self._held = held.slice(count) if count < held.num_rows else None
        taken = held.slice(0, count)
        self.position += taken.num_rows
        return taken

    def close(self) -> None:
        """Close the file."""
        self._batches.close()

    def _decode(self, start: int) -> Generator[Any]:
        import pyarrow  # slow to import; loaded when the first such file is opened
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                groups, skipped = _groups_from(file.metadata, start)
                for group in groups:
                    row_count = _rows_at_once(self.path, file.metadata, group)
                    for batch in file.iter_batches(
                        row_count, row_groups=[group], columns=self._columns
                    ):
                        if skipped < batch.num_rows:
                            yield from _pieces(_in_microseconds(batch.slice(skipped)))
                        skipped = max(skipped - batch.num_rows, 0)
        except MemoryError:  # pyarrow's is an ArrowException, too.
            raise
        except (pyarrow.ArrowException, OSError) as error:
            raise NO_PARQUET_FILE(path=self.path, reason=str(error)) from error


def _rows_at_once(path: str, metadata: Any, group: int) -> int:
    """Return how many rows of a row group are decoded at one time.

    A small file may hold much, since a value that repeats is stored once. So the number of rows
    follows from the longest value of each dictionary, and from the mean size of other values. Where
    values are stored as differences, nothing shows their size.
    """
    row_group = metadata.row_group(group)
    chunks = [row_group.column(index) for index in range(row_group.num_columns)]
    repeated = [chunk.path_in_schema for chunk in chunks if _may_repeat(chunk)]
    longest = _longest_values(path, group, repeated) if repeated else {}
    row_bytes = 0.0
    for index, chunk in enumerate(chunks):
        values = max(chunk.num_values / max(row_group.num_rows, 1), 1.0)  # of a row, as in lists
        stored = chunk.total_uncompressed_size / max(chunk.num_values, 1)
        width = metadata.schema.column(index).length or 0
        most = max(width, stored, longest.get(chunk.path_in_schema, 0), _VALUE_BYTES)
        row_bytes += values * most
    has_differences = any("DELTA_BYTE_ARRAY" in chunk.encodings for chunk in chunks)
    rows_max = _FEW_ROWS if has_differences else _BATCH_ROWS
    return min(max(int(_DECODED_BYTES / max(row_bytes, 1)), 1), rows_max)


def _may_repeat(chunk: Any) -> bool:
    """Return whether values of a dictionary may be too large for a whole batch."""
    is_text = chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
    return bool(is_text and chunk.total_uncompressed_size * _BATCH_ROWS > _DECODED_BYTES)


def _longest_values(path: str, group: int, columns: list[str]) -> dict[str, int]:
    """Return the size of the longest value in the dictionary of each column, in bytes."""
    from pyarrow import compute, parquet  # slow to import

    with parquet.ParquetFile(path, read_dictionary=columns) as file:
        row = next(file.iter_batches(1, row_groups=[group], columns=columns))
    leaves = chain.from_iterable(map(_leaves, row.columns))
    return {
        column: compute.max(compute.binary_length(leaf.dictionary)).as_py() or 0
        for column, leaf in zip(columns, leaves, strict=True)
    }


def _leaves(array: Any) -> Iterator[Any]:
    """Yield the columns without fields that an Arrow array consists of."""
    import pyarrow  # slow to import

    kinds = pyarrow.types
    if kinds.is_struct(array.type):
        yield from chain.from_iterable(map(_leaves, array.flatten()))
    elif kinds.is_map(array.type):
        yield from chain(_leaves(array.keys), _leaves(array.items))
    elif array.type.num_fields:
        yield from _leaves(array.flatten())
    else:
        yield array


def _pieces(batch: Any) -> Iterator[Any]:
    """Yield a batch in pieces of a bounded size, or of one row."""
    if batch.nbytes <= _BATCH_BYTES or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def _groups_from(metadata: Any, start: int) -> tuple[list[int], int]:
    """Return the row groups from row ``start`` on, and the number of rows to skip."""
    first = 0
    for number in range(metadata.num_row_groups):
        row_count = metadata.row_group(number).num_rows
        if start < first + row_count:
            return list(range(number, metadata.num_row_groups)), start - first
        first += row_count
    return [], 0


def _in_microseconds(batch: Any) -> Any:
    """Return an Arrow batch with times in microseconds, which Python can represent.

    Arrow's own cast cuts nanoseconds toward zero, so that a time before 1970 would be later than it
    was.
    """
    import pyarrow  # slow to import

    columns = [_round_down(column) for column in batch.columns]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)):
        return batch
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _round_down(column: Any) -> Any:
    import pyarrow  # slow to import
    from pyarrow import compute

    found, kinds = column.type, pyarrow.types
    if not _has_nanoseconds(found):
        return column
    if kinds.is_struct(found):
        fields = list(map(_round_down, column.flatten()))
        names = [field.name for field in found]
        return pyarrow.StructArray.from_arrays(fields, names, mask=column.is_null())
    if kinds.is_dictionary(found):
        return _round_down(column.dictionary_decode())
    if found.num_fields:
        return _round_items(column)
    if kinds.is_timestamp(found) and found.tz:  # In local time, an hour is there twice a year.
        column = column.cast(pyarrow.timestamp("ns", "UTC"))
    return compute.floor_temporal(column, unit="microsecond").cast(_type_of(found))


def _round_items(column: Any) -> Any:
    """Return a column of lists or maps; their items are rounded."""
    import pyarrow  # slow to import

    whole = column.take(pyarrow.array(range(len(column))))  # A slice has no bitmap of its own.
    kinds, nulls = pyarrow.types, whole.is_null()
    if kinds.is_map(column.type):
        keys, items = _round_down(whole.keys), _round_down(whole.items)
        return pyarrow.MapArray.from_arrays(whole.offsets, keys, items, mask=nulls)
    values = _round_down(whole.values)
    if kinds.is_fixed_size_list(column.type):
        size = column.type.list_size
        return pyarrow.FixedSizeListArray.from_arrays(values, size, mask=nulls)
    is_large = kinds.is_large_list(column.type)
    array = pyarrow.LargeListArray if is_large else pyarrow.ListArray
    return array.from_arrays(whole.offsets, values, mask=nulls)


def _has_nanoseconds(found: Any) -> bool:
    import pyarrow  # slow to import

    if pyarrow.types.is_dictionary(found):
        return _has_nanoseconds(found.value_type)
    if found.num_fields:
        return any(_has_nanoseconds(found.field(index).type) for index in range(found.num_fields))
    return getattr(found, "unit", "") == "ns"


def _type_of(found: Any) -> Any:
    """Return a type of times in microseconds for one in nanoseconds."""
    import pyarrow  # slow to import

    if pyarrow.types.is_timestamp(found):
        return pyarrow.timestamp("us", found.tz)
    return pyarrow.time64("us") if pyarrow.types.is_time(found) else pyarrow.duration("us")


class _PythonRows(NamedTuple):
    """Rows as dicts, the offset of each, and the rows with a bad value."""

    rows: list[dict[str, Any]]
    offsets: Sequence[int]
    failures: Sequence[BadRecord]


def _python_rows(batch: Any, offsets: Sequence[int], *, has_dicts: bool) -> _PythonRows:
    """Return the rows of an Arrow batch as dicts.

    Args:
        batch: Some rows.
        offsets: The offset of each.
        has_dicts: Whether the values of maps are dicts; else they are pairs.
    """
    maps = "strict" if has_dicts else None
    try:
        return _PythonRows(batch.to_pylist(maps_as_pydicts=maps), offsets, ())
    except (OverflowError, ValueError, KeyError):  # KeyError: a map has a key twice.
        return _one_by_one(batch, offsets, maps)


def _one_by_one(batch: Any, offsets: Sequence[int], maps: str | None) -> _PythonRows:
    rows: list[dict[str, Any]] = []
    kept: list[int] = []
    failures: list[BadRecord] = []
    for index, offset in enumerate(offsets):
        row, problem = _row(batch.slice(index, 1), maps)
        if problem:
            failures.append(BadRecord(offset=offset, raw=row_text(row), reason=problem))
        else:
            rows.append(row)
            kept.append(offset)
    return _PythonRows(rows, kept, failures)


def _row(batch: Any, maps: str | None) -> tuple[dict[str, Any], str]:
    """Return one row and its problem; a bad value is replaced by Arrow's text of it."""
    row: dict[str, Any] = {}
    problems = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            [row[name]] = column.to_pylist(maps_as_pydicts=maps)
        except (OverflowError, ValueError, KeyError) as error:
            row[name] = column.to_string()[1:-1].strip()
            problems.append(f"column {name!r}: {decoding_problem(error)}")
    return row, "; ".join(problems)


def _fits_python(leaf: Any) -> bool:
    """Return whether all values of a leaf have one in Python; if unsure, False."""
    import pyarrow  # slow to import

    kinds, found = pyarrow.types, leaf.type
    checked = (kinds.is_string, kinds.is_large_string, kinds.is_string_view, kinds.is_time)
    if kinds.is_dictionary(found):
        return _fits_python(leaf.dictionary)
    if any(is_kind(found) for is_kind in checked):
        try:
            leaf.validate(full=True)  # hot path: in C++, without an object for each value.
        except pyarrow.ArrowInvalid:
            return False
        return True
    least, most = _DAYS_MIN, _DAYS_MAX
    if kinds.is_duration(found):
        least, most = -_SPAN_DAYS_MAX, _SPAN_DAYS_MAX
    elif not kinds.is_timestamp(found) and not kinds.is_date(found):
        return True
    day = 1 if kinds.is_date32(found) else _DAY_S * _UNITS[getattr(found, "unit", "ms")]
    number = pyarrow.int32() if kinds.is_date32(found) else pyarrow.int64()
    return _is_within(leaf.cast(number), least * day, most * day)


def _is_within(numbers: Any, least: int, most: int) -> bool:
    from pyarrow import compute  # slow to import

    found = compute.min_max(numbers).as_py()
    return found["min"] is None or (least <= found["min"] and found["max"] <= most)


def _wants_dicts(record_type: Any) -> bool:
    """Return whether records of a type have dicts in their fields, at any depth.

    Example:
        >>> _wants_dicts(dict), _wants_dicts(dict[str, list[dict[str, int]]])
        (False, True)
    """
    if is_open_mapping(record_type):
        return False
    is_dict = typing.get_origin(record_type) is dict
    inner = typing.get_args(record_type) if is_dict else [record_type]
    return any(inspect.DictType in kinds_in(each) for each in inner)
