"""Entries and records of windows, of which only a part is in memory.

Entries are a dict on disk per namespace and key group. The namespaces are known without the disk.
The dict of a namespace without entries in memory is released, and made again on demand.

Records are stored in chunks. A chunk, the records of one epoch, namespace and key, never changes;
it is put in, read, and removed. Windows that are read and dropped a key group at a time hold only
the chunks of the running epoch. If windows belong to keys, the records of the keys used last stay
in memory, and an index has the epochs of other keys' records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bicycle_runtime.layouts.state import ChangeSet, WindowKey
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.disk.cache import DiskCache, UncountedPart
from bicycle_runtime.state.disk.dicts import MISSING, DiskDict, OneCodec, SealedEntries
from bicycle_runtime.state.memory.windows import (
    RECORDS,
    Records,
    Row,
    WindowEntries,
    extend_row,
    forget_group,
    joined_row,
)
from bicycle_runtime.state.rocksdb.indexes import RowIndex, row_start
from bicycle_runtime.state.rocksdb.key_layout import (
    behind_key,
    key_bytes,
    state_start,
    time_in,
    value_in,
)
from bicycle_runtime.state.sealed.changes import emptied_change_set


class DiskNamespaceRecords(UncountedPart, Records):
    """``Records`` that are read by key group and dropped by namespace.

    ``namespaces`` has the sealed epochs of each key group.

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
        """Mark the changes of the epoch as part of the space."""
        self._fresh.clear()

    # --- as records --------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which namespaces there are, once."""
        if not self._is_listed:
            self._is_listed = True
            for group in self._cache.groups:
                for name in self._cache.names(group, RECORDS):
                    self._note(name, group)

    def _note(self, state_name: str, group: int) -> None:
        namespace, epoch = self._namespace_in(state_name)
        self.namespaces.setdefault(namespace, {}).setdefault(group, set()).add(epoch)

    def add(self, namespace: int, group: int, key: Any, row: Row) -> None:
        self.namespaces.setdefault(namespace, {}).setdefault(group, set())
        extend_row(self._fresh.setdefault((namespace, group), {}), key, row)
        self._touched.setdefault((namespace, group, self.epoch), {})[key] = None

    def row(self, namespace: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival."""
        return self.rows(namespace, group, (key,)).get(key, ([], []))

    def rows(
        self, namespace: int, group: int, keys: Collection[Any] | None = None
    ) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        for epoch in sorted(self.namespaces.get(namespace, {}).get(group, ())):
            sealed = SealedEntries(
                self._cache, self._name(namespace, epoch), self._codec, group=group
            )
            for key, row in _chunks(sealed, keys):
                extend_row(found, key, row)
        for key, row in self._fresh.get((namespace, group), {}).items():
            if keys is None or key in keys:
                extend_row(found, key, row)
        return found

    def replace(self, *_: Any) -> None:
        raise AssertionError("these records are not kept by key")

    def drop(self, namespace: int) -> None:
        for group, epochs in self.namespaces.pop(namespace, {}).items():
            self._fresh.pop((namespace, group), None)
            self._touched.pop((namespace, group, self.epoch), None)
            for epoch in epochs:
                self._touched[namespace, group, epoch] = {}

    def change_sets(self) -> Iterator[ChangeSet]:
        for part, keys in sorted(self._touched.items(), key=lambda item: item[0]):
            namespace, group, epoch = part
            if keys:
                self.namespaces[namespace][group].add(epoch)
                rows = self._fresh[namespace, group]
                yield self._chunk_change_set(part, {key: rows[key] for key in keys})
            else:
                yield emptied_change_set(group, self._name(namespace, epoch))
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Register the namespaces and chunks that other tasks sealed."""
        if _KEYS.decode_list(bytes(change_set.keys)):
            self._note(change_set.name, change_set.group)
            return
        namespace, epoch = self._namespace_in(change_set.name)
        epochs = self.namespaces.get(namespace, {}).get(change_set.group, set())
        if change_set.is_full:
            epochs.discard(epoch)
            if not epochs:
                forget_group(self.namespaces, namespace, change_set.group)


@dataclass(slots=True)
class _Held:
    """The chunks of a key in a namespace by epoch: all, or only of the running epoch."""

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
        self._hot: dict[WindowKey, _Held] = {}
        self._warm: dict[WindowKey, _Held] = {}
        self._fresh: dict[WindowKey, None] = {}  # The changes of the running epoch.
        self._hot_count = 0  # Records in hot entries.
        cache.join(self)
        cache.keep_index(RowIndex())

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""
        for window_key in self._fresh:
            held = self._hot[window_key]
            if not held.is_whole or not held.chunks:
                self._hot_count -= held.count()
                del self._hot[window_key]
        self._fresh.clear()

    def clean_count(self) -> int:
        """Return how many records are hot."""
        return self._hot_count

    def age(self, share: float) -> None:
        """Evict warm entries, and make the newest hot, untouched entries warm."""
        fresh = {window_key: self._hot[window_key] for window_key in self._fresh}
        clean = [
            (window_key, held) for window_key, held in self._hot.items() if window_key not in fresh
        ]
        self._warm = dict(islice(reversed(clean), int(len(clean) * share)))
        self._hot = fresh
        self._hot_count = sum(held.count() for held in fresh.values())

    # --- as records --------------------------------------------------------------------------

    def add(self, namespace: int, group: int, key: Any, row: Row) -> None:
        window_key = (namespace, group, key)
        extend_row(self._at(window_key).chunks, self.epoch, row)
        self._hot_count += len(row[0])
        self._fresh[window_key] = None
        self._touched.setdefault((namespace, group, self.epoch), {})[key] = None

    def row(self, namespace: int, group: int, key: Any) -> Row:
        """Return all records of a key, in the order of arrival."""
        return joined_row(self._whole((namespace, group, key)).chunks)

    def replace(self, namespace: int, group: int, key: Any, row: Row) -> None:
        window_key = (namespace, group, key)
        held = self._whole(window_key)
        for epoch in held.chunks:
            self._touched.setdefault((namespace, group, epoch), {})[key] = None
        self._hot_count -= held.count()
        held.chunks = {}
        self._fresh[window_key] = None
        if row[0]:
            self.add(namespace, group, key, row)

    def drop(self, *_: Any) -> None:
        raise AssertionError("these records are kept by key")

    def change_sets(self) -> Iterator[ChangeSet]:
        for part, keys in sorted(self._touched.items(), key=lambda item: item[0]):
            namespace, group, epoch = part
            held = {key: self._hot[namespace, group, key].chunks for key in keys}
            put = {key: chunks[epoch] for key, chunks in held.items() if epoch in chunks}
            # Entries added and removed in the running epoch are not sealed.
            gone = [key for key in keys if key not in put and epoch != self.epoch]
            if put or gone:
                yield self._chunk_change_set(part, put, gone)
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:  # noqa: ARG002  # whatever it is
        """Evict all entries, since other tasks sealed changes."""
        self._hot, self._warm, self._hot_count = {}, {}, 0

    def _at(self, window_key: WindowKey) -> _Held:
        """Return the chunks of a key in memory, and mark them as used."""
        held = self._hot.get(window_key)
        if held is None:
            held = self._hot[window_key] = (
                self._warm.pop(window_key) if window_key in self._warm else _Held()
            )
            self._hot_count += held.count()
        return held

    def _whole(self, window_key: WindowKey) -> _Held:
        """Return all chunks of a key."""
        held = self._at(window_key)
        if not held.is_whole:
            sealed = self._sealed_chunks(window_key)
            self._hot_count += sum(len(times) for times, _ in sealed.values())
            held.chunks = {**sealed, **held.chunks}
            held.is_whole = True
        return held

    def _sealed_chunks(self, window_key: WindowKey) -> dict[int, Row]:
        namespace, group, key = window_key
        start = row_start(group, namespace, key)
        found = {}
        for entry, _ in self._cache.scan(start, behind_key(start)):
            epoch = time_in(entry[len(start) :])
            change_set = state_start(group, self._name(namespace, epoch))
            data = self._cache.read(change_set + key_bytes(key))
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


_KEYS = AnyCodec()


class DiskWindowEntries(WindowEntries):
    """``WindowEntries`` over cache.

    Args:
        cache: The operator's.
        prefix: First letter of the names of its change sets.
        value_type: Declared type of the values, None when unknown.
        dump: Encodes a value for the storage; ``load`` is its inverse.
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
        """Mark the changes of the epoch as part of the space."""
        for values in self._open.values():
            values.settle()
        self._let_go()

    def clean_count(self) -> int:
        """Return how many entries are hot and not touched."""
        return sum(values.clean_count() for values in self._open.values())

    def age(self, share: float) -> None:
        """Evict warm entries, and make the newest hot, untouched entries warm."""
        for values in self._open.values():
            values.age(share)
        self._let_go()

    # --- as entries ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out which namespaces there are, once."""
        if not self._is_listed:
            self._is_listed = True
            for group in self._cache.groups:
                for name in self._cache.names(group, self.prefix):
                    self._note(name, group)

    def _note(self, state_name: str, group: int) -> None:
        namespace = int(state_name[len(self.prefix) :])
        self.namespaces.setdefault(namespace, {})[group] = None
        self._sealed.add((namespace, group))

    def group(self, namespace: int, group: int) -> dict[Any, Any]:
        self.namespaces.setdefault(namespace, {})[group] = None
        return self._dict(namespace, group)

    def contents(
        self, namespace: int, group: int, keys: Collection[Any] | None = None
    ) -> Mapping[Any, Any]:
        """Return a read-only view of the values of some or all keys of a key group."""
        if group not in self.namespaces.get(namespace, ()):
            return {}
        values = self._dict(namespace, group)
        if keys is None:
            return values.gather()
        return {key: values[key] for key in keys if key in values}

    def find(self, namespace: int, group: int, key: Any) -> Any:
        if group not in self.namespaces.get(namespace, ()):
            return None
        return self._dict(namespace, group).get(key)

    def touch(self, namespace: int, group: int, keys: Iterable[Any]) -> None:
        listed = dict.fromkeys(keys)
        super().touch(namespace, group, listed)
        values = self._dict(namespace, group)
        # Entries not held were removed, which is noted, or are yet to be put.
        values.touched.update((key, None) for key in listed if dict.__contains__(values, key))

    def drop(self, namespace: int) -> None:
        for group in self.namespaces.pop(namespace, ()):
            self._dict(namespace, group).clear()
            super().touch(namespace, group, ())

    def change_sets(self) -> Iterator[ChangeSet]:
        for (namespace, group), keys in sorted(self._touched.items(), key=lambda item: item[0]):
            values = self._dict(namespace, group)
            if any(dict.__contains__(values, key) for key in keys) or values:
                yield self._change_set(namespace, group, values, keys, is_full=values.is_emptied)
                self._sealed.add((namespace, group))
                continue
            forget_group(self.namespaces, namespace, group)
            if (namespace, group) in self._sealed:
                self._sealed.discard((namespace, group))
                yield emptied_change_set(group, self._name(namespace))
        self._touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Evict entries that other tasks sealed."""
        namespace, group = int(change_set.name[len(self.prefix) :]), change_set.group
        keys = _KEYS.decode_list(bytes(change_set.keys))
        if keys:
            self._note(change_set.name, group)
        elif change_set.is_full:
            forget_group(self.namespaces, namespace, group)
            self._sealed.discard((namespace, group))
        values = self._open.get((namespace, group))
        if values is not None:
            if change_set.is_full:
                values.forget()
            values.drop(keys)
            values.drop(_KEYS.decode_list(bytes(change_set.deleted)))

    def _dict(self, namespace: int, group: int) -> DiskDict:
        found = self._open.get((namespace, group))
        if found is None:
            codec: OneCodec = (
                self._codec if self._load is None else _Loading(self._codec, self._load)
            )
            sealed = SealedEntries(self._cache, self._name(namespace), codec, group=group)
            is_new = (namespace, group) not in self._sealed
            found = self._open[namespace, group] = DiskDict(sealed, is_part=True, is_new=is_new)
        return found

    def _let_go(self) -> None:
        for part in [part for part, values in self._open.items() if values.is_idle]:
            del self._open[part]


class _Loading:
    """Reads values that are stored in another form.

    Args:
        codec: Reads stored values.
        load: Makes a value of it.
    """

    def __init__(self, codec: OneCodec, load: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._load = load

    def decode_list(self, data: bytes) -> list[Any]:
        """Return the values of an encoded array."""
        return list(map(self._load, self._codec.decode_list(data)))

    def decode_one(self, item: bytes, key: Any = None) -> Any:
        """Return a value from its own bytes."""
        return self._load(self._codec.decode_one(item, key))
