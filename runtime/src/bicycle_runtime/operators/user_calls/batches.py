"""Calls of user functions over a batch: plain or ``async``, in turn or in flight.

One coroutine drives a whole batch and awaits the functions, so that an ``async`` function which
never suspends costs about as much as a plain call. Several calls in flight are a ``Flight``. When a
batch returns, nothing is in flight. ``settle`` decides about a failed call.

In a ``Flight`` more calls are only started once one has suspended; calls of one key group never
overlap.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.operators.user_calls.calls import (
    Calls,
    CallSettings,
    CallTimeout,
    Outcome,
    Reserve,
    Settle,
    call_each,
    drive,
)
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.user_calls.user_functions import run, run_watched
from bicycle_sdk.quantities import duration_text


def call_all(
    calls: Calls, settings: CallSettings, settle: Settle, *, awaits: bool,
    reserve: Reserve | None = None, are_parts: bool = False,
) -> Outcome:  # fmt: skip
    """Make all calls of a batch and return the outputs of each.

    Args:
        calls: The calls to make.
        settings: Order, timeout, calls in flight.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
        reserve: Limits the rate of records, for several calls in flight.
        are_parts: Whether each value of ``calls`` is a list of records.
    """
    if awaits and (settings.capacity > 1 or settings.timeout_ms is not None):
        flight = Flight(calls, settings, settle)
        if reserve is not None:
            values = calls.values
            flight.reserve = lambda index: reserve(len(values[index]) if are_parts else 1)
        return run_watched(flight.run())
    outcome = Outcome()
    call_on(calls, calls.records(), outcome.results, settle, awaits=awaits)
    return outcome


def call_on(
    calls: Calls, records: Iterator[Any], results: list[Any], settle: Settle, *, awaits: bool
) -> None:
    """Call one after another, behind the results that are there.

    Args:
        calls: The calls to make.
        records: The records behind the results' records, as ``calls.records()`` returns them.
        results: The list to which the results of each call are added.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
    """

    def go_on() -> None:
        calls.context.follow(results)
        if awaits:
            run_watched(drive(calls, records, results), results)
        elif calls.is_keyed:
            call_each(calls, records, results)
        else:
            results.extend(map(calls.methods, records, repeat(calls.context)))  # type: ignore[arg-type]  # not keyed: a function
            refuse_stop(results, calls.values)

    go_through(go_on, results, settle, lambda index: calls.single(index, calls.context))


def go_through(
    go_on: Callable[[], None], results: list[Any], settle: Settle,
    again: Callable[[int], Callable[[], Any]],
) -> None:  # fmt: skip
    """Call for all records of a batch; ``settle`` decides about each failed call.

    ``go_on`` makes calls from the first record without a result on, and adds their results;
    ``again`` returns the call of a record by its index.
    """
    while True:
        try:
            go_on()
            return
        except BaseException as error:  # noqa: BLE001  # the boundary to user code: settle decides
            index = len(results)
            results.append(run(settle(users_error(error), index, again(index))))


def refuse_stop(results: Sequence[Any], values: Sequence[Any]) -> None:
    """Raise the StopIteration of a function as an error, not as the end of input.

    Raises:
        RuntimeError: there are fewer results than values.
    """
    if len(results) < len(values):
        raise RuntimeError("the function raised StopIteration")


def each(
    function: Callable[[Any], Any], values: Sequence[Any], *, policy: RecordPolicy, awaits: bool
) -> list[Any]:
    """Return ``function(value)`` for each value, DROPPED where the policy left it out."""
    results: list[Any] = []
    records = iter(values)

    def go_on() -> None:
        if awaits:
            run_watched(_await_each(function, records, results), results)
        else:
            # hot path: extend(map(…)) runs at C speed and keeps the results before a failure.
            results.extend(map(function, records))
            refuse_stop(results, values)

    go_through(go_on, results, policy.settle, lambda index: partial(function, values[index]))
    if any(hasattr(kind, "__await__") for kind in set(map(type, results))):
        return _await_all(function, values, results, policy)
    return results


def _await_all(
    function: Callable[[Any], Any], values: Sequence[Any], results: list[Any], policy: RecordPolicy
) -> list[Any]:
    """Wait for results of a plain function that turned out to be awaitable."""
    waiting = deque(results)
    finished: list[Any] = []

    def go_on() -> None:
        while waiting:
            result = waiting.popleft()
            finished.append(run_watched(wait(result)) if inspect.isawaitable(result) else result)

    try:
        go_through(go_on, finished, policy.settle, lambda index: partial(function, values[index]))
    finally:
        for result in waiting:
            if inspect.iscoroutine(result):
                result.close()
    return finished


async def wait(awaitable: Awaitable[Any]) -> Any:
    """Return the result of an awaitable of any kind."""
    return await awaitable


async def _await_each(
    function: Callable[[Any], Any], records: Iterator[Any], results: list[Any]
) -> None:
    for record in records:
        results.append(await function(record))  # noqa: PERF401  # a failure must keep the results so far


_TICKS_PER_TIMEOUT = 20


class Flight:
    """A batch with several calls in flight.

    The first worker calls one after another. If a call suspends, its number is ``base``: the calls
    behind it are shared by as many workers as there are calls waiting at one time, ``capacity`` at
    most. With a rate limit, ``reserve``, all calls are shared from the start.
    """

    reserve: Reserve | None = None

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
        """Make all calls; settle failed calls, and stop if ``settle`` raises."""
        if self.reserve is not None:
            self._share(None)
            await self._supervise(set())
            return self._outcome()
        first = asyncio.create_task(self._run_alone())
        await asyncio.sleep(0)
        if first.done():
            first.result()
            return Outcome(self.results)
        self._share(first)
        await self._supervise({first})
        return self._outcome()

    def _outcome(self) -> Outcome:
        return Outcome(
            self.results + self.shared_results, None if self.settings.is_ordered else self.order
        )

    def _share(self, first: asyncio.Task[None] | None) -> None:
        """Distribute the records after the suspended call among all workers."""
        self.base = len(self.results) if first is not None else -1
        self.is_shared = True
        deque(self.records, maxlen=0)
        self.positions = iter(range(self.base + 1, len(self.calls.values)))
        self.shared_results = [None] * (len(self.calls.values) - self.base - 1)
        self.order = list(range(self.base))
        if first is None:
            return
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
            except asyncio.CancelledError as error:
                self.results.append(await self._timed_out(error, len(self.results), context))
            except BaseException as error:  # noqa: BLE001  # the boundary to user code
                failed = users_error(error)
                self.results.append(await self._settle(failed, len(self.results), context))
        if self.is_shared:
            self.order.append(self.base)
            await self._run_shared(context)

    async def _run_shared(self, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (index := self._next(self._release(task))) is not None:
            if self.reserve is not None:
                await self.reserve(index)  # Its time limit begins after the wait.
            self.in_flight[task] = index
            try:
                output = self.calls.single(index, context)()
                if inspect.isawaitable(output):
                    output = await output
            except asyncio.CancelledError as error:
                output = await self._timed_out(error, index, context)
            except BaseException as error:  # noqa: BLE001  # the boundary to user code
                output = await self._settle(users_error(error), index, context)
            self._finish(index, output)

    def _finish(self, index: int, output: Any) -> None:
        self.shared_results[index - self.base - 1] = output
        self.order.append(index)

    def _release(self, task: asyncio.Task[None]) -> int | None:
        """Release the key group of a finished call, or return the next waiting call."""
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

    async def _timed_out(self, error: asyncio.CancelledError, index: int, context: Any) -> Any:
        task = asyncio.current_task()
        if task is None or (index not in self.timed_out and task.cancelling()):
            raise error
        if index not in self.timed_out:  # The function's awaitable was canceled.
            return await self._settle(users_error(error), index, context)
        task.uncancel()
        return await self.settle(self._timeout(), index, self._attempt(index, context))

    async def _settle(self, error: BaseException, index: int, context: Any) -> Any:
        """Settle a failed call; a time limit over all attempts remains active."""
        if not self.settings.limits_all_attempts:
            self.settled.add(index)
        try:
            return await self.settle(error, index, self._attempt(index, context))
        except asyncio.CancelledError as cancelled:
            return await self._timed_out(cancelled, index, context)

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
        """Start workers while input and room remain; cancel calls that take too long."""
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
