"""How an object of state begins: magic, format version and checksum, before its content.

``framed`` and ``unframed`` are inverses; what the content is, their callers know.
"""

from __future__ import annotations

from zlib import crc32

from bicycle_runtime.state.errors import StateFileError

__all__ = ["framed", "unframed"]

_HEAD_BYTES = 10


def framed(magic: bytes, version: int, body: bytes) -> bytes:
    """Return an object: 4 bytes of magic, u16 version and u32 CRC-32 (little-endian), content."""
    return b"".join((magic, version.to_bytes(2, "little"), crc32(body).to_bytes(4, "little"), body))


def unframed(
    data: bytes, magic: bytes, version: int, *, path: str, operator: str, foreign: str
) -> memoryview:
    """Return the content of an object.

    Args:
        data: The object.
        magic: What it must begin with.
        version: The format version that is read.
        path: For errors.
        operator: For errors.
        foreign: The reason that is told when it begins with something else.

    Raises:
        StateFileError: cut, changed, foreign, or of another format version.
    """
    if len(data) < _HEAD_BYTES or not data.startswith(magic):
        raise StateFileError(path=path, operator=operator, reason=foreign)
    found = int.from_bytes(data[4:6], "little")
    if found != version:
        reason = f"format version {found}, this runtime reads {version}"
        raise StateFileError(path=path, operator=operator, reason=reason)
    body = memoryview(data)[_HEAD_BYTES:]
    if crc32(body) != int.from_bytes(data[6:10], "little"):
        raise StateFileError(path=path, operator=operator, reason="the checksum does not match")
    return body
