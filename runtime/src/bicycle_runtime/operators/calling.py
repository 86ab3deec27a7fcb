"""Calling user functions over a batch: plain or ``async``, one after another or many in flight.

One coroutine drives a whole batch and awaits the functions, so that an ``async`` function which
never suspends costs about as much as a plain call. More calls are only started once one has
suspended, at most ``capacity`` at a time; calls of one key group never overlap. When a batch
returns, nothing is in flight. What to do with a call that failed is not decided here but by
``settle``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol, TypeVar

__all__ = [
    "CallSettings",
    "CallTimeout",
    "Methods",
    "Outcome",
    "Settle",
    "call_all",
    "is_async",
    "resolve",
    "run",
]

Result = TypeVar("Result")
_TICKS_PER_TIMEOUT = 20
_loop: asyncio.AbstractEventLoop | None = None


class CallTimeout(Exception):
    """A call took longer than the operator's timeout."""


class Settle(Protocol):
    """Decides what a failed call gives: retries it, skips it, or raises to end the task."""

    async def __call__(
        self, error: Exception, index: int, call: Callable[[], Any]
    ) -> Sequence[Any]:
        """Return the outputs that stand for the call ``index``; raise to fail the epoch."""


class CallContext(Protocol):
    """What a context must allow.

    To know the record and to be copied for calls in flight at one time.
    """

    record: Any
    index: int

    def clone(self) -> CallContext:
        """Return a context for another call in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How calls run. ``capacity`` 1 is one after another; ``timeout_ms`` None is no limit."""

    is_ordered: bool = True
    timeout_ms: int | None = None
    capacity: int = 1


@dataclass(slots=True)
class Outcome:
    """Outputs of each call. ``order`` gives the order of completion when it differs from the order of inputs."""

    results: list[Sequence[Any]] = field(default_factory=list)
    order: list[int] | None = None


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on the worker's own event loop.

    Which lives as long as the process.
    """
    global _loop  # noqa: PLW0603  # clients that user code opens are bound to one loop for good
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)


def is_async(function: Any) -> bool:
    """Tell whether calling the function gives an awaitable."""
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)
    return inspect.iscoroutinefunction(inspect.unwrap(target))


def resolve(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook and wait for it when it is ``async``."""
    value = function(*arguments)
    return run(_wait(value)) if inspect.isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


# The function of each key group, by indexing; a missing one is made by the mapping itself.
Methods = Mapping[int, Callable[..., Any]]


def call_all(
    methods: Callable[..., Any] | Methods,
    values: Sequence[Any],
    groups: Sequence[int] | None,
    *,
    context: Any,
    settings: CallSettings,
    settle: Settle,
    awaits: bool,
) -> Outcome:
    """Call a function for each value and return the outputs of each call.

    Args:
        methods: The function; for keyed operators the functions by key group.
        values: The inputs.
        groups: Their key groups, or None.
        context: Second argument of each call; its ``record`` is set when ``groups`` are given.
        settings: Order, timeout, calls in flight.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
    """
    if awaits and (settings.capacity > 1 or settings.timeout_ms is not None):
        return run(_Flight(methods, values, groups, context, settings, settle).run())
    outcome = Outcome()
    results = outcome.results
    records = _records(methods, values, groups)
    while True:
        try:
            if awaits:
                run(_drive(methods, records, context, results, is_keyed=groups is not None))
            elif groups is None:
                results.extend(map(methods, records, repeat(context)))
            else:
                _drive_plain(records, context, results)
            return outcome
        except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
            index = len(results)
            call = _single(methods, values, groups, context, index)
            results.append(run(settle(error, index, call)))


def _records(methods: Any, values: Sequence[Any], groups: Sequence[int] | None) -> Iterator[Any]:
    """Return an iterator of values, or of values with the function of their key group."""
    if groups is None:
        return iter(values)
    return zip(values, map(methods.__getitem__, groups), strict=True)


