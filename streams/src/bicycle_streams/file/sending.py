"""The sender of the file backend: one writer per file, shared in a process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from pathlib import Path

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import ProducerEndedError
from bicycle_streams.file.options import FileOptions
from bicycle_streams.file.writing import FileWriter
from bicycle_streams.messages import OutgoingMessage, Receipt
from bicycle_streams.producing import Sender, Sent

FileId = tuple[int, int]


class SharedWriter:
    """The writer of a file and how many senders use it."""

    by_file: dict[FileId, SharedWriter] = {}  # noqa: RUF012  # The writers of this process.

    def __init__(self, path: Path, file: FileId, options: FileOptions) -> None:
        self._file = file
        self.options = options
        self.writer = FileWriter(
            path,
            limit_bytes=options.file_size_limit_bytes,
            buffer_bytes=options.write_buffer_bytes,
        )
        self.sender_count = 0
        self._is_synced_to = 0

    @classmethod
    def of(cls, path: Path, options: FileOptions) -> SharedWriter:
        """Return the shared writer of a file; ``release`` returns it."""
        state = path.stat()
        file = (state.st_dev, state.st_ino)
        shared = cls.by_file.get(file)
        if shared is None:
            shared = cls.by_file[file] = cls(path, file, options)
        shared.sender_count += 1
        return shared

    @classmethod
    def write_out(cls, descriptor: int) -> None:
        """Write out data that this process buffers for an open file."""
        state = os.fstat(descriptor)
        if shared := cls.by_file.get((state.st_dev, state.st_ino)):
            shared.writer.write_out()

    def sync(self) -> None:
        """Make written data durable, if required. Runs on a thread."""
        written = self.writer.written
        if written > self._is_synced_to:
            self.writer.sync()
            self._is_synced_to = written

    def release(self) -> None:
        """Close the writer when no other sender uses it."""
        self.sender_count -= 1
        if not self.sender_count:
            self.by_file.pop(self._file, None)
            self.writer.close(with_end=self.options.end_with_eos)


class FileSender(Sender):
    """The sender of one producer of the file backend.

    Args:
        address: The file, for messages of errors.
        shared: The writer of the file.
        shard_count: Over how many shards messages without one go, in turns.
    """

    def __init__(self, address: str, shared: SharedWriter, shard_count: int) -> None:
        super().__init__(address, shard_count)
        self._shared = shared
        self._writer = shared.writer
        self._is_closed = False
        self._linger: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def send(self, message: OutgoingMessage) -> Sent:
        if self._is_closed:
            raise ProducerEndedError(address=self.address)
        key, shard = message.stream_key, message.shard_id
        if shard is None:
            shard = self._next_shard()
        sequence, time_ms = self._writer.take(key, shard, message.payload, message.timestamp_ms)
        if self._linger is None:
            self._arm()
        return _Written(self, self._writer.taken, (key, shard, sequence, time_ms))

    def send_many(self, key: StreamKey, payloads: Sequence[bytes]) -> Sent:
        if self._is_closed:
            raise ProducerEndedError(address=self.address)
        shard = self._next_shard()
        sequence, time_ms = self._writer.take_many(key, shard, payloads)
        if self._linger is None:
            self._arm()
        return _Written(self, self._writer.taken, (key, shard, sequence, time_ms))

    @property
    def in_flight_count(self) -> int:
        """The messages in flight of all producers of this process for the file."""
        return self._writer.taken - self._writer.written

    async def flush(self) -> None:
        self._writer.write_out()
        if self._shared.options.fsync == "flush":
            await asyncio.to_thread(self._shared.sync)

    async def wait_for(self, number: int) -> None:
        """Return once the message of this number has the configured durability."""
        if self._writer.written < number or self._shared.options.fsync == "flush":
            await self.flush()

    async def close(self) -> None:
        self._is_closed = True
        if self._linger is not None:
            self._linger.cancel()
        try:
            await self.flush()
            if self._syncing is not None:
                if self._syncing.done():
                    self._syncing.result()
                self._syncing.cancel()  # It would wait for the rest of its interval.
                await asyncio.to_thread(self._shared.sync)
        finally:
            self._shared.release()

    def _arm(self) -> None:
        options = self._shared.options
        self._linger = self._loop.call_later(options.linger_ms / 1_000, self._end_linger)
        if options.fsync == "interval" and (self._syncing is None or self._syncing.done()):
            self._syncing = self._loop.create_task(self._sync_later())

    def _end_linger(self) -> None:
        self._linger = None
        self._writer.write_out()

    async def _sync_later(self) -> None:
        await asyncio.sleep(self._shared.options.fsync_interval_ms / 1_000)
        self._writer.write_out()
        await asyncio.to_thread(self._shared.sync)


class _Written:
    """The receipt of a message, known at once and true once it is written."""

    __slots__ = ("_fields", "_number", "_sender")

    def __init__(
        self, sender: FileSender, number: int, fields: tuple[StreamKey, int, int, int]
    ) -> None:
        self._sender = sender
        self._number = number
        self._fields = fields

    def __await__(self) -> Generator[object, None, Receipt]:
        yield from self._sender.wait_for(self._number).__await__()
        return Receipt(*self._fields)
