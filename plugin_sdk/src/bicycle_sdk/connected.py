"""Base classes of functions with two input streams, and their calls.

The method suffix is the ordinal of the input: ``…1`` gets the records of the stream on which
``connect`` was called, ``…2`` the records of the other stream. The rules of the classes in
``functions`` hold here, too: any method may be ``def`` or ``async def``, and a constructor opens
nothing. State and timers belong to the function, so both inputs read and write the same state.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from bicycle_sdk.contexts import (
    KeyedProcessContext,
    OnTimerContext,
    ProcessContext,
    RuntimeContext,
)
from bicycle_sdk.functions import FunctionObject
from bicycle_sdk.state import MapState, MapStateDescriptor, ReadOnlyMapState

__all__ = [
    "BroadcastContext",
    "BroadcastProcessFunction",
    "BuiltInFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "InputRecords",
    "JoinFunction",
    "KeyedCoProcessFunction",
    "MappedPair",
    "ReadOnlyBroadcastContext",
    "input_methods",
]

In1 = TypeVar("In1", contravariant=True)  # noqa: PLC0105 - job authors read the name.
In2 = TypeVar("In2", contravariant=True)  # noqa: PLC0105 - job authors read the name.
Out = TypeVar("Out", covariant=True)  # noqa: PLC0105 - job authors read the name.
K = TypeVar("K")
V = TypeVar("V")


class _Opened(FunctionObject):
    """A function object that may hold connections."""

    def open(self, ctx: Any) -> Awaitable[None] | None:
        """Open connections and get states; called on a worker first, once per subtask."""

    def close(self) -> Awaitable[None] | None:
        """Release the resources of ``open``.

        Called on a worker, once per subtask, when the subtask ends; not called after a kill.
        """


class CoMapFunction(_Opened, ABC, Generic[In1, In2, Out]):
    """One record in, from either stream, and one out."""

    @abstractmethod
    def map1(self, value: In1) -> Out | Awaitable[Out]:
        """Return the result for a record of the first stream.

        Called once per record.
        """

    @abstractmethod
    def map2(self, value: In2) -> Out | Awaitable[Out]:
        """Return the result for a record of the second stream.

        Called once per record.
        """


class CoProcessFunction(_Opened, ABC, Generic[In1, In2, Out]):
    """Records of two streams, with event time, side outputs and state that both share.

    Behind ``key_by`` on both sides there are states and timers per key; without keys there are
    named values per subtask (``ctx.get_state``).
    """

    @abstractmethod
    def process_element1(
        self, value: In1, ctx: ProcessContext
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record of the first stream.

        Called on a worker, once per record and attempt. Records of one stream and key arrive in
        order; records of the two streams mix freely, so no result may depend on their order within
        an epoch.
        """

    @abstractmethod
    def process_element2(
        self, value: In2, ctx: ProcessContext
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record of the second stream."""

    def on_timer(
        self,
        timestamp_ms: int,  # noqa: ARG002 - overriders use it
        ctx: OnTimerContext[Any],  # noqa: ARG002 - overriders use it
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from a timer, as ``ProcessFunction`` does."""
        return ()


class KeyedCoProcessFunction(_Opened, ABC, Generic[K, In1, In2, Out]):
    """A ``CoProcessFunction`` on keyed streams, with key, state and timers per key.

    Example:
        >>> class Bonus(KeyedCoProcessFunction[str, int, int, int]):
        ...     def open(self, ctx):
        ...         self.factor = ctx.get_value_state("factor", int, default=1)
        ...
        ...     def process_element1(self, value, ctx):
        ...         return [value * self.factor.value()]
        ...
        ...     def process_element2(self, value, ctx):
        ...         self.factor.update(value)
        ...         return []
    """

    @abstractmethod
    def process_element1(
        self, value: In1, ctx: KeyedProcessContext[K]
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record, as ``CoProcessFunction`` does."""

    @abstractmethod
    def process_element2(
        self, value: In2, ctx: KeyedProcessContext[K]
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record of the second stream."""

    def on_timer(
        self,
        timestamp_ms: int,  # noqa: ARG002 - overriders use it
        ctx: OnTimerContext[K],  # noqa: ARG002 - overriders use it
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from a timer, as ``ProcessFunction`` does."""
        return ()


class JoinFunction(_Opened, ABC, Generic[In1, In2, Out]):
    """A function that joins a row of each side, for any join that takes a callable."""

    @abstractmethod
    def join(self, left: In1, right: In2) -> Out | Awaitable[Out]:
        """Return the result of a pair.

        Called on a worker, once per pair and attempt. In outer joins the side that has no row is
        None.
        """


class CoGroupFunction(_Opened, ABC, Generic[In1, In2, Out]):
    """Receives all rows of both sides of a window; accepted wherever a callable is."""

    @abstractmethod
    def co_group(
        self, left: list[In1], right: list[In2]
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from the rows of one key in one window.

        Called on a worker, once per key and window in which any side has rows, with the rows in the
        order of event time; a side without rows is ``[]``.
        """


class _Everywhere:
    """The scope of maps that have no key."""

    def state_key(self) -> None:
        return None


class ReadOnlyBroadcastContext(KeyedProcessContext[Any]):
    """The context of ``process_element`` with broadcast state, keyed after ``key_by``."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> ReadOnlyMapState[K, V]:
        """Return a map that all subtasks hold alike, to be read."""
        entries: Any = self.local_entries.entries_of(descriptor)
        return ReadOnlyMapState(descriptor, entries, _Everywhere())


class BroadcastContext(ProcessContext):
    """The context of ``process_broadcast_element``; there is no key."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return a map that all subtasks hold alike, to be read and changed."""
        entries: Any = self.local_entries.entries_of(descriptor)
        return MapState(descriptor, entries, _Everywhere())


class BroadcastProcessFunction(_Opened, ABC, Generic[In1, In2, Out]):
    """A function of a stream and of a broadcast stream, which writes shared maps.

    The maps come from ``ctx.get_broadcast_state(descriptor)``, at each call. Every subtask gets
    every record of the second stream, in the same order, and must make the same changes of it: from
    the record and the maps alone, not from chance or its own number. Within an epoch the second
    stream comes first.
    """

    @abstractmethod
    def process_element(
        self, value: In1, ctx: ReadOnlyBroadcastContext
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record of the first stream.

        Called on a worker, once per record and attempt; the maps can be read and not changed.
        """

    @abstractmethod
    def process_broadcast_element(
        self, value: In2, ctx: BroadcastContext
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Change the maps by one record of the second stream, and return output records.

        Called on every subtask, once per record and attempt: its results are emitted once per
        subtask. There is no key.
        """

    def on_timer(
        self,
        timestamp_ms: int,  # noqa: ARG002 - overriders use it
        ctx: OnTimerContext[Any],  # noqa: ARG002 - overriders use it
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from a timer of a keyed first stream."""
        return ()


class InputRecords(NamedTuple):
    """The records and keys that a built-in function receives in one call.

    ``ordinal`` is the number of their input; ``times`` are event times in ms, or None.
    """

    ordinal: int
    values: Sequence[Any]
    keys: Sequence[Any]
    times: Sequence[int] | None


class BuiltInFunction(_Opened):
    """A function of the SDK itself, such as a join, with additional hooks.

    ``awaits`` means that each call returns an awaitable. With ``stamps`` the results are pairs
    ``(event time in ms, record)``. ``needs_times`` makes records without event time an error.
    ``late`` counts the late records of an epoch. Timers of event time are ``timer_lead_ms`` behind
    the last time that they wait for.

    A function with ``process_each`` takes ``InputRecords`` in one call, and a function with
    ``fire_each``, whose ``on_timer`` sets no timers, many timers; each adds to the results one
    after the other, so that a failure is that of the record or timer behind the last result. Before
    any of them fires, the function gets all timers of a round by ``complete_each``, and returns key
    and time of each result: of these timers, and of records that it holds until the end of the
    epoch (``is_complete`` is then false). Its changes to state remain, even if calls fail. Only if
    it ``fires_in_context``, the context shows the key and time of each. ``state_bound`` tells plans
    what bounds its state.
    """

    stamps: ClassVar[bool] = False
    needs_times: ClassVar[bool] = False
    timer_lead_ms: ClassVar[int] = 0
    awaits = False
    late = 0

    def begin_epoch(self) -> None:
        """Forget the last epoch; called before each epoch, also one that is repeated."""
        self.late = 0


class MappedPair(BuiltInFunction):
    """Calls a ``CoMapFunction``."""

    def __init__(self, function: CoMapFunction[Any, Any, Any]) -> None:
        self.function = function
        self.name = function.name or type(function).__name__
        self.awaits = any(map(inspect.iscoroutinefunction, (function.map1, function.map2)))

    def open(self, ctx: RuntimeContext) -> Any:
        """Open the function."""
        return self.function.open(ctx)

    def close(self) -> Any:
        """Close the function."""
        return self.function.close()

    def process_element1(self, value: Any, _ctx: Any) -> Any:
        """Map a record of the first stream."""
        return self._map(self.function.map1(value))

    def process_element2(self, value: Any, _ctx: Any) -> Any:
        """Map a record of the second stream."""
        return self._map(self.function.map2(value))

    def _map(self, result: Any) -> Any:
        is_later = self.awaits or inspect.isawaitable(result)
        return _as_tuple(result) if is_later else (result,)


async def _as_tuple(result: Any) -> tuple[Any]:
    return (await result if inspect.isawaitable(result) else result,)


def input_methods(function: Any, count: int) -> list[tuple[str, Callable[..., Any]]]:
    """Return name and method for each of ``count`` inputs of a function, by ordinal."""
    if hasattr(function, "process_input"):
        method = function.process_input
        return [("process_input", partial(method, ordinal)) for ordinal in range(count)]
    names = ("process_element1", "process_element2")
    if hasattr(function, "process_broadcast_element"):
        names = ("process_element", "process_broadcast_element")
    return [(name, getattr(function, name)) for name in names]
