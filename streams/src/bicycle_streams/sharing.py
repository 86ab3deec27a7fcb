"""Groups within one process: consumers that share the messages of one reader.

A message goes to the member at ``sequence mod members``. The member that reads does so for all
members, and puts the messages of other members into their queues. The queues are bounded: a member
that never reads blocks the others instead of filling the memory. When a member ends, the others get
its unacknowledged messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import UnacknowledgedError
from bicycle_streams.messages import Message

Position: TypeAlias = tuple[StreamKey, int, int]


class Member:
    """One consumer of a group: its queue, and its unacknowledged messages."""

    def __init__(self) -> None:
        self.queue: deque[Message] = deque()
        self.unacknowledged: dict[Position, Message] = {}


class SharedReader:
    """The reader of a group, and its members.

    Args:
        fetch: Waits for messages and returns up to the given number; a canceled call removes no
            message.
        name: The group, for error messages.
        address: The address that is read, for error messages.
        queue_max: Maximum number of messages in the queue of a member.
        unacknowledged_max: Maximum number of delivered messages without acknowledgment.
    """

    def __init__(
        self,
        fetch: Callable[[int], Awaitable[list[Message]]],
        *,
        name: str,
        address: str,
        queue_max: int,
        unacknowledged_max: int,
    ) -> None:
        self._fetch = fetch
        self._name = name
        self._address = address
        self._queue_max = queue_max
        self._unacknowledged_max = unacknowledged_max
        self._members: list[Member] = []
        self._lock = asyncio.Lock()
        self._drained = asyncio.Event()
        self._delivered: dict[tuple[StreamKey, int], int] = {}

    def join(self) -> Member:
        """Add a member, which gets its share from the next message on."""
        member = Member()
        self._members.append(member)
        return member

    def leave(self, member: Member) -> bool:
        """Move a member's unacknowledged messages to others; return whether others exist."""
        self._members.remove(member)
        rest = sorted(
            [*member.unacknowledged.values(), *member.queue],
            key=lambda message: (message.timestamp_ms, message.sequence),
        )
        if self._members:
            for message in reversed(rest):
                self._member_of(message).queue.appendleft(message)
        self._drained.set()
        return bool(self._members)

    async def fetch(self, member: Member, count_max: int) -> list[Message]:
        """Wait for messages of a member, and return up to so many."""
        waiting = len(member.unacknowledged)
        if waiting >= self._unacknowledged_max:
            raise UnacknowledgedError(group=self._name, address=self._address, waiting=waiting)
        while not member.queue:
            async with self._lock:
                if not member.queue:
                    await self._read(count_max)
        batch = [member.queue.popleft() for _ in range(min(count_max, len(member.queue)))]
        member.unacknowledged.update((_position(message), message) for message in batch)
        self._drained.set()
        return batch

    def ack(self, member: Member, message: Message) -> None:
        """Note that a member is done with a message."""
        member.unacknowledged.pop(_position(message), None)

    def positions(self) -> dict[tuple[StreamKey, int], int]:
        """Return for each shard the sequence that comes next after all that are done with."""
        positions = {stream: last + 1 for stream, last in self._delivered.items()}
        for member in self._members:
            for message in (*member.unacknowledged.values(), *member.queue):
                stream = (message.stream_key, message.shard_id)
                positions[stream] = min(positions[stream], message.sequence)
        return positions

    async def _read(self, count_max: int) -> None:
        while any(len(other.queue) >= self._queue_max for other in self._members):
            self._drained.clear()
            await self._drained.wait()
        for message in await self._fetch(min(count_max, self._queue_max)):
            self._member_of(message).queue.append(message)
            stream = (message.stream_key, message.shard_id)
            self._delivered[stream] = max(message.sequence, self._delivered.get(stream, 0))

    def _member_of(self, message: Message) -> Member:
        return self._members[message.sequence % len(self._members)]


def _position(message: Message) -> Position:
    return message.stream_key, message.shard_id, message.sequence
