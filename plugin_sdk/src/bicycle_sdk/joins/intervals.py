"""The interval join: a right row from ``lower`` to ``upper`` ms after a left row, or before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin, RowKey, Rows
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.state.entries import MapEntries
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
        opened = super().open(ctx)
        keeps_left, keeps_right = self.options.keeps_left, self.options.keeps_right
        left_seen = ctx.state_entries(self.left_matched) if keeps_left else None
        right_seen = ctx.state_entries(self.right_matched) if keeps_right else None
        few = max((self._upper - self._lower) // _STEPS, 1)
        has_limit = self.options.max_buffered is not None
        left_step = 1 if keeps_left or has_limit else few
        right_step = 1 if keeps_right or has_limit else few
        self._sides = (
            _Side(self.right, right_seen, -self._upper, -self._lower, right_step),
            _Side(self.left, left_seen, self._lower, self._upper, left_step),
        )
        return opened

    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:
        """Join a row with those of the other side that are there."""
        mine, other = self._sides[is_left], self._sides[not is_left]
        first, last = time + mine.first, time + mine.last
        watermark = ctx.current_watermark()
        if time <= watermark:
            return self.refuse_late(value, time, Window(first, last + 1), ctx)
        found = other.rows.between(key, first, last)
        pairs: list[Pair] = []
        if found and is_left:
            pairs += [(max(time, row_key[0]), value, row) for row_key, row in found]
        elif found:
            pairs += [(max(time, row_key[0]), row, value) for row_key, row in found]
        is_kept = last > watermark
        if not is_kept and not found and mine.seen is not None:
            pairs.append((time, value, None) if is_left else (time, None, value))
        return self.results(pairs, self._store, (value, key, time), found, is_left, is_kept)

    def complete(self, key: Any, timestamp_ms: int) -> list[Pair]:
        """Return the rows that never matched and can no more."""
        certain = timestamp_ms - 1
        left, right = certain - self._upper, certain + self._lower
        lone_left = _taken(self._sides[1], key, left)
        lone_right = _taken(self._sides[0], key, right)
        pairs: list[Pair] = [(max(certain, left), row, None) for row in lone_left]
        return pairs + [(max(certain, right), None, row) for row in lone_right]

    def _store(
        self, row: tuple[Any, Any, int], found: list[tuple[RowKey, Any]],
        is_left: bool, is_kept: bool,  # details of a result, in a row
    ) -> None:  # fmt: skip
        """Keep a row, given with key and time, and note what has matched."""
        value, key, time = row
        mine, other = self._sides[is_left], self._sides[not is_left]
        if other.seen is not None and found:
            _mark(other.seen, key, [row_key for row_key, _ in found])
        if not is_kept:
            return
        row_key, evicted = self.keep(mine.rows, value, key, time)
        if mine.seen is not None:
            _mark(mine.seen, key, [row_key] if found else [])
            _unmark(mine.seen, key, evicted)
        # The time that can be forgotten, or the first multiple of a step behind it.
        self.timers.set(key, -(-(time + mine.last + 1) // mine.step) * mine.step)


class _Side(NamedTuple):
    """One side of the join.

    ``seen`` has the rows that have matched, where lone ones are wanted. Rows of the other side from
    ``first`` to ``last`` ms behind a row of this one match it. Timers lie at multiples of ``step``.
    """

    rows: Rows
    seen: MapEntries | None
    first: int
    last: int
    step: int


def _mark(seen: MapEntries, key: Any, row_keys: list[RowKey]) -> None:
    """Take note that rows have matched."""
    for row_key in row_keys:
        if not seen.has(key, row_key):
            seen.put(key, row_key, True)


def _unmark(seen: MapEntries, key: Any, row_keys: Iterable[RowKey]) -> None:
    """Forget whether rows have matched."""
    for row_key in row_keys:
        seen.delete(key, row_key)


def _taken(side: _Side, key: Any, time_ms: int) -> list[Any]:
    """Forget the rows up to a time and return those that never matched, if anybody wants them."""
    found, seen = side.rows.take(key, None, time_ms), side.seen
    if seen is None:
        return []
    lone = [row for row_key, row in found if not seen.has(key, row_key)]
    _unmark(seen, key, [row_key for row_key, _ in found])
    return lone
