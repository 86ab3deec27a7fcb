"""Input to records of a declared type: JSON lines, and rows with named fields.

A block of lines is decoded in one step; only when that fails is it taken apart line by line, so
that every bad line is named and every good one kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.connectors.lines import LineBlock, LineOffsets, decode_lines_apart, line_count
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.formats import typed_values
from bicycle_runtime.formats.json_frames import JsonFrames, gives_frames
from bicycle_runtime.frames.arrays import numpy

BlockDecoder = Callable[[LineBlock], SourceBatch]
_NEWLINE = 10


def json_decoder(record_type: Any) -> BlockDecoder:
    """Return a decoder of one JSON document per line; blank lines are skipped.

    Args:
        record_type: The type to which each document is decoded and checked.
    """
    decoder = typed_values.json_decoder(record_type)
    return partial(_decode, decoder.decode_lines, decoder.decode, line_count)


def field_decoder(record_type: Any) -> BlockDecoder | None:
    """Return a decoder that returns frames, or None if the type prevents it.

    A block with a bad or blank line results in records.
    """
    if not gives_frames(record_type):
        return None
    apart = typed_values.json_decoder(record_type).decode
    return partial(_decode, JsonFrames(record_type).decode_lines, apart, _line_count)


def _line_count(data: bytes) -> int:
    """Return the number of lines; for readers that need numpy anyway.

    hot path: 10 ns a line, ``bytes.count`` takes 28.
    """
    np = numpy()
    newlines = int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))
    return newlines + (data[-1:] not in (b"", b"\n"))


def _decode(
    whole: Callable[[bytes], Sequence[Any]], apart: Callable[[bytes], Any],
    count: Callable[[bytes], int], block: LineBlock,
) -> SourceBatch:  # fmt: skip
    """Return the records of a block."""
    # hot path: one call per block, 2.6 M small or 0.5 M larger objects/s; line by line as fast for
    # small ones, 0.3 M/s for larger ones.
    try:
        found = whole(block.data)
    except BaseException as error:  # noqa: BLE001  # a record type may have code
        users_error(error)
        return decode_lines_apart(block, apart, skips_blank=True)
    if len(found) != count(block.data):
        return decode_lines_apart(block, apart, skips_blank=True)
    return SourceBatch(values=found, offsets=LineOffsets(block), next_offset=block.next_offset)


def long_line_batch(block: LineBlock) -> SourceBatch:
    """Return a batch with only the failure of a line that is too long."""
    reason = f"the line has {block.long_line_byte_count:,} bytes, more than line_bytes_max"
    failure = BadRecord(offset=block.offset, raw=block.data, reason=reason)
    return SourceBatch(values=[], offsets=(), next_offset=block.next_offset, failures=[failure])
