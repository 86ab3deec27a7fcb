"""The interval join: a right row from ``lower`` to ``upper`` ms after a left row, or before it."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin, RowKey, Rows
from bicycle_sdk.state import MapState, MapStateDescriptor
from bicycle_sdk.windows.panes import Window

__all__ = ["IntervalJoin"]

_STEPS = 8  # So often rows are forgotten while the interval passes.


class IntervalJoin(RowJoin):
    """Pairs of rows with ``left + lower <= right <= left + upper``.

    A pair comes out when the second of its rows arrives, with the later of the two times. A row is
    kept until the watermark has passed all times that match it; it is late when the watermark had
    passed the row itself, since matches of it may be forgotten then.

    Rows of a side whose lone rows nobody wants are forgotten some at once, at the latest an eighth
    of the interval after that; no row that is not late can match them by then.

    Args:
        options: What every join is told.
        lower_ms: The least time from a left row to a right one; negative for earlier ones.
        upper_ms: The greatest.
    """

    def __init__(self, options: JoinOptions, *, lower_ms: int, upper_ms: int) -> None:
        super().__init__(options)
        self._lower, self._upper = lower_ms, upper_ms
        self.left_matched = MapStateDescriptor("left_matched", tuple[int, int], bool)
        self.right_matched = MapStateDescriptor("right_matched", tuple[int, int], bool)

    def open(self, ctx: Any) -> Any:
        """Get the states."""
        keeps_left, keeps_right = self.options.keeps_left, self.options.keeps_right
        self._left_seen = ctx.get_map_state(self.left_matched) if keeps_left else None
        self._right_seen = ctx.get_map_state(self.right_matched) if keeps_right else None
        few = max((self._upper - self._lower) // _STEPS, 1)
        has_limit = self.options.max_buffered is not None
        self._left_step = 1 if keeps_left or has_limit else few
        self._right_step = 1 if keeps_right or has_limit else few
        return super().open(ctx)

    def process_element1(self, value: Any, ctx: Any) -> Any:
        """Join a left row with the right rows that are there."""
        time = ctx.timestamp
        first, last = time + self._lower, time + self._upper
        if time <= ctx.current_watermark():
            return self.refuse_late(value, Window(first, last + 1), ctx)
        found = self.right.between(first, last)
        pairs: list[Pair] = [(max(time, row_key[0]), value, row) for row_key, row in found]
        is_kept = last > ctx.current_watermark()
        if not is_kept and not found and self._left_seen is not None:
            pairs = [(time, value, None)]

        def store() -> None:
            _mark(self._right_seen, [row_key for row_key, _ in found])
            if is_kept:
                row_key, evicted = self.keep(self.left, value, ctx)
                _mark(self._left_seen, [row_key] if found else [])
                _unmark(self._left_seen, evicted)
                forgotten_ms = _next_step(last + 1, self._left_step)
                ctx.timer_service.register_event_time_timer(forgotten_ms)

        return self.results(pairs, store)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        """Join a right row with the left rows that are there."""
        time = ctx.timestamp
        first, last = time - self._upper, time - self._lower
        if time <= ctx.current_watermark():
            return self.refuse_late(value, Window(first, last + 1), ctx)
        found = self.left.between(first, last)
        pairs: list[Pair] = [(max(time, row_key[0]), row, value) for row_key, row in found]
        is_kept = last > ctx.current_watermark()
        if not is_kept and not found and self._right_seen is not None:
            pairs = [(time, None, value)]

        def store() -> None:
            _mark(self._left_seen, [row_key for row_key, _ in found])
            if is_kept:
                row_key, evicted = self.keep(self.right, value, ctx)
                _mark(self._right_seen, [row_key] if found else [])
                _unmark(self._right_seen, evicted)
                forgotten_ms = _next_step(last + 1, self._right_step)
                ctx.timer_service.register_event_time_timer(forgotten_ms)

        return self.results(pairs, store)

    def complete(self, timestamp_ms: int) -> list[Pair]:
        """Return the rows that never matched and can no more."""
        certain = timestamp_ms - 1
        left, right = certain - self._upper, certain + self._lower
        lone_left = _taken(self.left, self._left_seen, left)
        lone_right = _taken(self.right, self._right_seen, right)
        pairs: list[Pair] = [(max(certain, left), row, None) for row in lone_left]
        return pairs + [(max(certain, right), None, row) for row in lone_right]


def _mark(seen: MapState[RowKey, bool] | None, row_keys: list[RowKey]) -> None:
    """Take note that rows have matched."""
    if seen is not None:
        for row_key in row_keys:
            if row_key not in seen:
                seen.put(row_key, True)


def _unmark(seen: MapState[RowKey, bool] | None, row_keys: list[RowKey]) -> None:
    """Forget whether rows have matched."""
    if seen is not None:
        for row_key in row_keys:
            seen.remove(row_key)


def _taken(rows: Rows, seen: MapState[RowKey, bool] | None, time_ms: int) -> list[Any]:
    """Forget the rows up to a time and return those that never matched, if anybody wants them."""
    found = rows.take(None, time_ms)
    if seen is None:
        return []
    lone = [row for row_key, row in found if row_key not in seen]
    _unmark(seen, [row_key for row_key, _ in found])
    return lone


def _next_step(time_ms: int, step_ms: int) -> int:
    """Return a time, or the first multiple of a step behind it."""
    return -(-time_ms // step_ms) * step_ms
