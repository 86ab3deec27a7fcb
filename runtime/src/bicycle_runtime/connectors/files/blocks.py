r"""Cutting a stream of bytes into blocks of whole lines that belong to a slice.

A line belongs to the slice in which its first byte lies, so neighbours neither share nor lose one.
Only ``\\n`` ends a line. The memory held is one block and the longest line, which is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bicycle_runtime.connectors.files.opening import BLOCK_BYTES, ByteCursor
from bicycle_runtime.connectors.lines import LineBlock

__all__ = ["LineRange", "line_blocks"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRange:
    """Which lines to read.

    ``limit`` is where the file counts as ended (None: at its end). ``is_aligned`` tells that a line
    starts at ``start``; otherwise reading begins behind the next newline.
    """

    start: int
    end: int
    limit: int | None
    is_aligned: bool
    line_bytes_max: int


def line_blocks(cursor: ByteCursor, lines: LineRange) -> Iterator[LineBlock]:
    """Yield the lines whose first byte lies in ``[start, end)``, about 128 KiB at a time.

    The cursor stands at ``start`` (at ``start - 1`` when not aligned) and is left at the first line
    that was not yielded.
    """
    if not lines.is_aligned and not _skip_line(cursor, lines):
        return
    if cursor.position == 0:
        _skip_mark(cursor, lines)
    offset, held_byte_count = cursor.position, 0
    held: list[bytes] = []
    while offset < lines.end:
        data = _read(cursor, lines.limit)
        cut = _cut(data, position=cursor.position - len(data), end=lines.end) if data else 0
        if data and not cut:
            held.append(data)
            held_byte_count += len(data)
            if held_byte_count <= lines.line_bytes_max:
                continue
            yield _skip_long_line(cursor, lines.limit, offset, held)
        else:
            cursor.unread(data[cut:])
            whole = b"".join([*held, data[:cut]])
            if not whole:
                return
            yield from _checked(whole, offset, held_byte_count, lines.line_bytes_max)
        offset, held, held_byte_count = cursor.position, [], 0


def _cut(data: bytes, *, position: int, end: int) -> int:
    """Return how many bytes of ``data``, at ``position``, are whole lines begun before ``end``."""
    if position + len(data) < end:
        return data.rfind(b"\n") + 1
    return data.find(b"\n", max(end - 1 - position, 0)) + 1 or data.rfind(b"\n") + 1


def _checked(
    whole: bytes, offset: int, held_byte_count: int, line_bytes_max: int
) -> Iterator[LineBlock]:
    """Yield a block, its first line apart when too long (only a held line can be)."""
    first = whole.find(b"\n") + 1 or len(whole)
    if held_byte_count and first > line_bytes_max + 1:
        sample = whole[:_SAMPLE_BYTES]
        yield LineBlock(offset, sample, offset + first, long_line_byte_count=first)
        whole, offset = whole[first:], offset + first
    if whole:
        yield LineBlock(offset, whole, offset + len(whole))


def _skip_long_line(
    cursor: ByteCursor, limit: int | None, offset: int, held: list[bytes]
) -> LineBlock:
    sample = held[0][:_SAMPLE_BYTES]
    _find_newline(cursor, limit)
    return LineBlock(offset, sample, cursor.position, long_line_byte_count=cursor.position - offset)


def _skip_line(cursor: ByteCursor, lines: LineRange) -> bool:
    """Move behind the next newline; False when no line starts in the slice."""
    stop = lines.end if lines.limit is None else min(lines.end, lines.limit)
    return _find_newline(cursor, stop) and cursor.position < lines.end


def _find_newline(cursor: ByteCursor, stop: int | None) -> bool:
    while data := _read(cursor, stop):
        cut = data.find(b"\n") + 1
        if cut:
            cursor.unread(data[cut:])
            return True
    return False


def _skip_mark(cursor: ByteCursor, lines: LineRange) -> None:
    """A byte order mark at the start of a file is no part of its first record."""
    head = _read(cursor, lines.limit, len(_BYTE_ORDER_MARK))
    if head != _BYTE_ORDER_MARK:
        cursor.unread(head)


def _read(cursor: ByteCursor, limit: int | None, size: int = BLOCK_BYTES) -> bytes:
    return cursor.read(size if limit is None else min(size, max(limit - cursor.position, 0)))
