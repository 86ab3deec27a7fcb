"""The classes a job author derives from, and how the runtime calls them.

Any method may be ``def`` or ``async def``. A function object is built once, where the graph is
built; it
travels to the workers and is copied there, once per subtask. Its constructor must therefore open
nothing: connections and models belong in ``open``. Nothing here runs a function; the runtime and
``testing`` do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from bicycle_sdk.errors import StateMergeError, StreamDefinitionError

if TYPE_CHECKING:
    from bicycle_sdk.contexts import (
        Context,
        KeyedProcessContext,
        OnTimerContext,
        ProcessContext,
        RuntimeContext,
    )

__all__ = [
    "AsyncFunction",
    "AsyncIOBatchFunction",
    "AsyncIOFunction",
    "FilterFunction",
    "FlatMapFunction",
    "FunctionObject",
    "KeySelector",
    "KeyedProcessFunction",
    "MapFunction",
    "ProcessFunction",
    "ReduceFunction",
    "RichAsyncFunction",
    "as_callable",
    "full_name",
    "refuse_class",
]

In = TypeVar("In", contravariant=True)  # noqa: PLC0105 - job authors read the name.
Out = TypeVar("Out", covariant=True)  # noqa: PLC0105 - job authors read the name.
Value = TypeVar("Value")
K = TypeVar("K")


class FunctionObject:
    """The base of all function classes.

    ``name`` is the name in graphs and logs; if it is empty, they show the class name.
    """

    # Not a property: a dataclass field of that name would take the property as its default.
    name: str = ""


class _Closable(FunctionObject):
    """A function object that may hold connections."""

    def close(self) -> Awaitable[None] | None:
        """Release the resources of ``open``.

        Called on a worker, once per subtask, when the subtask ends; not called after a kill.
        """


class AsyncFunction(_Closable, ABC, Generic[In, Out]):
    """A function without state: one record in, any number of records out.

    Example:
        >>> class Splitter(AsyncFunction[str, str]):
        ...     async def process(self, value: str, ctx: Context) -> list[str]:
        ...         return value.split()
    """

    @abstractmethod
    def process(self, value: In, ctx: Context) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the output records of one record, perhaps ``[]``.

        Called on a worker, once per record and attempt; with ``process_ordered`` or
        ``process_unordered`` several calls are in flight at once. It must not keep anything that a
        later record depends on: use ``RichAsyncFunction`` for state. An exception goes to
        ``on_error`` of the operator.
        """

    def open(self, ctx: Context) -> Awaitable[None] | None:
        """Open connections and load models; called on a worker first, once per subtask."""


