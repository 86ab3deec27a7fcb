"""A group on the server: a position for who resumes, and shared entries for who shares.

Who resumes reads without the group, and moves its position with each commit. Who shares reads
through it; what a silent member holds is claimed by the others. A member that ends makes what it
holds look old, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections import deque
from typing import Any

from redis.exceptions import ResponseError

from bicycle_runtime.base.ids import system_random
from bicycle_runtime.streams.consuming import Subscription
from bicycle_runtime.streams.errors import UnacknowledgedError
from bicycle_runtime.streams.redis.connection import Connection
from bicycle_runtime.streams.redis.errors import COMMITS_ITSELF, STREAM_MISSING
from bicycle_runtime.streams.redis.options import RedisOptions
from bicycle_runtime.streams.redis.places import Place

__all__ = ["Done", "Group", "is_gone"]

Entry = tuple[bytes, bytes]  # Name of the Redis stream, id.
_PENDING_COUNT = 1_000
_YEAR_MS = 365 * 86_400_000


def is_gone(error: ResponseError) -> bool:
    """Whether an error says that group or stream do not exist any more."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED"))


class Group:
    """What one consumer has to do with its group.

    Args:
        connection: The server.
        subscription: Names the group, and says whether it shares.
    """

    def __init__(self, connection: Connection, subscription: Subscription) -> None:
        self._connection = connection
        self._options = connection.options
        self._name = subscription.position_name
        self._shares = subscription.mode == "load-balanced"
        own = f"{platform.node()}-{os.getpid()}-{system_random().getrandbits(32):08x}"
        self._consumer = self._options.consumer_id or own
        # By Redis stream, up to where this member was given again what it left in an earlier life.
        self._history: dict[bytes, bytes] | None = {} if self._options.consumer_id else None
        self._claim_at = 0.0
        self._given: set[Entry] = set()

    def give(self, entry: Entry) -> None:
        """Note that the program has an entry, until it is kept."""
        if self._shares:
            self._given.add(entry)

    async def join(self, place: Place, start: str) -> bytes:
        """Make the group if it is missing, and return the id behind which it goes on.

        Raises:
            StreamConnectError: there is no such stream, and none is to be made.
        """
        begin = "0" if start == "earliest" else "$"
        make = ("MKSTREAM",) if self._options.make_stream else ()
        try:
            await self._connection.call("XGROUP", "CREATE", place.name, self._name, begin, *make)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise STREAM_MISSING(address=self._connection.address, key=place.key) from None
        return await self._position(place)

    async def _position(self, place: Place) -> bytes:
        for found in await self._connection.call("XINFO", "GROUPS", place.name):
            facts = dict(zip(found[::2], found[1::2], strict=True))
            if facts[b"name"] == self._name.encode():
                position: bytes = facts[b"last-delivered-id"]
                return position
        raise STREAM_MISSING(address=self._connection.address, key=place.key)

    async def read(self, places: list[Place], count: int, block: tuple[Any, ...]) -> Any:
        """Return entries for this member: its own of an earlier life, claimed ones, new ones."""
        names = [place.name for place in places]
        if self._history is not None:
            answer = await self._own_history(self._history, names, count)
            if any(entries for _, entries in answer):
                return answer
            self._history = None
        if claimed := await self._claim(names, count):
            return claimed
        no_ack = ("NOACK",) if self._options.auto_commit == "immediate" else ()
        return await self._connection.call(
            "XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count, *block, *no_ack,
            "STREAMS", *names, *[b">"] * len(names),
        )  # fmt: skip

    async def _own_history(
        self, history: dict[bytes, bytes], names: list[bytes], count: int
    ) -> list[Any]:
        """Return what is this member's and not done, and go on behind it next time."""
        begins = [history.get(name, b"0") for name in names]
        answer = await self._connection.call(
            "XREADGROUP", "GROUP", self._name, self._consumer, "COUNT", count,
            "STREAMS", *names, *begins,
        )  # fmt: skip
        history.update((name, entries[-1][0]) for name, entries in answer or () if entries)
        return answer or []

    async def _claim(self, names: list[bytes], count: int) -> list[Any]:
        """Return what others left undone for too long, where it is time to look."""
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
        """Make it durable that entries are done; for who resumes, all before them as well."""
        self._given.difference_update(entries)
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

    async def leave(self, places: list[Place]) -> None:
        """Let others have what this member did not get done, without waiting."""
        for place in places:
            pending = await self._connection.call(
                "XPENDING", place.name, self._name, "-", "+", _PENDING_COUNT, self._consumer
            )
            if ids := [each[0] for each in pending]:
                await self._connection.call(
                    "XCLAIM", place.name, self._name, self._consumer, 0, *ids,
                    "IDLE", _YEAR_MS, "JUSTID",
                )  # fmt: skip
            elif self._options.consumer_id is None:
                await self._connection.call(
                    "XGROUP", "DELCONSUMER", place.name, self._name, self._consumer
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
        options: Say which calls note them, and when they are kept.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._mode = options.auto_commit
        self._delay_s = options.auto_commit_delay_ms / 1_000
        self._noted: list[Entry] = []
        self._given: deque[tuple[float, Entry]] = deque()

    def ack(self, entry: Entry) -> None:
        """Note an entry because the program says so."""
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
        """Return what is to be kept now without a call of commit."""
        if self._mode == "disabled":
            return []
        now = asyncio.get_running_loop().time()
        while self._given and (at_end or self._given[0][0] <= now):
            self._noted.append(self._given.popleft()[1])
        return self.take()

    def take(self) -> list[Entry]:
        """Return all that was noted, which is noted no more."""
        noted, self._noted = self._noted, []
        return noted

    def clear(self) -> None:
        """Forget all: the consumer has moved."""
        self._noted.clear()
        self._given.clear()
