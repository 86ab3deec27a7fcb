"""Senders whose messages wait in a queue until the other side takes them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Generator
from typing import Any

from bicycle_sdk.clock import SystemClock
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import ProducerEndedError, SendQueueFullError, StreamError, error_of
from bicycle_streams.lines import format_line, line_payload
from bicycle_streams.messages import Message, OutgoingMessage, Receipt
from bicycle_streams.options import StreamerOptions
from bicycle_streams.producing import Sender


class Pending:
    """A message that waits for the other side, and its later receipt."""

    __slots__ = ("_number", "_sender", "error", "message", "receipt", "shard")

    def __init__(
        self, sender: QueuedSender, number: int, message: OutgoingMessage, shard_id: int
    ) -> None:
        self._sender = sender
        self._number = number
        self.message = message
        self.shard = (message.stream_key, shard_id)  # Its stream, and the shard that was chosen.
        self.receipt: Receipt | None = None
        self.error: StreamError | None = None

    def __await__(self) -> Generator[Any, Any, Receipt]:
        yield from self._sender.wait_for(self._number).__await__()
        if self.error is not None:
            raise self.error
        assert self.receipt is not None, "what is settled has a receipt or an error"
        return self.receipt


class QueuedSender(Sender):
    """A sender with a queue; one task sends its messages in batches.

    Args:
        address: The target, for error messages.
        options: Options of the streamer.
        batch_max: Maximum number of messages per call; None: all waiting messages.
        shard_count: Number of shards over which messages without a shard are distributed.
    """

    def __init__(
        self,
        address: str,
        options: StreamerOptions,
        *,
        batch_max: int | None = None,
        shard_count: int = 1,
    ) -> None:
        super().__init__(address, shard_count)
        self._queue_max = options.send_queue_messages
        self._batch_max = batch_max
        self._queue: list[Pending] = []
        self._taken = 0
        self._settled = 0
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: StreamError | None = (
            None  # The sender has failed: it rejects further messages.
        )
        self._refusal: StreamError | None = None  # The first message that was refused.
        self._is_closed = False

    @abstractmethod
    async def _write(self, batch: list[Pending]) -> None:
        """Send messages; each has a receipt or an error on return.

        Raises:
            StreamError: the sender has failed and rejects further messages.
        """

    def _begin(self, pending: Pending) -> None:
        """Look at a message that is taken; raise a StreamError when it cannot be sent."""

    def _shard_of(self, message: OutgoingMessage) -> int:
        """Return the shard of a message, or the next shard in turn."""
        return self._next_shard() if message.shard_id is None else message.shard_id

    def send(self, message: OutgoingMessage) -> Pending:
        if self._is_closed:
            raise ProducerEndedError(address=self.address)
        if self._failure is not None:
            raise self._failure
        if len(self._queue) >= self._queue_max:
            raise SendQueueFullError(address=self.address, waiting=len(self._queue))
        pending = Pending(self, self._taken + 1, message, self._shard_of(message))
        self._begin(pending)
        self._taken += 1
        self._queue.append(pending)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return pending

    def refuse(self, pending: Pending, error: StreamError) -> None:
        """Note that the other side does not take a message, while it takes others."""
        pending.error = error
        if self._refusal is None:
            self._refusal = error

    @property
    def in_flight_count(self) -> int:
        return self._taken - self._settled

    async def flush(self) -> None:
        await self.wait_for(self._taken)
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    async def wait_for(self, number: int) -> None:
        """Return once the message of this number was taken or refused by the other side."""
        while self._settled < number:
            if self._failure is not None:
                raise self._failure
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        self._is_closed = True
        await self.flush()

    async def _drain(self) -> None:
        try:
            while self._queue:
                batch = self._queue[: self._batch_max]
                await self._write(batch)
                del self._queue[: len(batch)]
                self._settled += len(batch)
                self._moved.set()
        except Exception as error:  # noqa: BLE001 - Without an end, receipts would wait forever.
            self._failure = error_of(error, self.address)
        finally:
            self._moved.set()


class LineSender(QueuedSender):
    """A sender of lines, which counts the messages of each stream itself."""

    def __init__(self, address: str, options: StreamerOptions) -> None:
        super().__init__(address, options)
        self._now_ms = SystemClock().now_ms
        self._sequences: dict[tuple[StreamKey, int], int] = defaultdict(int)

    def _begin(self, pending: Pending) -> None:
        message = pending.message
        line_payload(message.payload, self.address)
        sequence = self._sequences[pending.shard]
        self._sequences[pending.shard] = sequence + 1
        time_ms = self._now_ms() if message.timestamp_ms is None else message.timestamp_ms
        pending.receipt = Receipt(*pending.shard, sequence, time_ms)

    @staticmethod
    def line_of(pending: Pending) -> str:
        """Return the line of a pending message, without its end."""
        assert pending.receipt is not None, "a line has its number when it is taken"
        return format_line(pending.receipt, pending.message.payload.decode())

    @staticmethod
    def message_of(pending: Pending) -> Message:
        """Return the pending message in a consumer's form."""
        sent = pending.receipt
        assert sent is not None, "a line has its number when it is taken"
        shard = (sent.stream_key, sent.shard_id, sent.sequence, sent.timestamp_ms)
        return Message(*shard, pending.message.payload)
