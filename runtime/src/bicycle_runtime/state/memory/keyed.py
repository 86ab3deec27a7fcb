"""Keyed states of one operator in one subtask: value, list, map, reducing and aggregating state.

Cells, which the space makes, hold entries as Python objects: all of them, or those used last. An
entry is encoded when it is written, by its declared type, and only what changed since the last
commit is. A state of which a sealed file tells before the function has asked for it stays encoded,
and is kept even if nobody ever asks.

Three kinds of sections: ``$state.<kind>.<name>`` has entries, ``$ttl.<name>`` the times from which
they live. A TTL may therefore be added and taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import STATE_KIND_CHANGED
from bicycle_runtime.state.memory.space import KeyedCells, MemorySpace, StateSpace
from bicycle_runtime.state.sealed.changes import EVERYWHERE, Section, make_section
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.declaring import SHAPES, keyed_state
from bicycle_runtime.state.values.reading import StateBook
from bicycle_sdk.state.cells import MISSING, MapCells
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain, require_same

__all__ = ["BROADCAST", "BroadcastTable", "KeyedTable"]

_KEYS = AnyCodec()
_STAMPS = ValueCodec(int)


@dataclass(slots=True)
class _State:
    """One declared state."""

    descriptor: StateDescriptor
    cells: KeyedCells
    codec: ValueCodec
    place: str
    groups: set[int] = field(default_factory=set)  # Those that may have entries.


class KeyedTable:
    """A ``StateTable`` of keyed states.

    Args:
        groups: The key group of a key, by indexing.
        clock: Tells the time in ms in a domain, for states with a TTL.
        space: Where entries lie; None for memory.
        prefix: Begins the names of its sections, so that tables can share files.
        book: Knows in which forms states are sealed; None when nothing is.
    """

    def __init__(
        self,
        groups: Mapping[Any, int],
        clock: Callable[[TimeDomain], int],
        *,
        space: StateSpace | None = None,
        prefix: str = "$",
        book: StateBook | None = None,
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._space = space or MemorySpace()
        self._entries_prefix = f"{prefix}state."
        self._times_prefix = f"{prefix}ttl."
        self._book = book or StateBook()
        self._states: dict[str, _State] = {}
        self._by_place: dict[str, _State] = {}
        self._unread: dict[str, list[Section]] = {}

    def claims(self, section_name: str) -> bool:
        """Tell whether a section is one of this table."""
        return section_name.startswith((self._entries_prefix, self._times_prefix))

    def cells_of(self, descriptor: StateDescriptor) -> KeyedCells:
        """Return the cells of a state, made and filled when first asked for.

        Raises:
            StateDefinitionError: the state was declared otherwise before.
            STATE_KIND_CHANGED: sealed files have it as another kind.
            SCHEMA_REFUSED: what is sealed cannot be read as it is declared now.
        """
        known = self._states.get(descriptor.name)
        if known is not None:
            require_same(known.descriptor, descriptor)
            return known.cells
        self._refuse_other_kinds(descriptor)
        opened = self._book.open(
            keyed_state(descriptor), descriptor.stored_type, descriptor.migrate
        )
        entries = self._name_of(SHAPES[descriptor.kind], opened.place)
        times = self._times_prefix + opened.place
        cells = self._space.keyed_cells(
            descriptor, opened.codec,
            entries=entries, times=times, groups=self._groups, clock=self._clock,
        )  # fmt: skip
        state = _State(descriptor, cells, opened.codec, opened.place)
        self._states[descriptor.name] = self._by_place[opened.place] = state
        for name in (entries, times):
            self.apply(self._unread.pop(name, ()))
        return state.cells

    def declared(self) -> list[StateDescriptor]:
        """Return what was declared, by name."""
        return [state.descriptor for _, state in sorted(self._states.items())]

    def names(self) -> dict[str, str]:
        """Return ``value``, ``list`` or ``map`` for each state, declared or sealed, by name."""
        found = {
            name: SHAPES[state.descriptor.kind] for name, state in sorted(self._states.items())
        }
        unread = [name for name in self._unread if name.startswith(self._entries_prefix)]
        for section_name in sorted({*unread, *self._space.names(self._entries_prefix)}):
            shape, _, name = section_name.removeprefix(self._entries_prefix).partition(".")
            found.setdefault(name, shape)
        return found

    def reset(self) -> None:
        """Forget all entries, sealed or not; handles of declared states stay good."""
        self._unread.clear()
        for state in self._states.values():
            state.cells.reset()
            state.groups.clear()

    def changes(self) -> list[Section]:
        """Return what changed since the last call, without what expired by now."""
        sections: list[Section] = []
        for _, state in sorted(self._states.items()):
            cells = state.cells
            cells.sweep()
            if cells.touched:
                touched, cells.touched = cells.touched, {}
                sections += self._entries(state, touched)
            expiry = cells.expiry
            if expiry is not None and expiry.touched:
                stamped, expiry.touched = expiry.touched, {}
                sections += self._times(state, stamped)
        return sections

    def apply(self, sections: Iterable[Section]) -> None:
        """Put sealed changes in, oldest first."""
        for section in sections:
            state = self._state_of(section.name)
            if state is None:
                if self._space.holds_all:
                    self._unread.setdefault(section.name, []).append(section)
            elif section.name.startswith(self._times_prefix):
                self._apply_times(state, section)
            else:
                self._apply_entries(state, section)

    def next_due_ms(self) -> int | None:
        """Return when, in processing time, expired entries can be removed; None for never."""
        expiries = [state.cells.expiry for state in self._states.values() if _is_by_clock(state)]
        times = [expiry.next_due_ms() for expiry in expiries if expiry is not None]
        return min((time for time in times if time is not None), default=None)

    def _state_of(self, section_name: str) -> _State | None:
        if section_name.startswith(self._times_prefix):
            return self._by_place.get(section_name.removeprefix(self._times_prefix))
        _, _, place = section_name.removeprefix(self._entries_prefix).partition(".")
        state = self._by_place.get(place)
        return state if state is not None and self._entries_name(state) == section_name else None

    def _entries_name(self, state: _State) -> str:
        return self._name_of(SHAPES[state.descriptor.kind], state.place)

    def _name_of(self, shape: str, place: str) -> str:
        return f"{self._entries_prefix}{shape}.{place}"

    def _refuse_other_kinds(self, descriptor: StateDescriptor) -> None:
        mine = SHAPES[descriptor.kind]
        for shape in sorted(set(SHAPES.values()) - {mine}):
            name = self._name_of(shape, descriptor.name)
            if name in self._unread or self._space.has(name):
                raise STATE_KIND_CHANGED(state=descriptor.name, sealed=shape, asked=descriptor.kind)

    def _entries(self, state: _State, cells: Iterable[Any]) -> list[Section]:
        name, codec, peek = self._entries_name(state), state.codec, state.cells.peek
        return [
            make_section(
                group,
                name,
                _KEYS.encode_list(kept),
                codec.encode_list([peek(cell) for cell in kept]),
                deleted=_KEYS.encode_list(gone) if gone else None,
            )
            for group, kept, gone in self._by_group(state, cells, self._held(state))
        ]

    def _times(self, state: _State, cells: Iterable[Any]) -> list[Section]:
        name = self._times_prefix + state.place
        assert state.cells.expiry is not None
        stamps = state.cells.expiry.stamps
        return [
            make_section(
                group,
                name,
                _KEYS.encode_list(kept),
                _STAMPS.encode_list([stamps[cell] for cell in kept]),
                deleted=_KEYS.encode_list(gone) if gone else None,
            )
            for group, kept, gone in self._by_group(state, cells, stamps.__contains__)
        ]

    def _held(self, state: _State) -> Callable[[Any], bool]:
        cells = state.cells
        if not self._space.holds_all:
            return lambda cell: cells.peek(cell) is not MISSING
        if isinstance(cells, MapCells):
            rows = cells.rows
            return lambda cell: cell[0] in rows and cell[1] in rows[cell[0]]
        return cells.entries.__contains__

    def _by_group(
        self, state: _State, cells: Iterable[Any], is_held: Callable[[Any], bool]
    ) -> list[tuple[int, list[Any], list[Any]]]:
        """Divide cells by key group, and those that are there from those that are gone."""
        groups = self._groups
        is_map = isinstance(state.cells, MapCells)
        parts: dict[int, tuple[list[Any], list[Any]]] = {}
        # hot path: 250 ns a touched cell.
        for cell in cells:
            group = groups[cell[0] if is_map else cell]
            part = parts.get(group)
            if part is None:
                part = parts[group] = ([], [])
            part[not is_held(cell)].append(cell)
        state.groups.update(parts)
        return [(group, *part) for group, part in sorted(parts.items())]

    def _apply_entries(self, state: _State, section: Section) -> None:
        cells = _decoded(section.keys)
        if not self._space.holds_all:  # They are read again when somebody asks.
            state.cells.unload([*cells, *_decoded(section.deleted)])
            return
        if section.is_full and section.group in state.groups:
            self._clear_group(state, section.group)
        state.groups.add(section.group)
        values = state.codec.decode_list(section.values, section.keys)
        state.cells.load(cells, values)
        state.cells.unload(_decoded(section.deleted))
        expiry = state.cells.expiry
        if expiry is not None:  # The state may have had no TTL when this was written.
            for cell in cells:
                expiry.start(cell)

    def _apply_times(self, state: _State, section: Section) -> None:
        expiry = state.cells.expiry
        if expiry is None:
            return  # The function took the TTL away: entries live on.
        if not self._space.holds_all:
            expiry.unload([*_decoded(section.keys), *_decoded(section.deleted)])
            return
        stamps = _STAMPS.decode_list(section.values)
        for cell, stamp in zip(_decoded(section.keys), stamps, strict=True):
            expiry.put(cell, stamp)
        expiry.unload(_decoded(section.deleted))

    def _clear_group(self, state: _State, group: int) -> None:
        is_map = isinstance(state.cells, MapCells)
        gone = [
            cell
            for cell in state.cells.cells()
            if self._groups[cell[0] if is_map else cell] == group
        ]
        state.cells.unload(gone)
        expiry = state.cells.expiry
        if expiry is not None:
            expiry.unload(gone)


class _Everywhere(dict[Any, int]):
    """The key group of what every subtask has a copy of."""

    def __missing__(self, key: Any) -> int:
        return EVERYWHERE


class BroadcastTable(KeyedTable):
    """States without keys that all subtasks hold alike, in memory: each has a copy and writes it.

    Every subtask must make the same changes in the same epoch; a rescaled subtask takes the copy
    of any old one. Handles are made over ``cells_of(descriptor)`` with ``BROADCAST`` for a scope.
    The operator is divided by key groups (``StateScope.KEY_GROUPS``), so that each subtask of the
    next run finds files of a former one.
    """

    def __init__(
        self,
        clock: Callable[[TimeDomain], int],
        *,
        book: StateBook | None = None,
    ) -> None:
        super().__init__(_Everywhere(), clock, prefix="$broadcast.", book=book)


class _BroadcastScope:
    """The scope of handles whose state has no key."""

    def state_key(self) -> None:
        return None


BROADCAST = _BroadcastScope()


def _decoded(keys: Any) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))


def _is_by_clock(state: _State) -> bool:
    ttl = state.descriptor.time_to_live
    return ttl is not None and ttl.time == "processing"