class RichAsyncFunction(_Closable, ABC, Generic[In, Out]):
    """A function with state: its attributes survive crashes and rescales.

    *State attributes* are the attributes that the object has before ``open`` runs: class fields
    with defaults, dataclass fields, attributes set by ``__init__``. Attributes that ``open`` adds
    (connections, models) are not state. After ``key_by`` each key group works on a shallow copy of
    the opened object with separate state attributes, so a ``dict`` attribute holds the keys of
    one key group; without ``key_by`` there is one state per subtask.

    ``state_version`` counts changes of the meaning of attributes, which the runtime cannot detect;
    ``migrate_state`` converts older values. A renamed attribute declares its previous name:
    ``counts: Annotated[dict[str, int], Aliases("totals")]``.
    """

    state_version: ClassVar[int] = 1

    @abstractmethod
    def process(self, value: In, ctx: RuntimeContext) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the output records of one record, perhaps ``[]``.

        Called on a worker, once per record and attempt; records of one key in order. Changes of
        state attributes count when the epoch is sealed; the changes of a failed attempt are undone.
        """

    def open(self, ctx: RuntimeContext) -> Awaitable[None] | None:
        """Open connections and load models.

        Called on a worker, once per subtask, on the object that the key groups are copied from,
        before any state is restored. Attributes that it adds to the object are shared by all copies
        and never saved.
        """

    def snapshot_state(self) -> Any:
        """Return the state to save; None (the default) saves the state attributes.

        Called on a worker at the end of each epoch, for each key group that was touched (without
        ``key_by``: once per subtask). It must not change the state. With an annotated result it is
        stored by that type; otherwise the result must be picklable.
        """
        return None

    def restore_state(self, state: Any) -> None:
        """Restore the result of ``snapshot_state``.

        Called on a worker after ``open``, once per key group (without ``key_by``: per subtask) with
        the newest snapshot, before its first record, and only when ``snapshot_state`` returned
        something. The object has its state attributes as they were before ``open`` then, so a hook
        may add to them. By default the state is a mapping from attribute names to values.
        """
        for name, value in state.items():
            setattr(self, name, value)

    def migrate_state(
        self,
        attribute: str,  # noqa: ARG002 - overriders use it
        old_version: int,  # noqa: ARG002 - overriders use it
        value: Any,
    ) -> Any:
        """Return a value that an earlier ``state_version`` wrote as it is declared now.

        Called on a worker when a value is read, once per value and read until the function has
        written it again; only if the class defines it and ``state_version`` is greater than the
        version that wrote the value. It must not read other state.

        Args:
            attribute: Name of the state attribute; ``snapshot_state`` for the result of that
                method.
            old_version: The ``state_version`` that wrote the value.
            value: The value as plain data, a record as a dict by field names. Of an attribute that
                is a ``dict``: one of its values.
        """
        return value

    def merge_state(self, states: list[Any]) -> Any:  # noqa: ARG002 - overriders use it
        """Return one state that replaces several.

        Called on a worker after a change of the parallelism, for a function without ``key_by``:
        once per new subtask that takes over states of previous subtasks. Without this method, such
        a change is rejected.

        Args:
            states: Results of ``snapshot_state``, or mappings from state attributes to values.

        Raises:
            StateMergeError: the class does not define this method.
        """
        raise StateMergeError(function=full_name(self))


class ProcessFunction(_Closable, ABC, Generic[In, Out]):
    """A function that sees event time and writes side outputs."""

    @abstractmethod
    def process_element(
        self, value: In, ctx: ProcessContext
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record.

        Called on a worker, once per record and attempt. ``ctx.side_output(tag, value)`` sends
        further records to the side output ``tag``. Store state in ``ctx.get_value_state`` and the
        other states of ``ctx``: attributes of a process function are not saved.
        """

    def on_timer(
        self,
        timestamp_ms: int,  # noqa: ARG002 - overriders use it
        ctx: OnTimerContext[Any],  # noqa: ARG002 - overriders use it
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from a timer; nothing by default.

        Called on a worker, once per timer that ``ctx.timer_service`` set on a keyed stream: when
        the watermark (or the clock) has reached its time, after the records of the epoch, by time
        and then by key. State is that of the timer's key. An exception goes to ``on_error``.
        """
        return ()

    def open(self, ctx: ProcessContext) -> Awaitable[None] | None:
        """Open connections and load models; called on a worker first, once per subtask."""


class KeyedProcessFunction(_Closable, ABC, Generic[K, In, Out]):
    """A ``ProcessFunction`` on a keyed stream, with ``ctx.current_key()`` and state."""

    @abstractmethod
    def process_element(
        self, value: In, ctx: KeyedProcessContext[K]
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record, as ``ProcessFunction`` does."""

    def on_timer(
        self,
        timestamp_ms: int,  # noqa: ARG002 - overriders use it
        ctx: OnTimerContext[K],  # noqa: ARG002 - overriders use it
    ) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from a timer, as ``ProcessFunction`` does."""
        return ()

    def open(self, ctx: KeyedProcessContext[K]) -> Awaitable[None] | None:
        """Open connections and load models; called on a worker first, once per subtask."""


class AsyncIOFunction(_Closable, ABC, Generic[In, Out]):
    """A call to another system: many in flight, each with a time limit."""

    @abstractmethod
    def async_invoke(self, value: In) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from one record.

        Called on a worker, at most ``capacity`` calls at once per subtask. A call that raises is
        repeated when the operator has a ``retry``; a call that takes longer than the time limit is
        canceled and ``timeout`` decides. The limit covers all attempts together.
        """

    def timeout(self, value: In) -> Iterable[Out] | Awaitable[Iterable[Out]]:  # noqa: ARG002 - overriders use it
        """Return the outputs for a timed-out record, by default an empty result.

        Called on a worker, once per record that timed out.
        """
        return ()

    def open(self, ctx: Context) -> Awaitable[None] | None:
        """Open connections. Called on a worker, once per subtask, before any record."""


class AsyncIOBatchFunction(_Closable, ABC, Generic[In, Out]):
    """A call to another system, or to a model, that takes many records at once.

    Example:
        >>> class Embed(AsyncIOBatchFunction[str, int]):
        ...     async def async_invoke_batch(self, values: list[str]) -> list[list[int]]:
        ...         return [[len(value)] for value in values]
    """

    @abstractmethod
    def async_invoke_batch(
        self, values: list[In]
    ) -> Iterable[Iterable[Out]] | Awaitable[Iterable[Iterable[Out]]]:
        """Return for each record, in order, the records that follow from it.

        Called on a worker with 1 to ``max_size`` records, at most ``capacity`` calls at once per
        subtask. A call that raises is repeated if the operator has a ``retry``. If it still fails,
        the records are divided into halves and called again, until each failing record is found;
        ``on_error`` handles these records. A call that takes longer than the time limit is
        canceled and ``timeout`` decides. The limit covers all attempts together.
        """

    def timeout(self, value: In) -> Iterable[Out] | Awaitable[Iterable[Out]]:  # noqa: ARG002 - overriders use it
        """Return the outputs for a record of a timed-out call, by default an empty result.

        Called on a worker, once per record of the call.
        """
        return ()

    def open(self, ctx: Context) -> Awaitable[None] | None:
        """Open connections and load models; called on a worker first, once per subtask."""


class MapFunction(FunctionObject, ABC, Generic[In, Out]):
    """One record in, one out; accepted wherever ``map`` takes a callable."""

    @abstractmethod
    def map(self, value: In) -> Out | Awaitable[Out]:
        """Return the result for ``value``.

        Called on a worker, once per record.
        """


class FlatMapFunction(FunctionObject, ABC, Generic[In, Out]):
    """One record in, any number out; accepted wherever ``flat_map`` takes a callable."""

    @abstractmethod
    def flat_map(self, value: In) -> Iterable[Out] | Awaitable[Iterable[Out]]:
        """Return the records that follow from ``value``. Called on a worker, once per record."""


class FilterFunction(FunctionObject, ABC, Generic[In]):
    """Selects the records to keep; accepted wherever ``filter`` takes a callable."""

    @abstractmethod
    def filter(self, value: In) -> bool | Awaitable[bool]:
        """Return whether ``value`` stays. Called on a worker, once per record."""


class KeySelector(FunctionObject, ABC, Generic[In, K]):
    """Returns the key of a record; accepted wherever ``key_by`` takes a callable."""

    @abstractmethod
    def get_key(self, value: In) -> K | Awaitable[K]:
        """Return the key: hashable, and the same for equal records in every process.

        Called on a worker, once per record. ``hash()`` of a string differs between processes, so it
        must not be part of a key.
        """


class ReduceFunction(FunctionObject, ABC, Generic[Value]):
    """A function that combines two values into one of the same type, for ``reduce``."""

    @abstractmethod
    def reduce(self, a: Value, b: Value) -> Value | Awaitable[Value]:
        """Return the combination of ``a`` (all records so far) and ``b`` (the new one).

        Called on a worker, once per record except the first record of a key.
        """


def as_callable(function: object, method: str) -> Callable[..., Any]:
    """Return the bound method ``method`` of a function object, or the callable itself.

    Example:
        >>> as_callable(len, "map")("ada")
        3
    """
    bound = getattr(function, method, None) if isinstance(function, FunctionObject) else None
    if bound is not None:
        return bound  # type: ignore[no-any-return]  # A method found by name has no static type.
    if not callable(function):
        raise TypeError(f"{full_name(function)} has no method {method!r} and is not callable")
    return function


def refuse_class(call: str, function: object) -> None:
    """Refuse a function class that is given where an object of it is needed.

    Each call would make an object of the class.

    Raises:
        StreamDefinitionError: it is such a class.
    """
    if isinstance(function, type) and issubclass(function, FunctionObject):
        raise StreamDefinitionError(
            call=call,
            problem=f"{full_name(function)} is a class, not an object",
            hint=f"pass an object of it: {function.__name__}(…)",
        )


def full_name(function: object) -> str:
    """Return module and qualified name of a function, class, or object's class.

    Example:
        >>> full_name(MapFunction)
        'bicycle_sdk.functions.MapFunction'
    """
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None)
    qualname: str = getattr(named, "__qualname__", type(named).__qualname__)
    return f"{module}.{qualname}" if module and module != "builtins" else qualname
