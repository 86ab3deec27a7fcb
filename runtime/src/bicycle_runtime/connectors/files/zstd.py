"""Zstandard files, decompressed block by block, with bounded memory.

The library decompresses all of its input, and four bytes may expand to 128 KiB: input of a fixed
size has no bound of output. So frames are taken apart into their blocks, each of which has at most
128 KiB of content, and the library gets one at a time. It checks the content; truncation is noticed
here.

Source: RFC 8878 (Zstandard compression), 3.1 frames.
"""

from __future__ import annotations

from typing import Any, BinaryIO

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # Behind a byte from 0x50 to 0x5f.
_SKIP_BYTES = 1 << 17
_RLE, _RESERVED = 1, 3
_CHECKSUM_BYTES = 4


class ZstdDamage(Exception):
    """The zstd data is broken or ends inside a frame."""


class ZstdStream:
    """Decompresses zstd frames; unlike the library's reader it notices a cut one.

    Args:
        raw: A buffered binary file at its start; closed with the stream.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._output = b""
        self._frame: Any = None
        self._has_checksum = False

    def read(self, size: int, /) -> bytes:
        """Return some decompressed bytes, at least one unless the file ends here.

        Raises:
            ZstdDamage: the data is broken or cut.
        """
        while not self._output:
            if self._frame is None and not self._begin_frame():
                return b""
            if self._frame is not None:
                self._output = self._block()
        output, self._output = self._output[:size], self._output[size:]
        return output

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _begin_frame(self) -> bool:
        """Start a frame in the library, or skip an unknown frame; return False at the end."""
        magic = self._raw.read(4)
        if not magic:
            return False
        if magic[1:] == _SKIPPABLE_MAGIC and magic[0] & 0xF0 == 0x50:
            self._skip(int.from_bytes(self._exactly(4), "little"))
            return True
        if magic != _MAGIC:
            raise ZstdDamage("the next bytes are not a zstd frame")
        descriptor = self._exactly(1)
        flags = descriptor[0]
        is_single, size_flag = bool(flags & 0x20), flags >> 6
        size_bytes = (1 if is_single else 0, 2, 4, 8)[size_flag]
        header = self._exactly((0 if is_single else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes)
        self._has_checksum = bool(flags & 0x04)

        import zstandard  # an optional format; loaded when the first such file is opened

        self._error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._output = self._decompress(magic + descriptor + header)
        return True

    def _block(self) -> bytes:
        """Return the content of one block, perhaps empty; the last one ends the frame."""
        head = self._exactly(3)
        fields = int.from_bytes(head, "little")
        is_last, kind, size = fields & 1, fields >> 1 & 3, fields >> 3
        if kind == _RESERVED:
            raise ZstdDamage("a block has an unknown type")
        data = head + self._exactly(1 if kind == _RLE else size)
        if is_last and self._has_checksum:
            data += self._exactly(_CHECKSUM_BYTES)
        output = self._decompress(data)
        if is_last:
            if not self._frame.eof:
                raise ZstdDamage("a frame does not end with its last block")
            self._frame = None
        return output

    def _decompress(self, data: bytes) -> bytes:
        try:
            output: bytes = self._frame.decompress(data)
        except self._error as error:
            raise ZstdDamage(str(error)) from error
        return output

    def _exactly(self, size: int) -> bytes:
        data = self._raw.read(size)
        if len(data) < size:
            raise ZstdDamage("the file ends inside a frame")
        return data

    def _skip(self, size: int) -> None:
        while size > 0:
            size -= len(self._exactly(min(size, _SKIP_BYTES)))
