"""What backends share whose messages are gone once they are read: delivery, and a queue to send.

A ``Hub`` gives each message to all consumers of its stream, and within a group to one. Its queues
are bounded: while one is full, ``offer`` waits, and with it the reader of what comes in. A
``QueuedSender`` keeps what the other side has not taken yet.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Generator, Iterable

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.streams.addresses import StreamKey
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.errors import (
    ProducerEndedError,
    SendQueueFullError,
    StreamEndedError,
    StreamError,
)
from bicycle_runtime.streams.lines import BROADCAST
from bicycle_runtime.streams.messages import Message, Receipt
from bicycle_runtime.streams.options import StreamerOptions
from bicycle_runtime.streams.producing import Sender, Sent

__all__ = ["Hub", "HubConsumer", "QueuedSender"]


class Hub:
    """Gives messages to the consumers of one streamer, as they come."""

    def __init__(self) -> None:
        self._consumers: list[HubConsumer] = []
        self._drained = asyncio.Event()
        self.end_error: StreamError | None = None

    def join(self, consumer: HubConsumer) -> None:
        """Let a consumer have the messages that come from now on."""
        self._consumers.append(consumer)

    def leave(self, consumer: HubConsumer) -> None:
        """Give a consumer nothing more."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self.drained()

    def drained(self) -> None:
        """Wake who waits for room."""
        self._drained.set()

    async def offer(self, items: Iterable[Message | StreamError]) -> None:
        """Deliver messages, and errors to all, once there is room for them."""
        for item in items:
            while any(consumer.is_full for consumer in self._consumers):
                self._drained.clear()
                await self._drained.wait()
            self._deliver(item)

    def end(self, error: StreamError) -> None:
        """Say that nothing more comes, and why."""
        self.end_error = error
        for consumer in self._consumers:
            consumer.wake()

    def _deliver(self, item: Message | StreamError) -> None:
        groups: dict[str, list[HubConsumer]] = defaultdict(list)
        for consumer in self._consumers:
            if isinstance(item, StreamError) or consumer.wants(item):
                if isinstance(item, StreamError) or consumer.subscription.group is None:
                    consumer.put(item)
                else:
                    groups[consumer.subscription.group].append(consumer)
        for members in groups.values():
            assert isinstance(item, Message), "errors are for all"
            members[item.sequence % len(members)].put(item)


class HubConsumer(Consumer):
    """A consumer that a hub gives messages to."""

    def __init__(
        self, address: str, subscription: Subscription, options: StreamerOptions, hub: Hub
    ) -> None:
        super().__init__(address, subscription, options)
        self._hub = hub
        self._queue: deque[Message | StreamError] = deque()
        self._queue_max = options.prefetch_messages
        self._arrived = asyncio.Event()
        hub.join(self)

    @property
    def is_full(self) -> bool:
        """Whether it holds as many messages as it may."""
        return len(self._queue) >= self._queue_max

    def wants(self, message: Message) -> bool:
        """Whether it reads the stream of a message; all read what has no stream."""
        return message.stream_key in self.subscription.keys or message.stream_key == BROADCAST

    def put(self, item: Message | StreamError) -> None:
        """Add a message, or an error that the next call raises."""
        self._queue.append(item)
        self.wake()

    def wake(self) -> None:
        """Let a waiting call look again."""
        self._arrived.set()

    async def _fetch(self, count_max: int) -> list[Message]:
        while not self._queue:
            if self._hub.end_error is not None:
                raise self._hub.end_error
            if self._is_ended:
                raise StreamEndedError(address=self.address)
            self._arrived.clear()
            await self._arrived.wait()
        if isinstance(self._queue[0], StreamError):
            raise self._queue.popleft()  # type: ignore[misc]  # It was just looked at.
        found: list[Message] = []
        while self._queue and len(found) < count_max and isinstance(self._queue[0], Message):
            found.append(self._queue.popleft())  # type: ignore[arg-type]  # It was looked at.
        self._hub.drained()
        return found

    async def _close(self) -> None:
        self._hub.leave(self)
        self.wake()


class QueuedSender(Sender):
    """A sender whose messages wait in a queue until the other side takes them.

    Args:
        address: Where it sends to, for messages of errors.
        options: Options of the streamer.
    """

    def __init__(self, address: str, options: StreamerOptions) -> None:
        super().__init__(address)
        self._queue_max = options.send_queue_messages
        self._now_ms = SystemClock().now_ms  # The time of messages that have none.
        self._queue: list[Message] = []
        self._taken = 0
        self._written = 0
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: StreamError | None = None
        self._is_closed = False
        self._sequences: dict[tuple[StreamKey, int], int] = defaultdict(int)

    @abstractmethod
    async def _write(self, messages: list[Message]) -> None:
        """Hand messages to the other side; raise a StreamError when that fails for good."""

    def _check(self, payload: bytes) -> None:
        """Raise a StreamError when a payload cannot be sent."""

    def send(
        self, key: StreamKey, payload: bytes, *, shard_id: int | None, timestamp_ms: int | None
    ) -> Sent:
        if self._is_closed:
            raise ProducerEndedError(address=self.address)
        if self._failure is not None:
            raise self._failure
        if len(self._queue) >= self._queue_max:
            raise SendQueueFullError(address=self.address, waiting=len(self._queue))
        self._check(payload)
        stream = (key, shard_id or 0)
        sequence = self._sequences[stream]
        self._sequences[stream] = sequence + 1
        time_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
        self._queue.append(Message(*stream, sequence, time_ms, payload))
        self._taken += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return _Numbered(self, self._taken, Receipt(*stream, sequence, time_ms))

    async def flush(self) -> None:
        await self.wait_for(self._taken)

    async def wait_for(self, number: int) -> None:
        """Return once the message of this number was taken by the other side."""
        while self._written < number:
            if self._failure is not None:
                raise self._failure
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self.flush()

    async def _drain(self) -> None:
        try:
            while self._queue:
                batch = self._queue[:]
                await self._write(batch)
                del self._queue[: len(batch)]
                self._written += len(batch)
                self._moved.set()
        except StreamError as error:
            self._failure = error
        finally:
            self._moved.set()


class _Numbered:
    """The receipt of a message, true once the other side has taken it."""

    __slots__ = ("_number", "_receipt", "_sender")

    def __init__(self, sender: QueuedSender, number: int, receipt: Receipt) -> None:
        self._sender = sender
        self._number = number
        self._receipt = receipt

    def __await__(self) -> Generator[object, None, Receipt]:
        yield from self._sender.wait_for(self._number).__await__()
        return self._receipt
