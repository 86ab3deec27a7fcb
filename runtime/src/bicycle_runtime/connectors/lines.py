r"""Lines of text: records from lines, and the base of sources and sinks of lines.

Out: strings as they are, everything else as JSON. A record without such a form raises an exception
that the sink's ``on_error`` settles. In: a block of lines is decoded in one step; only when that
fails is it taken apart line by line, so that every bad line is named and every good one kept. Only
``\n`` ends a line; a ``\r`` before it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import msgspec

from bicycle_runtime.base.user_code import decoding_problem
from bicycle_runtime.contract import BadRecord, SourceBatch
from bicycle_runtime.formats.record_types import encode_model
from bicycle_runtime.frames.frame import Frame

_encoder = msgspec.json.Encoder(enc_hook=encode_model)


class UnencodableError(Exception):
    """A record without a representation in the sink's format, with reason and fix."""

    def __init__(self, format_name: str, value: object, reason: object) -> None:
        super().__init__(
            f"a record of type {type(value).__qualname__} cannot be written as {format_name}: "
            f"{reason}; map it to a str, number, tuple, list, dict or dataclass before the sink"
        )


def json_lines(values: Sequence[Any]) -> bytes:
    """Return one JSON document per line, each ended by a newline.

    Raises:
        UnencodableError: a record holds something that JSON does not have.
    """
    return _json_lines(values, "JSON")


def _json_lines(values: Sequence[Any], format_name: str) -> bytes:
    # hot path: encode_lines writes 7 M small dataclasses/s, a join over encode() 2 M/s. It never
    # releases an iterator (msgspec 0.22), so it gets a list.
    rows = list(values.rows() if isinstance(values, Frame) else values)
    try:
        return _encoder.encode_lines(rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnencodableError(format_name, _culprit(values), error) from error


def text_lines(values: Sequence[Any]) -> bytes:
    """Return one line per record, each ended by a newline; strings are not quoted.

    Raises:
        UnencodableError: a record is neither a string nor JSON.
    """
    if isinstance(values, Frame):
        if (form := values.form) and form.kind is not None:  # None of them is a string.
            return _json_lines(values, "text")
        values = list(values.rows())
    # hot path: one join and one encode per batch, 50 M strings/s; one by one 5 M/s.
    try:
        return ("\n".join(values) + "\n").encode() if values else b""
    except TypeError:
        return b"\n".join(map(_one, values)) + b"\n"
    except UnicodeEncodeError as error:
        raise UnencodableError("text", _culprit(values), error) from error


def _one(value: Any) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnencodableError("text", value, error) from error


def _culprit(values: Sequence[Any]) -> Any:
    return next((value for value in values if not _is_encodable(value)), values[0])


def _is_encodable(value: Any) -> bool:
    try:
        _encoder.encode(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


@dataclass(slots=True)
class LineBlock:
    """A block of whole lines, the first at ``offset``; the last may lack its newline.

    When ``long_line_byte_count`` is set, ``data`` is only the beginning of one line that is too
    long.
    """

    offset: int
    data: bytes
    next_offset: int
    long_line_byte_count: int = 0


class LineOffsets(Sequence[int]):
    """The start of each line of a block, computed on access.

    Args:
        block: The lines.
        left_out: Numbers of lines without a record.
    """

    def __init__(self, block: LineBlock, left_out: frozenset[int] = frozenset()) -> None:
        self._block = block
        self._left_out = left_out

    @cached_property
    def _offsets(self) -> list[int]:
        starts, position = [], self._block.offset
        for line in lines_of(self._block):
            starts.append(position)
            position += len(line) + 1
        return [start for number, start in enumerate(starts) if number not in self._left_out]

    def __len__(self) -> int:
        return line_count(self._block.data) - len(self._left_out)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self._offsets[index]


def text_decoder(block: LineBlock) -> SourceBatch:
    r"""Return one string per line, without its line end (``\\n`` or ``\\r\\n``)."""
    # hot path: one decode and one split per block of 128 KiB, 14 M short lines/s; line by line
    # 5 M/s, in blocks of 32 KiB 6 M/s, of 1 MiB no faster.
    try:
        text = block.data.decode()
    except UnicodeDecodeError:
        return decode_lines_apart(block, lambda line: line.removesuffix(b"\r").decode())
    values = text.split("\n")
    if not values[-1]:
        values.pop()
    if "\r" in text:
        values = [value.removesuffix("\r") for value in values]
    return SourceBatch(values=values, offsets=LineOffsets(block), next_offset=block.next_offset)


def decode_lines_apart(
    block: LineBlock, decode: Callable[[bytes], Any], *, skips_blank: bool = False
) -> SourceBatch:
    """Decode each line of a block separately; a line that fails is a bad record.

    Args:
        block: The lines.
        decode: Gets a line without its newline; raises an error for a bad one.
        skips_blank: Whether a blank line is no record.
    """
    values: list[Any] = []
    failures: list[BadRecord] = []
    left_out: set[int] = set()
    position = block.offset
    for number, line in enumerate(lines_of(block)):
        if skips_blank and not line.strip():
            left_out.add(number)
        else:
            try:
                values.append(decode(line))
            except BaseException as error:  # noqa: BLE001  # a record type may have code
                reason = decoding_problem(error)
                left_out.add(number)
                failures.append(BadRecord(offset=position, raw=line, reason=reason))
        position += len(line) + 1
    return SourceBatch(
        values=values,
        offsets=LineOffsets(block, frozenset(left_out)),
        next_offset=block.next_offset,
        failures=failures,
    )


def lines_of(block: LineBlock) -> list[bytes]:
    """Return the lines without their newlines."""
    lines = block.data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def line_count(data: bytes) -> int:
    """Return the number of lines, the last of which may lack its newline."""
    return data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
