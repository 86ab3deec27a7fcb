"""Input to records of a declared type: JSON lines, and rows with named fields.

A block of lines is decoded in one step; only when that fails is it taken apart line by line, so
that every bad line is named and every good one kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.connectors.lines import LineBlock, LineOffsets, decode_lines_apart
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.formats import typed_values
from bicycle_runtime.formats.json_frames import JsonFrames, gives_frames
from bicycle_runtime.frames.arrays import numpy

BlockDecoder = Callable[[LineBlock], SourceBatch]
_NEWLINE, _RETURN = b"\n\r"
_BLANKS = b" \t\r"
_ENDS, _STARTS = b'}]"0123456789el', b'{["-0123456789tfn'  # of JSON documents


def json_decoder(record_type: Any) -> BlockDecoder:
    """Return a decoder of one JSON document per line; blank lines are skipped.

    Args:
        record_type: The type to which each document is decoded and checked.
    """
    decoder = typed_values.json_decoder(record_type)
    return partial(_decode, decoder.decode_lines, decoder.decode)


def field_decoder(record_type: Any) -> BlockDecoder | None:
    """Return a decoder that returns frames, or None if the type prevents it.

    A block with a bad or blank line results in records.
    """
    if not gives_frames(record_type):
        return None
    apart = typed_values.json_decoder(record_type).decode
    return partial(_decode, JsonFrames(record_type).decode_lines, apart)


def _has_one_each(data: bytes, count: int) -> bool:
    """Return whether each line is one of the valid JSON documents in some lines.

    A newline is between two documents if one can end before it and another begin behind it: within
    a document, a comma or colon is between two values.

    hot path: 35 ns a line of 100 bytes, ``bytes.count`` takes 28.
    """
    np = numpy()
    codes = np.frombuffer(data, np.uint8)
    befores = np.flatnonzero(codes[1:-1] == _NEWLINE)
    if len(befores) + 1 != count or data[0] in b"\n" + _BLANKS:
        return False
    ends, starts = codes.take(befores), codes[2:].take(befores)
    if _RETURN in ends:
        ends = codes.take(befores - (ends == _RETURN))
    return not (ends.tobytes().translate(None, _ENDS) or starts.tobytes().translate(None, _STARTS))


def _decode(
    whole: Callable[[bytes], Sequence[Any]], apart: Callable[[bytes], Any], block: LineBlock
) -> SourceBatch:
    """Return the records of a block."""
    # hot path: one call per block, 2.6 M small or 0.5 M larger objects/s; line by line as fast for
    # small ones, 0.3 M/s for larger ones.
    try:
        found = whole(block.data)
    except BaseException as error:  # noqa: BLE001  # a record type may have code
        users_error(error)
        return decode_lines_apart(block, apart, skips_blank=True)
    data, count = block.data, len(found)
    if not _has_one_each(data, count) and (
        # Without blanks, a last line that has nothing else would vanish.
        data[-1:] != b"\n" or not _has_one_each(data.translate(None, _BLANKS), count)
    ):
        return decode_lines_apart(block, apart, skips_blank=True)
    return SourceBatch(values=found, offsets=LineOffsets(block), next_offset=block.next_offset)


def long_line_batch(block: LineBlock) -> SourceBatch:
    """Return a batch with only the failure of a line that is too long."""
    reason = f"the line has {block.long_line_byte_count:,} bytes, more than line_bytes_max"
    failure = BadRecord(offset=block.offset, raw=block.data, reason=reason)
    return SourceBatch(values=[], offsets=(), next_offset=block.next_offset, failures=[failure])
