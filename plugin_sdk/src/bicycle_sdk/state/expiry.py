"""When the entries of one state expire: the time of each, and which are due.

Cells (``cells``) ask here before they hand an entry out. Nothing here holds an entry or removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from bicycle_sdk.state.descriptors import StateTtl

__all__ = ["Expiry"]

_BUCKETS_PER_TTL = 8  # Space is given back at most this part of a TTL after the entry expired.
_UNKNOWN_MS = -(2**63)  # What clocks of event time say before any event time is known.


class Expiry:
    """When each cell of a state was last used, and which cells are due.

    Cells lie in buckets by their time, so that a sweep looks only at what expired. What was written
    before any event time was known starts to live once one is.

    Args:
        ttl: How long cells live.
        clock: Tells the time in ms in the domain of the TTL.
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

    def is_live(self, cell: Hashable) -> bool:
        """Tell whether a cell is not expired; a cell that has no time yet starts to live now."""
        stamp = self.stamps.get(cell)
        if stamp is None or stamp == _UNKNOWN_MS:
            self.renew(cell)
            return True
        return self._clock() < stamp + self.ttl_ms

    def renew(self, cell: Hashable) -> None:
        """Let a cell live for the whole duration from now; its time never goes back."""
        now = self._clock()
        stamp = self.stamps.get(cell)
        if stamp is None or now > stamp:
            self.put(cell, now)
            self.touched[cell] = None

    def start(self, cell: Hashable) -> None:
        """Take note of a sealed cell: unless a time of it follows, it lives from the next sweep."""
        if cell not in self.stamps:
            self.put(cell, _UNKNOWN_MS)

    def put(self, cell: Hashable, stamp: int) -> None:
        """Set the time of a cell, as sealed state has it."""
        bucket = stamp // self._width
        old = self.stamps.get(cell)
        if stamp == _UNKNOWN_MS:
            self._timeless[cell] = None
        elif old is None or old // self._width != bucket:
            self._leave_bucket(cell, old)
            self._buckets.setdefault(bucket, {})[cell] = None
        self.stamps[cell] = stamp

    def put_back(self, cell: Hashable, stamp: int | None) -> None:
        """Let a cell have the time again that it had, None for none."""
        if stamp is None:
            self.forget(cell)
        elif self.stamps.get(cell) != stamp:
            self.put(cell, stamp)
            self.touched[cell] = None

    def forget(self, cell: Hashable) -> None:
        """Drop a cell, which is to be sealed."""
        if self.drop(cell):
            self.touched[cell] = None

    def drop(self, cell: Hashable) -> bool:
        """Take a sealed deletion of a cell over; tell whether it was there."""
        stamp = self.stamps.pop(cell, None)
        self._leave_bucket(cell, stamp)
        return stamp is not None

    def unload(self, cells: Iterable[Hashable]) -> None:
        """Take sealed deletions over."""
        for cell in cells:
            self.drop(cell)

    def due(self) -> Iterator[Any]:
        """Yield the cells that are expired, and forget in which bucket they lay."""
        now = self._clock()
        if now != _UNKNOWN_MS and self._timeless:
            timeless, self._timeless = self._timeless, {}
            for cell in timeless:
                if self.stamps.get(cell) == _UNKNOWN_MS:
                    self.renew(cell)
        for bucket in sorted(self._buckets):
            if now < (bucket + 1) * self._width + self.ttl_ms:
                return
            for cell in self._buckets.pop(bucket):
                stamp = self.stamps.get(cell)
                if stamp is not None and stamp // self._width == bucket:
                    yield cell

    def reset(self) -> None:
        """Forget everything."""
        for part in (self.stamps, self.touched, self._buckets, self._timeless):
            part.clear()

    def next_due_ms(self) -> int | None:
        """Return when the next cell may be removed, in the domain of the TTL; None without any.

        It follows from the times of the cells alone, so that a replay finds the same.
        """
        if not self._buckets:
            return None
        return (min(self._buckets) + 1) * self._width + self.ttl_ms

    def _leave_bucket(self, cell: Hashable, stamp: int | None) -> None:
        if stamp is None:
            return
        bucket = self._buckets.get(stamp // self._width)
        if bucket is not None:
            bucket.pop(cell, None)
            if not bucket:
                del self._buckets[stamp // self._width]
