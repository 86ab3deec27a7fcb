"""Keyed states of an operator in a subtask: value, list, map, reducing and others.

Tables hold entries as Python objects: all entries, or the most recently used entries.
An entry is encoded when it is written, by its declared type, and only if it changed since the last
commit. A state in a sealed file that the function has not yet requested stays encoded, and is kept
even if the function never requests it.

Three kinds of change sets: ``$state.<kind>.<name>`` has entries, ``$ttl.<name>`` the times from
which they live. A TTL may therefore be added and taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_, itemgetter
from typing import Any

from bicycle_runtime.layouts.state import EVERYWHERE, ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import STATE_KIND_CHANGED
from bicycle_runtime.state.memory.space import KeyedEntries, MemorySpace, StateSpace
from bicycle_runtime.state.sealed.changes import divided_change_sets
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_runtime.state.values.state_metadata import SHAPES, keyed_state
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain, require_same
from bicycle_sdk.state.entries import MISSING, MapEntries

_KEYS = AnyCodec()
_STAMPS = ValueCodec(int)
_FIRST = itemgetter(0)


@dataclass(slots=True)
class _State:
    """One declared state."""

    descriptor: StateDescriptor
    entries: KeyedEntries
    codec: ValueCodec
    stored_name: str
    groups: set[int] = field(default_factory=set)  # Key groups that may have entries.


class KeyedTable:
    """A ``StateTable`` of keyed states.

    Args:
        groups: The key group of a key, by indexing.
        clock: Returns the time in ms in a domain, for states with a TTL.
        space: The location of entries; None for memory.
        prefix: Begins the names of its change sets, so that tables can share files.
        registry: Knows in which schema versions states are sealed; None when nothing is.
    """

    def __init__(
        self,
        groups: Mapping[Any, int],
        clock: Callable[[TimeDomain], int],
        *,
        space: StateSpace | None = None,
        prefix: str = "$",
        registry: SchemaRegistry | None = None,
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._space = space or MemorySpace()
        self._entries_prefix = f"{prefix}state."
        self._times_prefix = f"{prefix}ttl."
        self._registry = registry or SchemaRegistry()
        self._states: dict[str, _State] = {}
        self._by_stored_name: dict[str, _State] = {}
        self._unread: dict[str, list[ChangeSet]] = {}

    def claims(self, state_name: str) -> bool:
        """Return whether a change set belongs to this table."""
        return state_name.startswith((self._entries_prefix, self._times_prefix))

    def entries_of(self, descriptor: StateDescriptor) -> KeyedEntries:
        """Return the entries of a state, created and loaded on first access.

        Raises:
            StateDefinitionError: the state was declared otherwise before.
            STATE_KIND_CHANGED: sealed files have it as another kind.
            SCHEMA_REFUSED: sealed values cannot be read by the current declaration.
        """
        known = self._states.get(descriptor.name)
        if known is not None:
            require_same(known.descriptor, descriptor)
            return known.entries
        self._refuse_other_kinds(descriptor)
        opened = self._registry.open(
            keyed_state(descriptor), descriptor.stored_type, descriptor.migrate
        )
        entries = self._name_of(SHAPES[descriptor.kind], opened.stored_name)
        times = self._times_prefix + opened.stored_name
        found = self._space.keyed_entries(
            descriptor, opened.codec,
            entries=entries, times=times, groups=self._groups, clock=self._clock,
        )  # fmt: skip
        state = _State(descriptor, found, opened.codec, opened.stored_name)
        self._states[descriptor.name] = self._by_stored_name[opened.stored_name] = state
        for name in (entries, times):
            self.apply(self._unread.pop(name, ()))
        return state.entries

    def declared(self) -> list[StateDescriptor]:
        """Return the declared states, by name."""
        return [state.descriptor for _, state in sorted(self._states.items())]

    def names(self) -> dict[str, str]:
        """Return the shape of each declared or sealed state by name."""
        found = {
            name: SHAPES[state.descriptor.kind] for name, state in sorted(self._states.items())
        }
        unread = [name for name in self._unread if name.startswith(self._entries_prefix)]
        for state_name in sorted({*unread, *self._space.names(self._entries_prefix)}):
            shape, _, name = state_name.removeprefix(self._entries_prefix).partition(".")
            found.setdefault(name, shape)
        return found

    def reset(self) -> None:
        """Forget all entries, sealed or not; handles of declared states stay good."""
        self._unread.clear()
        for state in self._states.values():
            state.entries.reset()
            state.groups.clear()

    def changes(self) -> list[ChangeSet]:
        """Return the changes since the last call, without expired entries."""
        change_sets: list[ChangeSet] = []
        for _, state in sorted(self._states.items()):
            entries = state.entries
            entries.sweep()
            if entries.touched:
                touched, entries.touched = entries.touched, {}
                change_sets += self._entries(state, touched)
            expiry = entries.expiry
            if expiry is not None and expiry.touched:
                stamped, expiry.touched = expiry.touched, {}
                change_sets += self._times(state, stamped)
        return change_sets

    def key_count(self) -> int:
        """Return how many keys have state, of all declared states together."""
        return sum(state.entries.key_count() for state in self._states.values())

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        """Put sealed changes in, oldest first."""
        for change_set in change_sets:
            state = self._state_of(change_set.name)
            if state is None:
                if self._space.holds_all:
                    self._unread.setdefault(change_set.name, []).append(change_set)
            elif change_set.name.startswith(self._times_prefix):
                self._apply_times(state, change_set)
            else:
                self._apply_entries(state, change_set)

    def next_due_ms(self) -> int | None:
        """Return when, in processing time, expired entries can be removed; None for never."""
        expiries = [state.entries.expiry for state in self._states.values() if _is_by_clock(state)]
        times = [expiry.next_due_ms() for expiry in expiries if expiry is not None]
        return min((time for time in times if time is not None), default=None)

    def _state_of(self, state_name: str) -> _State | None:
        if state_name.startswith(self._times_prefix):
            return self._by_stored_name.get(state_name.removeprefix(self._times_prefix))
        _, _, stored_name = state_name.removeprefix(self._entries_prefix).partition(".")
        state = self._by_stored_name.get(stored_name)
        return state if state is not None and self._entries_name(state) == state_name else None

    def _entries_name(self, state: _State) -> str:
        return self._name_of(SHAPES[state.descriptor.kind], state.stored_name)

    def _name_of(self, shape: str, stored_name: str) -> str:
        return f"{self._entries_prefix}{shape}.{stored_name}"

    def _refuse_other_kinds(self, descriptor: StateDescriptor) -> None:
        mine = SHAPES[descriptor.kind]
        for shape in sorted(set(SHAPES.values()) - {mine}):
            name = self._name_of(shape, descriptor.name)
            if name in self._unread or self._space.has(name):
                raise STATE_KIND_CHANGED(state=descriptor.name, sealed=shape, asked=descriptor.kind)

    def _entries(self, state: _State, entry_keys: Collection[Any]) -> list[ChangeSet]:
        values = state.entries.peek_all(entry_keys)
        name = self._entries_name(state)
        return self._divide(state, name, entry_keys, values, codec=state.codec)

    def _times(self, state: _State, entry_keys: Collection[Any]) -> list[ChangeSet]:
        name = self._times_prefix + state.stored_name
        assert state.entries.expiry is not None
        stamps = state.entries.expiry.stamps
        found = [stamps.get(entry_key, MISSING) for entry_key in entry_keys]
        return self._divide(state, name, entry_keys, found, codec=_STAMPS)

    def _divide(
        self, state: _State, name: str, entry_keys: Collection[Any], values: list[Any],
        *, codec: ValueCodec,
    ) -> list[ChangeSet]:  # fmt: skip
        """Return change sets of entries and values; ``MISSING`` marks a removed entry."""
        gone: list[Any] = []
        if any(map(is_, values, repeat(MISSING))):  # Values may refuse a comparison by ``==``.
            pairs = list(zip(entry_keys, values, strict=True))
            gone = [entry_key for entry_key, value in pairs if value is MISSING]
            entry_keys = [entry_key for entry_key, value in pairs if value is not MISSING]
            values = [value for value in values if value is not MISSING]
        kept = list(entry_keys)
        put = self._groups_of(state, kept), _KEYS.encode_items(kept), codec.encode_items(values)
        deleted = self._groups_of(state, gone), _KEYS.encode_items(gone)
        state.groups.update(put[0])
        return divided_change_sets(name, put, deleted)

    def _groups_of(self, state: _State, entry_keys: Iterable[Any]) -> list[int]:
        keys = map(_FIRST, entry_keys) if isinstance(state.entries, MapEntries) else entry_keys
        return list(map(self._groups.__getitem__, keys))

    def _apply_entries(self, state: _State, change_set: ChangeSet) -> None:
        entry_keys = _decode(change_set.keys)
        if not self._space.holds_all:  # They are read again on demand.
            state.entries.unload([*entry_keys, *_decode(change_set.deleted)])
            return
        if change_set.is_full and change_set.group in state.groups:
            self._clear_group(state, change_set.group)
        state.groups.add(change_set.group)
        values = state.codec.decode_list(change_set.values, change_set.keys)
        state.entries.load(entry_keys, values)
        state.entries.unload(_decode(change_set.deleted))
        expiry = state.entries.expiry
        if expiry is not None:  # The state may have had no TTL when this was written.
            for entry_key in entry_keys:
                expiry.start(entry_key)

    def _apply_times(self, state: _State, change_set: ChangeSet) -> None:
        expiry = state.entries.expiry
        if expiry is None:
            return  # The function took the TTL away: entries live on.
        if not self._space.holds_all:
            expiry.unload([*_decode(change_set.keys), *_decode(change_set.deleted)])
            return
        stamps = _STAMPS.decode_list(change_set.values)
        for entry_key, stamp in zip(_decode(change_set.keys), stamps, strict=True):
            expiry.put(entry_key, stamp)
        expiry.unload(_decode(change_set.deleted))

    def _clear_group(self, state: _State, group: int) -> None:
        is_map = isinstance(state.entries, MapEntries)
        gone = [
            entry_key
            for entry_key in state.entries.entry_keys()
            if self._groups[entry_key[0] if is_map else entry_key] == group
        ]
        state.entries.unload(gone)
        expiry = state.entries.expiry
        if expiry is not None:
            expiry.unload(gone)


class _Everywhere(dict[Any, int]):
    """The key group of state that every subtask copies."""

    def __missing__(self, key: Any) -> int:
        return EVERYWHERE


class BroadcastTable(KeyedTable):
    """States without keys that are equal in all subtasks, each with a copy.

    Every subtask must make the same changes in the same epoch; a rescaled subtask takes the copy
    of any old one. Handles are made over ``entries_of(descriptor)`` with ``BROADCAST`` for a scope.
    The operator is divided by key groups (``StateScope.KEY_GROUPS``), so that each subtask of the
    next run finds files of a former one.
    """

    def __init__(
        self,
        clock: Callable[[TimeDomain], int],
        *,
        registry: SchemaRegistry | None = None,
    ) -> None:
        super().__init__(_Everywhere(), clock, prefix="$broadcast.", registry=registry)


class _BroadcastScope:
    """The scope of handles whose state has no key."""

    def state_key(self) -> None:
        return None


BROADCAST = _BroadcastScope()


def _decode(keys: Any) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))


def _is_by_clock(state: _State) -> bool:
    ttl = state.descriptor.time_to_live
    return ttl is not None and ttl.time == "processing"
