"""The interval join: rows whose times differ by ``lower`` to ``upper`` ms."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, ClassVar, NamedTuple

from bicycle_sdk.connected import InputRecords
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from bicycle_sdk.joins.kept_rows import RowKey, Rows, merged
from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin
from bicycle_sdk.state import MapStateDescriptor, Timer
from bicycle_sdk.state.entries import MISSING, MapEntries
from bicycle_sdk.windows.panes import Window

__all__ = ["IntervalJoin"]

_STEPS = 8  # So often rows are forgotten while the interval passes.


class IntervalJoin(RowJoin):
    """Pairs of rows with ``left + lower <= right <= left + upper``.

    A pair is emitted when the second of its rows arrives, with the later of the two times. A row is
    kept until the watermark has passed all times that match it; it is late when the watermark had
    passed the row itself, since matches of it may be forgotten then.

    Rows of a side whose lone rows are not emitted are forgotten in groups, at the latest an eighth
    of the interval after that; no row that is not late can match them by then. For these a key has
    a timer for its first row, and gets another for the first remaining row when that fires.

    Args:
        options: The options common to all joins.
        lower_ms: The least time from a left row to a right one; negative for earlier ones.
        upper_ms: The greatest.
    """

    state_bound: ClassVar[str] = "bounded: a row is removed when the watermark passes its matches"

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
        self._watermark = ctx.current_watermark
        return opened

    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:
        """Join a row with the present rows of the other side."""
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
        row_keys = [row_key for row_key, _ in found]
        return self.results(pairs, self._store, (value, key, time), row_keys, is_left, is_kept)

    def process_each(self, records: InputRecords, results: list[Any], ctx: Any) -> None:
        """Take rows of one side. None of them matches another, so they are kept at the end."""
        if self.options.max_buffered is not None:
            super().process_each(records, results, ctx)
            return
        is_left, rest = records.ordinal == 0, slice(len(results), None)
        mine, other = self._sides[is_left], self._sides[not is_left]
        keys, times = records.keys[rest], (records.times or ())[rest]
        found_of = self._found_by_key(mine, other, keys, times)
        rows = zip(records.values[rest], map(found_of.__getitem__, keys), keys, times, strict=True)
        try:
            self._join_each(rows, results, ctx, is_left=is_left)
        finally:  # Also the results before a row whose function failed.
            for key, match in found_of.items():
                self._note_matches(key, match, mine, other)
            self.bound_arrived(len(times))

    def _join_each(
        self, rows: Iterable[tuple[Any, _Match, Any, int]], results: list[Any], ctx: Any,
        *, is_left: bool,
    ) -> None:  # fmt: skip
        """Join the rows of a side, and note the rows to keep.

        The matches of each row are added to the results.
        """
        mine, watermark, call = self._sides[is_left], ctx.current_watermark(), self._call
        first, last = mine.first, mine.last
        is_noted = self._sides[not is_left].seen is not None
        # hot path: 700 ns a row besides the function, instead of 3,000 by ``take_row``.
        for value, match, key, time in rows:
            if time <= watermark:
                window = Window(time + first, time + last + 1)
                results.append(self.refuse_late(value, time, window, ctx))
                continue
            there, others, row_keys, seen, kept = match
            low = bisect_left(there, time + first)
            high = bisect_right(there, time + last, low)
            found: list[tuple[int, Any]] = []
            if low < high:
                met = zip(there[low:high], others[low:high], strict=True)
                if is_left:
                    found = [(t if t > time else time, call(value, row)) for t, row in met]
                else:
                    found = [(t if t > time else time, call(row, value)) for t, row in met]
            elif mine.seen is not None and time + last <= watermark:
                found = [(time, call(value, None) if is_left else call(None, value))]
            if found:
                details = (value, key, time), row_keys[low:high], is_left, time + last > watermark
                if (later := self.awaited(found, self._store, *details)) is not None:
                    results.append(later)
                    continue
                if is_noted:
                    seen.update(range(low, high))
            results.append(found)
            if time + last > watermark:
                its_times, its_rows, matched = kept
                its_times.append(time)
                its_rows.append(value)
                if mine.seen is not None:
                    matched.append(low < high)

    def _note_matches(self, key: Any, match: _Match, mine: _Side, other: _Side) -> None:
        """Note matched rows, and keep the rows of a key that later rows may match."""
        if other.seen is not None and match.seen:
            _mark(other.seen, key, [match.row_keys[index] for index in sorted(match.seen)])
        times, rows, matched = match.kept
        if not times:
            return
        is_left = mine is self._sides[True]
        if mine.seen is None:
            arrived = self.arrived[is_left]
            if key in arrived:
                arrived[key][0].extend(times)
                arrived[key][1].extend(rows)
            else:
                arrived[key] = times, rows
            return
        row_keys = mine.rows.add_all(key, times, rows)
        _mark(mine.seen, key, list(compress(row_keys, matched)))
        self.wait_for(key, times, is_left=is_left)

    def complete(self, timers: Sequence[Timer], due_ms: int) -> dict[tuple[Any, int], list[Pair]]:
        """Return the rows that never matched and can no more, and forget rows.

        If unmatched rows are emitted, each has a separate timer.
        """
        found: dict[tuple[Any, int], list[Pair]] = {}
        last_by_key, arrived = {key: time_ms for _, time_ms, key in timers}, self.take_arrived()
        for is_left in (True, False):
            side = self._sides[is_left]
            if side.seen is None:
                last_ms = min(self._watermark() - side.last, WATERMARK_MAX - 1)
                self._forget(last_by_key, last_ms, is_left=is_left)
                for key, rows in arrived[is_left].items():
                    self.store_from(key, rows, last_ms + 1, is_left=is_left, due_ms=due_ms)
                continue
            for key, last_ms in last_by_key.items():
                for time, row in _take_lone(side, key, last_ms - 1 - side.last):
                    pair = (row, None) if is_left else (None, row)
                    entry = key, time + side.last + 1
                    found.setdefault(entry, []).append((max(time + side.last, time), *pair))
        return found

    def _store(
        self, row: tuple[Any, Any, int], found: list[RowKey],
        is_left: bool, is_kept: bool,  # details of a result, in a row
    ) -> None:  # fmt: skip
        """Store a row with key and time, and note matched rows."""
        value, key, time = row
        mine, other = self._sides[is_left], self._sides[not is_left]
        if other.seen is not None:
            _mark(other.seen, key, found)
        if not is_kept:
            return
        row_key, evicted = self.keep(mine.rows, value, key, time)
        if mine.seen is not None:
            _mark(mine.seen, key, [row_key] if found else [])
            _unmark(mine.seen, key, evicted)
        self.wait_for(key, [time], is_left=is_left)

    def _forget(self, keys: Iterable[Any], last_ms: int, *, is_left: bool) -> None:
        """Remove rows without further matches, and wait for the first remaining rows."""
        for key, _, first in self._sides[is_left].rows.take_each(keys, last_ms):
            if first is not MISSING:
                self.wait_for(key, [first[0]], is_left=is_left)

    def wait_for(
        self, key: Any, times: Iterable[int], *, is_left: bool, due_ms: int = WATERMARK_MIN
    ) -> None:
        """Set timers to remove rows, rounded up to multiples of a step."""
        side = self._sides[is_left]
        behind, step = side.last + 1, side.step
        # hot path: a timer takes longer than all else about a row.
        for time in times if side.seen is not None else [min(times)]:
            time_ms = -(-(time + behind) // step) * step
            if time_ms > due_ms:
                self.timers.set(key, time_ms)

    def _found_by_key(
        self, mine: _Side, other: _Side, keys: Iterable[Any], times: Iterable[int]
    ) -> dict[Any, _Match]:
        """Return the rows of the other side that may match, by key.

        Args:
            mine: The side of the rows.
            other: The other side.
            keys: The key of each row.
            times: The time of each row.
        """
        by_key: dict[Any, list[int]] = {}
        for key, time in zip(keys, times, strict=True):
            by_key.setdefault(key, []).append(time)
        arrived = self.arrived[other is self._sides[True]]
        found = {}
        for key, its_times in by_key.items():
            stored = other.rows.around(key, its_times, mine.first, mine.last)
            there, others = merged(stored, arrived.get(key))
            row_keys = there if other.seen is None else [row_key for row_key, _ in stored]
            found[key] = _Match(there, others, row_keys, set(), ([], [], []))
        return found


class _Side(NamedTuple):
    """One side of the join.

    ``seen`` has the rows that have matched, if lone rows are emitted. Rows of the other side from
    ``first`` to ``last`` ms behind a row of this side match it. Timers are at multiples of
    ``step``.
    """

    rows: Rows
    seen: MapEntries | None
    first: int
    last: int
    step: int


class _Match(NamedTuple):
    """The matches of a key's rows on the other side, and the rows to keep.

    Of the other side: times, rows, row keys if these are noted, and which of them have matched.
    ``kept`` has the times and the rows of this side, and whether each has matched if that is noted.
    """

    there: list[int]
    others: list[Any]
    row_keys: list[Any]
    seen: set[int]
    kept: tuple[list[int], list[Any], list[bool]]


def _mark(seen: MapEntries, key: Any, row_keys: list[RowKey]) -> None:
    """Take note that rows have matched."""
    for row_key in row_keys:
        if not seen.has(key, row_key):
            seen.put(key, row_key, True)


def _unmark(seen: MapEntries, key: Any, row_keys: Iterable[RowKey]) -> None:
    """Forget whether rows have matched."""
    for row_key in row_keys:
        seen.delete(key, row_key)


def _take_lone(side: _Side, key: Any, time_ms: int) -> list[tuple[int, Any]]:
    """Remove the rows up to a time; return the rows without a match, with times."""
    found, seen = side.rows.take(key, time_ms), side.seen
    assert seen is not None
    lone = [(row_key[0], row) for row_key, row in found if not seen.has(key, row_key)]
    _unmark(seen, key, [row_key for row_key, _ in found])
    return lone
