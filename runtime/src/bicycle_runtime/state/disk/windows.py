"""Cells of windows of which only a part is in memory: a dict on disk per place and key group.

Which places there are is known without the disk. The dict of a place that nothing is held of is
let go, and made again when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.disk.dicts import DiskDict, OneCodec, SealedEntries
from bicycle_runtime.state.memory.windows import Cells
from bicycle_runtime.state.sealed.changes import Section, emptied_section

__all__ = ["DiskCells"]

_KEYS = AnyCodec()


class DiskCells(Cells):
    """``Cells`` over cache.

    Args:
        cache: The operator's.
        prefix: First letter of the names of its sections.
        value_type: Declared type of the values, None when unknown.
        dump: Turns a value into what is stored; ``load`` is its inverse.
        load: See ``dump``.
    """

    is_lasting = False

    def __init__(
        self, cache: DiskCache, prefix: str, value_type: Any = None,
        *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prefix, value_type, dump=dump, load=load)
        self._cache = cache
        self._open: dict[tuple[int, int], DiskDict] = {}
        self._is_listed = False
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        for values in self._open.values():
            values.settle()
        self._let_go()

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""
        return sum(values.clean_count() for values in self._open.values())

    def age(self, share: float) -> None:
        """Let go of what is warm, and make warm the newest part of what is hot and not touched."""
        for values in self._open.values():
            values.age(share)
        self._let_go()

    # --- as cells ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which places there are, once."""
        if not self._is_listed:
            self._is_listed = True
            for group in self._cache.groups:
                for name in self._cache.names(group, self.prefix):
                    self._note(name, group)

    def _note(self, section_name: str, group: int) -> None:
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
        values = self._dict(place, group)
        if keys is None:
            return values.gathered()
        return {key: values[key] for key in keys if key in values}

    def find(self, place: int, group: int, key: Any) -> Any:
        """Return a value, None when there is none."""
        if group not in self.places.get(place, ()):
            return None
        return self._dict(place, group).get(key)

    def touch(self, place: int, group: int, keys: Iterable[Any]) -> None:
        """Take note that the values of some keys were put, changed in place, or removed."""
        listed = dict.fromkeys(keys)
        super().touch(place, group, listed)
        values = self._dict(place, group)
        # What is not held was removed, which is noted, or is yet to be put.
        values.touched.update((key, None) for key in listed if dict.__contains__(values, key))

    def drop(self, place: int) -> None:
        """Forget all values of a place."""
        for group in self.places.pop(place, ()):
            self._dict(place, group).clear()
            super().touch(place, group, ())

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for (place, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            values = self._dict(place, group)
            if any(dict.__contains__(values, key) for key in keys) or values:
                yield self._section(place, group, values, keys, is_full=values.is_emptied)
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
            self._note(section.name, group)
        elif section.is_full:
            self._forget(place, group)
            self._sealed.discard((place, group))
        values = self._open.get((place, group))
        if values is not None:
            if section.is_full:
                values.forget()
            values.drop(keys)
            values.drop(_KEYS.decode_list(bytes(section.deleted)))

    def _dict(self, place: int, group: int) -> DiskDict:
        found = self._open.get((place, group))
        if found is None:
            codec: OneCodec = (
                self._codec if self._load is None else _Loading(self._codec, self._load)
            )
            sealed = SealedEntries(self._cache, self._name(place), codec, group=group)
            is_new = (place, group) not in self._sealed
            found = self._open[place, group] = DiskDict(sealed, is_part=True, is_new=is_new)
        return found

    def _let_go(self) -> None:
        for part in [part for part, values in self._open.items() if values.is_idle]:
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
