"""Opening plain and compressed files as streams of decompressed bytes, at any offset.

A plain file is sought; a compressed one is read from its start and skipped, unless the reader still
holds it open at the right place. However well a file is compressed, no more is decompressed at a
time than a block. Damage inside a compressed file becomes a typed error.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from bicycle_runtime.connectors.errors import InputDamagedError, InputUnreadableError
from bicycle_runtime.connectors.files.zstd_blocks import ZstdDamage, ZstdStream
from bicycle_sdk.errors import BicycleError

__all__ = ["ByteCursor", "is_compressed", "open_at"]

BLOCK_BYTES = 1 << 17
_COMPRESSED_SUFFIXES = (".gz", ".zst")


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
            InputDamagedError: the compressed data is broken or cut.
            InputUnreadableError: the operating system failed to read.
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
            raise InputDamagedError(
                path=self.path, offset=self.position, reason=str(error) or type(error).__name__
            ) from error
        except OSError as error:
            raise _unreadable(self.path, error) from error


def open_at(path: str, position: int) -> ByteCursor:
    """Open a file for reading from a decompressed offset.

    Raises:
        InputUnreadableError: it can not be opened.
        InputDamagedError: it can not be decompressed up to there.
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


def _unreadable(path: str, error: OSError) -> InputUnreadableError:
    return InputUnreadableError(path=path, reason=error.strerror or str(error))
