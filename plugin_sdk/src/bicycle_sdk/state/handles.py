"""The handles through which a function reads and writes its state by key.

A handle holds no data and may be kept: a handle from ``open`` serves every record, under the key of
the current record or timer. The entries decide where data is and which of it is saved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from bicycle_sdk.state.entries import MISSING, MapEntries, ValueEntries
from bicycle_sdk.state.frozen import is_frozen_type

__all__ = [
    "AggregatingState",
    "KeyScope",
    "ListState",
    "MapState",
    "ReadOnlyMapState",
    "ReducingState",
    "ValueState",
    "make_handle",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In")
Out = TypeVar("Out")


class KeyScope(Protocol):
    """Knows whose state is meant."""

    def state_key(self) -> Hashable:
        """Return the key of the current record or timer."""


class ValueState(Generic[T]):
    """One value per key.

    Example:
        >>> from bicycle_sdk.contexts import RuntimeContext
        >>> count = RuntimeContext.standalone().get_value_state("count", int, default=0)
        >>> count.update(count.value() + 1)
        >>> count.value()
        1
    """

    __slots__ = ("_default", "_entries", "_scope")

    def __init__(
        self, descriptor: ValueStateDescriptor[Any], entries: ValueEntries, scope: KeyScope
    ) -> None:
        self._entries = entries
        self._scope = scope
        default = descriptor.default
        self._default = default if is_frozen_type(type(default)) else _Fresh(default)

    def value(self) -> T:
        """Return the value of the current key, or the default."""
        value: T | _Fresh = self._entries.get(self._scope.state_key(), self._default)
        return cast("T", value.copy()) if isinstance(value, _Fresh) else value

    def update(self, value: T) -> None:
        """Set the value of the current key."""
        self._entries.put(self._scope.state_key(), value)

    def clear(self) -> None:
        """Remove the value of the current key."""
        self._entries.delete(self._scope.state_key())


class ReducingState(Generic[T]):
    """One value per key, combined with each added value."""

    __slots__ = ("_entries", "_reduce", "_scope")

    def __init__(
        self, descriptor: ReducingStateDescriptor[T], entries: ValueEntries, scope: KeyScope
    ) -> None:
        self._entries = entries
        self._scope = scope
        function: Any = descriptor.reduce
        self._reduce: Callable[[T, T], T] = getattr(function, "reduce", function)

    def add(self, value: T) -> None:
        """Combine the current key's value with another; a first value is stored unchanged."""
        key = self._scope.state_key()
        old = self._entries.get(key, MISSING)
        self._entries.put(key, value if old is MISSING else self._reduce(old, value))

    def get(self) -> T | None:
        """Return the value of the current key; None when nothing was added."""
        value: T | None = self._entries.get(self._scope.state_key())
        return value

    def clear(self) -> None:
        """Remove the value of the current key."""
        self._entries.delete(self._scope.state_key())


class AggregatingState(Generic[In, Out]):
    """One accumulator per key, created and read by an ``AggregateFunction``."""

    __slots__ = ("_aggregate", "_entries", "_scope")

    def __init__(
        self,
        descriptor: AggregatingStateDescriptor[In, Any, Out],
        entries: ValueEntries,
        scope: KeyScope,
    ) -> None:
        self._entries = entries
        self._scope = scope
        self._aggregate = descriptor.aggregate

    def add(self, value: In) -> None:
        """Add a value to the accumulator of the current key."""
        key = self._scope.state_key()
        accumulator = self._entries.get(key, MISSING)
        if accumulator is MISSING:
            accumulator = self._aggregate.create_accumulator()
        self._entries.put(key, self._aggregate.add(accumulator, value))

    def get(self) -> Out | None:
        """Return the result for the current key; None when nothing was added."""
        accumulator = self._entries.get(self._scope.state_key(), MISSING)
        return None if accumulator is MISSING else self._aggregate.get_result(accumulator)

    def clear(self) -> None:
        """Remove the accumulator of the current key."""
        self._entries.delete(self._scope.state_key())


