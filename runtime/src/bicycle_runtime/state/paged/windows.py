"""Cells of windows of which only a part is in memory: a paged dict per place and key group.

Which places there are is known without the disk. The dict of a place that nothing is held of is
let go, and made anew when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.memory.windows import Cells, Records, WindowTable
from bicycle_runtime.state.paged.dicts import OneCodec, PagedDict, Shelf
from bicycle_runtime.state.paged.pages import Pages
from bicycle_runtime.state.paged.records import PagedPlaceRecords
from bicycle_runtime.state.sealed.changes import Section, emptied_section

__all__ = ["PagedCells", "PagedWindowTable"]

_KEYS = AnyCodec()


class PagedCells(Cells):
    """``Cells`` over pages.

    Args:
        pages: The operator's.
        prefix: First letter of the names of its sections.
        value_type: Declared type of the values, None when unknown.
        dump: Turns a value into what is stored; ``load`` is its inverse.
        load: See ``dump``.
    """

    is_lasting = False

    def __init__(
        self, pages: Pages, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prefix, value_type, dump=dump, load=load)
        self._pages = pages
        self._open: dict[tuple[int, int], PagedDict] = {}
        pages.join(self)

    # --- as a page ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        for paged in self._open.values():
            paged.settle()
        self._let_go()

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""
        return sum(paged.clean_count() for paged in self._open.values())

    def age(self, share: float) -> None:
        """Let go of what is warm, and make warm the newest part of what is hot and not touched."""
        for paged in self._open.values():
            paged.age(share)
        self._let_go()

    # --- as cells ----------------------------------------------------------------------------

    def note(self, section_name: str, group: int) -> None:
        """Take note that something is sealed at a place."""
        place = int(section_name[len(self.prefix) :])
        self.places.setdefault(place, {})[group] = None
        self._sealed.add((place, group))

    def group(self, place: int, group: int) -> dict[Any, Any]:
        """Return the values of a key group at a place, to be read and changed."""
        self.places.setdefault(place, {})[group] = None
        return self._dict(place, group)

    def contents(
        self, place: int, group: int, keys: Collection[Any] | None = None
    ) -> Mapping[Any, Any]:
        """Return the values of a key group at a place, to be read: of some keys, or of all."""
        if group not in self.places.get(place, ()):
            return {}
        paged = self._dict(place, group)
        if keys is None:
            return paged.gathered()
        return {key: paged[key] for key in keys if key in paged}

    def find(self, place: int, group: int, key: Any) -> Any:
        """Return a value, None when there is none."""
        if group not in self.places.get(place, ()):
            return None
        return self._dict(place, group).get(key)

    def touch(self, place: int, group: int, keys: Iterable[Any]) -> None:
        """Take note that the values of some keys were put, changed in place, or removed."""
        listed = dict.fromkeys(keys)
        super().touch(place, group, listed)
        paged = self._dict(place, group)
        # What is not held was removed, which is noted, or is yet to be put.
        paged.touched.update((key, None) for key in listed if dict.__contains__(paged, key))

    def drop(self, place: int) -> None:
        """Forget all values of a place."""
        for group in self.places.pop(place, ()):
            self._dict(place, group).clear()
            super().touch(place, group, ())

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for (place, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            paged = self._dict(place, group)
            if any(dict.__contains__(paged, key) for key in keys) or paged:
                yield self._section(place, group, paged, keys, is_full=paged.is_emptied)
                self._sealed.add((place, group))
                continue
            self._forget(place, group)
            if (place, group) in self._sealed:
                self._sealed.discard((place, group))
                yield emptied_section(group, self._name(place))
        self._touched.clear()

    def apply(self, section: Section) -> None:
        """Forget what is in memory of what others have sealed."""
        place, group = int(section.name[len(self.prefix) :]), section.group
        keys = _KEYS.decode_list(bytes(section.keys))
        if keys:
            self.note(section.name, group)
        elif section.is_full:
            self._forget(place, group)
            self._sealed.discard((place, group))
        paged = self._open.get((place, group))
        if paged is not None:
            if section.is_full:
                paged.forget()
            paged.drop(keys)
            paged.drop(_KEYS.decode_list(bytes(section.deleted)))

    def _dict(self, place: int, group: int) -> PagedDict:
        found = self._open.get((place, group))
        if found is None:
            codec: OneCodec = (
                self._codec if self._load is None else _Loading(self._codec, self._load)
            )
            shelf = Shelf(self._pages, self._name(place), codec, group=group)
            is_new = (place, group) not in self._sealed
            found = self._open[place, group] = PagedDict(shelf, is_part=True, is_new=is_new)
        return found

    def _let_go(self) -> None:
        for part in [part for part, paged in self._open.items() if paged.is_idle]:
            del self._open[part]


class _Loading:
    """Reads values that are stored in another form.

    Args:
        codec: Reads what is stored.
        load: Makes a value of it.
    """

    def __init__(self, codec: OneCodec, load: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._load = load

    def decode_one(self, item: bytes, key: Any = None) -> Any:
        """Return a value from its own bytes."""
        return self._load(self._codec.decode_one(item, key))


class PagedWindowTable(WindowTable):
    """A ``WindowTable`` over pages: it knows the places, and reads what lies there when asked.

    Args:
        pages: The operator's.
        cells: Paged cells.
        records: Paged records.
        values: Paged cells of what window functions keep.
    """

    def __init__(self, pages: Pages, cells: Cells, records: Records, values: Cells) -> None:
        super().__init__(cells, records, values)
        self._pages = pages
        self._is_listed = False
        self._listed = {
            prefix: part
            for prefix, part in self.parts.items()
            if isinstance(part, PagedCells | PagedPlaceRecords)
        }

    def begin(self) -> None:
        """Find out which places there are, once."""
        if self._is_listed:
            return
        self._is_listed = True
        for group in self._pages.groups:
            for prefix, part in self._listed.items():
                for name in self._pages.names(group, prefix):
                    part.note(name, group)
