"""The entries of keyed states of which only a part is in memory.

Single values are dicts on disk by key. Maps and lists are one dict on disk by ``(key, map key)``,
so that a map of any size is read entry by entry. Of a small map all map keys are kept in order once
it was scanned, and later scans need no disk. A scan of a large one joins the sealed entries with
the epoch's changes, both in key order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.disk.dicts import MISSING, DiskDict, SealedEntries
from bicycle_runtime.state.memory.tracked import Tracking
from bicycle_runtime.state.rocksdb.key_layout import behind_key, key_in, key_start, state_start
from bicycle_sdk.state.entries import MISSING as NO_BOUND
from bicycle_sdk.state.entries import CarefulValueEntries, MapEntries
from bicycle_sdk.state.expiry import Expiry
from bicycle_sdk.state.part_order import PartOrder, has_prefix

_Entry = tuple[bytes, Any, bytes | None]  # Bytes of a map key, the map key, its sealed data.
# So many more map keys of a key are looked through for each scan of it, to have all of them.
_PARTS_PER_SCAN = 64


class DiskValueEntries(CarefulValueEntries):
    """One value per key.

    Args:
        sealed: The location of the values.
        is_frozen: Whether values are of a type that cannot be changed in place.
        expiry: When values expire; None for never.
    """

    __slots__ = ("stored",)

    def __init__(self, sealed: SealedEntries, *, is_frozen: bool, expiry: Expiry | None) -> None:
        super().__init__(is_frozen=is_frozen, expiry=expiry)
        self.stored = DiskDict(sealed, Tracking(touches=not is_frozen))
        self.entries = self.stored

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key, else the default."""
        if self._is_frozen and self.expiry is None:  # hot path: one lookup instead of two.
            return self.stored.get(key, default)
        return super().get(key, default)

    def peek(self, entry_key: Any) -> Any:
        return self.stored.peek(entry_key)

    def load(self, entry_keys: Iterable[Any], values: Iterable[Any]) -> None:  # noqa: ARG002  # they are on disk
        """Evict entries that other tasks sealed."""
        self.stored.drop(entry_keys)

    def unload(self, entry_keys: Iterable[Any]) -> None:
        """Evict entries that other tasks removed."""
        self.stored.drop(entry_keys)

    def reset(self) -> None:
        """Forget all that is in memory."""
        self.stored.forget()
        self.touched.clear()
        if self.expiry is not None:
            self.expiry.reset()


