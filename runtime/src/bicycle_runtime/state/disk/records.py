"""Records of windows of which only a part is in memory.

A chunk, the records of one epoch, place and key, never changes; it is put in, read, and removed.
Windows that are read and dropped a key group at a time hold nothing but the chunks of the running
epoch. Where windows belong to keys, the records of the keys that were used last stay in memory, and
an index tells in which epochs those of another key lie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.disk.cache import DiskCache, UncountedPart
from bicycle_runtime.state.disk.dicts import MISSING, SealedEntries
from bicycle_runtime.state.memory.due import Spot
from bicycle_runtime.state.memory.windows import RECORDS, Records, Row, extend_row, joined_row
from bicycle_runtime.state.rocksdb.indexes import RowIndex, row_start
from bicycle_runtime.state.rocksdb.places import (
    behind_key,
    key_bytes,
    section_start,
    time_in,
    value_in,
)
from bicycle_runtime.state.sealed.changes import Section, emptied_section

__all__ = ["DiskKeyRecords", "DiskPlaceRecords"]

_KEYS = AnyCodec()


class DiskPlaceRecords(UncountedPart, Records):
    """``Records`` that are read by key group and dropped by place.

    ``places`` has the sealed epochs of each key group.

    Args:
        cache: The operator's.
        value_type: Declared type of the records, None when unknown.
    """

    is_lasting = False

    def __init__(self, cache: DiskCache, value_type: Any = None) -> None:
        super().__init__(value_type)
        self._cache = cache
        self._fresh: dict[tuple[int, int], dict[Any, Row]] = {}
        self._is_listed = False
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        self._fresh.clear()

    # --- as records --------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which places there are, once."""
        if not self._is_listed:
            self._is_listed = True
            for group in self._cache.groups:
                for name in self._cache.names(group, RECORDS):
                    self._note(name, group)

    def _note(self, section_name: str, group: int) -> None:
        place, epoch = self._place_in(section_name)
        self.places.setdefault(place, {}).setdefault(group, set()).add(epoch)

    def add(self, place: int, group: int, key: Any, row: Row) -> None:
        """Add records of a key, in the order of arrival."""
        self.places.setdefault(place, {}).setdefault(group, set())
        extend_row(self._fresh.setdefault((place, group), {}), key, row)
        self._touched.setdefault((place, group, self.epoch), {})[key] = None

    def row(self, place: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival."""
        return self.rows(place, group, (key,)).get(key, ([], []))

    def rows(self, place: int, group: int, keys: Collection[Any] | None = None) -> dict[Any, Row]:
        """Return all records of a key group at a place by key; of some keys, or of all."""
        found: dict[Any, Row] = {}
        for epoch in sorted(self.places.get(place, {}).get(group, ())):
            sealed = SealedEntries(self._cache, self._name(place, epoch), self._codec, group=group)
            for key, row in _chunks(sealed, keys):
                extend_row(found, key, row)
        for key, row in self._fresh.get((place, group), {}).items():
            if keys is None or key in keys:
                extend_row(found, key, row)
        return found

    def replace(self, *_: Any) -> None:
        raise AssertionError("these records are not kept by key")

    def drop(self, place: int) -> None:
        """Forget all records of a place."""
        for group, epochs in self.places.pop(place, {}).items():
            self._fresh.pop((place, group), None)
            self._touched.pop((place, group, self.epoch), None)
            for epoch in epochs:
                self._touched[place, group, epoch] = {}

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for part, keys in sorted(self._touched.items(), key=lambda item: item[0]):
            place, group, epoch = part
            if keys:
                self.places[place][group].add(epoch)
                rows = self._fresh[place, group]
                yield self._chunk_section(part, {key: rows[key] for key in keys})
            else:
                yield emptied_section(group, self._name(place, epoch))
        self._touched.clear()

    def apply(self, section: Section) -> None:
        """Take note of what others have sealed."""
        if _KEYS.decode_list(bytes(section.keys)):
            self._note(section.name, section.group)
            return
        place, epoch = self._place_in(section.name)
        groups = self.places.get(place, {})
        epochs = groups.get(section.group, set())
        if section.is_full:
            epochs.discard(epoch)
            if not epochs:
                groups.pop(section.group, None)
            if not groups:
                self.places.pop(place, None)


@dataclass(slots=True)
class _Held:
    """Chunks of one key at a place by epoch: all there are, or only those of the running epoch."""

    is_whole: bool = False
    chunks: dict[int, Row] = field(default_factory=dict)

    def count(self) -> int:
        return sum(len(times) for times, _ in self.chunks.values())


class DiskKeyRecords(Records):
    """``Records`` that are read and replaced key by key.

    Args:
        cache: The operator's.
        value_type: Declared type of the records, None when unknown.
    """

    is_lasting = False

    def __init__(self, cache: DiskCache, value_type: Any = None) -> None:
        super().__init__(value_type)
        self._cache = cache
        self._hot: dict[Spot, _Held] = {}
        self._warm: dict[Spot, _Held] = {}
        self._fresh: dict[Spot, None] = {}  # What the running epoch has changed.
        self._hot_count = 0  # Records in what is hot.
        cache.join(self)
        cache.keep_index(RowIndex())

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        for spot in self._fresh:
            held = self._hot[spot]
            if not held.is_whole or not held.chunks:
                self._hot_count -= held.count()
                del self._hot[spot]
        self._fresh.clear()

    def clean_count(self) -> int:
        """Return how many records are hot."""
        return self._hot_count

    def age(self, share: float) -> None:
        """Let go of what is warm, and make warm the newest part of what is hot and not touched."""
        fresh = {spot: self._hot[spot] for spot in self._fresh}
        clean = [(spot, held) for spot, held in self._hot.items() if spot not in fresh]
        self._warm = dict(islice(reversed(clean), int(len(clean) * share)))
        self._hot = fresh
        self._hot_count = sum(held.count() for held in fresh.values())

    # --- as records --------------------------------------------------------------------------

    def add(self, place: int, group: int, key: Any, row: Row) -> None:
        """Add records of a key, in the order of arrival."""
        spot = (place, group, key)
        extend_row(self._at(spot).chunks, self.epoch, row)
        self._hot_count += len(row[0])
        self._fresh[spot] = None
        self._touched.setdefault((place, group, self.epoch), {})[key] = None

    def row(self, place: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival."""
        return joined_row(self._whole((place, group, key)).chunks)

    def replace(self, place: int, group: int, key: Any, row: Row) -> None:
        """Keep these records of a key and no others."""
        spot = (place, group, key)
        held = self._whole(spot)
        for epoch in held.chunks:
            self._touched.setdefault((place, group, epoch), {})[key] = None
        self._hot_count -= held.count()
        held.chunks = {}
        self._fresh[spot] = None
        if row[0]:
            self.add(place, group, key, row)

    def drop(self, *_: Any) -> None:
        raise AssertionError("these records are kept by key")

    def sections(self) -> Iterator[Section]:
        """Yield what changed since the last call."""
        for part, keys in sorted(self._touched.items(), key=lambda item: item[0]):
            place, group, epoch = part
            held = {key: self._hot[place, group, key].chunks for key in keys}
            put = {key: chunks[epoch] for key, chunks in held.items() if epoch in chunks}
            # What came and went in the running epoch is sealed nowhere.
            gone = [key for key in keys if key not in put and epoch != self.epoch]
            if put or gone:
                yield self._chunk_section(part, put, gone)
        self._touched.clear()

    def apply(self, section: Section) -> None:  # noqa: ARG002  # whatever it is
        """Forget what is in memory: others have sealed something."""
        self._hot, self._warm, self._hot_count = {}, {}, 0

    def _at(self, spot: Spot) -> _Held:
        """Return what is held of a key, to be used."""
        held = self._hot.get(spot)
        if held is None:
            held = self._hot[spot] = self._warm.pop(spot) if spot in self._warm else _Held()
            self._hot_count += held.count()
        return held

    def _whole(self, spot: Spot) -> _Held:
        """Return all chunks of a key."""
        held = self._at(spot)
        if not held.is_whole:
            sealed = self._sealed_chunks(spot)
            self._hot_count += sum(len(times) for times, _ in sealed.values())
            held.chunks = {**sealed, **held.chunks}
            held.is_whole = True
        return held

    def _sealed_chunks(self, spot: Spot) -> dict[int, Row]:
        place, group, key = spot
        start = row_start(group, place, key)
        found = {}
        for entry, _ in self._cache.scan(start, behind_key(start)):
            epoch = time_in(entry[len(start) :])
            section = section_start(group, self._name(place, epoch))
            data = self._cache.read(section + key_bytes(key))
            if data is not None:
                times, values = self._codec.decode_one(value_in(data), key)
                found[epoch] = (list(times), list(values))
        return found


def _chunks(sealed: SealedEntries, keys: Iterable[Any] | None) -> Iterator[tuple[Any, Row]]:
    """Yield keys and chunks of one epoch: of some keys, or of all."""
    if keys is None:
        for key, data in sealed.entries():
            yield key, sealed.value(data)
        return
    for key in keys:
        row = sealed.read(key)
        if row is not MISSING:
            yield key, row
