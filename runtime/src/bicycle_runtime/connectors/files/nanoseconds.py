"""Times of Arrow in nanoseconds, which Python has none of: rounded down to microseconds.

Arrow's own cast cuts them toward zero, so that a time before 1970 would be later than it was.
pyarrow is slow to import, and is loaded when the first Parquet file is opened.
"""

from __future__ import annotations

from typing import Any

__all__ = ["in_microseconds"]


def in_microseconds(batch: Any) -> Any:
    """Return a batch of Arrow whose times, also those within nested values, Python can hold."""
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
        return any(_has_nanoseconds(found.field(place).type) for place in range(found.num_fields))
    return getattr(found, "unit", "") == "ns"


def _type_of(found: Any) -> Any:
    """Return a type of times in microseconds for one in nanoseconds."""
    import pyarrow  # slow to import

    if pyarrow.types.is_timestamp(found):
        return pyarrow.timestamp("us", found.tz)
    return pyarrow.time64("us") if pyarrow.types.is_time(found) else pyarrow.duration("us")
