"""Merging of streams: the messages of several consumers in the order of time."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from bicycle_streams.consuming import AsyncMessages, Consumer
from bicycle_streams.errors import StreamEndedError
from bicycle_streams.messages import Message


class MergedConsumers(AsyncMessages):
    """The messages of several consumers, the earliest first.

    A message waits until each consumer has one, or has ended: nothing earlier can come then. Of
    equal times the consumer that was named first comes first, and the messages of one consumer keep
    their order. One message of each consumer is held, so that a consumer that is far ahead waits.

    Args:
        consumers: At least one consumer, without other readers. The caller ends them.

    Raises:
        ValueError: there is no consumer.
    """

    def __init__(self, consumers: Iterable[Consumer]) -> None:
        self._consumers = list(consumers)
        if not self._consumers:
            raise ValueError("there is at least one consumer to merge")
        self._missing = list(range(len(self._consumers)))
        self._heads: list[tuple[int, int, Message]] = []

    async def next(self) -> Message:
        """Wait for the next message and return it; a canceled call loses nothing.

        Raises:
            StreamEndedError: all streams have ended.
            ConsumerEndedError: one of the consumers was ended.
        """
        while self._missing:
            index = self._missing[-1]
            try:
                message = await self._consumers[index].next()
            except StreamEndedError:
                self._missing.pop()  # It has no further message, so no wait includes it.
                continue
            self._missing.pop()
            heappush(self._heads, (message.timestamp_ms, index, message))
        if not self._heads:
            addresses = ", ".join(dict.fromkeys(each.address for each in self._consumers))
            raise StreamEndedError(address=addresses)
        _, index, message = heappop(self._heads)
        self._missing.append(index)
        return message