class DiskMapEntries(MapEntries):
    """A map or a list per key.

    Args:
        cache: The operator's.
        name: Name of the state.
        group_of: The key group of a key.
        sealed: The location of the entries, by ``(key, map key)``.
        is_frozen: Whether values are of a type that cannot be changed in place.
        expiry: When entries expire; None for never.
        order: The order of map keys in memory, that of their bytes.
    """

    __slots__ = (
        "_cache", "_ends", "_fresh", "_fresh_count", "_group_of", "_name", "_scans",
        "is_lasting", "stored",
    )  # fmt: skip

    def __init__(
        self, cache: DiskCache, name: str, group_of: Callable[[Any], int], sealed: SealedEntries,
        *, is_frozen: bool, expiry: Expiry | None, order: PartOrder,
    ) -> None:  # fmt: skip
        super().__init__(is_frozen=is_frozen, expiry=expiry, order=order)
        self._cache = cache
        self._name = name
        self._group_of = group_of
        self.is_lasting = True  # Handles of functions hold it.
        # Map keys that the epoch has touched, by key, and of how many that are touched.
        self._fresh: dict[Any, list[Any]] = {}
        self._fresh_count = 0
        self._ends: dict[Any, int] = {}  # Positions behind the lists that the epoch has touched.
        self._scans: dict[Any, int] = {}  # How often a key was scanned of which not all is known.
        self.stored = DiskDict(sealed, Tracking(touches=not is_frozen))
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""
        self._fresh.clear()
        self._fresh_count = 0
        self._ends.clear()

    def clean_count(self) -> int:
        """Return the number of keys whose map keys are kept in order."""
        return len(self._sorted) + len(self._scans)

    def age(self, share: float) -> None:  # noqa: ARG002  # they can be found again by a scan
        """Evict the order of map keys."""
        self._forget_order()

    # --- as entries ----------------------------------------------------------------------------

    def get(self, key: Hashable, part: Hashable, default: Any = None) -> Any:
        entry_key = (key, part)
        value = self.stored.peek(entry_key)
        return value if value is not MISSING and self._use(entry_key) else default

    def has(self, key: Hashable, part: Hashable) -> bool:
        entry_key = (key, part)
        return entry_key in self.stored and self._is_found(entry_key)

    def put(self, key: Hashable, part: Hashable, value: Any) -> None:
        entry_key = (key, part)
        ordered = self._sorted.get(key)
        is_new = False  # As far as is known.
        if ordered is not None:
            is_new = self._enter(ordered, part)
        else:
            self._sort_key(part)  # Refuse unordered keys now, not when the epoch is written.
        self.stored[entry_key] = value
        self.touched.setdefault(entry_key, is_new)
        if self.expiry is not None:
            self.expiry.renew(entry_key)

    def add(self, key: Hashable, part: Hashable, value: Any) -> bool:
        """Set an entry if it is new; return whether it was set."""
        if (key, part) in self.stored:
            return False
        self.put(key, part, value)
        return True

    def add_all(self, key: Hashable, parts: Sequence[Any], values: Sequence[Any]) -> list[int]:
        ordered, touched = self._sorted.get(key), self.touched
        if ordered is None or self.expiry is not None:
            return [n for n, part in enumerate(parts) if not self.add(key, part, values[n])]
        there, fresh = [], {}
        for position, part in enumerate(parts):  # hot path: where all are known, nothing is read.
            if self._enter(ordered, part):
                entry_key = (key, part)
                fresh[entry_key] = values[position]
                if entry_key not in touched:
                    touched[entry_key] = True
            else:
                there.append(position)
        self.stored.put_all(fresh)
        return there

    def append(self, key: Hashable, values: Iterable[Any]) -> None:
        position = self.end(key)
        for value in values:
            self.put(key, position, value)
            position += 1
        self._ends[key] = position

    def end(self, key: Hashable) -> int:
        """Return a position behind a key's list."""
        known = self._ends.get(key)
        if known is not None:
            return known
        ordered = self._sorted.get(key)
        if ordered is not None:
            return self._parts_at(ordered[-1:])[0] + 1 if ordered else 0
        start = self._start_of(key)
        last = self._cache.last(start, behind_key(start))
        positions = list(self._fresh_of(key))
        if last is not None:
            change_set = len(start) - len(key_start(key))
            positions.append(key_in(last[0][change_set:], last[1])[1])
        return max(positions, default=-1) + 1

    def cut(self, key: Hashable, start: int) -> None:
        super().cut(key, start)
        self._ends[key] = start

    def parts(self, key: Hashable) -> list[Any]:
        """Return the map keys that a key has, expired or not, in order."""
        ordered = self._known_sort_keys(key)
        if ordered is not None:
            return self._parts_at(ordered)
        found = self.stored.found
        return [p for _, p, data in self._entries(key) if found((key, p), data) is not MISSING]

    def delete(self, key: Hashable, part: Hashable) -> None:
        entry_key = (key, part)
        if entry_key not in self.stored:
            return
        del self.stored[entry_key]
        ordered = self._sorted.get(key)
        if ordered is not None:
            self._leave(ordered, part)
        self._note_gone(key, (part,))

    def clear(self, key: Hashable) -> None:
        ordered = self._known_sort_keys(key)
        if ordered is not None:
            self._take(key, ordered, slice(None))
            return
        for part in self.parts(key):
            self.delete(key, part)

    def items(self, key: Hashable) -> list[tuple[Any, Any]]:
        """Return the entries of a key's map in key order, for lists the oldest first."""
        return self.between(key, NO_BOUND, NO_BOUND)

    def is_empty(self, key: Hashable) -> bool:
        return not any(self._is_live((key, part)) for part in self.parts(key))

    def scan(
        self, key: Hashable, start: Any = NO_BOUND, end: Any = NO_BOUND, *, prefix: Any = NO_BOUND
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the entries of a key's map in key order, each as it is when reached."""
        ordered = self._known_sort_keys(key)
        if ordered is None:
            yield from self._scan_disk(key, start, end, prefix)
            return
        peek = self.stored.peek
        for part in self._within(ordered, start, end, prefix):
            entry_key = (key, part)
            value = peek(entry_key)
            if value is not MISSING and self._use(entry_key):
                yield part, value

    def between(self, key: Hashable, start: Any, end: Any) -> list[tuple[Any, Any]]:
        """Return a list of the entries that ``scan`` yields."""
        ordered = self._known_sort_keys(key)
        if ordered is None or not self._is_plain:
            return list(self.scan(key, start, end))
        parts = self._within(ordered, start, end)
        return list(zip(parts, self.stored.peek_all([(key, p) for p in parts]), strict=True))

    def take(
        self, keys: Iterable[Hashable], end: Any
    ) -> Iterator[tuple[Any, list[tuple[Any, Any]], Any]]:
        for key in keys:
            ordered = self._known_sort_keys(key)
            if ordered is None:
                found = list(self.scan(key, NO_BOUND, end))
                for part, _ in found:
                    self.delete(key, part)
                yield key, found, next((part for part, _ in self.scan(key)), NO_BOUND)
                continue
            found = self._take(key, ordered, slice(bisect_left(ordered, self._sort_key(end))))
            yield key, found, self._parts_at(ordered[:1])[0] if ordered else NO_BOUND

    def _take(self, key: Hashable, ordered: list[Any], some: slice) -> list[tuple[Any, Any]]:
        """Remove and return the entries at some positions of the order of a key's map."""
        parts = self._parts_at(ordered[some])
        del ordered[some]
        self._note_gone(key, parts)
        return list(zip(parts, self.stored.take_all([(key, p) for p in parts]), strict=True))

    def _scan_disk(
        self, key: Hashable, start: Any, end: Any, prefix: Any
    ) -> Iterator[tuple[Any, Any]]:
        first = prefix if start is NO_BOUND else start
        entries: Iterable[_Entry] = self._entries(
            key,
            None if first is NO_BOUND else encode_key(first),
            None if end is NO_BOUND else encode_key(end),
        )
        if prefix is not NO_BOUND:
            entries = takewhile(lambda entry: has_prefix(entry[1], prefix), entries)
        for _, part, data in entries:
            entry_key = (key, part)
            value = self.stored.found(entry_key, data)
            if value is not MISSING and self._use(entry_key):
                yield part, value

    def load(self, entry_keys: Iterable[tuple[Any, Any]], values: Iterable[Any]) -> None:  # noqa: ARG002  # they are on disk
        """Evict entries that other tasks sealed."""
        self.stored.drop(entry_keys)
        self._forget_order()

    def unload(self, entry_keys: Iterable[tuple[Any, Any]]) -> None:
        """Evict entries that other tasks removed."""
        self.stored.drop(entry_keys)
        self._forget_order()

    def peek(self, entry_key: tuple[Any, Any]) -> Any:
        return self.stored.peek(entry_key)

    def peek_all(self, entry_keys: Iterable[tuple[Any, Any]]) -> list[Any]:
        return self.stored.peek_all(entry_keys)

    def view(self, key: Hashable) -> Any:
        parts = (part for part in self.parts(key) if self._is_live((key, part)))
        return {part: self.stored.peek((key, part)) for part in parts} or NO_BOUND

    def keys(self) -> Iterable[Any]:
        return dict.fromkeys(key for key, _ in self.stored)

    def entry_keys(self) -> Iterable[tuple[Any, Any]]:
        return iter(self.stored)

    def reset(self) -> None:
        """Forget all that is in memory."""
        self.stored.forget()
        self.settle()
        self._forget_order()
        self.touched.clear()
        if self.expiry is not None:
            self.expiry.reset()

    # --- the order of map keys ---------------------------------------------------------------

    def _use(self, entry_key: tuple[Any, Any]) -> bool:
        if not super()._use(entry_key):
            return False
        if not self._is_frozen:
            self.stored.touched[entry_key] = None
        return True

    def _fresh_of(self, key: Hashable) -> Iterable[Any]:
        """Return the map keys of a key that the epoch has touched."""
        touched = self.stored.touched
        if len(touched) > self._fresh_count:
            # From the end, since skipping the known ones takes time for each.
            for owner, part in islice(reversed(touched), len(touched) - self._fresh_count):
                self._fresh.setdefault(owner, []).append(part)
            self._fresh_count = len(touched)
        return self._fresh.get(key, ())

    def _known_sort_keys(self, key: Hashable) -> list[Any] | None:
        """Return the places of all map keys of a key, in order; None where there are many."""
        ordered = self._sorted.get(key)
        if ordered is not None:
            return ordered
        # Each scan of a key reads a little further, so that reading in vain never takes much more
        # than the requested entries.
        scans = self._scans[key] = self._scans.get(key, 0) + 1
        count = scans * _PARTS_PER_SCAN
        entries = list(islice(self._entries(key), count + 1))
        if len(entries) > count:
            return None
        hold, sort_key = self.stored.hold, self._sort_key
        ordered = [sort_key(part) for _, part, data in entries if hold((key, part), data)]
        self._sorted[key] = ordered
        del self._scans[key]
        return ordered

    def _forget_order(self) -> None:
        self._sorted.clear()
        self._scans.clear()

    def _start_of(self, key: Hashable) -> bytes:
        return state_start(self._group_of(key), self._name) + key_start(key)

    def _entries(
        self, key: Hashable, low: bytes | None = None, high: bytes | None = None
    ) -> Iterator[_Entry]:
        """Yield the present and former map keys of a key, in order, with sealed bytes.

        Args:
            key: Whose map.
            low: Bytes of the first map key; None for no bound.
            high: Bytes of the map key behind the last; None for no bound.
        """
        touched = [(encode_key(part), part, None) for part in self._fresh_of(key)]
        fresh: list[_Entry] = [
            entry
            for entry in sorted(touched, key=lambda entry: entry[0])
            if (low is None or low <= entry[0]) and (high is None or entry[0] < high)
        ]
        yield from _join(fresh, self._sealed_entries(key, low, high))

    def _sealed_entries(
        self, key: Hashable, low: bytes | None, high: bytes | None
    ) -> Iterator[_Entry]:
        start = self._start_of(key)
        change_set = len(start) - len(key_start(key))
        first = start if low is None else start + low
        end = behind_key(start) if high is None else start + high
        for db_key, data in self._cache.scan(first, end):
            _, part = key_in(db_key[change_set:], data)
            yield db_key[len(start) : -1], part, data


def _join(fresh: list[_Entry], sealed: Iterator[_Entry]) -> Iterator[_Entry]:
    """Yield the entries of two ordered sequences in order, without duplicates."""
    position = 0
    for entry in sealed:
        while position < len(fresh) and fresh[position][0] < entry[0]:
            yield fresh[position]
            position += 1
        if position < len(fresh) and fresh[position][0] == entry[0]:
            position += 1
        yield entry
    yield from fresh[position:]
