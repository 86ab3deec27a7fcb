"""Joins of rows that fall into the same window, and co-groups of them."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, ClassVar

from bicycle_sdk.connected import InputRecords
from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin, RowKey, times_by_key
from bicycle_sdk.state import Timer
from bicycle_sdk.windows.assigners import AlignedWindows, SessionWindows
from bicycle_sdk.windows.panes import Window

__all__ = ["WindowCoGroup", "WindowJoin"]

_Rows = list[Any]


class WindowJoin(RowJoin):
    """A join of all pairs of rows of a key in a window, after it closes.

    Each row is stored once, however many windows hold it. Results of tumbling and sliding windows
    carry the time ``end - 1``. A session ends one gap after its last row; a row at that very time
    still belongs to it, so its results carry the time of the end.

    Args:
        options: The options common to all joins.
        windows: Tumbling, sliding or session windows.
    """

    def __init__(self, options: JoinOptions, windows: AlignedWindows | SessionWindows) -> None:
        super().__init__(options)
        self._windows = windows

    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:
        """Buffer a row until its windows close."""
        windows = self._windows
        if isinstance(windows, SessionWindows):
            window = windows.window_of(time, value)
            firing = [window.end + 1]
            is_saved = self._touches_open(key, window, time)
        else:
            found = windows.windows_of(time)
            if not found:
                return self.results(())
            window, is_saved = found[-1], False
            firing = [window.end for window in found]
        complete = ctx.current_watermark() + self.timer_lead_ms
        due = [time_ms for time_ms in firing if time_ms > complete]
        if not due and not is_saved:
            return self.refuse_late(value, time, window, ctx)
        return self.results((), self._store, (value, key, time), due, is_left)

    def process_each(self, records: InputRecords, results: list[Any], ctx: Any) -> None:
        """Buffer rows until their windows close."""
        windows = self._windows
        if isinstance(windows, SessionWindows) or self.options.max_buffered is not None:
            super().process_each(records, results, ctx)
            return
        complete = ctx.current_watermark() + self.timer_lead_ms
        ends = {time: windows.ends_of(time) for time in set(records.times or ())}
        # Rows that are late for one of their windows, or have no window.
        late = {time for time, found in ends.items() if not found or found[0] <= complete}
        for key, times in self.wait_each(records, results, ctx, late.__contains__).items():
            for end in {end for time in times for end in ends[time]}:
                self.timers.set(key, end)

    def complete(self, timers: Sequence[Timer]) -> dict[tuple[Any, int], Any]:
        """Return the content of closed windows: pairs of sessions, rows of other windows."""
        windows = self._windows
        found: dict[tuple[Any, int], Any] = {}
        if isinstance(windows, SessionWindows):
            for _, time_ms, key in timers:
                if pairs := self._session(key, time_ms - 1, windows):
                    found[key, time_ms] = pairs
            return found
        for key, ends in times_by_key(timers).items():
            first, last = ends[0] - windows.size_ms, ends[-1] - windows.size_ms
            sides = [
                _Slices(side.between(key, first, ends[-1] - 1)) for side in (self.left, self.right)
            ]
            for side in (self.left, self.right):
                side.take(key, None, last + windows.slide_ms - 1)
            for end in ends:
                left, right = (rows.within(end - windows.size_ms, end) for rows in sides)
                if left or right:
                    found[key, end] = left, right
        return found

    def pairs_of(self, complete: Any, time_ms: int) -> list[Pair]:
        """Return the pairs of the rows of a window, which are made when it fires."""
        if isinstance(self._windows, SessionWindows):
            return super().pairs_of(complete, time_ms)
        left, right = complete
        return self.pair(left, right, time_ms - 1)

    def pair(self, left: _Rows, right: _Rows, time_ms: int) -> list[Pair]:
        """Return the pairs of one window."""
        if left and right:
            return [(time_ms, one, other) for one, other in product(left, right)]
        lone_left = left if self.options.keeps_left else []
        lone_right = right if self.options.keeps_right else []
        pairs: list[Pair] = [(time_ms, row, None) for row in lone_left]
        return pairs + [(time_ms, None, row) for row in lone_right]

    def _store(self, row: tuple[Any, Any, int], due: list[int], is_left: bool) -> None:
        """Store a row with key and time, and set timers for its windows."""
        value, key, time = row
        self.keep(self.left if is_left else self.right, value, key, time)
        for time_ms in due:
            self.timers.set(key, time_ms)

    def _touches_open(self, key: Any, window: Window, time_ms: int) -> bool:
        """Return whether a row belongs to a session that is still open."""
        gap = window.end - time_ms
        sides = (self.left, self.right)
        return any(side.between(key, time_ms - gap, time_ms + gap) for side in sides)

    def _session(self, key: Any, end: int, windows: SessionWindows) -> list[Pair]:
        """Return the pairs of a session, and remove its rows."""
        assert windows.gap_ms is not None
        last = end - windows.gap_ms
        if any(side.between(key, last + 1, end) for side in (self.left, self.right)):
            return []  # The state remains: a later row has a timer of its own.
        left, right = (
            [row for _, row in side.take(key, None, last)] for side in (self.left, self.right)
        )
        is_small = len(left) + len(right) < windows.min_records
        return [] if is_small else self.pair(left, right, end)


class WindowCoGroup(WindowJoin):
    """Calls a function with all rows of both sides in a window."""

    method: ClassVar[str] = "co_group"

    def pair(self, left: _Rows, right: _Rows, time_ms: int) -> list[Pair]:
        """Return the rows of one window as one pair of lists."""
        return [(time_ms, left, right)] if left or right else []

    def results(
        self, pairs: Sequence[Pair], store: Callable[..., None] = lambda: None, *details: Any
    ) -> Any:
        """Return the function's results for each window, as single records."""
        found = super().results(pairs, store, *details)
        return _spread_later(found) if inspect.isawaitable(found) else _spread(found)


class _Slices:
    """Rows of one key and side in the order of time, of which runs are requested.

    Args:
        rows: The rows, with their row keys.
    """

    def __init__(self, rows: list[tuple[RowKey, Any]]) -> None:
        self._times = [row_key[0] for row_key, _ in rows]
        self._rows = [row for _, row in rows]

    def within(self, start: int, end: int) -> _Rows:
        """Return the rows from a time to before another."""
        first = bisect_left(self._times, start)
        return self._rows[first : bisect_left(self._times, end, first)]


def _spread(found: list[tuple[int, Iterable[Any]]]) -> list[tuple[int, Any]]:
    return [(time, record) for time, records in found for record in records]


async def _spread_later(found: Any) -> list[tuple[int, Any]]:
    return _spread(await found)
