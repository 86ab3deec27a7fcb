"""Window functions: over single records, or over all records of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from bicycle_sdk.contexts import Context
from bicycle_sdk.errors import MergeMissingError
from bicycle_sdk.functions import FunctionObject, full_name
from bicycle_sdk.state.access import LocalEntries, StateAccess
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain
from bicycle_sdk.windows.panes import Window

__all__ = ["AggregateFunction", "WindowContext", "WindowFunction", "is_mergeable"]

In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
K = TypeVar("K")


class AggregateFunction(FunctionObject, ABC, Generic[In, Acc, Out]):
    """An aggregation of records in an accumulator, with its own result type.

    ``merge`` must be associative: accumulators of parts of the records must result in the
    accumulator of all records, however they are grouped. With it, records are aggregated before the
    shuffle, and overlapping windows share accumulators. Without ``merge`` the records of a window
    are kept and folded when it fires, in the order of event time.
    """

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """Return the accumulator of no records. Called on a worker, once per key and part."""

    @abstractmethod
    def add(self, accumulator: Acc, value: In) -> Acc | Awaitable[Acc]:
        """Return the accumulator with one record more; it may change the given one.

        Called on a worker, once per record and attempt. When it raises, ``on_error`` decides about
        the record; the accumulator must not have been changed then.
        """

    @abstractmethod
    def get_result(self, accumulator: Acc) -> Out | Awaitable[Out]:
        """Return the result. Called on a worker whenever a window fires; it must change nothing."""

    def merge(self, a: Acc, b: Acc) -> Acc | Awaitable[Acc]:  # noqa: ARG002 - overriders use it
        """Return the merged accumulator; ``a`` may be changed, ``b`` may not.

        Called on a worker, any number of times. Do not define it if accumulators cannot be merged.

        Raises:
            MergeMissingError: the class does not define this method.
        """
        raise MergeMissingError(owner=full_name(self), what="merge(a, b)")


def is_mergeable(function: AggregateFunction[Any, Any, Any]) -> bool:
    """Return whether the function's class defines ``merge``."""
    return type(function).merge is not AggregateFunction.merge


class WindowContext(StateAccess, Context, Generic[K]):
    """The context of a ``WindowFunction``: key, window, watermark, two kinds of state.

    ``get_state``, ``save_state`` and ``delete_state`` keep one value per name, key and window. It
    is part of the checkpoint, is kept when the window fires repeatedly, and is removed with the
    window. ``get_value_state`` and similar methods return typed states of the key, which all its
    windows share, until they are cleared or their TTL ends. Outside of a job, this object contains
    both.
    """

    _window = Window(0, 1)
    _watermark = 0
    _key: Any = None

    def __init__(self, **options: Any) -> None:
        StateAccess.__init__(self)
        Context.__init__(self, **options)
        self.local_entries = LocalEntries(self.state_time)
        self._values: dict[str, Any] = {}
        self._sides: list[tuple[str, Any]] = []

    @property
    def window(self) -> Window:
        """The window that fires."""
        return self._window

    def current_key(self) -> K:
        """Return the key of the window."""
        key: K = self._key
        return key

    def current_watermark(self) -> int:
        """Return the event time in ms up to which input is complete."""
        return self._watermark

    def state_entries(self, descriptor: StateDescriptor) -> Any:
        """Return the entries of a state of the key.

        Called by the context itself.
        """
        return self.local_entries.entries_of(descriptor)

    def state_key(self) -> Hashable:
        """Return the key under which its state is read and written. Called by handles."""
        key: Hashable = self._key
        return key

    def state_time(self, domain: TimeDomain) -> int:
        """Return the time in ms for the key states' expiry, by default the window's end."""
        return self.processing_time if domain == "processing" else self._window.end - 1

    def get_state(self, name: str, default: Any = None) -> Any:
        """Return the saved value of this window, or ``default``."""
        return self._values.get(name, default)

    def save_state(self, name: str, value: Any) -> None:
        """Save a value of this window under a name, and replace the previous value."""
        self._values[name] = value

    def delete_state(self, name: str) -> None:
        """Forget a value of this window, if it exists."""
        self._values.pop(name, None)

    def side_output(self, tag: str, value: Any) -> None:
        """Send a value to the readers of ``stream.side_output(tag)``."""
        self._sides.append((tag, value))

    def enter(
        self, *, key: Any, window: Window, watermark: int, values: dict[str, Any] | None = None
    ) -> None:
        """Switch to another window. Called by the runtime and by tests, never by functions."""
        self._key, self._window, self._watermark = key, window, watermark
        self._values = {} if values is None else values

    def take_side_outputs(self) -> list[tuple[str, Any]]:
        """Return the side outputs since the last call, in order, and clear them."""
        taken, self._sides = self._sides, []
        return taken


class WindowFunction(FunctionObject, ABC, Generic[K, In, Out]):
    """Computes over all records of a window at once.

    Example:
        >>> class Spread(WindowFunction[str, int, int]):
        ...     def process(self, elements: list[int], ctx: WindowContext[str]) -> list[int]:
        ...         return [max(elements) - min(elements)]
    """

    @abstractmethod
    def process(
        self, elements: list[In], ctx: WindowContext[K]
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the output records of a window, perhaps ``[]``.

        Called on a worker whenever the window fires, with its records in the order of event time,
        equal times in the order of arrival. It must not change ``elements`` or keep anything in
        its attributes; the state of ``ctx`` is for that. When it raises, ``on_error`` decides about
        the window as it does about a record elsewhere.
        """

    def open(self, ctx: WindowContext[K]) -> Awaitable[None] | None:
        """Open connections and load models; called on a worker first, once per subtask."""

    def close(self) -> Awaitable[None] | None:
        """Release the resources of ``open``.

        Called once per subtask at its end, but not after a kill.
        """
