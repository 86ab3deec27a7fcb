"""Rows with named fields to records of a declared type, with event times.

Rows are converted in one step; only when that fails one by one, so that every bad row is named and
every good one kept.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from bicycle_runtime.base.user_code import decoding_problem, users_error
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.formats.typed_values import TypedConverter
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_fields import fields_of
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.records.times import time_of
from bicycle_sdk.time import TIME_MS_MAX

_RAW_BYTES_MAX = 4_096


def columns_for(record_type: Any) -> list[str] | None:
    """Return the columns that records of a type are made of; None for all."""
    declared = fields_of(record_type)
    return None if declared is None else list(declared.names)


def records_of(
    rows: list[dict[str, Any]], record_type: Any, offsets: Sequence[int], next_offset: int,
    *, timestamp_field: str = "",
) -> SourceBatch:  # fmt: skip
    """Return rows as records; failures carry the row's text.

    Args:
        rows: Some.
        record_type: The type of the records; None or dict leaves dicts.
        offsets: The offset of each record, rising.
        next_offset: The next offset to read.
        timestamp_field: Field with the event time, or an empty text.
    """
    batch = _convert(rows, record_type, offsets, next_offset)
    if timestamp_field:
        batch = with_event_times(batch, b"", timestamp_field)
    if batch.failures:
        by_offset = dict(zip(offsets, rows, strict=True))
        batch.failures = [
            replace(failure, raw=row_text(by_offset[failure.offset])) for failure in batch.failures
        ]
    return batch


def _convert(
    rows: list[dict[str, Any]], record_type: Any, offsets: Sequence[int], next_offset: int
) -> SourceBatch:
    if record_type in (None, dict, Any, dict[str, Any]):
        return SourceBatch(values=rows, offsets=offsets, next_offset=next_offset)
    try:
        # Which type it is, is known when it runs.
        values = TypedConverter(list[record_type])(rows)
        return SourceBatch(values=values, offsets=offsets, next_offset=next_offset)
    except BaseException as error:  # noqa: BLE001  # a record type may have code
        users_error(error)
        return _converted_apart(rows, record_type, offsets, next_offset)


def _converted_apart(
    rows: list[dict[str, Any]], record_type: Any, offsets: Sequence[int], next_offset: int
) -> SourceBatch:
    values: list[Any] = []
    kept: list[int] = []
    failures: list[BadRecord] = []
    convert = TypedConverter(record_type)
    for offset, row in zip(offsets, rows, strict=True):
        try:
            values.append(convert(row))
            kept.append(offset)
        except BaseException as error:  # noqa: BLE001  # a record type may have code
            reason = decoding_problem(error)
            failures.append(BadRecord(offset=offset, raw=b"", reason=reason))
    return SourceBatch(values=values, offsets=kept, next_offset=next_offset, failures=failures)


# Event times from a field of the records: RFC 3339 text, or milliseconds since 1970.
#
# A record without the field, or with something else in it, is a bad record: no time is made up.


def with_event_times(batch: SourceBatch, data: bytes, field: str) -> SourceBatch:
    """Return a batch with each record's event time; records without one are failures.

    Args:
        batch: Records that are mappings, or objects with attributes.
        data: The bytes that the batch was decoded from; they end at its ``next_offset``.
        field: Name of the field.
    """
    found = _times_of(batch.values, field)
    # hot path: two bounds and a set over the types, 40 ns a record, instead of a check each.
    if set(map(type, found)) <= {int} and is_within_bounds(found):
        batch.timestamps = found
        return batch
    return _check(batch, data, found, field)


def _check(batch: SourceBatch, data: bytes, found: list[Any], field: str) -> SourceBatch:
    kept: list[int] = []
    times: list[int] = []
    failures = list(batch.failures)
    raw = raw_of(batch, data)
    for index, time in enumerate(found):
        try:
            times.append(time_of(time))
            kept.append(index)
        except ValueError as error:
            offset = batch.offsets[index]
            reason = f"no event time in field {field!r}: {error}"
            failures.append(BadRecord(offset=offset, raw=raw(offset), reason=reason))
    if len(kept) == len(found):
        batch.timestamps = times  # Times as texts: the records stay unchanged.
        return batch
    failures.sort(key=lambda failure: failure.offset)
    return SourceBatch(
        values=[batch.values[index] for index in kept],
        offsets=[batch.offsets[index] for index in kept],
        next_offset=batch.next_offset,
        failures=failures,
        timestamps=times,
    )


def raw_of(batch: SourceBatch, data: bytes) -> Callable[[int], bytes]:
    """Return a function from an offset to the (beginning of the) record's bytes.

    Args:
        batch: All records of the data, valid or not.
        data: The bytes that the batch was decoded from; they end at its ``next_offset``.
    """
    failed = (failure.offset for failure in batch.failures)
    starts = sorted([*batch.offsets, *failed, batch.next_offset])
    first = batch.next_offset - len(data)

    def raw(offset: int) -> bytes:
        end = min(starts[bisect_right(starts, offset)], offset + _RAW_BYTES_MAX)
        return data[offset - first : end - first].rstrip(b"\r\n")

    return raw


def _times_of(values: Sequence[Any], field: str) -> list[Any]:
    if isinstance(values, Frame):
        # A record without the field is looked at by itself, and fails.
        with contextlib.suppress(Refused):
            return values.field(field).items
    return [_field_of(value, field) for value in values]


def _field_of(value: Any, field: str) -> Any:
    return value.get(field) if isinstance(value, dict) else getattr(value, field, None)


def is_within_bounds(times: Sequence[int]) -> bool:
    """Return whether all times are within the bounds of event times."""
    return not times or (min(times) > -TIME_MS_MAX and max(times) < TIME_MS_MAX)


def row_text(row: dict[str, Any]) -> bytes:
    """Return a row as readable text for dead letters."""
    return msgspec.json.encode(row, enc_hook=str)[:_RAW_BYTES_MAX]
