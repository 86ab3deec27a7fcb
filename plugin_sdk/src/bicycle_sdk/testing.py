"""Tests of one function without a runtime: scripted input, manual clock, state.

``FunctionHarness`` opens a function, calls it record by record and shows its results. It knows one
subtask and no graph; ``bicycle_runtime.testing`` runs whole jobs.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from bicycle_sdk.call_threads import CallThread
from bicycle_sdk.contexts import OnTimerContext, TaskInfo
from bicycle_sdk.errors import FunctionResultError, StreamDefinitionError
from bicycle_sdk.functions import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
    full_name,
)
from bicycle_sdk.state import Timer
from bicycle_sdk.state.access import SavedState
from bicycle_sdk.state.attributes import state_attributes

__all__ = ["FunctionHarness", "FunctionSnapshot"]

Given = ParamSpec("Given")
Result = TypeVar("Result")
In = TypeVar("In")
Out = TypeVar("Out")
_KINDS = (
    *(AsyncFunction, AsyncIOBatchFunction, AsyncIOFunction, FilterFunction, FlatMapFunction),
    *(KeyedProcessFunction, MapFunction, ProcessFunction, ReduceFunction, RichAsyncFunction),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSnapshot:
    """The state of a function at the end of an epoch, as an independent copy.

    Args:
        attributes: The result of ``snapshot_state()``, else the state attributes by name.
        named: The values of ``ctx.save_state``, by key and name.
        states: The typed states of all keys, by name.
        timers: The waiting timers.
        reduced: The accumulators of a ``ReduceFunction``, by key.
    """

    attributes: Any
    named: Mapping[tuple[Hashable, str], Any]
    states: Mapping[str, SavedState]
    timers: tuple[Timer, ...]
    reduced: Mapping[Hashable, Any]


def _in_call_thread(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[Concatenate[Any, Given], Result]:
    """Call a method of the harness in a separate thread where an event loop runs."""

    @functools.wraps(method)
    def called(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        result: Result = self._thread.call(method, self, *args, **kwargs)
        return result

    return called


class FunctionHarness(Generic[In, Out]):
    """Runs one function object on scripted input.

    Entering it opens the function, leaving it closes the function. Outside ``with`` the first call
    opens it and nothing closes it, which is enough for a function that opens nothing. All keys
    share the attributes of the function, as keys of one key group do; states and values of
    ``ctx.save_state`` are kept per key.

    Args:
        function: The object; functions with two inputs, aggregates and functions of windows need
            ``bicycle_runtime.testing``.
        key: Names the key of a record; None is a stream without keys.
        processing_time: The first value of ``ctx.now()`` and ``ctx.current_processing_time()``, in
            ms.

    Example:
        >>> class Splitter(AsyncFunction[str, str]):
        ...     async def process(self, value, ctx):
        ...         return value.split()
        >>> with FunctionHarness(Splitter()) as harness:
        ...     harness.process("to be", "or not")
        ['to', 'be', 'or', 'not']
        >>> FunctionHarness(Splitter()).process("as it is")
        ['as', 'it', 'is']

    Raises:
        StreamDefinitionError: the function is a plain function, a class, or of another class.
    """

    def __init__(
        self,
        function: AsyncFunction[In, Out]
        | RichAsyncFunction[In, Out]
        | ProcessFunction[In, Out]
        | KeyedProcessFunction[Any, In, Out]
        | AsyncIOFunction[In, Out]
        | AsyncIOBatchFunction[In, Out]
        | MapFunction[In, Out]
        | FlatMapFunction[In, Out]
        | FilterFunction[In]
        | ReduceFunction[In],
        *,
        key: Callable[[In], Hashable] | None = None,
        processing_time: int = 0,
    ) -> None:
        if not isinstance(function, _KINDS):
            raise StreamDefinitionError(
                call="FunctionHarness",
                problem=f"{full_name(function)} is not an object of a function class it can run",
                hint="pass an object such as Parse(), call a plain function directly, and test "
                "other kinds of functions with Harness of bicycle_runtime.testing",
            )
        self.function = function
        self._key = key
        self._side_outputs: list[tuple[str, Any]] = []
        self._reduced: dict[Hashable, Any] = {}
        is_rich = isinstance(function, RichAsyncFunction)
        self._initial = copy.deepcopy(state_attributes(function)) if is_rich else {}
        self._runner: asyncio.Runner | None = None
        self._thread = CallThread()
        self.context: OnTimerContext[Any] = OnTimerContext(
            task_info=TaskInfo(job_id="test", operator_name=type(function).__name__),
            processing_time=processing_time,
            clock=lambda: self.context.processing_time,
        )

    @_in_call_thread
    def __enter__(self) -> Self:
        self._open()
        return self

    @_in_call_thread
    def __exit__(self, *_: object) -> None:
        runner = self._open()
        try:
            self._call_if_there("close")
        finally:
            self._runner = None
            runner.close()
            self._thread.close()

    @_in_call_thread
    def process(self, *values: In, timestamp: int | None = None) -> list[Out]:
        """Call the function for each value in turn, and return all outputs.

        An ``AsyncIOBatchFunction`` gets all values in one call.

        Args:
            values: The records.
            timestamp: Their event time in ms, or None.

        Raises:
            FunctionResultError: the function returned no iterable of records.
        """
        self.context.timestamp = timestamp
        if isinstance(self.function, AsyncIOBatchFunction):
            return self._process_batch(list(values))
        outputs: list[Out] = []
        for value in values:
            if self._key is not None:
                self.context.set_current_key(self._key(value))
            outputs.extend(self._process(value))
            self._side_outputs.extend(self.context.take_side_outputs())
        return outputs

    @_in_call_thread
    def time_out(self, value: In) -> list[Out]:
        """Return the outputs of an async function for a record that timed out."""
        return self._records(self._result("timeout", value))

    def side_outputs(self, tag: str) -> list[Any]:
        """Return everything that was sent to a side output so far."""
        return [value for found, value in self._side_outputs if found == tag]

    @_in_call_thread
    def advance_time(self, ms: int) -> list[Out]:
        """Advance the clock, and return the outputs of processing-time timers."""
        self.context.processing_time += ms
        return self._fire(self.context.watermark)

    @_in_call_thread
    def advance_watermark(self, watermark_ms: int) -> list[Out]:
        """Advance event time to a watermark, and return the outputs of event-time timers."""
        previous = self.context.watermark
        self.context.watermark = max(previous, watermark_ms)
        return self._fire(previous)

    def timers(self, key: Hashable = None) -> list[Timer]:
        """Return the timers of a key that wait, in the order of time; event time first."""
        return [
            Timer(queue.domain, time_ms, key)
            for queue in self.context.timer_queues()
            for time_ms in queue.times_of(key)
        ]

    def value(self, name: str, key: Hashable = None) -> Any:
        """Return a key's content in the state of this name: value, list or dict, or None."""
        return self.context.local_entries.view(name, key)

    @_in_call_thread
    def snapshot(self) -> FunctionSnapshot:
        """Return a copy of all state and timers, as the end of an epoch would save them."""
        context, attributes = self.context, None
        if isinstance(self.function, RichAsyncFunction):
            attributes = self._result("snapshot_state")
            if attributes is None:
                attributes = {name: getattr(self.function, name) for name in self._initial}
        return FunctionSnapshot(
            attributes=copy.deepcopy(attributes),
            named=copy.deepcopy(context.named_values),
            states=context.local_entries.saved(),
            timers=tuple(
                Timer(queue.domain, time_ms, key)
                for queue in context.timer_queues()
                for key, time_ms in queue.waiting
            ),
            reduced=copy.deepcopy(self._reduced),
        )

    @_in_call_thread
    def restore(self, snapshot: FunctionSnapshot) -> None:
        """Restore the result of ``snapshot``, like a restart: all other state is lost."""
        context = self.context
        if isinstance(self.function, RichAsyncFunction):
            self._open()  # Which may set attributes that the state replaces.
            for name, value in copy.deepcopy(self._initial).items():
                object.__setattr__(self.function, name, value)
            self._result("restore_state", copy.deepcopy(snapshot.attributes))
        context.named_values = copy.deepcopy(dict(snapshot.named))
        context.local_entries.restore(snapshot.states)
        self._reduced = copy.deepcopy(dict(snapshot.reduced))
        for queue in context.timer_queues():
            queue.reset()
            for timer in snapshot.timers:
                if timer.domain == queue.domain:
                    queue.load_all([(timer.key, timer.time_ms)])

    def _process(self, value: In) -> list[Any]:
        match self.function:
            case MapFunction():
                return [self._result("map", value)]
            case FilterFunction():
                return [value] if self._result("filter", value) else []
            case ReduceFunction():
                return [self._reduce(value)]
            case FlatMapFunction():
                result = self._result("flat_map", value)
            case AsyncIOFunction():
                result = self._result("async_invoke", value)
            case ProcessFunction() | KeyedProcessFunction():
                result = self._result("process_element", value, self.context)
            case AsyncFunction() | RichAsyncFunction():
                result = self._result("process", value, self.context)
        return self._records(result)

    def _process_batch(self, values: list[In]) -> list[Any]:
        results = self._records(self._result("async_invoke_batch", values))
        if len(results) != len(values):
            raise FunctionResultError(
                function=full_name(self.function),
                found=f"{len(results)} results for {len(values)} records",
            )
        return [output for result in results for output in self._records(result)]

    def _fire(self, previous: int) -> list[Any]:
        context = self.context
        event, processing = context.timer_queues()
        outputs: list[Any] = []
        while timer := (
            event.pop_due(context.watermark) or processing.pop_due(context.processing_time)
        ):
            context.set_fired(timer, previous)
            outputs += self._records(self._result("on_timer", timer.time_ms, context))
            self._side_outputs.extend(context.take_side_outputs())
        context.end_fired()
        return outputs

    def _reduce(self, value: In) -> Any:
        key = self.context.current_key()
        if key in self._reduced:
            value = self._result("reduce", self._reduced[key], value)
        self._reduced[key] = value
        return value

    def _records(self, result: Any) -> list[Any]:
        if isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
            raise FunctionResultError(
                function=full_name(self.function), found=type(result).__name__
            )
        return list(result)

    def _call_if_there(self, method: str, *arguments: Any) -> None:
        if hasattr(self.function, method):
            self._result(method, *arguments)

    def _open(self) -> asyncio.Runner:
        """Return the runner of coroutines; open the function on the first call."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            weakref.finalize(self, _close, self._runner)  # For a harness that is never left.
            self._call_if_there("open", self.context)
        return self._runner

    def _result(self, method: str, *arguments: Any) -> Any:
        runner = self._open()
        result = getattr(self.function, method)(*arguments)
        if inspect.isgenerator(result):
            return list(result)
        if hasattr(result, "__aiter__"):
            return runner.run(_collect(result))
        return runner.run(_wait_for(result)) if inspect.isawaitable(result) else result


def _close(runner: asyncio.Runner) -> None:
    """Close a runner; the garbage collector may call this while another loop runs."""
    thread = CallThread()
    thread.call(runner.close)
    thread.close()


async def _wait_for(result: Any) -> Any:
    return await result


async def _collect(results: Any) -> list[Any]:
    return [result async for result in results]
