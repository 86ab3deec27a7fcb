"""Access to state through a context: ``get_value_state`` and similar methods.

``StateAccess`` makes handles and remembers them. A subclass decides the location of the entries:
``LocalEntries`` keeps them in memory, for functions that run without a runtime.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast, overload

from bicycle_sdk.state.descriptors import (
    Aggregate,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtl,
    TimeDomain,
    UnionListStateDescriptor,
    ValueStateDescriptor,
    require_same,
)
from bicycle_sdk.state.entries import (
    MISSING,
    CarefulValueEntries,
    MapEntries,
    ValueEntries,
)
from bicycle_sdk.state.expiry import Expiry
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.handles import (
    AggregatingState,
    KeyScope,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    make_handle,
)
from bicycle_sdk.state.part_order import PartOrder

__all__ = ["LocalEntries", "SavedState", "StateAccess", "make_entries", "plain_view"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
_Ttl = StateTtl | timedelta | None


def make_entries(
    descriptor: StateDescriptor,
    *,
    clock: Callable[[TimeDomain], int],
    order: PartOrder | None = None,
) -> ValueEntries | MapEntries:
    """Return empty entries for a state.

    Args:
        descriptor: The state.
        clock: Returns the time in ms in a domain, for its TTL.
        order: The order of its map keys; None for that of their types and values.
    """
    ttl = descriptor.time_to_live
    expiry = None if ttl is None else Expiry(ttl, lambda: clock(ttl.time))
    is_frozen = is_frozen_type(descriptor.stored_type) and descriptor.stored_type is not None
    if descriptor.kind in ("list", "map", "operator_list", "union_list"):
        return MapEntries(is_frozen=is_frozen, expiry=expiry, order=order)
    if is_frozen and expiry is None:
        return ValueEntries()
    return CarefulValueEntries(is_frozen=is_frozen, expiry=expiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """A state of all keys: entries by key, and the time of their last use with a TTL."""

    descriptor: StateDescriptor
    entries: dict[Any, Any]
    stamps: dict[Any, int]


class LocalEntries:
    """The entries of all states of one function, in memory.

    Args:
        clock: Returns the time in ms in a domain.
    """

    def __init__(self, clock: Callable[[TimeDomain], int]) -> None:
        self._clock = clock
        self._states: dict[str, tuple[StateDescriptor, ValueEntries | MapEntries]] = {}

    def entries_of(self, descriptor: StateDescriptor) -> ValueEntries | MapEntries:
        """Return the entries of a state; they are made when first requested."""
        known = self._states.get(descriptor.name)
        if known is None:
            known = descriptor, make_entries(descriptor, clock=self._clock)
            self._states[descriptor.name] = known
        require_same(known[0], descriptor)
        return known[1]

    def saved(self) -> dict[str, SavedState]:
        """Return a copy of all entries, by state."""
        return {name: _save(*known) for name, known in self._states.items()}

    def restore(self, states: Mapping[str, SavedState]) -> None:
        """Replace all entries by a copy of saved entries."""
        for _, entries in self._states.values():
            entries.reset()
        for state in states.values():
            entries = self.entries_of(state.descriptor)
            entries.load(list(state.entries), copy.deepcopy(list(state.entries.values())))
            if entries.expiry is not None:
                for entry_key, stamp in state.stamps.items():
                    entries.expiry.put(entry_key, stamp)

    def view(self, name: str, key: Hashable) -> Any:
        """Return a key's content in a state as plain data, or None."""
        if name not in self._states:
            return None
        descriptor, entries = self._states[name]
        return plain_view(descriptor.kind, entries, key)


def _save(descriptor: StateDescriptor, entries: ValueEntries | MapEntries) -> SavedState:
    saved = copy.deepcopy(
        {entry_key: entries.peek(entry_key) for entry_key in entries.entry_keys()}
    )
    stamps = {} if entries.expiry is None else dict(entries.expiry.stamps)
    return SavedState(descriptor=descriptor, entries=saved, stamps=stamps)


def plain_view(kind: str, entries: ValueEntries | MapEntries, key: Hashable) -> Any:
    """Return a key's content in a state: a value, a list or a dict, or None."""
    found = entries.view(key)
    if found is MISSING:
        return None
    return list(found.values()) if kind.endswith("list") else found


class _Subtask:
    """The scope of lists where there is one subtask."""

    def state_key(self) -> None:
        return None


_SUBTASK = _Subtask()


