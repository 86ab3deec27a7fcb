"""Opening plain and compressed files as streams of decompressed bytes, at any offset.

A plain file is sought; a compressed one is read from its start and skipped, unless the reader still
holds it open at the right place. However well a file is compressed, no more is decompressed at a
time than a block. Damage inside a compressed file becomes a typed error.

Zstandard files are decompressed block by block, so that a small file can never fill the memory.
The library decompresses all the input that it is given, and four bytes may stand for 128 KiB: input
of a fixed size has no bound of output. So frames are taken apart into their blocks, each of which
has at most 128 KiB of content, and the library is given one at a time. It checks the content; what
is cut off is noticed here.

Source: RFC 8878 (Zstandard compression), 3.1 frames.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from bicycle_runtime.connectors.errors import INPUT_DAMAGED, INPUT_UNREADABLE
from bicycle_sdk.errors import BicycleError

__all__ = ["ByteCursor", "ZstdDamage", "ZstdStream", "is_compressed", "open_at"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # Behind a byte from 0x50 to 0x5f.
_SKIP_BYTES = 1 << 17
_RLE, _RESERVED = 1, 3
_CHECKSUM_BYTES = 4

BLOCK_BYTES = 1 << 17
_COMPRESSED_SUFFIXES = (".gz", ".zst")


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
        """Read a header and give it to the library, or skip a frame of others; False at the end."""
        magic = self._raw.read(4)
        if not magic:
            return False
        if magic[1:] == _SKIPPABLE_MAGIC and magic[0] & 0xF0 == 0x50:
            self._skip(int.from_bytes(self._exactly(4), "little"))
            return True
        if magic != _MAGIC:
            raise ZstdDamage("what follows is no zstd frame")
        descriptor = self._exactly(1)
        flags = descriptor[0]
        is_single, size_flag = bool(flags & 0x20), flags >> 6
        size_bytes = (1 if is_single else 0, 2, 4, 8)[size_flag]
        header = self._exactly((0 if is_single else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes)
        self._has_checksum = bool(flags & 0x04)

        import zstandard  # an optional format; loaded when the first such file is opened

        self._error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._output = self._given(magic + descriptor + header)
        return True

    def _block(self) -> bytes:
        """Return what one block holds, maybe nothing; behind the last one the frame has ended."""
        head = self._exactly(3)
        fields = int.from_bytes(head, "little")
        is_last, kind, size = fields & 1, fields >> 1 & 3, fields >> 3
        if kind == _RESERVED:
            raise ZstdDamage("a block is of no known kind")
        data = head + self._exactly(1 if kind == _RLE else size)
        if is_last and self._has_checksum:
            data += self._exactly(_CHECKSUM_BYTES)
        output = self._given(data)
        if is_last:
            if not self._frame.eof:
                raise ZstdDamage("a frame does not end with its last block")
            self._frame = None
        return output

    def _given(self, data: bytes) -> bytes:
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


def is_compressed(path: str) -> bool:
    """Tell by the name whether the file is compressed (``.gz``, ``.zst``)."""
    return path.endswith(_COMPRESSED_SUFFIXES)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class ByteCursor:
    """A stream with a position, that takes back bytes which were read too far.

    Args:
        path: For error messages.
        stream: Positioned at ``position``.
        position: Offset in decompressed bytes.
    """

    def __init__(self, path: str, stream: _Readable, position: int) -> None:
        self.path = path
        self.position = position
        self._stream = stream
        self._returned = b""

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        """Return up to ``size`` bytes; empty at the end of the file.

        Raises:
            INPUT_DAMAGED: the compressed data is broken or cut.
            INPUT_UNREADABLE: the operating system failed to read.
        """
        if self._returned:
            data, self._returned = self._returned[:size], self._returned[size:]
        else:
            data = self._guarded(lambda: self._stream.read(size))
        self.position += len(data)
        return data

    def unread(self, data: bytes) -> None:
        """Take back the last bytes that were read."""
        self._returned = data + self._returned
        self.position -= len(data)

    def skip_to(self, position: int) -> None:
        """Read and drop bytes up to ``position`` or the end."""
        while self.position < position and self.read(min(BLOCK_BYTES, position - self.position)):
            continue

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except (EOFError, zlib.error, gzip.BadGzipFile, ZstdDamage) as error:
            raise INPUT_DAMAGED(
                path=self.path, offset=self.position, reason=str(error) or type(error).__name__
            ) from error
        except OSError as error:
            raise _unreadable(self.path, error) from error


def open_at(path: str, position: int) -> ByteCursor:
    """Open a file for reading from a decompressed offset.

    Raises:
        INPUT_UNREADABLE: it cannot be opened.
        INPUT_DAMAGED: it cannot be decompressed up to there.
    """
    try:
        stream = _open_stream(path, position)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not is_compressed(path):
        return ByteCursor(path, stream, position)
    cursor = ByteCursor(path, stream, 0)
    try:
        cursor.skip_to(position)
    except BicycleError:
        cursor.close()
        raise
    return cursor


def _open_stream(path: str, position: int) -> _Readable:
    """Return the decompressed bytes; only a plain file stands at ``position`` already."""
    if path.endswith(".gz"):
        return cast(_Readable, gzip.GzipFile(path, "rb"))
    raw = Path(path).open("rb")  # noqa: SIM115 - the cursor closes it.
    if path.endswith(".zst"):
        return ZstdStream(raw)
    raw.seek(position)
    return raw


def _unreadable(path: str, error: OSError) -> BicycleError:
    return INPUT_UNREADABLE(path=path, reason=error.strerror or str(error))
