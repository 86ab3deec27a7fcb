"""The expiry of the entries of one state: the time of each, and due entries.

Entries (``entries``) ask here before they hand an entry out. Nothing here holds an entry or removes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from bicycle_sdk.state.descriptors import StateTtl

__all__ = ["Expiry"]

_BUCKETS_PER_TTL = 8  # Space is given back at most this part of a TTL after the entry expired.
_UNKNOWN_MS = -(2**63)  # The time of event-time clocks before any event time is known.


class Expiry:
    """The last use of each entry of a state, and the entries that are due.

    Entries are grouped in buckets by their time, so that a sweep reads only expired buckets. The
    TTL of entries written before any event time was known starts once a time is known.

    Args:
        ttl: How long entries live.
        clock: Returns the time in ms in the domain of the TTL.
    """

    __slots__ = (
        "_buckets",
        "_clock",
        "_timeless",
        "_width",
        "is_on_access",
        "stamps",
        "touched",
        "ttl_ms",
    )

    def __init__(self, ttl: StateTtl, clock: Callable[[], int]) -> None:
        self.ttl_ms = ttl.duration_ms
        self.is_on_access = ttl.update == "on_access"
        self._clock = clock
        self._width = max(1, self.ttl_ms // _BUCKETS_PER_TTL)
        self._buckets: dict[int, dict[Hashable, None]] = {}
        self._timeless: dict[Hashable, None] = {}
        self.stamps: dict[Any, int] = {}
        self.touched: dict[Any, None] = {}

    def is_live(self, entry_key: Hashable) -> bool:
        """Return whether an entry is live; an entry without a time starts to live now."""
        stamp = self.stamps.get(entry_key)
        if stamp is None or stamp == _UNKNOWN_MS:
            self.renew(entry_key)
            return True
        return self._clock() < stamp + self.ttl_ms

    def renew(self, entry_key: Hashable) -> None:
        """Restart an entry's time to live from now; its time never decreases."""
        now = self._clock()
        stamp = self.stamps.get(entry_key)
        if stamp is None or now > stamp:
            self.put(entry_key, now)
            self.touched[entry_key] = None

    def start(self, entry_key: Hashable) -> None:
        """Note a sealed entry: unless a time follows, it lives from the next sweep on."""
        if entry_key not in self.stamps:
            self.put(entry_key, _UNKNOWN_MS)

    def put(self, entry_key: Hashable, stamp: int) -> None:
        """Set the time of an entry, as sealed state has it."""
        bucket = stamp // self._width
        old = self.stamps.get(entry_key)
        if stamp == _UNKNOWN_MS:
            self._timeless[entry_key] = None
        elif old is None or old // self._width != bucket:
            self._leave_bucket(entry_key, old)
            self._buckets.setdefault(bucket, {})[entry_key] = None
        self.stamps[entry_key] = stamp

    def put_back(self, entry_key: Hashable, stamp: int | None) -> None:
        """Restore an entry's time; None removes it."""
        if stamp is None:
            self.forget(entry_key)
        elif self.stamps.get(entry_key) != stamp:
            self.put(entry_key, stamp)
            self.touched[entry_key] = None

    def forget(self, entry_key: Hashable) -> None:
        """Drop an entry, which is to be sealed."""
        if self.drop(entry_key):
            self.touched[entry_key] = None

    def drop(self, entry_key: Hashable) -> bool:
        """Take a sealed deletion of an entry over; return whether it was there."""
        stamp = self.stamps.pop(entry_key, None)
        self._leave_bucket(entry_key, stamp)
        return stamp is not None

    def unload(self, entry_keys: Iterable[Hashable]) -> None:
        """Take sealed deletions over."""
        for entry_key in entry_keys:
            self.drop(entry_key)

    def due(self) -> Iterator[Any]:
        """Yield expired entries, and remove them from their buckets."""
        now = self._clock()
        if now != _UNKNOWN_MS and self._timeless:
            timeless, self._timeless = self._timeless, {}
            for entry_key in timeless:
                if self.stamps.get(entry_key) == _UNKNOWN_MS:
                    self.renew(entry_key)
        for bucket in sorted(self._buckets):
            if now < (bucket + 1) * self._width + self.ttl_ms:
                return
            for entry_key in self._buckets.pop(bucket):
                stamp = self.stamps.get(entry_key)
                if stamp is not None and stamp // self._width == bucket:
                    yield entry_key

    def reset(self) -> None:
        """Forget everything."""
        for part in (self.stamps, self.touched, self._buckets, self._timeless):
            part.clear()

    def next_due_ms(self) -> int | None:
        """Return when the next entry may be removed, in the domain of the TTL, or None.

        It follows from the times of the entries alone, so that a replay finds the same.
        """
        if not self._buckets:
            return None
        return (min(self._buckets) + 1) * self._width + self.ttl_ms

    def _leave_bucket(self, entry_key: Hashable, stamp: int | None) -> None:
        if stamp is None:
            return
        bucket = self._buckets.get(stamp // self._width)
        if bucket is not None:
            bucket.pop(entry_key, None)
            if not bucket:
                del self._buckets[stamp // self._width]
