"""The consumer of the Redis backend: alone, resumable, or one of a group.

One task at a time reads from the server, and continues when the call that waits for it is canceled,
so that no received message is lost.

The server stores a group. A resumable consumer reads without the group, and moves its position with
each commit. Consumers that share read by the group; other members claim the messages of a silent
member. A member that ends marks its messages as old, so that other members claim them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import platform
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from redis.exceptions import ResponseError

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import WILDCARD
from bicycle_streams.consuming import Consumer, Subscription, take_messages
from bicycle_streams.errors import (
    StreamEndedError,
    StreamError,
    StreamUnsupportedError,
    UnacknowledgedError,
)
from bicycle_streams.messages import Message, SeqPos
from bicycle_streams.redis.connection import Connection, facts_of
from bicycle_streams.redis.errors import COMMITS_ITSELF, STREAM_MISSING
from bicycle_streams.redis.ids import id_of, redis_key
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.redis.shards import Shard, Shards, entry_message

Entry = tuple[bytes, bytes]  # Name of the Redis stream, id.
_PENDING_COUNT = 1_000
_YEAR_MS = 365 * 86_400_000


def is_gone(error: ResponseError) -> bool:
    """Return whether an error means that group or stream no longer exist."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED"))


class Group:
    """The group of one consumer.

    Args:
        connection: The server.
        subscription: The subscription, with the group and the mode.
    """

    def __init__(self, connection: Connection, subscription: Subscription) -> None:
        self._connection = connection
        self._options = connection.options
        self._name = subscription.position_name
        self._shares = subscription.mode == "load-balanced"
        own = f"{platform.node()}-{os.getpid()}-{system_random().getrandbits(32):08x}"
        self._consumer = self._options.consumer_id or own
        # By Redis stream, the position up to which this member got its pending messages again.
        self._history: dict[bytes, bytes] | None = {} if self._options.consumer_id else None
        self._claim_at = 0.0
        self._given: dict[Entry, float] = {}  # With their times.

    def give(self, entry: Entry) -> None:
        """Note that the program has an entry, until it is kept."""
        if self._shares:
            self._given[entry] = asyncio.get_running_loop().time()

    def is_claimed_soon(self, entry: Entry) -> bool:
        """Return whether other members may soon claim an entry that is not kept."""
        age_s = asyncio.get_running_loop().time() - self._given.get(entry, math.inf)
        return age_s >= self._options.claim_idle_ms / 1_000 / 2

    async def join(self, shard: Shard, start: str) -> bytes:
        """Create the group if it is missing, and return the id after which it continues.

        Raises:
            StreamConnectError: the stream does not exist, and must not be created.
        """
        begin = "0" if start == "earliest" else "$"
        make = ("MKSTREAM",) if self._options.create_stream else ()
        try:
            await self._connection.call("XGROUP", "CREATE", shard.name, self._name, begin, *make)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise STREAM_MISSING(address=self._connection.address, key=shard.key) from None
        return await self._position(shard)

    async def _position(self, shard: Shard) -> bytes:
        for facts in map(facts_of, await self._connection.call("XINFO", "GROUPS", shard.name)):
            if facts["name"] == self._name.encode():
                position: bytes = facts["last-delivered-id"]
                return position
        raise STREAM_MISSING(address=self._connection.address, key=shard.key)

    async def read(self, shards: list[Shard], count: int, block_ms: int | None) -> Any:
        """Return entries for this member: earlier undone ones, claimed ones, new ones."""
        names = [shard.name for shard in shards]
        if self._history is not None:
            answer = await self._own_history(self._history, names, count)
            if any(entries for _, entries in answer):
                return answer
            self._history = None
        if claimed := await self._claim(names, count):
            return claimed
        no_ack = ("NOACK",) if self._options.auto_commit == "immediate" else ()
        command = ("XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count, *no_ack)
        return await self._connection.read(command, dict.fromkeys(names, b">"), block_ms)

    async def _own_history(
        self, history: dict[bytes, bytes], names: list[bytes], count: int
    ) -> list[Any]:
        """Return this member's undone entries, and continue after them next time."""
        begins = {name: history.get(name, b"0") for name in names}
        command = ("XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count)
        answer = await self._connection.read(command, begins, None)
        history.update((name, entries[-1][0]) for name, entries in answer if entries)
        return answer

    async def _claim(self, names: list[bytes], count: int) -> list[Any]:
        """Claim entries that other members left undone for too long, if a check is due."""
        now = asyncio.get_running_loop().time()
        if now < self._claim_at:
            return []
        found = []
        for name in names:
            _, entries, *_ = await self._connection.call(
                "XAUTOCLAIM", name, self._name, self._consumer, self._options.claim_idle_ms,
                "0-0", "COUNT", count,
            )  # fmt: skip
            new = [entry for entry in entries if (name, entry[0]) not in self._given]
            if new:
                found.append((name, new))
        if not found:
            self._claim_at = now + self._options.claim_interval_ms / 1_000
        return found

    async def keep(self, entries: list[Entry]) -> None:
        """Acknowledge entries durably; in resumable mode all earlier ones as well."""
        for entry in entries:
            self._given.pop(entry, None)
        if self._shares and self._options.auto_commit == "immediate":
            return  # The server never waited for it.
        by_name: dict[bytes, list[bytes]] = {}
        for name, entry_id in entries:
            by_name.setdefault(name, []).append(entry_id)
        for name, ids in by_name.items():
            try:
                if self._shares:
                    await self._connection.call("XACK", name, self._name, *ids)
                else:
                    await self._connection.call("XGROUP", "SETID", name, self._name, ids[-1])
            except ResponseError as error:
                if self._shares and is_gone(error):
                    continue  # The server was emptied, and there is nothing left to be done.
                await self._connection.call(
                    "XGROUP", "CREATE", name, self._name, ids[-1], "MKSTREAM"
                )

    async def leave(self, shards: list[Shard]) -> None:
        """Release this member's undone entries to other members, without waiting."""
        for shard in shards:
            pending = await self._connection.call(
                "XPENDING", shard.name, self._name, "-", "+", _PENDING_COUNT, self._consumer
            )
            if ids := [each[0] for each in pending]:
                await self._connection.call(
                    "XCLAIM", shard.name, self._name, self._consumer, 0, *ids,
                    "IDLE", _YEAR_MS, "JUSTID",
                )  # fmt: skip
            elif self._options.consumer_id is None:
                await self._connection.call(
                    "XGROUP", "DELCONSUMER", shard.name, self._name, self._consumer
                )

    def refuse_unacknowledged(self) -> None:
        """Raise when this member holds too much that is not done."""
        waits = self._options.auto_commit in ("disabled", "rolling")
        if waits and len(self._given) >= self._options.unacknowledged_max:
            raise UnacknowledgedError(
                group=self._name, address=self._connection.address, waiting=len(self._given)
            )


class Done:
    """Entries that are done, and not yet kept on the server.

    Args:
        options: The calls that record them, and the time at which they are committed.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._mode = options.auto_commit
        self._delay_s = options.auto_commit_delay_ms / 1_000
        self._noted: list[Entry] = []
        self._given: deque[tuple[float, Entry]] = deque()

    def ack(self, entry: Entry) -> None:
        """Note an entry that the program acknowledged."""
        if self._mode in ("delayed", "immediate"):
            raise COMMITS_ITSELF(auto_commit=self._mode, action="acknowledge messages")
        self._noted.append(entry)

    def refuse_commit(self) -> None:
        """Raise when commits are made without a call."""
        if self._mode != "disabled":
            raise COMMITS_ITSELF(auto_commit=self._mode, action="commit")

    def give(self, entry: Entry) -> None:
        """Note that an entry was given to the program."""
        if self._mode == "delayed":
            self._given.append((asyncio.get_running_loop().time() + self._delay_s, entry))
        elif self._mode == "immediate":
            self._noted.append(entry)

    def due(self, *, at_end: bool = False) -> list[Entry]:
        """Return the entries that must be committed now without a call of commit."""
        if self._mode == "disabled":
            return []
        now = asyncio.get_running_loop().time()
        while self._given and (at_end or self._given[0][0] <= now):
            self._noted.append(self._given.popleft()[1])
        return self.take()

    def take_if(self, is_wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Return the noted entries that fulfill a condition, which are noted no more."""
        taken = [entry for entry in self._noted if is_wanted(entry)]
        if taken:
            self._noted = [entry for entry in self._noted if not is_wanted(entry)]
        return taken

    def take(self) -> list[Entry]:
        """Return all that was noted, which is noted no more."""
        noted, self._noted = self._noted, []
        return noted

    def clear(self) -> None:
        """Forget all: the consumer has moved."""
        self._noted.clear()
        self._given.clear()


_CANCEL_AGAIN_S = 0.05


class RedisConsumer(Consumer):
    """Reads Redis streams; made by ``open``."""

    def __init__(self, connection: Connection, subscription: Subscription) -> None:
        super().__init__(connection.address, subscription, connection.options)
        self._connection = connection
        self._options = connection.options
        self._shards = Shards(connection, subscription.keys)
        self._reads: list[Shard] = []
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
                reason="a server also contains other keys",
                hint="name the streams",
            )
        consumer = cls(connection, subscription)
        for shard in await consumer._shards.discover(at_once=True):
            await consumer._begin(shard, start=subscription.start)
        return consumer

    async def _begin(self, shard: Shard, *, start: str) -> None:
        """Fix where a place is read from."""
        if self._group is not None:
            shard.last_id = await self._group.join(shard, start)
        elif start == "latest":
            shard.last_id = await self._shards.end_of(shard)
        self._reads.append(shard)

    async def _fetch(self, count_max: int) -> list[Message]:
        self._refuse_unacknowledged()
        while not self._items:
            if self._request is None:
                self._request = asyncio.create_task(self._read())
            await asyncio.wait([self._request])
            request, self._request = self._request, None
            self._items.extend(request.result())
        found = take_messages(self._items, count_max)
        if self._group is not None:
            for message in found:
                entry = (self._name_of(message), id_of(message.sequence, self._options.timestamps))
                self._done.give(entry)
                self._group.give(entry)
        return found

    async def _read(self) -> list[Message | StreamError]:
        """Return the next entries; wait for one unless the consumer ends at their end."""
        while True:
            await self._keep(self._done.due())
            if self._group is not None:  # Otherwise acknowledged messages would come again.
                await self._keep(self._done.take_if(self._group.is_claimed_soon))
            for shard in await self._shards.discover():
                if not self._assigned:
                    await self._begin(shard, start="earliest")
            try:
                items = await self._ask()
            except ResponseError as error:
                if not is_gone(error):
                    raise StreamError(
                        address=self.address,
                        problem=str(error),
                        hint="correct the cause that the server reports",
                    ) from None
                for shard in self._reads:  # The server was emptied: all in it is new.
                    shard.last_id = await self._group_anew(shard)
                continue
            if items:
                return items
            if not self.subscription.is_live:
                raise StreamEndedError(address=self.address)

    async def _group_anew(self, shard: Shard) -> bytes:
        assert self._group is not None, "only groups can be gone"
        return await self._group.join(shard, "earliest")

    async def _ask(self) -> list[Message | StreamError]:
        count = self._options.batch_messages
        block_ms = self._options.block_ms if self.subscription.is_live else None
        if self._group is not None and self._shares:
            answer = await self._group.read(self._reads, count, block_ms)
        else:
            streams = {shard.name: shard.last_id for shard in self._reads}
            answer = await self._connection.read(("XREAD", "COUNT", count), streams, block_ms)
        items: list[Message | StreamError] = []
        words = (self._options.message_field.encode(), self.address)
        form = self._options.timestamps
        for name, entries in answer:
            shard = self._shards.by_name[name]
            stream = (shard.key, shard.shard_id)
            for entry in entries:
                if (item := entry_message(entry, stream, *words, timestamps=form)) is not None:
                    items.append(item)
                shard.last_id = entry[0]
        return items

    async def _go_to(self, target: SeqPos | int) -> bool:
        """Move; a member of a group leaves the group first."""
        await self._shards.discover(at_once=True)
        shards = [
            shard
            for shard in self._shards.by_name.values()
            if not self._assigned or (shard.key, shard.shard_id) in self._assigned
        ]
        found = await self._shards.move(shards, target)
        if not found:
            return False
        await self._stop_asking()
        if self._shares and self._group is not None:
            await self._group.leave(self._reads)
            self._group, self._shares = None, False
        for shard in shards:
            # In a shard without a message at or after it, earlier messages are skipped.
            shard.last_id = found.get(shard.name) or await self._shards.end_of(shard)
        self._reads = shards
        self._items.clear()
        self._done.clear()
        return True

    async def _stop_asking(self) -> None:
        if self._request is not None:
            while not self._request.done():
                self._request.cancel()  # The client swallows it now and then.
                await asyncio.wait([self._request], timeout=_CANCEL_AGAIN_S)
            self._request = None

    def _ack(self, message: Message) -> None:
        if self._group is None:
            raise self._unsupported_error("acknowledge messages after it left its group by a move")
        self._done.ack((self._name_of(message), id_of(message.sequence, self._options.timestamps)))

    async def _commit(self) -> None:
        self._done.refuse_commit()
        await self._keep(self._done.take())

    async def _keep(self, entries: list[tuple[bytes, bytes]]) -> None:
        if entries and self._group is not None:
            await self._group.keep(entries)

    def _name_of(self, message: Message) -> bytes:
        name = redis_key(message.stream_key, message.shard_id)
        return name if message.shard_id or name in self._shards.by_name else name + b":0"

    def _refuse_unacknowledged(self) -> None:
        if self._group is not None:
            self._group.refuse_unacknowledged()

    async def _close(self) -> None:
        await self._stop_asking()
        if self._group is None:
            return
        # A server that does not respond detects this by itself.
        with contextlib.suppress(StreamError, ResponseError):
            await self._keep(self._done.due(at_end=True))
            if self._shares:
                await self._group.leave(self._reads)
