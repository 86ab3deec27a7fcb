"""Staged output: files that writers leave below their prefix, for a sink to read.

A staged file has a byte count and a CRC-32 from the moment it is written; its reader checks
both. This module knows no format and publishes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NoReturn

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.connectors.errors import STAGED_FILE_DAMAGED
from bicycle_runtime.contract import EventTimes, StagedFile, WriterTask

BLOCK_BYTES = 1 << 20
_NOTHING: tuple[Sequence[Any], bytes] = ([], b"")


class _AbortedError(Exception):
    """An error for the storage's write context, so that the object never appears."""


class StagedStream:
    """A staged file in progress, with its byte count and checksum.

    Args:
        task: Where to stage.
        path: Of the file, below the task's prefix.
    """

    def __init__(self, task: WriterTask, path: str) -> None:
        self._task = task
        self._path = path
        self._context: AbstractContextManager[BinaryIO] | None = task.storage.open_write(path)
        self._stream = self._context.__enter__()
        self.byte_count = 0
        self._crc32 = 0

    def add(self, data: bytes | memoryview) -> None:
        """Append some bytes; an ``OSError`` of this is for ``fail``."""
        self._stream.write(data)
        self.byte_count += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def finish(self, record_count: int, details: Mapping[str, Any]) -> StagedFile:
        """Make the file durable, and return its description."""
        self._leave(None)
        return StagedFile(
            path=self._path,
            record_count=record_count,
            byte_count=self.byte_count,
            crc32=self._crc32,
            subtask=self._task.subtask,
            details=details,
        )

    def fail(self, error: OSError) -> NoReturn:
        """Drop the file, and raise the storage's error: a ``StorageError``."""
        self._leave(error)
        raise error

    def abort(self) -> None:
        """Drop the file; one that has ended is left as it is."""
        self._leave(_AbortedError())

    def _leave(self, error: Exception | None) -> None:
        context, self._context = self._context, None
        if context is not None:
            kind = None if error is None else type(error)
            context.__exit__(kind, error, None if error is None else error.__traceback__)


class StagedWriter:
    """A ``PreparingWriter`` that stages one file of records per subtask and epoch.

    A record that cannot be encoded is found before anything of its batch is written, so that the
    sink's ``on_error`` can settle it.

    Args:
        task: Where to stage.
        file_name: Name of the staged file below the task's prefix.
        encode: Records to bytes, called once per batch, and again for its single records when it
            raised. Its results may be dropped, so it must not count on being written.
    """

    def __init__(self, task: WriterTask, file_name: str, encode: Callable[[Any], bytes]) -> None:
        self._task = task
        self._path = f"{task.prefix}/{file_name}"
        self._encode = encode
        self._stream: StagedStream | None = None
        self._record_count = 0
        self._prepared = _NOTHING

    def prepare(self, values: Sequence[Any], times: EventTimes) -> Any:
        """Encode a batch, for the ``write`` that follows; returns the records as they are."""
        self._prepared = values, self._encode(values)
        return values

    def prepare_one(self, value: Any, time_ms: int | None) -> Any:
        """Return one record as ``prepare`` does; raise the reason if it cannot be encoded."""
        return self.prepare([value], [time_ms])[0]

    def write(self, values: Sequence[Any]) -> None:
        """Append records, encoded or not; the file is created before the first one."""
        (encoded, data), self._prepared = self._prepared, _NOTHING
        if not values:
            return
        if encoded is not values:
            data = self._encode(values)
        if self._stream is None:
            self._stream = StagedStream(self._task, self._path)
            data = self.heading() + data
        try:
            self._stream.add(data)
        except OSError as error:
            stream, self._stream = self._stream, None
            stream.fail(error)
        self._record_count += len(values)

    def finish(self) -> list[StagedFile]:
        """Make the file durable; nothing was staged when there were no records."""
        stream, self._stream = self._stream, None
        return [] if stream is None else [stream.finish(self._record_count, self.details())]

    def abort(self) -> None:
        """Drop the file."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()

    def heading(self) -> bytes:
        """Return the first bytes of the file, before its records."""
        return b""

    def details(self) -> Mapping[str, Any]:
        """Return the file's details for the driver besides its size, as plain JSON."""
        return {}


def staged_blocks(storage: Storage, file: StagedFile) -> Iterator[bytes]:
    """Yield a staged file's bytes; the last block only after the checksum is verified.

    Raises:
        ObjectMissingError: the file is gone.
        STAGED_FILE_DAMAGED: size or checksum differ.
    """
    byte_count = 0
    checksum = 0
    held = b""
    with storage.open_read(file.path) as stream:
        while block := stream.read(BLOCK_BYTES):
            byte_count += len(block)
            checksum = zlib.crc32(block, checksum)
            if held:
                yield held
            held = block
    if (byte_count, checksum) != (file.byte_count, file.crc32):
        raise STAGED_FILE_DAMAGED(
            path=file.path,
            found_byte_count=byte_count,
            found_crc32=checksum,
            byte_count=file.byte_count,
            crc32=file.crc32,
        )
    if held:
        yield held


def read_staged(storage: Storage, file: StagedFile) -> bytes:
    """Return a whole staged file, checked; see ``staged_blocks`` for the errors."""
    return b"".join(staged_blocks(storage, file))