class ListState(Generic[T]):
    """A list per key. Adding writes the new elements only, however long the list is."""

    __slots__ = ("_entries", "_scope")

    def __init__(self, _: ListStateDescriptor[T], entries: MapEntries, scope: KeyScope) -> None:
        self._entries = entries
        self._scope = scope

    def get(self) -> list[T]:
        """Return the elements of the current key, oldest first, perhaps ``[]``."""
        return [value for _, value in self._entries.items(self._scope.state_key())]

    def add(self, value: T) -> None:
        """Put an element at the end."""
        self._entries.append(self._scope.state_key(), (value,))

    def add_all(self, values: Iterable[T]) -> None:
        """Put elements at the end."""
        self._entries.append(self._scope.state_key(), values)

    def update(self, values: Iterable[T]) -> None:
        """Replace all elements."""
        key, elements = self._scope.state_key(), list(values)
        self._entries.clear(key)
        self._entries.append(key, elements)

    def clear(self) -> None:
        """Remove all elements."""
        self._entries.clear(self._scope.state_key())

    def is_empty(self) -> bool:
        """Return whether there is no element."""
        return self._entries.is_empty(self._scope.state_key())


class ReadOnlyMapState(Generic[K, V]):
    """A read-only map, such as broadcast state in ``process_element``.

    Map keys come in key order: text, bytes and whole numbers as Python sorts them, tuples part by
    part.
    """

    __slots__ = ("_entries", "_scope")

    def __init__(self, _: MapStateDescriptor[K, V], entries: MapEntries, scope: KeyScope) -> None:
        self._entries = entries
        self._scope = scope

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the entry of a map key, else the default."""
        return self._entries.get(self._scope.state_key(), key, default)

    def contains(self, key: K) -> bool:
        """Return whether a map key has an entry."""
        return self._entries.has(self._scope.state_key(), key)

    def entries(self) -> Iterator[tuple[K, V]]:
        """Yield map keys with entries, in key order; the map may be changed meanwhile."""
        return self._entries.scan(self._scope.state_key())

    def keys(self) -> Iterator[K]:
        """Yield the map keys, in order."""
        return (key for key, _ in self.entries())

    def values(self) -> Iterator[V]:
        """Yield the entries, in the order of their map keys."""
        return (value for _, value in self.entries())

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield the entries with ``start <= map key < end`` in key order."""
        first = MISSING if start is None else start
        last = MISSING if end is None else end
        return self._entries.scan(self._scope.state_key(), first, last)

    def prefix(self, prefix: Any) -> Iterator[tuple[K, V]]:
        """Yield the entries whose map keys begin with a text, bytes, or parts of a tuple.

        Example:
            >>> from bicycle_sdk.contexts import RuntimeContext
            >>> visits = RuntimeContext.standalone().get_map_state("visits")
            >>> for key in [("ada", 2), ("bob", 3), ("ada", 1)]:
            ...     visits.put(key, True)
            >>> [key for key, _ in visits.prefix(("ada",))]
            [('ada', 1), ('ada', 2)]
        """
        if not isinstance(prefix, str | bytes | tuple):
            raise StateDefinitionError(
                state="prefix()",
                problem=(
                    "a prefix of map keys must be a text, bytes or a tuple, got "
                    f"{type(prefix).__qualname__}"
                ),
                hint="pass a text, bytes or a tuple, or use range()",
            )
        return self._entries.scan(self._scope.state_key(), prefix=prefix)

    def is_empty(self) -> bool:
        """Return whether there is no entry."""
        return self._entries.is_empty(self._scope.state_key())

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return self.keys()


class MapState(ReadOnlyMapState[K, V]):
    """A map per key, written entry by entry."""

    __slots__ = ()

    def put(self, key: K, value: V) -> None:
        """Set the entry of a map key."""
        self._entries.put(self._scope.state_key(), key, value)

    def remove(self, key: K) -> V | None:
        """Remove the entry of a map key, and return it, or None."""
        scope = self._scope.state_key()
        old: V | None = self._entries.get(scope, key)
        self._entries.delete(scope, key)
        return old

    def clear(self) -> None:
        """Remove all entries of the current key."""
        self._entries.clear(self._scope.state_key())


class _Fresh:
    """A default that may be changed in place: each reader gets a separate copy."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def copy(self) -> Any:
        return copy.deepcopy(self._value)


def make_handle(descriptor: StateDescriptor, entries: Any, scope: KeyScope) -> Any:
    """Return the handle of a state over its entries."""
    match descriptor:
        case ValueStateDescriptor():
            return ValueState(descriptor, entries, scope)
        case ListStateDescriptor():
            return ListState(descriptor, entries, scope)
        case MapStateDescriptor():
            return MapState(descriptor, entries, scope)
        case ReducingStateDescriptor():
            return ReducingState(descriptor, entries, scope)
        case AggregatingStateDescriptor():
            return AggregatingState(descriptor, entries, scope)
        case _:
            raise TypeError(f"{descriptor!r} is not a state descriptor")
