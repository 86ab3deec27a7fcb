"""A batch of ``async`` calls with several in flight at one time.

More calls are only started once one has suspended; those of one key group never overlap. When
``Flight.run`` returns, nothing is in flight.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from bicycle_runtime.operators.user_calls.calls import (
    Calls,
    CallSettings,
    CallTimeout,
    Outcome,
    Settle,
    drive,
)
from bicycle_sdk.quantities import duration_text

__all__ = ["Flight"]

_TICKS_PER_TIMEOUT = 20


class Flight:
    """A batch with several calls in flight.

    The first worker calls one after another. If a call suspends, its number is ``base``: what lies
    behind it is shared by as many workers as there are calls waiting at one time, ``capacity`` at
    most.
    """

    def __init__(self, calls: Calls, settings: CallSettings, settle: Settle) -> None:
        self.calls, self.settings, self.settle = calls, settings, settle
        self.groups = calls.groups
        self.records = calls.records()
        self.results: list[Any] = []
        self.is_shared = False
        self.base = 0
        self.positions: Iterator[int] = iter(())
        self.shared_results: list[Any] = []
        self.order: list[int] = []
        self.busy: dict[int, deque[int]] = {}
        self.in_flight: dict[asyncio.Task[None], int] = {}
        self.timed_out: set[int] = set()
        self.settled: set[int] = set()

    async def run(self) -> Outcome:
        """Make all calls; each that fails is settled, and what ``settle`` raises ends them all."""
        first = asyncio.create_task(self._run_alone())
        await asyncio.sleep(0)
        if first.done():
            first.result()
            return Outcome(self.results)
        self._share(first)
        await self._supervise({first})
        return Outcome(
            self.results + self.shared_results, None if self.settings.is_ordered else self.order
        )

    def _share(self, first: asyncio.Task[None]) -> None:
        """Take the records behind the suspended call from the first worker, for all workers."""
        self.base = len(self.results)
        self.is_shared = True
        deque(self.records, maxlen=0)
        self.positions = iter(range(self.base + 1, len(self.calls.values)))
        self.shared_results = [None] * (len(self.calls.values) - self.base - 1)
        self.order = list(range(self.base))
        self.in_flight[first] = self.base
        if self.groups is not None:
            self.busy[self.groups[self.base]] = deque()

    async def _run_alone(self) -> None:
        context = self.calls.context
        while True:
            context.follow(self.results)
            try:
                await drive(self.calls, self.records, self.results)
                break
            except asyncio.CancelledError:
                self.results.append(await self._timed_out(len(self.results), context))
            except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
                self.results.append(await self._settled(error, len(self.results), context))
        if self.is_shared:
            self.order.append(self.base)
            await self._run_shared(context)

    async def _run_shared(self, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (index := self._next(self._released(task))) is not None:
            self.in_flight[task] = index
            try:
                output = self.calls.single(index, context)()
                if inspect.isawaitable(output):
                    output = await output
            except asyncio.CancelledError:
                output = await self._timed_out(index, context)
            except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
                output = await self._settled(error, index, context)
            self._finish(index, output)

    def _finish(self, index: int, output: Any) -> None:
        self.shared_results[index - self.base - 1] = output
        self.order.append(index)

    def _released(self, task: asyncio.Task[None]) -> int | None:
        """Give up the key group of the call just finished, or return the next that waits for it."""
        index = self.in_flight.pop(task, None)
        if index is None or self.groups is None:
            return None
        waiting = self.busy[self.groups[index]]
        if waiting:
            return waiting.popleft()
        del self.busy[self.groups[index]]
        return None

    def _next(self, waited: int | None) -> int | None:
        if waited is not None:
            return waited
        for index in self.positions:
            if self.groups is None:
                return index
            waiting = self.busy.get(self.groups[index])
            if waiting is None:
                self.busy[self.groups[index]] = deque()
                return index
            waiting.append(index)
        return None

    async def _timed_out(self, index: int, context: Any) -> Any:
        task = asyncio.current_task()
        if index not in self.timed_out or task is None:
            raise asyncio.CancelledError
        task.uncancel()
        return await self.settle(self._timeout(), index, self._attempt(index, context))

    async def _settled(self, error: Exception, index: int, context: Any) -> Any:
        """Settle a call that failed; the time limit goes on when it holds for all attempts."""
        if not self.settings.limits_all_attempts:
            self.settled.add(index)
        try:
            return await self.settle(error, index, self._attempt(index, context))
        except asyncio.CancelledError:
            return await self._timed_out(index, context)

    def _attempt(self, index: int, context: Any) -> Callable[[], Any]:
        """Return one more attempt of a call, with a time limit of its own if each has one."""
        call = self.calls.single(index, context)
        if self.settings.timeout_ms is None or self.settings.limits_all_attempts:
            return call
        timeout_s = self.settings.timeout_ms / 1000

        async def limited() -> Any:
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    output = call()
                    return await output if inspect.isawaitable(output) else output
            except TimeoutError:
                if limit.expired():
                    raise self._timeout() from None
                raise

        return limited

    def _timeout(self) -> CallTimeout:
        return CallTimeout(f"no result within {duration_text(self.settings.timeout_ms or 0)}")

    async def _supervise(self, tasks: set[asyncio.Task[None]]) -> None:
        """Start workers while input is left and room is free; cancel calls that take too long."""
        try:
            while len(tasks) < self.settings.capacity:
                before = len(self.order)
                task = asyncio.create_task(self._run_shared(self.calls.context.clone()))
                tasks.add(task)
                await asyncio.sleep(0)
                if task.done() and len(self.order) == before:
                    break  # no input was left that is not waiting for a busy key group
            await self._wait_for(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for(self, tasks: set[asyncio.Task[None]]) -> None:
        timeout_s = None if self.settings.timeout_ms is None else self.settings.timeout_ms / 1000
        tick_s = None if timeout_s is None else timeout_s / _TICKS_PER_TIMEOUT
        clock = asyncio.get_running_loop().time
        since: dict[int, float] = {}
        pending = tasks
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=tick_s, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            if timeout_s is None:
                continue
            now = clock()
            since = {index: since.get(index, now) for index in self.in_flight.values()}
            for task, index in self.in_flight.items():
                if (
                    now - since[index] >= timeout_s
                    and index not in self.timed_out
                    and index not in self.settled
                    and not task.done()
                ):
                    self.timed_out.add(index)
                    task.cancel()
