"""The keyed states of one operator, of which only a part is in memory.

What a state has on disk is there whether a function asks for it or not, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import StateKindError
from bicycle_runtime.state.memory.keyed import Cells, KeyedTable
from bicycle_runtime.state.paged.cells import PagedMapCells, PagedValueCells
from bicycle_runtime.state.paged.dicts import MISSING, PagedDict, Shelf
from bicycle_runtime.state.paged.expiry import PagedExpiry
from bicycle_runtime.state.paged.pages import Pages
from bicycle_runtime.state.rocksdb.places import behind, section_start
from bicycle_runtime.state.sealed.changes import Section
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.declaring import SHAPES
from bicycle_runtime.state.values.reading import OpenedState, StateBook
from bicycle_sdk.state.descriptors import StateDescriptor, TimeDomain
from bicycle_sdk.state.frozen import is_frozen_type

__all__ = ["PagedKeyedTable"]

_KEYS = AnyCodec()
_STAMPS = ValueCodec(int)
PREFIX = "$"


class PagedKeyedTable(KeyedTable):
    """A ``KeyedTable`` over pages.

    Args:
        groups: The key group of a key, by indexing.
        clock: Tells the time in ms in a domain, for states with a TTL.
        pages: The operator's.
        book: Knows in which forms states are sealed; None when nothing is.
    """

    def __init__(
        self,
        groups: Mapping[Any, int],
        clock: Callable[[TimeDomain], int],
        pages: Pages,
        *,
        book: StateBook | None = None,
    ) -> None:
        super().__init__(groups, clock, backend=_Backend(pages, groups), book=book)
        self._pages = pages

    def apply(self, sections: Iterable[Section]) -> None:
        """Forget what is in memory of what others have sealed."""
        for section in sections:
            state = self._state_of(section.name)
            if state is None:
                continue
            cells = [*_decoded(section.keys), *_decoded(section.deleted)]
            if not section.name.startswith(self._times_prefix):
                state.cells.unload(cells)
            elif isinstance(state.cells.expiry, PagedExpiry):
                state.cells.expiry.paged.drop(cells)

    def names(self) -> dict[str, str]:
        """Return ``value``, ``list`` or ``map`` for each state, declared or sealed, by name."""
        found = super().names()
        for group in self._pages.groups:
            for section_name in self._pages.names(group):
                if section_name.startswith(self._entries_prefix):
                    shape, _, name = section_name.removeprefix(self._entries_prefix).partition(".")
                    found.setdefault(name, shape)
        return found

    def _refuse_other_kinds(self, descriptor: StateDescriptor) -> None:
        if not self._pages.is_open:
            return
        mine = SHAPES[descriptor.kind]
        for shape in sorted(set(SHAPES.values()) - {mine}):
            name = self._name_of(shape, descriptor.name)
            if any(self._has(group, name) for group in self._pages.groups):
                raise StateKindError(state=descriptor.name, sealed=shape, asked=descriptor.kind)

    def _has(self, group: int, name: str) -> bool:
        start = section_start(group, name)
        return next(self._pages.scan(start, behind(start)), None) is not None

    def _held(self, state: Any) -> Callable[[Any], bool]:
        paged: PagedDict = state.cells.paged
        return lambda cell: paged.peek(cell) is not MISSING


class _Backend:
    """A ``KeyedBackend`` whose cells are paged."""

    def __init__(self, pages: Pages, groups: Mapping[Any, int]) -> None:
        self._pages = pages
        self._groups = groups

    def cells(
        self, descriptor: StateDescriptor, opened: OpenedState, clock: Callable[[TimeDomain], int]
    ) -> Cells:
        pages, groups, place = self._pages, self._groups, opened.place
        is_map = descriptor.kind in ("list", "map")

        def group_of(cell: Any) -> int:
            return groups[cell[0]] if is_map else groups[cell]

        def shelf(section: str, codec: ValueCodec) -> Shelf:
            return Shelf(pages, section, codec, group_of=group_of)

        def all_cells() -> Iterable[Any]:
            return cells.cells()

        ttl, times = descriptor.time_to_live, f"{PREFIX}ttl.{place}"
        pages.timed[times] = ttl is not None
        cells: Cells
        expiry = None
        if ttl is not None:
            expiry = PagedExpiry(
                ttl, lambda: clock(ttl.time), pages, times,
                stamps=PagedDict(shelf(times, _STAMPS)), cells=all_cells,
            )  # fmt: skip
        entries = f"{PREFIX}state.{SHAPES[descriptor.kind]}.{place}"
        frozen = descriptor.stored_type is not None and is_frozen_type(descriptor.stored_type)
        stored = shelf(entries, opened.codec)
        if is_map:
            cells = PagedMapCells(
                pages, entries, groups.__getitem__, stored, is_frozen=frozen, expiry=expiry
            )
        else:
            cells = PagedValueCells(stored, is_frozen=frozen, expiry=expiry)
        return cells


def _decoded(keys: Any) -> list[Any]:
    return _KEYS.decode_list(bytes(keys))
