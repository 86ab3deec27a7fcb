"""Consumers whose client waits: one thread for each makes all of its calls.

A read continues when the call that waits for it is canceled; the next call gets its messages.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self, TypeVar

from bicycle_streams.consuming import Consumer, Subscription, take_messages
from bicycle_streams.errors import StreamError, UnacknowledgedError
from bicycle_streams.messages import Message, SeqPos
from bicycle_streams.options import StreamerOptions

T = TypeVar("T")


class ThreadConsumer(Consumer):
    """A consumer whose client waits, and is called on one thread; made by ``_start``.

    Args:
        address: The address that it reads, for error messages.
        subscription: The requested streams, mode and start.
        options: Options of the streamer.

    Attributes:
        client_error: The exception class of the client.
    """

    client_error: ClassVar[type[Exception]]

    def __init__(self, address: str, subscription: Subscription, options: StreamerOptions) -> None:
        super().__init__(address, subscription, options)
        self._unacknowledged_max = options.unacknowledged_max
        # Both are false once it has left its group by a move.
        self._shares = subscription.mode == "load-balanced"
        self._keeps = subscription.mode != "real-time"
        self._thread = ThreadPoolExecutor(1, f"consumer of {address}")
        self._request: asyncio.Task[list[Message | StreamError]] | None = None
        self._items: deque[Message | StreamError] = deque()

    async def _start(self) -> Self:
        """Return this consumer, once its position is fixed."""
        try:
            await self._in_thread(self._begin)
        except BaseException:
            await self.end()
            raise
        return self

    @abstractmethod
    def _begin(self) -> None:
        """Fix where each shard is read from; on the thread."""

    @abstractmethod
    def _read(self) -> list[Message | StreamError]:
        """Return messages that are there, or wait a little for the first; on the thread.

        Raises:
            StreamEndedError: there is no further message.
        """

    @abstractmethod
    def _move_client(self, target: SeqPos | int) -> bool:
        """Move to a position or time; return whether a message is there; on the thread."""

    @abstractmethod
    def _close_client(self) -> None:
        """Release the resources of the client; on the thread."""

    @abstractmethod
    def _error_of(self, error: Any) -> StreamError:
        """Return the error of the toolkit for an error of the client."""

    @abstractmethod
    def _unacknowledged_count(self) -> int:
        """Return the number of delivered messages of the group that are not done."""

    async def _in_thread(self, call: Callable[..., T], *words: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call, *words)
        except self.client_error as error:
            raise self._error_of(error) from None

    async def _fetch(self, count_max: int) -> list[Message]:
        waiting = self._unacknowledged_count()
        if waiting >= self._unacknowledged_max:
            raise UnacknowledgedError(
                group=self.subscription.position_name, address=self.address, waiting=waiting
            )
        while not self._items:
            if self._request is None:
                self._request = asyncio.create_task(self._read_in_thread())
            await asyncio.wait([self._request])
            request, self._request = self._request, None
            self._items.extend(request.result())
        return take_messages(self._items, count_max)

    async def _read_in_thread(self) -> list[Message | StreamError]:
        return await self._in_thread(self._read)

    async def _finish_read(self) -> None:
        """Wait for a started read; its result is kept."""
        if self._request is not None:
            await asyncio.wait([self._request])
            self._request.exception()  # It is raised by the next call, if there is one.

    def _forget(self) -> None:
        """Drop messages that were read but not delivered, since the position changed."""
        self._request = None
        self._items.clear()

    async def _go_to(self, target: SeqPos | int) -> bool:
        """Move; a member of a group leaves the group first."""
        await self._finish_read()
        has_moved = await self._in_thread(self._move_client, target)
        if has_moved:
            self._forget()
        return has_moved

    def _require_group(self) -> None:
        """Refuse to acknowledge once the group was left."""
        if not self._keeps:
            raise self._left_group_error()

    async def _close(self) -> None:
        await self._finish_read()
        self._request = None
        await self._in_thread(self._close_client)
        self._thread.shutdown()