async def _drive(
    method: Any, records: Iterator[Any], context: Any, results: list[Any], *, is_keyed: bool
) -> None:
    # hot path: 150 ns a record when the function never suspends; stepping each call by hand costs
    # 270.
    if not is_keyed:
        for value in records:
            results.append(await method(value, context))  # noqa: PERF401  # a failure must keep what is done
        return
    for value, keyed in records:
        context.record = value
        results.append(await keyed(value, context))


def _drive_plain(records: Iterator[Any], context: Any, results: list[Any]) -> None:
    for value, method in records:
        context.record = value
        results.append(method(value, context))


def _single(
    methods: Any, values: Sequence[Any], groups: Sequence[int] | None, context: Any, index: int
) -> Callable[[], Any]:
    method = methods if groups is None else methods[groups[index]]

    def call() -> Any:
        context.record = values[index]
        return method(values[index], context)

    return call


class _Flight:
    """A batch with several calls in flight.

    The first worker calls one after another. If a call suspends, its number is ``base``: what lies
    behind it is shared by as many workers as there are calls waiting at one time, ``capacity`` at
    most.
    """

    def __init__(
        self, methods: Any, values: Sequence[Any], groups: Sequence[int] | None,
        context: Any, settings: CallSettings, settle: Settle,
    ) -> None:  # fmt: skip
        self.methods, self.values, self.groups = methods, values, groups
        self.context, self.settings, self.settle = context, settings, settle
        self.records = _records(methods, values, groups)
        self.results: list[Any] = []
        self.is_shared = False
        self.base = 0
        self.positions: Iterator[int] = iter(())
        self.shared_results: list[Any] = []
        self.order: list[int] = []
        self.busy: dict[int, deque[int]] = {}
        self.in_flight: dict[asyncio.Task[None], int] = {}
        self.timed_out: set[int] = set()

    async def run(self) -> Outcome:
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
        self.positions = iter(range(self.base + 1, len(self.values)))
        self.shared_results = [None] * (len(self.values) - self.base - 1)
        self.order = list(range(self.base))
        self.in_flight[first] = self.base
        if self.groups is not None:
            self.busy[self.groups[self.base]] = deque()

    async def _run_alone(self) -> None:
        is_keyed = self.groups is not None
        while True:
            try:
                await _drive(
                    self.methods, self.records, self.context, self.results, is_keyed=is_keyed
                )
                break
            except asyncio.CancelledError:
                self.results.append(await self._timed_out(len(self.results), self.context))
            except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
                index = len(self.results)
                self.results.append(
                    await self.settle(error, index, self._call(index, self.context))
                )
        if self.is_shared:
            self.order.append(self.base)
            await self._run_shared(self.context)

    async def _run_shared(self, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (index := self._next(self._released(task))) is not None:
            self.in_flight[task] = index
            try:
                output = self._call(index, context)()
                if inspect.isawaitable(output):
                    output = await output
            except asyncio.CancelledError:
                output = await self._timed_out(index, context)
            except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
                output = await self.settle(error, index, self._call(index, context))
            self._finish(index, output)

    def _call(self, index: int, context: Any) -> Callable[[], Any]:
        return _single(self.methods, self.values, self.groups, context, index)

    def _finish(self, index: int, output: Any) -> None:
        self.shared_results[index - self.base - 1] = output
        self.order.append(index)

    def _released(self, task: asyncio.Task[None]) -> int | None:
        """Give up the key group of the call just finished.

        Or return the next call that waited for it.
        """
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
        error = CallTimeout(f"no result within {self.settings.timeout_ms} ms")
        return await self.settle(error, index, self._call(index, context))

    async def _supervise(self, tasks: set[asyncio.Task[None]]) -> None:
        """Start more workers while input is left and room is free.

        And cancel calls that take too long.
        """
        try:
            while len(tasks) < self.settings.capacity:
                before = len(self.order)
                task = asyncio.create_task(self._run_shared(self.context.clone()))
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
                    and not task.done()
                ):
                    self.timed_out.add(index)
                    task.cancel()
