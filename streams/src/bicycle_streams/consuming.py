"""Consumers of messages: positions, batches and acknowledgments, for all backends.

A backend subclasses ``Consumer`` and fills in the methods whose names begin with an underscore. A
canceled call loses nothing: the message is given to the next call.
"""

from __future__ import annotations

import asyncio
import platform
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

from bicycle_sdk.options import check, option
from bicycle_streams.addresses import StreamKey
from bicycle_streams.errors import (
    CommitNotAllowedError,
    ConsumerEndedError,
    ConsumerGroupIsSetError,
    ConsumerGroupNotSetError,
    SeekError,
    StreamEndedError,
    StreamError,
    StreamKeyEmptyError,
    StreamKeyNotFoundError,
    StreamUnsupportedError,
)
from bicycle_streams.messages import At, Message, SeqPos
from bicycle_streams.options import Mode, Start, StreamerOptions

# The largest sequence of any backend; the smallest is 0.
_SEQUENCE_MAX, _TIME_MAX = (1 << 64) - 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The parameters of one consumer."""

    keys: tuple[StreamKey, ...]
    mode: Mode = option(
        "real-time",
        doc="Mode of the consumer: which position it stores, and whether consumers share messages.",
    )
    group: str | None = option(
        None, doc="Consumer group that shares messages or stores the position."
    )
    start: Start = option("latest", doc="Start position if no position is stored.")
    is_live: bool = option(True, doc="Whether to wait for further messages at the end.")

    def __post_init__(self) -> None:
        check(self)
        if self.mode == "real-time" and self.group is not None:
            raise ConsumerGroupIsSetError(group=self.group)
        if self.mode == "load-balanced" and self.group is None:
            raise ConsumerGroupNotSetError()

    @property
    def position_name(self) -> str:
        """The name of the kept position: the group, or this host without one."""
        return self.group or f"host-{platform.node() or 'unknown'}"


def take_messages(items: deque[Message | StreamError], count_max: int) -> list[Message]:
    """Take messages out of a queue, up to an error; raise the error where it is first.

    Args:
        items: At least one.
        count_max: At least 1.
    """
    found: list[Message] = []
    append, pop = found.append, items.popleft
    for _ in range(min(count_max, len(items))):  # hot path: 0.07 µs a message.
        item = pop()
        if isinstance(item, StreamError):
            if not found:
                raise item
            items.appendleft(item)
            break
        append(item)
    return found


class AsyncMessages(ABC):
    """A source of messages in order, which is an async iterator."""

    @abstractmethod
    async def next(self) -> Message:
        """Wait for the next message and return it; raise StreamEndedError at the end."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.next()
        except StreamEndedError:
            raise StopAsyncIteration from None


