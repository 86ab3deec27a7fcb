"""Calling user functions over a batch: plain or ``async``, one after another or many in flight.

One coroutine drives a whole batch and awaits the functions, so that an ``async`` function which
never suspends costs about as much as a plain call. More calls are only started once one has
suspended, at most ``capacity`` at a time; calls of one key group never overlap. When a batch
returns, nothing is in flight. What to do with a call that failed is not decided here but by
``settle``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol, TypeVar

from bicycle_runtime.operators.blocking import LOOP_WATCH

__all__ = [
    "CallSettings",
    "CallTimeout",
    "Calls",
    "Methods",
    "Outcome",
    "Settle",
    "call_all",
    "cancel_calls",
    "eager",
    "is_async",
    "refuse_stop",
    "resolve",
    "run",
    "run_watched",
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
    """What a context must allow: to know its record, and to be copied for calls in flight.

    Calls one after another write nothing for each record: the one in hand is that behind the last
    result.
    """

    def follow(self, results: Sequence[Any]) -> None:
        """Take record number ``len(results)`` of the batch for the one in hand, from now on."""

    def hold(self, index: int) -> None:
        """Take record number ``index`` for the one in hand, until ``follow`` is called."""

    def clone(self) -> CallContext:
        """Return a context for another call in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How calls run. ``capacity`` 1 is one after another; ``timeout_ms`` None is no limit.

    The limit holds for each attempt of a call, or for all of them and the pauses between.
    """

    is_ordered: bool = True
    timeout_ms: int | None = None
    capacity: int = 1
    limits_all_attempts: bool = False


@dataclass(slots=True)
class Outcome:
    """Outputs of each call; ``order`` is the order of completion when that differs."""

    results: list[Sequence[Any]] = field(default_factory=list)
    order: list[int] | None = None


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the worker's event loop, which lives as long as the process."""
    return _worker_loop().run_until_complete(coroutine)


def _worker_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603  # clients that user code opens are bound to one loop for good
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    return _loop


def run_watched(coroutine: Coroutine[Any, Any, Result], done: Sized = ()) -> Result:
    """Run a coroutine of user code, and find out when it keeps the loop for long.

    Args:
        coroutine: What is run.
        done: Results so far, when calls are made one after another: then each is a sign of life.
    """
    with LOOP_WATCH.watching(_worker_loop(), done):
        return run(coroutine)


def cancel_calls() -> bool:
    """Cancel all that runs in the worker's event loop; False when nothing does.

    Meant for a signal handler: the loop goes on behind it, and what ran it raises CancelledError.
    """
    if _loop is None or not _loop.is_running():
        return False
    for task in asyncio.all_tasks(_loop):
        task.cancel()
    _loop.call_soon_threadsafe(_wake)
    return True


def _wake() -> None:
    """Let a loop that waits for the network look at its tasks again."""


def is_async(function: Any) -> bool:
    """Tell whether calling the function gives an awaitable, as far as it can be known before."""
    while isinstance(function, functools.partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(target))


def eager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, or when it is a generator one that runs it to its end at the call.

    The body of a generator must run while its record is the one in hand: state and side outputs go
    by that.
    """
    target: Any = inspect.unwrap(function)
    if inspect.isasyncgenfunction(target):
        return functools.partial(_collected, function)
    if inspect.isgeneratorfunction(target):
        return functools.partial(_listed, function)
    return function


async def _collected(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [result async for result in function(*arguments)]


def _listed(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return list(function(*arguments))


def resolve(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook or a key selector and wait for it when it is ``async``."""
    value = function(*arguments)
    if not inspect.isawaitable(value):
        return value
    if not _is_in_loop():
        return run_watched(_wait(value))
    # An ``async`` function asks for its key: the loop of this thread is busy with the function.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, _wait(value)).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


# The function of each key group, by indexing; a missing one is made by the mapping itself.
Methods = Mapping[int, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Calls:
    """What is called for a batch.

    ``methods`` is the function, or with ``groups`` the functions by key group; ``context`` is the
    second argument of each call, and knows the record in hand.
    """

    methods: Callable[..., Any] | Methods
    values: Sequence[Any]
    groups: Sequence[int] | None
    context: Any

    @property
    def is_keyed(self) -> bool:
        """Whether each record has a key group."""
        return self.groups is not None

    def records(self) -> Iterator[Any]:
        """Return an iterator of values, or of values with the function of their key group."""
        if self.groups is None:
            return iter(self.values)
        assert isinstance(self.methods, Mapping)
        return zip(self.values, map(self.methods.__getitem__, self.groups), strict=True)

    def single(self, index: int, context: Any) -> Callable[[], Any]:
        """Return call number ``index`` by itself."""
        method: Any = self.methods if self.groups is None else self._method_of(self.groups[index])

        def call() -> Any:
            context.hold(index)
            return method(self.values[index], context)

        return call

    def _method_of(self, group: int) -> Callable[..., Any]:
        assert isinstance(self.methods, Mapping)
        return self.methods[group]


def call_all(calls: Calls, settings: CallSettings, settle: Settle, *, awaits: bool) -> Outcome:
    """Make all calls of a batch and return the outputs of each.

    Args:
        calls: What is called.
        settings: Order, timeout, calls in flight.
        settle: Decides about failed calls.
        awaits: Whether the function is ``async``.
    """
    if awaits and (settings.capacity > 1 or settings.timeout_ms is not None):
        return run_watched(_Flight(calls, settings, settle).run())
    outcome = Outcome()
    results = outcome.results
    records = calls.records()
    while True:
        calls.context.follow(results)
        try:
            if awaits:
                run_watched(_drive(calls, records, results), results)
            elif calls.is_keyed:
                _drive_plain(records, calls.context, results)
            else:
                results.extend(map(calls.methods, records, repeat(calls.context)))  # type: ignore[arg-type]  # not keyed: a function
                refuse_stop(results, calls.values)
            return outcome
        except Exception as error:  # noqa: BLE001  # the boundary to user code: settle decides
            index = len(results)
            results.append(run(settle(error, index, calls.single(index, calls.context))))


def refuse_stop(results: Sequence[Any], values: Sequence[Any]) -> None:
    """Take a StopIteration out of a function for the error that it is, not for the end of input.

    Raises:
        RuntimeError: there are fewer results than values.
    """
    if len(results) < len(values):
        raise RuntimeError("the function raised StopIteration")


async def _drive(calls: Calls, records: Iterator[Any], results: list[Any]) -> None:
    context = calls.context
    # hot path: 150 ns a record when the function never suspends; stepping each call costs 270.
    if calls.is_keyed:
        for value, method in records:
            results.append(await method(value, context))
        return
    call: Any = calls.methods
    for value in records:
        results.append(await call(value, context))  # noqa: PERF401  # a failure keeps what is done


def _drive_plain(records: Iterator[Any], context: Any, results: list[Any]) -> None:
    for value, method in records:
        results.append(method(value, context))  # a failure keeps what is done


class _Flight:
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
                await _drive(self.calls, self.records, self.results)
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
        return CallTimeout(f"no result within {self.settings.timeout_ms} ms")

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
