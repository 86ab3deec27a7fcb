"""Joins with the newest row of the other side, by event time or by arrival."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from types import GenericAlias
from typing import Any, ClassVar

from bicycle_sdk.connected import InputRecords
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.joins.kept_rows import merged
from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin
from bicycle_sdk.state import Timer, ValueStateDescriptor
from bicycle_sdk.windows.panes import Window

__all__ = ["AsOfJoin", "TableJoin"]


class AsOfJoin(RowJoin):
    """A join of each left row with the last right row of its key that is not later.

    A left row waits until the watermark has passed it, so that no right row can come between. Of
    the right rows, the newest row that later left rows may need is kept, and all newer rows. Of
    right rows with the same time the last that arrived counts. A right row that is too late for
    emitted left rows still holds for later left rows.

    Args:
        options: The options common to all joins.
        tolerance_ms: How much earlier the right row may be; None is without a limit.
        is_deleted: Returns whether a right row is a deletion.
    """

    state_bound: ClassVar[str] = "unbounded: it has the versions of each key since the watermark"

    def __init__(
        self, options: JoinOptions, *, tolerance_ms: int | None,
        is_deleted: Callable[[Any], bool] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(options)
        self._tolerance = tolerance_ms
        self._is_deleted = is_deleted

    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:
        """Buffer a row until its time."""
        watermark = ctx.current_watermark()
        if time <= watermark:
            found = self.refuse_late(value, time, Window(time, time + 1), ctx)
            if is_left or self.right.between(key, time + 1, watermark):
                return found
        return self.results((), self._store, value, key, time, is_left)

    def process_each(self, records: InputRecords, results: list[Any], ctx: Any) -> None:
        """Buffer rows until their times."""
        if self.options.max_buffered is not None:
            super().process_each(records, results, ctx)
            return
        self.wait_each(records, results, ctx, ctx.current_watermark().__ge__)

    def complete(self, timers: Sequence[Timer], due_ms: int) -> dict[tuple[Any, int], list[Pair]]:
        """Return the left rows that the watermark has passed, each with its match."""
        found: dict[tuple[Any, int], list[Pair]] = {}
        certain, keeps_left = due_ms - 1, self.options.keeps_left
        rights, lefts = self.take_arrived()
        for key in dict.fromkeys(timer[2] for timer in timers) | lefts | rights:
            stored, arrived = self.right.between(key, None, certain), rights.get(key)
            times, rows = merged(stored, arrived)
            waiting = merged(self.left.take(key, certain), lefts.get(key))
            due = bisect_right(waiting[0], certain)
            # hot path: each left row of a key once, in order.
            for time, row in zip(waiting[0][:due], waiting[1], strict=False):
                newest = bisect_right(times, time) - 1
                is_match = newest >= 0 and self._is_match(times[newest], rows[newest], time)
                if is_match or keeps_left:
                    pair = (time, row, rows[newest] if is_match else None)
                    known = found.setdefault((key, time + 1), [pair])
                    if known[0] is not pair:
                        known.append(pair)
            if due < len(waiting[0]):
                rest = slice(due, None)
                self.store_all(key, waiting[0][rest], waiting[1][rest], is_left=True, due_ms=due_ms)
            newest = bisect_right(times, certain) - 1
            first = WATERMARK_MIN if newest < 0 else times[newest]
            if self._tolerance is not None:
                first = max(first, certain - self._tolerance)
            if stored and stored[0][0][0] < first:
                self.right.take(key, first - 1)
            self.store_from(key, arrived, first, is_left=False, due_ms=due_ms)
        return found

    def _is_match(self, known_ms: int, known: Any, time_ms: int) -> bool:
        """Return whether the newest right row matches a left row of a time."""
        if self._tolerance is not None and known_ms < time_ms - self._tolerance:
            return False
        return self._is_deleted is None or not self._is_deleted(known)

    def _store(self, value: Any, key: Any, time: int, is_left: bool) -> None:  # in a row
        self.keep(self.left if is_left else self.right, value, key, time)
        self.wait_for(key, [time], is_left=is_left, due_ms=WATERMARK_MIN)

    def wait_for(self, key: Any, times: Iterable[int], *, is_left: bool, due_ms: int) -> None:
        """Set timers at which left rows are complete and right rows are forgotten."""
        tolerance = None if is_left else self._tolerance
        for time in dict.fromkeys(times):
            if time >= due_ms:
                self.timers.set(key, time + 1)
            if tolerance is not None and time + tolerance + 2 > due_ms:
                self.timers.set(key, time + tolerance + 2)


class TableJoin(RowJoin):
    """A join of each left row at once with the current right row of its key.

    Args:
        options: The options common to all joins.
        is_deleted: Returns whether a right row deletes the current row.
    """

    stamps: ClassVar[bool] = False
    needs_times: ClassVar[bool] = False
    state_bound: ClassVar[str] = "unbounded: it has a row of the right side for each key"

    def __init__(
        self, options: JoinOptions, *, is_deleted: Callable[[Any], bool] | None = None
    ) -> None:
        super().__init__(options)
        self._is_deleted = is_deleted
        # A tuple with one item distinguishes a row that is None from no row.
        right = options.right_type
        self.table = ValueStateDescriptor[Any](
            "table", None if right is None else GenericAlias(tuple, (right, ...))
        )

    def open(self, ctx: Any) -> Any:
        """Get the table."""
        self._table = ctx.state_entries(self.table)
        return super().open(ctx)

    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:  # noqa: ARG002  # no row waits
        """Join a left row with the known right row, or replace that by a new right row."""
        pairs: list[Pair] = []
        if is_left:
            known = self._table.get(key)
            if known or self.options.keeps_left:
                pairs.append((0, value, known[0] if known else None))
        elif self._is_deleted is not None and self._is_deleted(value):
            self._table.delete(key)
        else:
            self._table.put(key, (value,))
        found = self.results(pairs)
        return _values_later(found) if self.awaits else [result for _, result in found]

    def complete(self, timers: Sequence[Timer], due_ms: int) -> dict[tuple[Any, int], list[Pair]]:  # noqa: ARG002  # it sets none
        """Return an empty dict: no row is buffered."""
        return {}

    def wait_for(self, key: Any, times: Iterable[int], *, is_left: bool, due_ms: int) -> None:
        """Set no timer."""


async def _values_later(found: Any) -> list[Any]:
    return [result for _, result in await found]
