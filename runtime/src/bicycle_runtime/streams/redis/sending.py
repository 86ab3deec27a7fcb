"""The sender of the Redis backend: messages wait in a queue, and go out many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from redis.exceptions import RedisError

from bicycle_runtime.streams.addresses import StreamKey
from bicycle_runtime.streams.errors import (
    ConnectionLostError,
    ProducerEndedError,
    SendQueueFullError,
    StreamError,
)
from bicycle_runtime.streams.messages import Receipt
from bicycle_runtime.streams.options import Durability
from bicycle_runtime.streams.producing import Sender, Sent
from bicycle_runtime.streams.redis.connection import LOST, Connection
from bicycle_runtime.streams.redis.errors import REFUSED
from bicycle_runtime.streams.redis.ids import redis_key, sequence_of

__all__ = ["RedisSender"]


class RedisSender(Sender):
    """Sends by ``XADD``, pipelined; what has no answer is sent again unless that may double it.

    Args:
        connection: The server.
        durability: ``at-most-once`` sends nothing twice.
        shard_count: Over how many shards messages without one go, in turns.
    """

    def __init__(self, connection: Connection, durability: Durability, shard_count: int) -> None:
        super().__init__(connection.address)
        self._connection = connection
        self._repeats = durability != "at-most-once"
        self._shard_count = shard_count
        self._turn = -1
        self._queue: list[_Pending] = []
        self._taken = 0
        self._settled = 0
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: StreamError | None = None
        self._is_closed = False

    def send(
        self, key: StreamKey, payload: bytes, *, shard_id: int | None, timestamp_ms: int | None
    ) -> Sent:
        if self._is_closed:
            raise ProducerEndedError(address=self.address)
        if len(self._queue) >= self._connection.options.send_queue_messages:
            raise SendQueueFullError(address=self.address, waiting=len(self._queue))
        shard = self._next_shard() if shard_id is None else shard_id
        self._taken += 1
        place = (key, shard)
        pending = _Pending(self, self._taken, place, payload, timestamp_ms=timestamp_ms)
        self._queue.append(pending)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return pending

    async def flush(self) -> None:
        await self.wait_for(self._taken)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait_for(self, number: int) -> None:
        """Return once the message of this number was answered, or given up."""
        while self._settled < number:
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self.flush()

    def _next_shard(self) -> int:
        self._turn = (self._turn + 1) % self._shard_count
        return self._turn

    async def _drain(self) -> None:
        size = self._connection.options.batch_messages
        while self._queue:
            batch = self._queue[:size]
            try:
                answers = await self._answers(batch)
            except StreamError as error:
                answers = [error] * len(batch)
            for pending, answer in zip(batch, answers, strict=True):
                pending.settle(answer)
                if pending.error is not None and self._failure is None:
                    self._failure = pending.error
            del self._queue[: len(batch)]
            self._settled += len(batch)
            self._moved.set()

    async def _answers(self, batch: list[_Pending]) -> list[Any]:
        async def execute() -> list[Any]:
            pipeline = self._connection.redis.pipeline(transaction=False)
            for pending in batch:
                pipeline.execute_command(*self._command(pending))
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
            return answers

        if self._repeats:
            return await self._connection.again(execute)
        try:
            return await execute()
        except LOST as error:
            raise ConnectionLostError(address=self.address, reason=str(error)) from None

    def _command(self, pending: _Pending) -> tuple[Any, ...]:
        options = self._connection.options
        trim = () if options.max_length is None else ("MAXLEN", "~", options.max_length)
        time_ms = pending.timestamp_ms
        entry_id = b"*" if time_ms is None else b"%d-*" % time_ms
        name = redis_key(pending.key, pending.shard_id)
        return ("XADD", name, *trim, entry_id, options.message_field, pending.payload)


class _Pending:
    """A message that waits for its answer, and the receipt that follows from it."""

    __slots__ = (
        "_number", "_receipt", "_sender", "error", "key", "payload", "shard_id", "timestamp_ms",
    )  # fmt: skip

    def __init__(
        self,
        sender: RedisSender,
        number: int,
        place: tuple[StreamKey, int],
        payload: bytes,
        *,
        timestamp_ms: int | None,
    ) -> None:
        self._sender = sender
        self._number = number
        self._receipt: Receipt | None = None
        self.error: StreamError | None = None
        self.key, self.shard_id = place
        self.payload = payload
        self.timestamp_ms = timestamp_ms

    def settle(self, answer: Any) -> None:
        """Take what the server answered."""
        if isinstance(answer, StreamError):
            self.error = answer
        elif isinstance(answer, RedisError):
            self.error = REFUSED(address=self._sender.address, key=self.key, reason=str(answer))
        else:
            time_ms, sequence = sequence_of(answer)
            self._receipt = Receipt(self.key, self.shard_id, sequence, time_ms)

    def __await__(self) -> Generator[Any, Any, Receipt]:
        yield from self._sender.wait_for(self._number).__await__()
        if self.error is not None:
            raise self.error
        assert self._receipt is not None, "what is settled has a receipt or an error"
        return self._receipt
