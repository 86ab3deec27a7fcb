"""When the entries of a keyed state expire of which only a part is in memory.

The times lie in the space twice: by entry, as they are sealed, and by time, so that a sweep reads
only what is due.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.disk.dicts import DiskDict
from bicycle_runtime.state.rocksdb.key_layout import (
    behind,
    index_key,
    index_start,
    indexed_key,
    indexed_time,
    key_bytes,
)
from bicycle_sdk.state.descriptors import StateTtl
from bicycle_sdk.state.expiry import Expiry

__all__ = ["DiskExpiry"]

_STALE_MAX = 1_000  # So many times that are out of date are passed over when one is looked for.
UNKNOWN_MS = -(2**63)  # What clocks of event time say before any event time is known.


class DiskExpiry(Expiry):
    """When the entries of one state expire, with their times on disk too.

    The space keeps them by time as well; what it has there may be out of date, so each is looked up
    before it counts.

    Args:
        ttl: How long entries live.
        clock: Tells the time in ms in the domain of the TTL.
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
        """Forget what is in memory of entries of which others have sealed something."""
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
        for place, raw in self._cache.scan(start, start + key_bytes(max(limit, UNKNOWN_MS + 1))):
            entry_key = indexed_key(raw)
            stamp = self.stamps.get(entry_key)
            if stamp is None or place != index_key(self._name, stamp, entry_key):
                if entry_key not in self.stored.touched:
                    self._cache.drop_stale(place)
            elif stamp == UNKNOWN_MS:
                self.renew(entry_key)
            elif stamp < limit:
                yield entry_key

    def reset(self) -> None:
        """Forget all that is in memory."""
        self.stored.forget()
        self.touched.clear()

    def next_due_ms(self) -> int | None:
        """Return when the next entry may be removed, in the domain of the TTL; None without any."""
        start = index_start(self._name) + key_bytes(UNKNOWN_MS + 1)
        stamps = [
            stamp
            for entry_key in self.stored.touched
            if (stamp := self._timed(entry_key)) is not None
        ]
        if self._cache.is_open:
            stamps += self._first_sealed(start)
        if not stamps:
            return None
        return (min(stamps) // self._width + 1) * self._width + self.ttl_ms

    def _first_sealed(self, start: bytes) -> list[int]:
        """Return the first time that is sealed, in a list; none without any."""
        index = self._cache.scan(start, behind(index_start(self._name)))
        for position, (place, raw) in enumerate(index):
            entry_key = indexed_key(raw)
            stamp = self.stamps.get(entry_key)
            is_valid = stamp is not None and place == index_key(self._name, stamp, entry_key)
            # To wake up too early is harmless, to look at everything is not.
            if is_valid or position == _STALE_MAX:
                return [indexed_time(place, self._name)]
        return []

    def _timed(self, entry_key: Any) -> int | None:
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
        """Let entries live from now on that were sealed before the state had a time to live."""
        if self._name in self._cache.marks:
            return
        for entry_key in self._entry_keys():
            if self.stamps.get(entry_key) is None:
                self.renew(entry_key)