class Consumer(AsyncMessages):
    """Reads messages of one or more streams; made by ``Streamer.create_consumer``.

    Args:
        address: The address that it reads, for error messages.
        subscription: The requested streams, mode and start.
        options: Options of the streamer.
    """

    def __init__(self, address: str, subscription: Subscription, options: StreamerOptions) -> None:
        self.address = address
        self.subscription = subscription
        self._prefetch_messages = options.prefetch_messages
        self._ready: deque[Message] = deque()
        self._reading = asyncio.Lock()
        self._assigned: set[tuple[StreamKey, int]] = set()
        self._is_ended = False
        self._closing: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[Any] | None = None  # The task that waits for messages.

    @property
    def has_ended(self) -> bool:
        """Return whether ``end`` was called, or its streamer disconnected."""
        return self._is_ended

    @abstractmethod
    async def _fetch(self, count_max: int) -> list[Message]:
        """Wait for a message, and return up to ``count_max`` available messages.

        Called by one task at a time. A call that is canceled must have taken nothing.

        Raises:
            StreamEndedError: there is no further message.
        """

    async def _go_to(self, target: SeqPos | int) -> bool:
        """Move each assigned shard to a position, or to its earliest message from a time.

        Returns:
            Whether one of them has a message there; if not, the position is unchanged.
        """
        raise self._unsupported_error("seek" if isinstance(target, int) else "rewind")

    def _ack(self, message: Message) -> None:
        """Note that a message is done; ``_commit`` keeps it."""
        raise self._unsupported_error("acknowledge messages")

    async def _commit(self) -> None:
        """Keep the position that follows from the acknowledged messages."""
        raise self._unsupported_error("keep a position")

    @abstractmethod
    async def _close(self) -> None:
        """Release the resources of the consumer. Called once."""

    def _unsupported_error(
        self,
        action: str,
        reason: str = "its messages are deleted once they are read",
        hint: str = "use a backend that keeps messages: file, kafka, pulsar, redis",
    ) -> StreamUnsupportedError:
        return StreamUnsupportedError(backend=self.address, action=action, reason=reason, hint=hint)

    def _left_group_error(self) -> StreamUnsupportedError:
        """Return the error of an acknowledgment by a consumer that shared, and has moved."""
        reason = "a consumer that shares messages leaves its group when it moves"
        hint = "create another consumer of the group"
        action = "acknowledge messages after a seek or rewind"
        return self._unsupported_error(action, reason, hint)

    async def next(self) -> Message:
        """Wait for the next message and return it.

        Raises:
            StreamEndedError: there is no further message.
            ConsumerEndedError: the consumer was ended.
        """
        while not self._ready:
            await self._fill(self._prefetch_messages)
        return self._ready.popleft()

    async def next_batch(self, count_max: int, *, wait_ms: int = 0) -> list[Message]:
        """Return the next messages, at least one and at most ``count_max``.

        Args:
            count_max: At least 1.
            wait_ms: How long to wait for more once the first is there.
        """
        if count_max < 1:
            raise ValueError("a batch has at least one message")
        batch = await self._some(count_max)
        if wait_ms and len(batch) < count_max:
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    while len(batch) < count_max:
                        batch += await self._some(count_max - len(batch))
            except (TimeoutError, StreamEndedError):
                return batch
            except BaseException:  # Canceled, or an error: the next call returns them.
                self._ready.extendleft(reversed(batch))
                raise
        return batch

    async def batches(self, count_max: int, *, wait_ms: int = 0) -> AsyncIterator[list[Message]]:
        """Iterate over batches, as ``next_batch`` returns them, to the end of the streams."""
        while True:
            try:
                batch = await self.next_batch(count_max, wait_ms=wait_ms)
            except StreamEndedError:
                return
            yield batch

    async def seek(self, timestamp_ms: int) -> None:
        """Move each shard to the earliest message at or after ``timestamp_ms``.

        Raises:
            SeekError: there is no such message; the position is unchanged.
            StreamUnsupportedError: the backend keeps no messages.
        """
        time_ms = min(max(0, int(timestamp_ms)), _TIME_MAX)
        await self._move(time_ms, f"time {time_ms}")

    async def rewind(self, position: SeqPos) -> None:
        """Move each shard to ``BEGINNING``, to ``END``, or to a message ``At(sequence)``.

        Raises:
            SeekError: there is no message at or after the position, which is unchanged.
            StreamUnsupportedError: the backend keeps no messages.
        """
        if isinstance(position, At):
            position = At(min(max(0, position.sequence), _SEQUENCE_MAX))
        await self._move(position, str(position))

    def assign(self, key: str, shard_id: int) -> None:
        """Limit the consumer to this shard, and to others that are assigned.

        It takes effect at the next seek or rewind. Where nothing is assigned, all shards are read.

        Raises:
            StreamKeyNotFoundError: the consumer does not read this stream.
        """
        self._assigned.add((self._known_key(key), shard_id))

    def unassign(self, key: str, shard_id: int) -> None:
        """Undo ``assign`` for a shard, from the next seek or rewind on.

        Raises:
            StreamKeyNotFoundError: the consumer does not read this stream, or not this shard.
            StreamKeyEmptyError: it is the last shard that is assigned.
        """
        shard = (self._known_key(key), shard_id)
        if shard not in self._assigned:
            raise self._not_found(f"{key}/{shard_id}")
        if len(self._assigned) == 1:
            raise StreamKeyEmptyError(
                address=self.address, problem="the last stream was unassigned"
            )
        self._assigned.remove(shard)

    def ack(self, message: Message) -> None:
        """Acknowledge a message as done; ``commit`` makes it durable.

        In mode resumable this holds for all messages before it in its shard as well.

        Raises:
            CommitNotAllowedError: the mode is real-time.
        """
        self._refuse_real_time("acknowledge")
        self._ack(message)

    async def commit(self) -> None:
        """Commit acknowledged positions: the next member of the group continues there.

        Raises:
            CommitNotAllowedError: the mode is real-time.
        """
        self._refuse_real_time("commit")
        await self._commit()

    async def end(self) -> None:
        """Release the streams; unacknowledged messages go to other members of the group.

        A call that waits for messages ends as it does at the end of the streams. If this call is
        canceled, the release continues, and another call waits for it.
        """
        is_first, self._is_ended = not self._is_ended, True
        if is_first and self._fetching is not None:
            self._fetching.cancel()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_alone())
        await asyncio.wait([self._closing])
        if is_first:
            self._closing.result()

    async def _close_alone(self) -> None:
        async with self._reading:  # No read starts after the close.
            try:
                await self._close()
            finally:
                self._ready.clear()

    async def _move(self, target: SeqPos | int, text: str) -> None:
        # A canceled call completes: else messages of the old and the new position would mix.
        if not await asyncio.shield(asyncio.create_task(self._move_alone(target))):
            raise SeekError(address=self.address, target=text)

    async def _move_alone(self, target: SeqPos | int) -> bool:
        async with self._reading:
            self._refuse_ended()
            has_moved = await self._go_to(target)
            if has_moved:
                self._ready.clear()
            return has_moved

    async def _some(self, count_max: int) -> list[Message]:
        while not self._ready:
            await self._fill(count_max)
        return [self._ready.popleft() for _ in range(min(count_max, len(self._ready)))]

    async def _fill(self, count_max: int) -> None:
        self._refuse_ended()
        async with self._reading:
            if not self._ready:
                self._ready.extend(await self._fetch_unless_ended(count_max))

    async def _fetch_unless_ended(self, count_max: int) -> list[Message]:
        """Wait for messages until the consumer is ended, which ends the wait, too."""
        if self._is_ended:
            raise StreamEndedError(address=self.address)
        task = asyncio.current_task()
        assert task is not None, "it is awaited by a task"
        cancel_count, self._fetching = task.cancelling(), task
        try:
            return await self._fetch(count_max)
        except asyncio.CancelledError:
            # As `asyncio.timeout` does: a cancellation by another caller is raised.
            if self.has_ended and task.uncancel() <= cancel_count:
                raise StreamEndedError(address=self.address) from None
            raise
        finally:
            self._fetching = None

    def _known_key(self, key: str) -> StreamKey:
        if key not in self.subscription.keys:
            raise self._not_found(key)
        return StreamKey(key)

    def _not_found(self, key: str) -> StreamKeyNotFoundError:
        return StreamKeyNotFoundError(
            address=self.address, key=key, known_text=", ".join(self.subscription.keys)
        )

    def _refuse_ended(self) -> None:
        if self._is_ended:
            raise ConsumerEndedError(address=self.address)

    def _refuse_real_time(self, action: str) -> None:
        self._refuse_ended()
        if self.subscription.mode == "real-time":
            raise CommitNotAllowedError(action=action)
