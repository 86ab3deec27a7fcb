"""Timers and expiry times that are partly in memory.

A dict on disk has the timers that are set; an agenda over the index by time has their order. A
timer that is set already is not written again.

A *time queue* is the agenda: the items that wait for a time, in order, for timers and for windows
that are due. The space has sealed entries in an index by time. A heap holds the entries that the
running epoch has added, and of the sealed ones all that come before the *floor*; later entries are
read on demand, a chunk at a time. Entries may be out of date: their reader checks.

The times at which entries expire are in the space twice: by entry, as they are sealed, and by time,
so that a sweep reads only expired entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Generic, TypeVar

from bicycle_runtime.layouts.state import TimerKind
from bicycle_runtime.records.keys import encode_key
from bicycle_runtime.state.disk.cache import DiskCache, UncountedPart
from bicycle_runtime.state.disk.dicts import DiskDict, SealedEntries
from bicycle_runtime.state.memory.space import domain_of, timer_state_name
from bicycle_runtime.state.rocksdb.indexes import TimerIndex, names_of, timer_in, timer_order
from bicycle_runtime.state.rocksdb.key_layout import (
    behind,
    behind_key,
    index_key,
    index_start,
    indexed_key,
    indexed_time,
    key_bytes,
    key_in,
    key_start,
    state_start,
)
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk.state.descriptors import StateTtl
from bicycle_sdk.state.expiry import Expiry
from bicycle_sdk.state.timers import Timer, TimerQueue

_DELETED_MIN = 64  # So many deleted timers may wait in the agenda before it is worth a look.


class DiskTimerQueue(UncountedPart, TimerQueue):
    """A ``TimerQueue`` over cache.

    Args:
        kind: The purpose of the timers.
        groups: The key group of a key, by indexing.
        cache: The operator's.
    """

    is_lasting = True  # Contexts of functions hold it.

    def __init__(self, kind: TimerKind, groups: Mapping[Any, int], cache: DiskCache) -> None:
        super().__init__(domain_of(kind), encode_key)
        self._groups = groups
        self._cache = cache
        self._name = timer_state_name(kind)
        self.stored = DiskDict(
            SealedEntries(
                cache, self._name, ValueCodec(), group_of=lambda entry_key: groups[entry_key[0]]
            )
        )
        self.waiting = self.stored
        self._time_queue: TimeQueue[tuple[Any, int]] = TimeQueue(
            cache, names_of("timers", kind), lambda _, data: timer_in(data)
        )
        self._deleted_count = 0
        self._keys: Container[Any] | None = None
        cache.join(self)
        cache.keep_index(TimerIndex())

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Mark the changes of the epoch as part of the space."""
        self._time_queue.trim(self._cache.settings.cache_entries // 2)
        self._deleted_count = 0

    # --- as a queue --------------------------------------------------------------------------

    def set(self, key: Hashable, time_ms: int) -> None:
        entry_key = (key, time_ms)
        if not self.stored.add(entry_key, None):
            return
        if entry_key not in self.touched:
            self.touched[entry_key] = True
        if time_ms < self.earliest_ms:  # noqa: PLR1730  # hot path: a third of the time of min()
            self.earliest_ms = time_ms
        self._time_queue.add(timer_order(key, time_ms), entry_key)

    def delete(self, key: Hashable, time_ms: int) -> None:
        entry_key = (key, time_ms)
        if entry_key not in self.stored:
            return
        self._remove(entry_key)
        self._deleted_count += 1
        if self._deleted_count > _DELETED_MIN and 2 * self._deleted_count > len(self._time_queue):
            self._time_queue.discard(self._is_deleted)
            self._deleted_count = 0

    def pop_due(self, time_ms: int) -> Timer | None:
        """Remove and return the first timer that is due at a time, or None."""
        first = self.peek()
        if first is None or first.time_ms > time_ms:
            return None
        self._time_queue.pop()
        self._remove((first.key, first.time_ms))
        return first

    def take_due(self, time_ms: int) -> list[Timer]:
        found, due = [], []
        # hot path: 900 ns a timer instead of 1,700 one by one.
        for order, entry_key in self._time_queue.take_before(encode_key(time_ms + 1)):
            if self._is_waiting(entry_key):
                due.append(entry_key)
                found.append(Timer(self.domain, entry_key[1], entry_key[0]))
            else:
                self._pass_over(order, entry_key)
        self.stored.take_all(due)
        touched = self.touched
        for entry_key in due:  # As ``_note_gone``.
            if not touched.pop(entry_key, False):
                touched[entry_key] = False
        return found

    def due_run(self, time_ms: int) -> list[Timer]:  # noqa: ARG002  # of timers in memory
        """Return an empty list: timers are popped singly."""
        return []

    def peek(self) -> Timer | None:
        while (entry := self._time_queue.first()) is not None:
            order, entry_key = entry
            if self._is_waiting(entry_key):
                return Timer(self.domain, entry_key[1], entry_key[0])
            self._time_queue.pop()
            self._pass_over(order, entry_key)
        return None

    def _is_waiting(self, entry_key: tuple[Any, int]) -> bool:
        return entry_key in self.stored and (self._keys is None or entry_key[0] in self._keys)

    def _pass_over(self, order: bytes, entry_key: tuple[Any, int]) -> None:
        """Remove a timer from the space that belongs to other subtasks."""
        if self._groups[entry_key[0]] not in self._cache.groups:
            self._cache.drop_stale(self._time_queue.db_key(order))

    def keep_only(self, keys: Container[Any]) -> None:
        self._keys = keys

    def load_all(self, entry_keys: Sequence[tuple[Hashable, int]]) -> None:
        """Evict timers that other tasks sealed."""
        self.stored.drop(entry_keys)
        self._time_queue.reset()

    def unload(self, key: Hashable, time_ms: int) -> None:
        """Evict a timer that other tasks deleted."""
        self.stored.drop([(key, time_ms)])

    def reset(self) -> None:
        """Forget all timers that are in memory."""
        self.stored.forget()
        self.touched.clear()
        self._time_queue.reset()
        self._deleted_count = 0

    def times_of(self, key: Hashable) -> list[int]:
        start = state_start(self._groups[key], self._name)
        first = start + key_start(key)
        found = {
            key_in(index_entry[len(start) :], data)[1]
            for index_entry, data in self._cache.scan(first, behind_key(first))
        }
        for entry_key in self.stored.touched:
            if entry_key[0] == key:
                (found.discard if self._is_deleted(entry_key) else found.add)(entry_key[1])
        return sorted(found)

    def _remove(self, entry_key: tuple[Any, int]) -> None:
        del self.stored[entry_key]
        self._note_gone(entry_key)

    def _is_deleted(self, entry_key: tuple[Any, int]) -> bool:
        """Return whether the running epoch deleted a timer."""
        return entry_key in self.stored.touched and not dict.__contains__(self.stored, entry_key)


Item = TypeVar("Item")
_CHUNK = 512
_FEW = 16  # From so many on, and one of so many of all, items that are due are sorted at once.


class TimeQueue(Generic[Item]):
    """Items of one index.

    Args:
        cache: The operator's.
        name: Name of the index.
        item_of: Makes an item of its sort key and the data of its entry.
    """

    def __init__(
        self, cache: DiskCache, name: str, item_of: Callable[[bytes, bytes], Item]
    ) -> None:
        self._cache = cache
        self._start = index_start(name)
        self._end = behind(self._start)
        self._item_of = item_of
        self._heap: list[tuple[bytes, int, Item]] = []
        self._added = 0
        self._floor: bytes | None = b""  # None when all are in the heap.

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, order: bytes, item: Item) -> None:
        """Put an item in, in the running epoch."""
        self._added += 1
        heappush(self._heap, (order, self._added, item))

    def first(self) -> tuple[bytes, Item] | None:
        """Return the first item with its sort key, or None."""
        heap = self._heap
        while self._floor is not None and not (heap and heap[0][0] < self._floor):
            self._load(self._floor)
        return (heap[0][0], heap[0][2]) if heap else None

    def pop(self) -> None:
        """Take the first item out, which may be there more than once."""
        order = heappop(self._heap)[0]
        while self._heap and self._heap[0][0] == order:
            heappop(self._heap)

    def take_before(self, end: bytes) -> list[tuple[bytes, Item]]:
        """Take out all items that are sorted before a bound; each comes once, in order."""
        while self._floor is not None and self._floor < end:
            self._load(self._floor)
        heap = self._heap
        taken: list[tuple[bytes, int, Item]] = []
        while heap and heap[0][0] < end:
            if len(taken) > _FEW and len(taken) * _FEW > len(heap):
                heap.sort()  # Which is a heap, too.
                behind_last = bisect_left(heap, (end,))
                taken += heap[:behind_last]
                del heap[:behind_last]
                break
            taken.append(heappop(heap))
        return list({order: (order, item) for order, _, item in taken}.values())

    def db_key(self, order: bytes) -> bytes:
        """Return the database key of an item."""
        return self._start + order

    def discard(self, is_gone: Callable[[Item], bool]) -> None:
        """Remove deleted items."""
        self._heap[:] = [entry for entry in self._heap if not is_gone(entry[2])]
        heapify(self._heap)

    def trim(self, count_max: int) -> None:
        """Evict the last items if there are too many. All must be sealed."""
        heap = self._heap
        if len(heap) <= count_max:
            return
        heap.sort()
        first = heap[count_max // 2][0]
        del heap[count_max // 2 :]
        self._floor = first if self._floor is None else min(first, self._floor)

    def reset(self) -> None:
        """Forget all that is in memory."""
        self._heap.clear()
        self._floor = b""

    def _load(self, floor: bytes) -> None:
        entries = list(islice(self._cache.scan(self._start + floor, self._end), _CHUNK))
        for db_key, data in entries:
            order = db_key[len(self._start) :]
            self.add(order, self._item_of(order, data))
        is_all = len(entries) < _CHUNK
        self._floor = None if is_all else entries[-1][0][len(self._start) :] + b"\0"


_STALE_MAX = 1_000  # So many times that are out of date are passed over when one is looked for.
UNKNOWN_MS = -(2**63)  # The time of event-time clocks before any event time is known.


class DiskExpiry(Expiry):
    """The expiry times of the entries of one state, also kept on disk.

    The space keeps them by time as well; its entries by time may be out of date, so each is looked
    up before it counts.

    Args:
        ttl: How long entries live.
        clock: Returns the time in ms in the domain of the TTL.
        cache: The operator's.
        name: Name of the state of times.
        stamps: The times by entry.
        entry_keys: Returns all entries of the state.
    """

    __slots__ = ("_cache", "_entry_keys", "_name", "stored")

    def __init__(
        self, ttl: StateTtl, clock: Callable[[], int], cache: DiskCache, name: str,
        *, stamps: DiskDict, entry_keys: Callable[[], Iterable[Any]],
    ) -> None:  # fmt: skip
        super().__init__(ttl, clock)
        self._cache = cache
        self._name = name
        self._entry_keys = entry_keys
        self.stored = stamps
        self.stamps = stamps

    def put(self, entry_key: Hashable, stamp: int) -> None:
        """Set the time of an entry."""
        self.stamps[entry_key] = stamp

    def unload(self, entry_keys: Iterable[Hashable]) -> None:
        """Evict entries to which other tasks sealed changes."""
        self.stored.drop(entry_keys)

    def due(self) -> Iterator[Any]:
        """Yield the entries that are expired."""
        self._start_timeless()
        now = self._clock()
        if now == UNKNOWN_MS:
            return
        limit = (now - self.ttl_ms) // self._width * self._width
        yield from self._due_of_epoch(limit)
        start = index_start(self._name)
        for index_entry, raw in self._cache.scan(
            start, start + key_bytes(max(limit, UNKNOWN_MS + 1))
        ):
            entry_key = indexed_key(raw)
            stamp = self.stamps.get(entry_key)
            if stamp is None or index_entry != index_key(self._name, stamp, entry_key):
                if entry_key not in self.stored.touched:
                    self._cache.drop_stale(index_entry)
            elif stamp == UNKNOWN_MS:
                self.renew(entry_key)
            elif stamp < limit:
                yield entry_key

    def reset(self) -> None:
        """Forget all that is in memory."""
        self.stored.forget()
        self.touched.clear()

    def next_due_ms(self) -> int | None:
        """Return the time at which the next entry may be removed, or None."""
        start = index_start(self._name) + key_bytes(UNKNOWN_MS + 1)
        stamps = [
            stamp
            for entry_key in self.stored.touched
            if (stamp := self._stamp_of(entry_key)) is not None
        ]
        if self._cache.is_open:
            stamps += self._first_sealed(start)
        if not stamps:
            return None
        return (min(stamps) // self._width + 1) * self._width + self.ttl_ms

    def _first_sealed(self, start: bytes) -> list[int]:
        """Return the first sealed time in a list, or an empty list."""
        index = self._cache.scan(start, behind(index_start(self._name)))
        for position, (index_entry, raw) in enumerate(index):
            entry_key = indexed_key(raw)
            stamp = self.stamps.get(entry_key)
            is_valid = stamp is not None and index_entry == index_key(self._name, stamp, entry_key)
            # To wake up too early is harmless, to look at everything is not.
            if is_valid or position == _STALE_MAX:
                return [indexed_time(index_entry, self._name)]
        return []

    def _stamp_of(self, entry_key: Any) -> int | None:
        stamp: int | None = self.stamps.get(entry_key)
        return None if stamp == UNKNOWN_MS else stamp

    def _due_of_epoch(self, limit: int) -> Iterator[Any]:
        for entry_key in list(self.stored.touched):
            stamp = self.stamps.get(entry_key)
            if stamp == UNKNOWN_MS:
                self.renew(entry_key)
            elif stamp is not None and stamp < limit:
                yield entry_key

    def _start_timeless(self) -> None:
        """Start the time to live of entries that were sealed before the state had one."""
        if self._name in self._cache.marks:
            return
        for entry_key in self._entry_keys():
            if self.stamps.get(entry_key) is None:
                self.renew(entry_key)
