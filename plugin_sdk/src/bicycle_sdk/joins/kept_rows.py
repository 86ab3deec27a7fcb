"""The rows of a join: rows in state, and rows that arrived in this epoch.

A row that arrives reaches state at the end of its epoch, if it is still needed then. So the state
of a key is read and written once per epoch.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bicycle_sdk.state.entries import MISSING, MapEntries

__all__ = ["Arrivals", "Arrived", "RowKey", "Rows", "RowsOfKey", "merged"]

RowKey = tuple[int, int]  # event time, and which of the rows of that time
RowsOfKey = tuple[list[int], list[Any]]  # times, and the row of each
Arrived = dict[Any, RowsOfKey]  # by key, in the order of arrival
_FEW = 8


class Arrivals:
    """Numbers of arrivals in one slot, with one count of the present rows per epoch.

    Many records may have one time; counting them at each record would take quadratic time. Places
    with few records are counted each time, since remembering them would take more space than they
    do.
    """

    def __init__(self) -> None:
        self._next: dict[Any, int] = {}

    def begin_epoch(self) -> None:
        """Forget the last epoch, which may not have been sealed."""
        self._next.clear()

    def number(self, slot: Any, there: Iterable[int]) -> int:
        """Return the number of an arrival, after all present ones.

        Args:
            slot: Its location.
            there: The numbers of records already at the place, in order; read only if the next
                number is not known. The first of them may have been evicted.
        """
        known = self._next.get(slot)
        number = max(there, default=-1) + 1 if known is None else known
        if number >= _FEW:
            self._next[slot] = number + 1
        return number


class Rows:
    """The rows of one side of a join, by key and event time.

    Args:
        entries: A map of each key from time and number to row.
        max_buffered: How many rows of a key may be kept here; None is without a limit.
    """

    def __init__(self, entries: MapEntries, max_buffered: int | None = None) -> None:
        self._entries = entries
        self._max_buffered = max_buffered
        self._row_keys: dict[
            Any, list[RowKey]
        ] = {}  # In order; of keys that got rows in this epoch.
        self.arrivals = Arrivals()

    def begin_epoch(self) -> None:
        """Clear data of the last epoch, which may not have been sealed."""
        self.arrivals.begin_epoch()
        self._row_keys.clear()

    def add(self, key: Any, time_ms: int, row: Any) -> RowKey:
        """Add a row of a key after rows of equal time, and return its row key."""
        entries, row_key = self._entries, (time_ms, 0)
        # hot path: without evictions, a time has a first row or no row.
        if self._max_buffered is None and entries.add(key, row_key, row):
            return row_key
        there = (number for (_, number), _ in entries.scan(key, prefix=(time_ms,)))
        row_key = (time_ms, self.arrivals.number((key, time_ms), there))
        entries.put(key, row_key, row)
        return row_key

    def add_all(self, key: Any, times_ms: Sequence[int], rows: Sequence[Any]) -> list[RowKey]:
        """Add rows of a key on a side without a limit, and return their row keys."""
        row_keys = [(time_ms, 0) for time_ms in times_ms]
        for index in self._entries.add_all(key, row_keys, rows):
            row_keys[index] = self.add(key, times_ms[index], rows[index])
        return row_keys

    def evict(self, key: Any, added: RowKey) -> list[RowKey]:
        """Forget the rows of a key with the oldest times that are beyond the limit.

        Called after each ``add``; the row that was added may be the oldest.
        """
        row_keys = self._row_keys.get(key)
        if row_keys is None:
            row_keys = self._row_keys[key] = [row_key for row_key, _ in self._entries.scan(key)]
        else:
            insort(row_keys, added)
        surplus = row_keys[: max(len(row_keys) - (self._max_buffered or 0), 0)]
        del row_keys[: len(surplus)]
        for row_key in surplus:
            self._entries.delete(key, row_key)
        return surplus

    def between(self, key: Any, first_ms: int | None, last_ms: int) -> list[tuple[RowKey, Any]]:
        """Return the rows of a key from ``first_ms`` to ``last_ms``, inclusive, in order."""
        start = MISSING if first_ms is None else (first_ms, 0)
        return self._entries.between(key, start, (last_ms + 1, 0))

    def around(
        self, key: Any, times_ms: Sequence[int], first_ms: int, last_ms: int
    ) -> list[tuple[RowKey, Any]]:
        """Return the rows from ``first_ms`` to ``last_ms`` after any of some times.

        Perhaps some between these, too, but not more than it takes to look for each time by itself.
        """
        if len(times_ms) == 1:
            return self.between(key, times_ms[0] + first_ms, times_ms[0] + last_ms)
        ordered = sorted(times_ms)
        begin = end = ordered[0]
        found: list[tuple[RowKey, Any]] = []
        for time_ms in ordered:
            if time_ms - end > 2 * (last_ms - first_ms):
                found += self.between(key, begin + first_ms, end + last_ms)
                begin = time_ms
            end = time_ms
        return found + self.between(key, begin + first_ms, end + last_ms)

    def take(self, key: Any, last_ms: int) -> list[tuple[RowKey, Any]]:
        """Remove and return the rows of a key up to ``last_ms``, inclusive."""
        return next((found for _, found, _ in self.take_each((key,), last_ms)), [])

    def take_each(
        self, keys: Iterable[Any], last_ms: int
    ) -> Iterator[tuple[Any, list[tuple[RowKey, Any]], Any]]:
        """Remove the rows of keys up to ``last_ms``, inclusive.

        Yield each key that had rows, the removed rows, and the first remaining row key, or
        ``MISSING``.
        """
        self._row_keys.clear()
        return self._entries.take(keys, (last_ms + 1, 0))


def merged(
    stored: Sequence[tuple[RowKey, Any]], arrived: RowsOfKey | None
) -> tuple[list[int], list[Any]]:
    """Return the times and rows of a key in order, at equal times stored rows first."""
    times = [time for (time, _), _ in stored]
    if arrived is None:
        return times, [row for _, row in stored]
    times += arrived[0]
    rows = [row for _, row in stored] + arrived[1] if stored else arrived[1]
    ordered = sorted(times)
    if ordered == times:
        return times, rows
    order = sorted(range(len(times)), key=times.__getitem__)
    return ordered, [rows[index] for index in order]
