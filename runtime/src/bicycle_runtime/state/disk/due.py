"""When windows are due, with the times of sealed cells on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bicycle_runtime.state.disk.agenda import Agenda
from bicycle_runtime.state.disk.cache import DiskCache, UncountedPart
from bicycle_runtime.state.memory.due import DueTimes, Spot
from bicycle_runtime.state.rocksdb.indexes import due_order, names_of, spot_in
from bicycle_runtime.state.rocksdb.places import time_in
from bicycle_sdk.state.descriptors import TimeDomain

__all__ = ["DiskDueTimes"]


class DiskDueTimes(UncountedPart, DueTimes):
    """``DueTimes`` over an index that is kept up with the cells (``indexes.DueIndex``).

    Args:
        cache: The operator's.
        domain: Which time is meant.
    """

    is_lasting = True  # The operator holds it.

    def __init__(self, cache: DiskCache, domain: TimeDomain) -> None:
        super().__init__()
        self._cache = cache
        self._agenda: Agenda[tuple[int, Spot]] = Agenda(
            cache, names_of("due", domain), lambda order, data: (time_in(order), spot_in(data))
        )
        self._taken: dict[bytes, None] = {}  # What the running epoch has taken out.
        self._taking: int | None = None  # The time that is being taken out.
        self._later: list[tuple[int, Spot]] = []
        cache.join(self)

    # --- in the cache ------------------------------------------------------------------------

    def settle(self) -> None:
        """Regard what the epoch changed as part of the space."""
        for order in self._taken:
            self._cache.drop_stale(self._agenda.place(order))
        self._taken.clear()
        self._agenda.trim(self._cache.settings.cache_entries // 2)

    # --- as due times ------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all that is in memory."""
        self._agenda.reset()
        self._taken.clear()
        self._taking = None
        self._later.clear()

    def add(self, time_ms: int, spot: Spot) -> None:
        """Take note of a time."""
        if self._taking is not None and time_ms <= self._taking:
            self._later.append((time_ms, spot))
            return
        order = due_order(time_ms, spot)
        self._taken.pop(order, None)
        self._agenda.add(order, (time_ms, spot))

    def due(self, until_ms: int) -> Iterator[tuple[int, Spot]]:
        """Take out what is due, by time, place, key group and key.

        What is added meanwhile comes when its turn comes; for the very time that is being taken
        out, behind all of it.
        """
        while (entry := self._agenda.first()) is not None and entry[1][0] <= until_ms:
            self._taking = entry[1][0]
            while entry is not None and entry[1][0] == self._taking:
                self._take(entry[0])
                yield entry[1]
                entry = self._agenda.first()
            self._taking = None
            later, self._later = self._later, []
            for time_ms, spot in later:
                self.add(time_ms, spot)

    def first(self, is_set: Callable[[int, Spot], bool]) -> int | None:
        """Return the least time that is set; None when there is none. What is not set is forgotten.

        Args:
            is_set: Tells whether something is due at a time.
        """
        while (entry := self._agenda.first()) is not None:
            time_ms, spot = entry[1]
            if is_set(time_ms, spot):
                return time_ms
            self._take(entry[0])
        return None

    def _take(self, order: bytes) -> None:
        self._agenda.pop()
        self._taken[order] = None
