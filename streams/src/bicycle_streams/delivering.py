"""Delivery of messages that are gone once they are read.

A ``Hub`` delivers each message to all consumers of its stream, and within a group to one consumer.
Its queues are bounded: while a queue is full, ``offer`` waits, and with it the reader of the input.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable

from bicycle_streams.consuming import Consumer, Subscription, take_messages
from bicycle_streams.errors import StreamError
from bicycle_streams.lines import BROADCAST
from bicycle_streams.messages import Message
from bicycle_streams.options import StreamerOptions

PREFETCH_BYTES = 32 << 20  # A consumer holds no more, whatever the size of its messages.


class Hub:
    """The distribution of incoming messages to the consumers of one streamer."""

    def __init__(self) -> None:
        self._consumers: list[HubConsumer] = []
        self.drained = asyncio.Event()  # Wakes tasks that wait for room.
        self.end_error: StreamError | None = None

    def join(self, consumer: HubConsumer) -> None:
        """Register a consumer for all later messages."""
        self._consumers.append(consumer)

    def leave(self, consumer: HubConsumer) -> None:
        """Deliver no further messages to a consumer."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        self.drained.set()

    async def offer(self, items: Iterable[Message | StreamError]) -> None:
        """Deliver messages, and errors to all, once there is room for them."""
        for item in items:
            await self.wait_for_room()
            self.deliver(item)

    async def wait_for_room(self) -> None:
        """Wait until no consumer holds as much as it may."""
        while any(consumer.is_full for consumer in self._consumers):
            self.drained.clear()
            await self.drained.wait()

    def end(self, error: StreamError) -> None:
        """Note that no further messages will arrive, and the reason."""
        self.end_error = error
        for consumer in self._consumers:
            consumer.arrived.set()

    def deliver(self, item: Message | StreamError) -> None:
        """Deliver a message to the consumers of its stream, or an error to all."""
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
    """A consumer that receives messages from a hub."""

    def __init__(
        self, address: str, subscription: Subscription, options: StreamerOptions, hub: Hub
    ) -> None:
        super().__init__(address, subscription, options)
        self._hub = hub
        self._queue: deque[Message | StreamError] = deque()
        self._queue_max = options.prefetch_messages
        self._queue_bytes = 0
        self.arrived = asyncio.Event()  # Wakes a waiting call to check again.
        hub.join(self)

    @property
    def is_full(self) -> bool:
        """Return whether its queue is full."""
        return len(self._queue) >= self._queue_max or self._queue_bytes >= PREFETCH_BYTES

    def wants(self, message: Message) -> bool:
        """Return whether the consumer reads the stream of a message or it is a broadcast."""
        return message.stream_key in self.subscription.keys or message.stream_key == BROADCAST

    def put(self, item: Message | StreamError) -> None:
        """Add a message, or an error that the next call raises."""
        self._queue.append(item)
        if isinstance(item, Message):
            self._queue_bytes += len(item.payload)
        self.arrived.set()

    async def _fetch(self, count_max: int) -> list[Message]:
        while not self._queue:
            if self._hub.end_error is not None:
                raise self._hub.end_error
            self.arrived.clear()
            await self.arrived.wait()
        found = take_messages(self._queue, count_max)
        self._queue_bytes -= sum(len(message.payload) for message in found)
        self._hub.drained.set()
        return found

    def leave(self) -> list[Message]:
        """Leave the hub, and return delivered messages that were not read."""
        self._hub.leave(self)
        queue, self._queue, self._queue_bytes = self._queue, deque(), 0
        ready, self._ready = self._ready, deque()
        return [*ready, *(item for item in queue if isinstance(item, Message))]

    async def _close(self) -> None:
        self._hub.leave(self)
