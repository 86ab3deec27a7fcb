"""The sender of the Redis backend: messages wait in a queue, and go out many at a time."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from bicycle_runtime.streams.errors import ConnectionLostError, StreamError
from bicycle_runtime.streams.messages import Receipt
from bicycle_runtime.streams.options import Durability
from bicycle_runtime.streams.queued_sending import Pending, QueuedSender
from bicycle_runtime.streams.redis.connection import LOST, Connection
from bicycle_runtime.streams.redis.errors import REFUSED
from bicycle_runtime.streams.redis.ids import redis_key, sequence_of

__all__ = ["RedisSender"]


class RedisSender(QueuedSender):
    """Sends by ``XADD``, pipelined; what has no answer is sent again unless that may double it.

    Args:
        connection: The server.
        durability: ``at-most-once`` sends nothing twice.
        shard_count: Over how many shards messages without one go, in turns.
    """

    def __init__(self, connection: Connection, durability: Durability, shard_count: int) -> None:
        options = connection.options
        super().__init__(
            connection.address, options, batch_max=options.batch_messages, shard_count=shard_count
        )
        self._connection = connection
        self._repeats = durability != "at-most-once"

    async def _write(self, batch: list[Pending]) -> None:
        try:
            answers = await self._answers(batch)
        except StreamError as error:  # Later messages may find the server again.
            answers = [error] * len(batch)
        for pending, answer in zip(batch, answers, strict=True):
            self._settle(pending, answer)

    def _settle(self, pending: Pending, answer: Any) -> None:
        """Take what the server answered."""
        if isinstance(answer, StreamError):
            self.refuse(pending, answer)
        elif isinstance(answer, RedisError):
            error = REFUSED(address=self.address, key=pending.key, reason=str(answer))
            self.refuse(pending, error)
        else:
            time_ms, sequence = sequence_of(answer)
            pending.receipt = Receipt(pending.key, pending.shard_id, sequence, time_ms)

    async def _answers(self, batch: list[Pending]) -> list[Any]:
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

    def _command(self, pending: Pending) -> tuple[Any, ...]:
        options = self._connection.options
        trim = () if options.max_length is None else ("MAXLEN", "~", options.max_length)
        time_ms = pending.timestamp_ms
        entry_id = b"*" if time_ms is None else b"%d-*" % time_ms
        name = redis_key(pending.key, pending.shard_id)
        return ("XADD", name, *trim, entry_id, options.message_field, pending.payload)
