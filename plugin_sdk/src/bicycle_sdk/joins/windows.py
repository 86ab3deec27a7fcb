"""Joins of rows that fall into the same window, and co-groups of them."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, ClassVar

from bicycle_sdk.connected import InputRecords
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.joins.kept_rows import RowsOfKey, merged
from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin, times_by_key
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

    state_bound: ClassVar[str] = "bounded: a row is removed when its window ends"

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
        self.wait_each(records, results, ctx, self._late_test(ctx.current_watermark()))

    def _late_test(self, watermark: int) -> Callable[[int], bool]:
        """Return a test of times for rows that are late for a window, or have no window."""
        windows, complete = self._windows, watermark + self.timer_lead_ms
        assert not isinstance(windows, SessionWindows)
        size, slide = windows.size_ms, windows.slide_ms
        if slide <= size:  # hot path: then rows from the last end on are in open windows alone.
            return (complete - (complete - windows.offset_ms - size) % slide).__gt__
        return lambda time: not (ends := windows.ends_of(time)) or ends[0] <= complete

    def complete(self, timers: Sequence[Timer], due_ms: int) -> dict[tuple[Any, int], Any]:
        """Return the content of closed windows: pairs of sessions, rows of other windows."""
        windows = self._windows
        found: dict[tuple[Any, int], Any] = {}
        if isinstance(windows, SessionWindows):
            for _, time_ms, key in timers:
                if pairs := self._session(key, time_ms - 1, windows):
                    found[key, time_ms] = pairs
            return found
        by_key, (rights, lefts) = times_by_key(timers), self.take_arrived()
        size, slide, has_result = windows.size_ms, windows.slide_ms, self.has_result
        for key in by_key | lefts | rights:
            arrived = rights.get(key), lefts.get(key)
            ends = {*by_key.get(key, ())}.union(*(self._ends(side[0]) for side in arrived if side))
            due = sorted(end for end in ends if end <= due_ms)
            first = WATERMARK_MIN  # Of the rows that later windows need.
            if due:
                start, first = due[0] - size, due[-1] - size + slide
                right, left = (
                    merged(rows.between(key, start, due[-1] - 1), side)
                    for rows, side in zip((self.right, self.left), arrived, strict=True)
                )
                for rows in (self.left, self.right):
                    rows.take(key, first - 1)
                for end in due:
                    pair = _within(left, end - size, end), _within(right, end - size, end)
                    if has_result(*pair):
                        found[key, end] = pair
            for is_left in (True, False):
                self.store_from(key, arrived[is_left], first, is_left=is_left, due_ms=due_ms)
        return found

    def _ends(self, times: Iterable[int]) -> set[int]:
        """Return the ends of the windows that hold any of some times."""
        windows = self._windows
        assert not isinstance(windows, SessionWindows)
        size, slide, offset = windows.size_ms, windows.slide_ms, windows.offset_ms
        if size == slide:  # hot path: 70 ns a row.
            return {time - (time - offset) % slide + size for time in times}
        return set().union(*map(windows.ends_of, set(times)))

    def has_result(self, left: _Rows, right: _Rows) -> bool:
        """Return whether the rows of a window have a result."""
        if left and right:
            return True
        return bool((left and self.options.keeps_left) or (right and self.options.keeps_right))

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

    def wait_for(self, key: Any, times: Iterable[int], *, is_left: bool, due_ms: int) -> None:  # noqa: ARG002  # both sides wait for the same windows
        """Set timers for the windows of rows."""
        for end in self._ends(times):
            if end > due_ms:
                self.timers.set(key, end)

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
        left, right = ([row for _, row in side.take(key, last)] for side in (self.left, self.right))
        is_small = len(left) + len(right) < windows.min_records
        return [] if is_small else self.pair(left, right, end)


class WindowCoGroup(WindowJoin):
    """Calls a function with all rows of both sides in a window."""

    method: ClassVar[str] = "co_group"

    def has_result(self, left: _Rows, right: _Rows) -> bool:
        """Return whether a window has rows."""
        return bool(left or right)

    def pair(self, left: _Rows, right: _Rows, time_ms: int) -> list[Pair]:
        """Return the rows of one window as one pair of lists."""
        return [(time_ms, left, right)] if left or right else []

    def results(
        self, pairs: Sequence[Pair], store: Callable[..., None] = lambda: None, *details: Any
    ) -> Any:
        """Return the function's results for each window, as single records."""
        found = super().results(pairs, store, *details)
        return _spread_later(found) if inspect.isawaitable(found) else _spread(found)


def _within(side: RowsOfKey, start: int, end: int) -> _Rows:
    """Return the rows of a side, in order, from a time to before another."""
    times, rows = side
    first = bisect_left(times, start)
    return rows[first : bisect_left(times, end, first)]


def _spread(found: list[tuple[int, Iterable[Any]]]) -> list[tuple[int, Any]]:
    return [(time, record) for time, records in found for record in records]


async def _spread_later(found: Any) -> list[tuple[int, Any]]:
    return _spread(await found)
