"""Threads for calls that may block, bounded in number and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bicycle_runtime.service.errors import READING_TIMED_OUT, SERVICE_BUSY

T = TypeVar("T")
_NAMED_MAX = 5


class Threads:
    """Threads that run one kind of calls.

    Args:
        count: How many there are.
        name: Begins their names.
    """

    def __init__(self, count: int, *, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._count = count
        self._asked_count = 0  # calls that wait or run
        self._running: dict[int, str] = {}  # by number of the call

    def close(self) -> None:
        """Start no further calls; running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, call: Callable[[], T], *, what: str, timeout_ms: int, waiting_max: int | None = None
    ) -> T:
        """Return the result of a call in a thread, while the loop continues.

        Args:
            call: The call.
            what: A description of the call, for errors.
            timeout_ms: Time limit for the wait. The call continues after it.
            waiting_max: Maximum number of calls that wait for a thread; None without a limit.

        Raises:
            SERVICE_BUSY: too many calls wait.
            READING_TIMED_OUT: it took longer; the error names the busy calls.
            Exception: the exception that it raised.
        """
        waiting = self._asked_count - self._count
        if waiting_max is not None and waiting >= waiting_max:
            raise SERVICE_BUSY(waiting=waiting)
        number = id(call)

        def running() -> T:
            self._running[number] = what
            try:
                return call()
            finally:
                self._running.pop(number, None)

        self._asked_count += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, running)
        future.add_done_callback(self._note_done)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await asyncio.shield(future)
        except TimeoutError:
            busy = self._busy_with(number)
            future.cancel()
            raise READING_TIMED_OUT(what=what, waited_ms=timeout_ms, busy=busy) from None

    def _note_done(self, future: asyncio.Future[T]) -> None:
        self._asked_count -= 1
        if not future.cancelled():
            future.exception()  # The caller has it, or no longer waits.

    def _busy_with(self, number: int) -> str:
        """Return why a call has no answer: it waits for its storage, or for a thread."""
        if number in self._running:
            return "its file or storage does not respond"
        counts = Counter(self._running.copy().values())
        named = ", ".join(
            f"{count} x {name}" if count > 1 else name
            for name, count in counts.most_common(_NAMED_MAX)
        )
        return f"all {self._count} threads are busy: {named}"
