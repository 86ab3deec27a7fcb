"""Input to records of a declared type: JSON lines, and rows whose fields have names.

A block of lines is decoded in one step; only when that fails is it taken apart line by line, so
that every bad line is named and every good one kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from bicycle_runtime.connectors.lines import LineBlock, LineOffsets, decode_lines_apart, line_count
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.operators.columnar.records import DictRecords, FieldRecords
from bicycle_runtime.records.rows import OpenRows, is_mapping, is_open_mapping, row_type_of
from bicycle_sdk.time import TIME_MS_MAX, as_ms

__all__ = [
    "BlockDecoder",
    "field_decoder",
    "in_field_order",
    "json_decoder",
    "long_line_batch",
    "with_event_times",
]

BlockDecoder = Callable[[LineBlock], SourceBatch]


def json_decoder(record_type: Any) -> BlockDecoder:
    """Return a decoder of one JSON document per line; blank lines are skipped.

    Args:
        record_type: What each document is decoded and checked as.
    """
    decoder = msgspec.json.Decoder(record_type)
    return partial(_decoded, decoder, decoder, lambda values, _: values)


def field_decoder(record_type: Any) -> BlockDecoder | None:
    """Return a decoder of the same that gives ``FieldRecords``; None where the type forbids it.

    Lines are checked against the same types. A block with a bad or blank line gives records.
    """
    if is_open_mapping(record_type):
        return _open_decoder()
    row_type, records = row_type_of(record_type), msgspec.json.Decoder(record_type)
    if row_type is None:
        if not is_mapping(record_type):
            return None
        return partial(_decoded, records, records, lambda found, _: DictRecords(found))

    def by_field(found: list[Any], block: LineBlock) -> FieldRecords:
        return FieldRecords(found, partial(records.decode_lines, block.data))

    return partial(_decoded, msgspec.json.Decoder(row_type), records, by_field)


def _open_decoder() -> BlockDecoder:
    """Return a decoder of dicts with any fields: to rows where all lines have those of the first.

    hot path: 110 ns a line with three fields, a dict takes 380.
    """
    rows, records = OpenRows(), msgspec.json.Decoder()
    as_dicts = partial(_decoded, records, records, lambda found, _: DictRecords(found))

    def decoded(block: LineBlock) -> SourceBatch:
        found = rows.like(block.data.partition(b"\n")[0])
        if found is None:
            return as_dicts(block)
        decoder, getter = found
        try:
            lines = decoder.decode_lines(block.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return as_dicts(block)
        if len(lines) != line_count(block.data):
            return as_dicts(block)
        made = FieldRecords(lines, partial(records.decode_lines, block.data), getter=getter)
        return SourceBatch(values=made, offsets=LineOffsets(block), next_offset=block.next_offset)

    return decoded


def _decoded(
    whole: msgspec.json.Decoder[Any], apart: msgspec.json.Decoder[Any],
    values_of: Callable[[list[Any], LineBlock], Sequence[Any]], block: LineBlock,
) -> SourceBatch:  # fmt: skip
    """Return the records of a block: as ``values_of`` makes them of what is decoded in one step."""
    # hot path: one call per block, 2.6 M small or 0.5 M larger objects/s; line by line as fast for
    # small ones, 0.3 M/s for larger ones.
    try:
        found = whole.decode_lines(block.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_lines_apart(block, apart.decode, skips_blank=True)
    if len(found) != line_count(block.data):
        return decode_lines_apart(block, apart.decode, skips_blank=True)
    return SourceBatch(
        values=values_of(found, block), offsets=LineOffsets(block), next_offset=block.next_offset
    )


def in_field_order(record_type: Any, rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Return rows as the values of a named tuple's fields; what a row lacks has its default."""
    names, defaults = record_type._fields, record_type._field_defaults
    return [[row.get(name, defaults.get(name)) for name in names] for row in rows]


def long_line_batch(block: LineBlock) -> SourceBatch:
    """Return a batch that says only that one line is too long."""
    reason = f"the line has {block.long_line_byte_count:,} bytes, more than line_bytes_max"
    failure = BadRecord(offset=block.offset, raw=block.data, reason=reason)
    return SourceBatch(values=[], offsets=(), next_offset=block.next_offset, failures=[failure])


# Event times from a field of the records: RFC 3339 text, or milliseconds since 1970.
#
# A record without the field, or with something else in it, is a bad record: no time is made up.

_RAW_BYTES_MAX = 4096


def with_event_times(batch: SourceBatch, data: bytes, field: str) -> SourceBatch:
    """Return a batch with the event time of each record; those without one become failures.

    Args:
        batch: Records that are mappings, or objects with attributes.
        data: The bytes that the batch was decoded from; they end at its ``next_offset``.
        field: Name of the field.
    """
    found = [_field_of(value, field) for value in batch.values]
    # hot path: two bounds and a set over the types, 40 ns a record, instead of a check each.
    if set(map(type, found)) <= {int} and _is_within_bounds(found):
        batch.timestamps = found
        return batch
    return _checked(batch, data, found, field)


def _checked(batch: SourceBatch, data: bytes, found: list[Any], field: str) -> SourceBatch:
    kept: list[int] = []
    times: list[int] = []
    failures = list(batch.failures)
    starts = sorted([*batch.offsets, *(failure.offset for failure in failures), batch.next_offset])
    first = batch.next_offset - len(data)
    for index, time in enumerate(found):
        try:
            times.append(_time_of(time))
            kept.append(index)
        except ValueError as error:
            offset = batch.offsets[index]
            end = min(starts[bisect_right(starts, offset)], offset + _RAW_BYTES_MAX)
            raw = data[offset - first : end - first].rstrip(b"\r\n")
            reason = f"no event time in field {field!r}: {error}"
            failures.append(BadRecord(offset=offset, raw=raw, reason=reason))
    failures.sort(key=lambda failure: failure.offset)
    return SourceBatch(
        values=[batch.values[index] for index in kept],
        offsets=[batch.offsets[index] for index in kept],
        next_offset=batch.next_offset,
        failures=failures,
        timestamps=times,
    )


def _field_of(value: Any, field: str) -> Any:
    return value.get(field) if isinstance(value, dict) else getattr(value, field, None)


def _time_of(time: Any) -> int:
    if time is None:
        raise ValueError("there is none")
    if not isinstance(time, str):
        return as_ms(time)
    text = time.strip()
    if text.removeprefix("-").isdecimal():
        return as_ms(int(text))
    try:
        return as_ms(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(
            f"{text[:60]!r} is neither an RFC 3339 time with a zone nor ms since 1970"
        ) from None


def _is_within_bounds(times: Sequence[int]) -> bool:
    return not times or (min(times) > -TIME_MS_MAX and max(times) < TIME_MS_MAX)
