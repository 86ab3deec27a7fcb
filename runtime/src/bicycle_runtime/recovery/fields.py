"""Fields of binary checkpoint files: numbers and texts, little-endian.

A text is its length as u32 and its UTF-8 bytes. A missing part is an error with its place; nothing
is allocated for a length or a count that the data does not hold. ``checkpoint_state`` and
``checkpoint_file`` define the meaning of the fields.

A sealed file ends with its format version, a checksum and a word for the kind of file. These are
the last 12 bytes, little-endian: ``version u16, reserved u16 (0), crc32 u32 of all bytes before,
magic 4 bytes``. They are behind the body, so that a reader without knowledge of them can read the
body.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from bicycle_runtime.recovery.errors import CHECKPOINT_VALUE_UNFIT, CheckpointFormatError

_U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class FieldParser:
    """Takes fields off the front of data.

    Args:
        data: All of the data; places in errors count from its start.
        end: Where the fields end, the end of the data when None.
    """

    def __init__(self, data: bytes, *, end: int | None = None) -> None:
        self._data = data
        self._end = len(data) if end is None else end
        self.position = 0

    @property
    def left_count(self) -> int:
        """The number of bytes that were not read yet."""
        return self._end - self.position

    def u32(self) -> int:
        """Return the next 4 bytes as a number."""
        start = self.position
        if start + 4 > self._end:
            raise self._cut_number("u32", 4)
        self.position = start + 4
        value: int = _U32.unpack_from(self._data, start)[0]
        return value

    def u64(self) -> int:
        """Return the next 8 bytes as a number."""
        start = self.position
        if start + 8 > self._end:
            raise self._cut_number("u64", 8)
        self.position = start + 8
        value: int = _U64.unpack_from(self._data, start)[0]
        return value

    def text(self) -> str:
        """Return the next text."""
        raw = self.take(self.u32(), problem="name_cut", detail="truncated string bytes")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointFormatError(
                problem="name_encoding",
                detail=f"invalid UTF-8 in field name: {error}",
                offset=self.position - len(raw) + error.start,
                missing_count=0,
            ) from error

    def name(self, known: Container[str]) -> str:
        """Return the next text, which must be new.

        Raises:
            CheckpointFormatError: it is.
        """
        start = self.position
        text = self.text()
        if text in known:
            raise CheckpointFormatError(
                problem="name_twice",
                detail=f"duplicate name {text!r}",
                offset=start,
                missing_count=0,
            )
        return text

    def take(self, size: int, *, problem: str, detail: str) -> bytes:
        """Return the next ``size`` bytes; raise the described error if some are missing.

        Raises:
            CheckpointFormatError: some are missing.
        """
        start = self.position
        end = start + size
        if end > self._end:
            raise CheckpointFormatError(
                problem=problem, detail=detail, offset=start, missing_count=end - self._end
            )
        self.position = end
        return self._data[start:end]

    def finish(self) -> None:
        """Make sure that everything was taken.

        Raises:
            CheckpointFormatError: bytes are left over.
        """
        if self.left_count:
            raise CheckpointFormatError(
                problem="bytes_left",
                detail=f"{self.left_count} bytes after the end",
                offset=self.position,
                missing_count=0,
            )

    def _cut_number(self, name: str, size: int) -> CheckpointFormatError:
        return CheckpointFormatError(
            problem="number_cut",
            detail=f"cannot read {name} at offset {self.position}",
            offset=self.position,
            missing_count=size - self.left_count,
        )


def require_bounded(value: Any, high: int, *, field: str) -> int:
    """Return a number from 0 to ``high``; ``field`` names it in the error.

    Raises:
        CHECKPOINT_VALUE_UNFIT: it is no whole number, or out of bounds.
    """
    if isinstance(value, int) and 0 <= value <= high:
        return value
    raise CHECKPOINT_VALUE_UNFIT(field=field, found=repr(value), expected=f"0 to {high}")


def u32_field(value: int, *, field: str) -> bytes:
    """Return a number of 4 bytes; ``field`` names it in the error."""
    try:
        return _U32.pack(value)
    except struct.error:
        return _U32.pack(require_bounded(value, _U32_MAX, field=field))


def u64_field(value: int, *, field: str) -> bytes:
    """Return a number of 8 bytes; ``field`` names it in the error."""
    try:
        return _U64.pack(value)
    except struct.error:
        return _U64.pack(require_bounded(value, U64_MAX, field=field))


def text_field(text: str, *, field: str) -> bytes:
    """Return a text with its length before it; ``field`` names it in the error."""
    raw = utf8(text, field=field)
    return u32_field(len(raw), field=field) + raw


def utf8(text: str, *, field: str) -> bytes:
    """Return the bytes of a text; ``field`` names it in the error.

    Raises:
        CHECKPOINT_VALUE_UNFIT: it has half a surrogate pair.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CHECKPOINT_VALUE_UNFIT(
            field=field, found=ascii(text), expected="text that can be encoded as UTF-8"
        ) from error


_TRAILER = struct.Struct("<HHI4s")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """A kind of sealed file: its magic word of 4 bytes, and its known version."""

    magic: bytes
    version: int

    def sealed(self, *parts: bytes) -> bytes:
        """Return the parts as one body with its trailer."""
        checksum = 0
        for part in parts:
            checksum = crc32(part, checksum)
        return b"".join((*parts, _TRAILER.pack(self.version, 0, checksum, self.magic)))

    def body_size(self, data: bytes) -> int:
        """Return where the body ends.

        Raises:
            CheckpointFormatError: the file is cut, changed, of another kind or of another version.
        """
        size = len(data) - _TRAILER.size
        if size < 0:
            raise CheckpointFormatError(
                problem="trailer_cut",
                detail=f"only {len(data)} bytes",
                offset=len(data),
                missing_count=-size,
            )
        version, reserved, checksum, magic = _TRAILER.unpack_from(data, size)
        if magic != self.magic or reserved or checksum != crc32(memoryview(data)[:size]):
            raise _refusal(
                "checksum", "it is truncated or changed (the checksum does not match)", offset=size
            )
        if version != self.version:
            raise _refusal(
                "version",
                f"format version {version}, but this runtime supports {self.version}",
                offset=size,
            )
        return size


def _refusal(problem: str, detail: str, *, offset: int) -> CheckpointFormatError:
    return CheckpointFormatError(problem=problem, detail=detail, offset=offset, missing_count=0)
