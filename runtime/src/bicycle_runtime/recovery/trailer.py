"""The end of a sealed file: format version, checksum and a word that tells what the file is.

The last 12 bytes, little-endian: ``version u16, reserved u16 (0), crc32 u32 of all bytes before,
magic 4 bytes``. It stands behind the body, so that the body can be read by who knows nothing of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from bicycle_runtime.recovery.errors import CheckpointFormatError

__all__ = ["FileForm"]

_TRAILER = struct.Struct("<HHI4s")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """A kind of sealed file: its word of 4 bytes, and the one version that this runtime knows."""

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
            raise _refused(
                "checksum", "it is cut or changed (the checksum does not match)", offset=size
            )
        if version != self.version:
            raise _refused(
                "version",
                f"format version {version}, this runtime reads {self.version}",
                offset=size,
            )
        return size


def _refused(problem: str, detail: str, *, offset: int) -> CheckpointFormatError:
    return CheckpointFormatError(problem=problem, detail=detail, offset=offset, missing_count=0)
