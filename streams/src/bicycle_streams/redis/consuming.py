"""The consumer of the Redis backend: alone, resumable, or one of a group.

The server stores a group. A resumable consumer reads without the group, and moves its position with
each commit. Consumers that share read by the group; other members claim the messages of a silent
member. A member that ends marks its messages as old, so that other members claim them at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Self

from redis.exceptions import RedisError, ResponseError

from bicycle_sdk.random_source import system_random
from bicycle_streams.addresses import WILDCARD
from bicycle_streams.consuming import Subscription
from bicycle_streams.errors import StreamEndedError, StreamError, StreamUnsupportedError
from bicycle_streams.messages import Message, SeqPos
from bicycle_streams.redis.connection import Connection, facts_of
from bicycle_streams.redis.errors import COMMITS_ITSELF, STREAM_MISSING
from bicycle_streams.redis.ids import FIRST, ZeroKey, id_of, redis_key
from bicycle_streams.redis.options import RedisOptions
from bicycle_streams.redis.shards import Shard, Shards, entry_message
from bicycle_streams.thread_consuming import ThreadConsumer

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
        self._cursors: dict[bytes, bytes] = {}  # By Redis stream, where the next claim begins.
        self._given: dict[Entry, float] = {}  # With their times.

    def give(self, entry: Entry) -> None:
        """Note that the program has an entry, until it is kept."""
        if self._shares:
            self._given[entry] = time.monotonic()

    def is_claimed_soon(self, entry: Entry) -> bool:
        """Return whether other members may soon claim an entry that is not kept."""
        age_s = time.monotonic() - self._given.get(entry, math.inf)
        return age_s >= self._options.claim_idle_ms / 1_000 / 2

    def join(self, shard: Shard, start: str) -> bytes:
        """Create the group if it is missing, and return the id after which it continues.

        Raises:
            StreamConnectError: the stream does not exist, and must not be created.
        """
        begin = "0" if start == "earliest" else "$"
        make = ("MKSTREAM",) if self._options.create_stream else ()
        try:
            self._connection.call("XGROUP", "CREATE", shard.name, self._name, begin, *make)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise STREAM_MISSING(address=self._connection.address, key=shard.key) from None
        return self._position(shard)

    def _position(self, shard: Shard) -> bytes:
        for facts in map(facts_of, self._connection.call("XINFO", "GROUPS", shard.name)):
            if facts["name"] == self._name.encode():
                position: bytes = facts["last-delivered-id"]
                return position
        raise STREAM_MISSING(address=self._connection.address, key=shard.key)

    def read(self, shards: list[Shard], count: int, block_ms: int | None) -> Any:
        """Return entries for this member: earlier undone ones, claimed ones, new ones."""
        names = [shard.name for shard in shards]
        if self._history is not None:
            answer = self._own_history(self._history, names, count)
            if any(entries for _, entries in answer):
                return answer
            self._history = None
        if claimed := self._claim(names, count):
            return claimed
        command = ("XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count)
        return self._connection.read(command, dict.fromkeys(names, b">"), block_ms)

    def _own_history(
        self, history: dict[bytes, bytes], names: list[bytes], count: int
    ) -> list[Any]:
        """Return this member's undone entries, and continue after them next time."""
        begins = {name: history.get(name, b"0") for name in names}
        command = ("XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count)
        answer = self._connection.read(command, begins, None)
        history.update((name, entries[-1][0]) for name, entries in answer if entries)
        return answer

    def _claim(self, names: list[bytes], count: int) -> list[Any]:
        """Claim entries that other members left undone for too long, if a check is due."""
        now = time.monotonic()
        if now < self._claim_at:
            return []
        found = []
        for name in names:
            new: list[Any] = []
            cursor = self._cursors.pop(name, FIRST)
            while not new:
                cursor, entries, *_ = self._connection.call(
                    "XAUTOCLAIM", name, self._name, self._consumer, self._options.claim_idle_ms,
                    cursor, "COUNT", count,
                )  # fmt: skip
                # Redis 6.2 returns deleted entries as None.
                new = [each for each in entries if each and (name, each[0]) not in self._given]
                if cursor == FIRST:
                    break
                self._cursors[name] = cursor
            if new:
                found.append((name, new))
        if not found:
            self._claim_at = now + self._options.claim_interval_ms / 1_000
        return found

    def keep(self, entries: list[Entry]) -> None:
        """Acknowledge entries durably; in resumable mode all earlier ones as well."""
        by_name: dict[bytes, list[bytes]] = {}
        for name, entry_id in entries:
            by_name.setdefault(name, []).append(entry_id)
        for name, ids in by_name.items():
            if not self._shares:
                self._connection.move_group(name, self._name, ids[-1])
                continue
            try:
                self._connection.call("XACK", name, self._name, *ids)
            except ResponseError as error:
                if not is_gone(error):  # Otherwise there is nothing left to be done.
                    raise
        for entry in entries:
            self._given.pop(entry, None)

    def leave(self, shards: list[Shard]) -> None:
        """Release this member's undone entries to other members, without waiting."""
        for shard in shards:
            pending = self._connection.call(
                "XPENDING", shard.name, self._name, "-", "+", _PENDING_COUNT, self._consumer
            )
            if ids := [each[0] for each in pending]:
                self._connection.call(
                    "XCLAIM", shard.name, self._name, self._consumer, 0, *ids,
                    "IDLE", _YEAR_MS, "JUSTID",
                )  # fmt: skip
            elif self._options.consumer_id is None:
                self._connection.call(
                    "XGROUP", "DELCONSUMER", shard.name, self._name, self._consumer
                )

    def unacknowledged_count(self) -> int:
        """Return how much this member holds that waits for the program."""
        waits = self._options.auto_commit in ("disabled", "rolling")
        return len(self._given) if waits else 0


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
            self._given.append((time.monotonic() + self._delay_s, entry))
        elif self._mode == "immediate":
            self._noted.append(entry)

    def due(self, *, at_end: bool = False) -> list[Entry]:
        """Return the entries that must be committed now without a call of commit."""
        if self._mode == "disabled":
            return []
        now = time.monotonic()
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

    def put_back(self, entries: list[Entry]) -> None:
        """Note entries again, since the server may not have them."""
        self._noted[:0] = entries

    def withdraw(self, entries: set[Entry]) -> None:
        """Forget entries that the program did not get in the end."""
        self._noted = [entry for entry in self._noted if entry not in entries]
        self._given = deque(each for each in self._given if each[1] not in entries)

    def clear(self) -> None:
        """Forget all: the consumer has moved."""
        self._noted.clear()
        self._given.clear()


class RedisConsumer(ThreadConsumer):
    """Reads Redis streams; made by ``open``."""

    client_error: ClassVar[type[Exception]] = RedisError

    def __init__(self, connection: Connection, subscription: Subscription) -> None:
        super().__init__(connection.address, subscription, connection.options)
        self._connection = connection = connection.branch()
        self._options = connection.options
        self._shards = Shards(connection, subscription.keys)
        self._reads: list[Shard] = []
        self._done = Done(connection.options)
        self._group = Group(connection, subscription) if self._keeps else None
        self._acknowledged: dict[bytes, int] = {}  # The last sequence by Redis stream.

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
        return await cls(connection, subscription)._start()

    def _begin(self) -> None:
        for shard in self._shards.discover(at_once=True):
            self._begin_shard(shard, start=self.subscription.start)

    def _begin_shard(self, shard: Shard, *, start: str) -> None:
        """Fix where a shard is read from."""
        if self._group is not None:
            shard.last_id = self._group.join(shard, start)
        elif start == "latest":
            shard.last_id = self._shards.end_of(shard)
        self._reads.append(shard)

    def _error_of(self, error: RedisError) -> StreamError:
        hint = "correct the cause that the server reports"
        return StreamError(address=self.address, problem=str(error), hint=hint)

    async def _fetch(self, count_max: int) -> list[Message]:
        found = await super()._fetch(count_max)
        if self._group is not None:
            for message in found:
                entry = self._entry_of(message)
                self._done.give(entry)
                self._group.give(entry)
        return found

    async def _read_in_thread(self) -> list[Message | StreamError]:
        await self._keep(self._done.due())
        if self._group is not None:  # Otherwise acknowledged messages would come again.
            await self._keep(self._done.take_if(self._group.is_claimed_soon))
        return await super()._read_in_thread()

    def _read(self) -> list[Message | StreamError]:
        for shard in self._shards.discover():
            if not self._assigned:
                self._begin_shard(shard, start="earliest")
        try:
            items = self._ask()
        except ResponseError as error:
            if self._group is None or not is_gone(error):
                raise
            for shard in self._reads:  # The server was emptied: all in it is new.
                shard.last_id = self._group.join(shard, "earliest")
            return []
        if not items and not self.subscription.is_live:
            raise StreamEndedError(address=self.address)
        return items

    def _ask(self) -> list[Message | StreamError]:
        count = self._options.batch_messages
        block_ms = self._options.block_ms if self.subscription.is_live else None
        if self._group is not None and self._shares:
            answer = self._group.read(self._reads, count, block_ms)
        else:
            streams = {shard.name: shard.last_id for shard in self._reads}
            answer = self._connection.read(("XREAD", "COUNT", count), streams, block_ms)
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

    def _move_client(self, target: SeqPos | int) -> bool:
        self._shards.discover(at_once=True)
        shards = [
            shard
            for shard in self._shards.by_name.values()
            if not self._assigned or (shard.key, shard.shard_id) in self._assigned
        ]
        found = self._shards.move(shards, target)
        if not found:
            return False
        if self._shares and self._group is not None:
            self._group.leave(self._reads)
            self._group, self._shares, self._keeps = None, False, False
        for shard in shards:
            # In a shard without a message at or after it, earlier messages are skipped.
            shard.last_id = found.get(shard.name) or self._shards.end_of(shard)
        self._reads = shards
        return True

    def _forget(self) -> None:
        super()._forget()
        self._done.clear()
        self._acknowledged.clear()

    def _ack(self, message: Message) -> None:
        self._require_group()
        entry = self._entry_of(message)
        if self._shares or message.sequence >= self._acknowledged.get(entry[0], 0):
            self._done.ack(entry)
            self._acknowledged[entry[0]] = message.sequence

    async def _commit(self) -> None:
        self._done.refuse_commit()
        await self._keep(self._done.take())

    async def _keep(self, entries: list[Entry]) -> None:
        if entries and self._group is not None:
            try:
                await self._in_thread(self._group.keep, entries)
            except BaseException:
                self._done.put_back(entries)
                raise

    def _entry_of(self, message: Message) -> Entry:
        name = redis_key(message.stream_key, message.shard_id)
        if isinstance(message.stream_key, ZeroKey):
            name += b":0"
        return name, id_of(message.sequence, self._options.timestamps)

    def _unacknowledged_count(self) -> int:
        return 0 if self._group is None else self._group.unacknowledged_count()

    async def _close(self) -> None:
        self._connection.is_stopping.set()  # A started read is not repeated.
        await self._finish_read()
        self._connection.is_stopping.clear()
        self._done.withdraw(set(map(self._entry_of, self._ready)))
        await super()._close()

    def _close_client(self) -> None:
        if self._group is None:
            return
        # A server that does not respond detects this by itself.
        with contextlib.suppress(StreamError, ResponseError):
            if entries := self._done.due(at_end=True):
                self._group.keep(entries)
            if self._shares:
                self._group.leave(self._reads)
