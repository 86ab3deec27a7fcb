"""The consumer of the Redis backend: alone, resumable, or one of a group.

One task at a time asks the server, and goes on when the call that waits for it is cancelled: what
the server gave is never lost on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Self

from redis.exceptions import ResponseError

from bicycle_runtime.streams.addresses import WILDCARD
from bicycle_runtime.streams.consuming import Consumer, Subscription
from bicycle_runtime.streams.errors import (
    SeekError,
    StreamEndedError,
    StreamError,
    StreamUnsupportedError,
)
from bicycle_runtime.streams.messages import At, Message, SeqPos
from bicycle_runtime.streams.redis.connection import Connection
from bicycle_runtime.streams.redis.groups import Done, Group, is_gone
from bicycle_runtime.streams.redis.ids import id_of, redis_key
from bicycle_runtime.streams.redis.places import Place, Places

__all__ = ["RedisConsumer"]

_CANCEL_AGAIN_S = 0.05


class RedisConsumer(Consumer):
    """Reads Redis streams; made by ``open``."""

    def __init__(self, connection: Connection, subscription: Subscription) -> None:
        super().__init__(connection.address, subscription, connection.options)
        self._connection = connection
        self._options = connection.options
        self._places = Places(connection, subscription.keys)
        self._reads: list[Place] = []
        self._done = Done(connection.options)
        self._group: Group | None = None
        if subscription.mode != "real-time":
            self._group = Group(connection, subscription)
        self._shares = subscription.mode == "load-balanced"
        self._items: deque[Message | StreamError] = deque()
        self._request: asyncio.Task[list[Message | StreamError]] | None = None

    @classmethod
    async def open(cls, connection: Connection, subscription: Subscription) -> Self:
        """Return a consumer whose position is fixed."""
        if WILDCARD in subscription.keys:
            raise StreamUnsupportedError(
                backend=connection.address,
                action="read all streams",
                reason="a server holds other things, too",
                hint="name the streams",
            )
        consumer = cls(connection, subscription)
        for place in await consumer._places.discover(at_once=True):
            await consumer._begin(place, start=subscription.start)
        return consumer

    async def _begin(self, place: Place, *, start: str) -> None:
        """Fix where a place is read from."""
        if self._group is not None:
            place.last_id = await self._group.join(place, start)
        elif start == "latest":
            place.last_id = await self._places.end_of(place)
        self._reads.append(place)

    async def _fetch(self, count_max: int) -> list[Message]:
        self._refuse_unacknowledged()
        while not self._items:
            if self._request is None:
                self._request = asyncio.create_task(self._read())
            await asyncio.wait([self._request])
            request, self._request = self._request, None
            self._items.extend(request.result())
        if isinstance(self._items[0], StreamError):
            raise self._items.popleft()  # type: ignore[misc]  # It was just looked at.
        found: list[Message] = []
        while self._items and len(found) < count_max and isinstance(self._items[0], Message):
            found.append(self._items.popleft())  # type: ignore[arg-type]  # It was looked at.
        if self._group is not None:
            for message in found:
                entry = (self._name_of(message), id_of(message.sequence))
                self._done.give(entry)
                self._group.give(entry)
        return found

    async def _read(self) -> list[Message | StreamError]:
        """Return entries that follow; waits for one unless the consumer ends where they do."""
        while True:
            await self._keep(self._done.due())
            for place in await self._places.discover():
                if not self._assigned:
                    await self._begin(place, start="earliest")
            try:
                items = await self._ask()
            except ResponseError as error:
                if not is_gone(error):
                    raise StreamError(
                        address=self.address, problem=str(error), hint="see what the server says"
                    ) from None
                for place in self._reads:  # The server was emptied: all in it is new.
                    place.last_id = await self._group_anew(place)
                continue
            if items:
                return items
            if not self.subscription.is_live:
                raise StreamEndedError(address=self.address)

    async def _group_anew(self, place: Place) -> bytes:
        assert self._group is not None, "only groups can be gone"
        return await self._group.join(place, "earliest")

    async def _ask(self) -> list[Message | StreamError]:
        count = self._options.batch_messages
        block = ("BLOCK", self._options.block_ms) if self.subscription.is_live else ()
        if self._group is not None and self._shares:
            answer = await self._group.read(self._reads, count, block)
        else:
            names = [place.name for place in self._reads]
            ids = [place.last_id for place in self._reads]
            answer = await self._connection.call(
                "XREAD", "COUNT", count, *block, "STREAMS", *names, *ids
            )
        items: list[Message | StreamError] = []
        for name, entries in answer or ():
            place = self._places.by_name[name]
            for entry_id, fields in entries:
                item = self._places.message(place, entry_id, fields)
                if item is not None:
                    items.append(item)
                place.last_id = entry_id
        return items

    async def _seek(self, timestamp_ms: int) -> None:
        await self._move(timestamp_ms, f"time {timestamp_ms}")

    async def _rewind(self, position: SeqPos) -> None:
        target = f"sequence {position.sequence}" if isinstance(position, At) else str(position)
        await self._move(position, target)

    async def _move(self, target: SeqPos | int, text: str) -> None:
        """Move; who shared messages leaves the group for it."""
        await self._places.discover(at_once=True)
        places = [
            place
            for place in self._places.by_name.values()
            if not self._assigned or (place.key, place.shard_id) in self._assigned
        ]
        found = await self._places.move(places, target)
        if not found:
            raise SeekError(address=self.address, target=text)
        await self._stop_asking()
        if self._shares and self._group is not None:
            await self._group.leave(self._reads)
            self._group, self._shares = None, False
        for place in places:
            # What lies before it in a shard without anything at or behind it is not wanted.
            place.last_id = found.get(place.name) or await self._places.end_of(place)
        self._reads = places
        self._items.clear()
        self._done.clear()

    async def _stop_asking(self) -> None:
        if self._request is not None:
            while not self._request.done():
                self._request.cancel()  # The client swallows it now and then.
                await asyncio.wait([self._request], timeout=_CANCEL_AGAIN_S)
            self._request = None

    def _ack(self, message: Message) -> None:
        if self._group is None:
            raise self._unsupported("acknowledge messages after it left its group by a move")
        self._done.ack((self._name_of(message), id_of(message.sequence)))

    async def _commit(self) -> None:
        self._done.refuse_commit()
        await self._keep(self._done.take())

    async def _keep(self, entries: list[tuple[bytes, bytes]]) -> None:
        if entries and self._group is not None:
            await self._group.keep(entries)

    def _name_of(self, message: Message) -> bytes:
        name = redis_key(message.stream_key, message.shard_id)
        return name if message.shard_id or name in self._places.by_name else name + b":0"

    def _refuse_unacknowledged(self) -> None:
        if self._group is not None:
            self._group.refuse_unacknowledged()

    async def _close(self) -> None:
        await self._stop_asking()
        if self._group is None:
            return
        # What cannot be told to a server that is gone, it will find out by itself.
        with contextlib.suppress(StreamError, ResponseError):
            await self._keep(self._done.due(at_end=True))
            if self._shares:
                await self._group.leave(self._reads)