class StateAccess(ABC):
    """The part of a context that returns states."""

    def __init__(self) -> None:
        self._handles: dict[Any, tuple[Any, Any]] = {}

    @abstractmethod
    def state_entries(self, descriptor: StateDescriptor) -> Any:
        """Return the entries of a state.

        Called by the context itself.
        """

    @abstractmethod
    def state_key(self) -> Hashable:
        """Return the key under which state is read and written. Called by handles."""

    @overload
    def get_value_state(self, name: ValueStateDescriptor[T]) -> ValueState[T]: ...
    @overload
    def get_value_state(
        self, name: str, type: type[T], *, ttl: _Ttl = None
    ) -> ValueState[T | None]: ...
    @overload
    def get_value_state(
        self, name: str, type: type[T], default: T, ttl: _Ttl = None
    ) -> ValueState[T]: ...
    @overload
    def get_value_state(
        self, name: str, type: Any = None, default: Any = None, ttl: _Ttl = None
    ) -> ValueState[Any]: ...
    def get_value_state(
        self,
        name: str | ValueStateDescriptor[Any],
        type: Any = None,
        default: Any = None,
        ttl: _Ttl = None,
    ) -> ValueState[Any]:
        """Return the state of this name that holds one value per key.

        Args:
            name: Name of the state in this operator, or a descriptor instead of all arguments.
            type: Type of the value; without it values are pickled, which is slow.
            default: The result of ``value()`` without a value.
            ttl: How long a value lives; None is forever.

        Raises:
            StateDefinitionError: the state was declared otherwise before.
        """
        if isinstance(name, ValueStateDescriptor):
            handle: ValueState[Any] = self._by_descriptor(name)
            return handle
        return cast(
            "ValueState[Any]",
            self._by_name(ValueStateDescriptor, name, type, default, ttl),
        )

    @overload
    def get_list_state(self, name: ListStateDescriptor[T]) -> ListState[T]: ...
    @overload
    def get_list_state(self, name: str, type: type[T], ttl: _Ttl = None) -> ListState[T]: ...
    @overload
    def get_list_state(self, name: str, type: Any = None, ttl: _Ttl = None) -> ListState[Any]: ...
    def get_list_state(
        self, name: str | ListStateDescriptor[Any], type: Any = None, ttl: _Ttl = None
    ) -> ListState[Any]:
        """Return the list state of this name per key; ``type`` is the element type."""
        if isinstance(name, ListStateDescriptor):
            handle: ListState[Any] = self._by_descriptor(name)
            return handle
        return cast("ListState[Any]", self._by_name(ListStateDescriptor, name, type, ttl))

    @overload
    def get_operator_list_state(self, name: OperatorListStateDescriptor[T]) -> ListState[T]: ...
    @overload
    def get_operator_list_state(self, name: str, type: type[T]) -> ListState[T]: ...
    @overload
    def get_operator_list_state(self, name: str, type: Any = None) -> ListState[Any]: ...
    def get_operator_list_state(
        self, name: str | OperatorListStateDescriptor[Any], type: Any = None
    ) -> ListState[Any]:
        """Return a list of this subtask, on a stream without keys; requested in ``open``.

        When the job starts again or its parallelism changes, all elements of all subtasks are
        divided evenly. It can be read and written where records are handled.
        """
        if isinstance(name, OperatorListStateDescriptor):
            return cast("ListState[Any]", self._operator_list(name))
        return cast("ListState[Any]", self._operator_list(OperatorListStateDescriptor(name, type)))

    @overload
    def get_union_list_state(self, name: UnionListStateDescriptor[T]) -> ListState[T]: ...
    @overload
    def get_union_list_state(self, name: str, type: type[T]) -> ListState[T]: ...
    @overload
    def get_union_list_state(self, name: str, type: Any = None) -> ListState[Any]: ...
    def get_union_list_state(
        self, name: str | UnionListStateDescriptor[Any], type: Any = None
    ) -> ListState[Any]:
        """Return a list like ``get_operator_list_state``, restored fully in each subtask.

        When the job starts again or its parallelism changes, each subtask has the elements of all;
        ``update`` it to the elements of this subtask, or they are kept once for each subtask.
        """
        if isinstance(name, UnionListStateDescriptor):
            return cast("ListState[Any]", self._operator_list(name))
        return cast("ListState[Any]", self._operator_list(UnionListStateDescriptor(name, type)))

    @overload
    def get_map_state(self, name: MapStateDescriptor[K, V]) -> MapState[K, V]: ...
    @overload
    def get_map_state(
        self, name: str, key_type: type[K], value_type: type[V], ttl: _Ttl = None
    ) -> MapState[K, V]: ...
    @overload
    def get_map_state(
        self, name: str, key_type: Any = None, value_type: Any = None, ttl: _Ttl = None
    ) -> MapState[Any, Any]: ...
    def get_map_state(
        self,
        name: str | MapStateDescriptor[Any, Any],
        key_type: Any = None,
        value_type: Any = None,
        ttl: _Ttl = None,
    ) -> MapState[Any, Any]:
        """Return the state of this name that holds a map per key."""
        if isinstance(name, MapStateDescriptor):
            handle: MapState[Any, Any] = self._by_descriptor(name)
            return handle
        return cast(
            "MapState[Any, Any]",
            self._by_name(MapStateDescriptor, name, key_type, value_type, ttl),
        )

    @overload
    def get_reducing_state(self, name: ReducingStateDescriptor[T]) -> ReducingState[T]: ...
    @overload
    def get_reducing_state(
        self, name: str, type: type[T], reduce: Callable[[T, T], T], ttl: _Ttl = None
    ) -> ReducingState[T]: ...
    @overload
    def get_reducing_state(
        self, name: str, type: None, reduce: Callable[[Any, Any], Any], ttl: _Ttl = None
    ) -> ReducingState[Any]: ...
    def get_reducing_state(
        self,
        name: str | ReducingStateDescriptor[Any],
        type: Any = None,
        reduce: Any = None,
        ttl: _Ttl = None,
    ) -> ReducingState[Any]:
        """Return the state of this name that combines added values: ``reduce(old, new)``."""
        if isinstance(name, ReducingStateDescriptor):
            handle: ReducingState[Any] = self._by_descriptor(name)
            return handle
        return cast(
            "ReducingState[Any]",
            self._by_name(ReducingStateDescriptor, name, type, reduce, ttl),
        )

    @overload
    def get_aggregating_state(
        self, name: AggregatingStateDescriptor[In, Acc, Out]
    ) -> AggregatingState[In, Out]: ...
    @overload
    def get_aggregating_state(
        self, name: str, aggregate: Aggregate[In, Acc, Out], type: Any = None, ttl: _Ttl = None
    ) -> AggregatingState[In, Out]: ...
    def get_aggregating_state(
        self,
        name: str | AggregatingStateDescriptor[Any, Any, Any],
        aggregate: Any = None,
        type: Any = None,
        ttl: _Ttl = None,
    ) -> AggregatingState[Any, Any]:
        """Return the state of this name that aggregates added values.

        Args:
            name: Name of the state in this operator, or a descriptor.
            aggregate: An object of an ``AggregateFunction``.
            type: Type of its accumulators; without it they are pickled.
            ttl: How long an accumulator lives; None is forever.
        """
        if isinstance(name, AggregatingStateDescriptor):
            handle: AggregatingState[Any, Any] = self._by_descriptor(name)
            return handle
        return cast(
            "AggregatingState[Any, Any]",
            self._by_name(AggregatingStateDescriptor, name, aggregate, type, ttl),
        )

    def operator_list_scope(
        self,
        descriptor: StateDescriptor,  # noqa: ARG002 - subclasses name it in errors
    ) -> KeyScope:
        """Return whose list of a subtask is meant. Called by the context itself."""
        return _SUBTASK

    def _operator_list(self, descriptor: StateDescriptor) -> Any:
        known = self._handles.get((descriptor.kind, descriptor.name))
        if known is None:
            scope = self.operator_list_scope(descriptor)
            handle = make_handle(descriptor, self.state_entries(descriptor), scope)
            known = self._handles[descriptor.kind, descriptor.name] = (descriptor, handle)
        require_same(known[0], descriptor)
        return known[1]

    def _by_descriptor(self, descriptor: StateDescriptor) -> Any:
        # hot path: functions may ask for each record; callers annotate, since a cast is a call.
        known = self._handles.get(descriptor)
        if known is None:
            handle = make_handle(descriptor, self.state_entries(descriptor), self)
            known = self._handles[descriptor] = (descriptor, handle)
        return known[1]

    def _by_name(self, kind: Callable[..., StateDescriptor], *arguments: Any) -> Any:
        # hot path: 420 ns for a function that asks again for each record, 160 with a descriptor.
        identity = (kind, arguments[0])
        known = self._handles.get(identity)
        if known is None or known[0] != arguments:
            descriptor = kind(*arguments)
            handle = make_handle(descriptor, self.state_entries(descriptor), self)
            known = self._handles[identity] = (arguments, handle)
        return known[1]
