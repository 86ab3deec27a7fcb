"""Joins with the newest row of the other side, by event time or by arrival."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any, ClassVar

from bicycle_sdk.connected import InputRecords
from bicycle_sdk.joins.rows import JoinOptions, Pair, RowJoin, RowKey, times_by_key
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
        is_late = ctx.current_watermark().__ge__
        for key, times in self.wait_each(records, results, ctx, is_late).items():
            for time in dict.fromkeys(times):
                self._wait_for(key, time, is_left=records.ordinal == 0)

    def complete(self, timers: Sequence[Timer]) -> dict[tuple[Any, int], list[Pair]]:
        """Return the left rows that the watermark has passed, each with its match."""
        found: dict[tuple[Any, int], list[Pair]] = {}
        for key, times in times_by_key(timers).items():
            known = self.right.between(key, None, times[-1] - 1)
            known_times = [time for (time, _), _ in known]
            for time, rows in self._waiting(key, times[-1] - 1).items():
                newest = bisect_right(known_times, time) - 1
                is_known = newest >= 0 and self._is_near(known_times[newest], time)
                pairs = self._pairs(time, rows, [known[newest][1]] if is_known else [])
                if pairs:
                    found[key, time + 1] = pairs
            self._forget(key, known, times[-1] - 1)
        return found

    def _waiting(self, key: Any, last_ms: int) -> dict[int, list[Any]]:
        """Take the left rows up to a time, by their times."""
        found: dict[int, list[Any]] = {}
        for (time, _), row in self.left.take(key, None, last_ms):
            found.setdefault(time, []).append(row)
        return found

    def _pairs(self, time: int, waiting: list[Any], known: list[Any]) -> list[Pair]:
        """Return the pairs of the left rows of a time, with the last of the right ones."""
        if not waiting:
            return []
        is_match = bool(known) and not (self._is_deleted and self._is_deleted(known[-1]))
        if not is_match and not self.options.keeps_left:
            return []
        match = known[-1] if is_match else None
        return [(time, row, match) for row in waiting]

    def _is_near(self, known_ms: int, time_ms: int) -> bool:
        """Return whether a right row is new enough for a left one."""
        return self._tolerance is None or known_ms >= time_ms - self._tolerance

    def _forget(self, key: Any, known: list[tuple[RowKey, Any]], certain: int) -> None:
        """Remove right rows that no left row after a time can match."""
        if not known:
            return
        first = known[-1][0][0]
        if self._tolerance is not None:
            first = max(first, certain - self._tolerance)
        if known[0][0][0] < first:
            self.right.take(key, None, first - 1)

    def _store(self, value: Any, key: Any, time: int, is_left: bool) -> None:  # in a row
        self.keep(self.left if is_left else self.right, value, key, time)
        self._wait_for(key, time, is_left=is_left)

    def _wait_for(self, key: Any, time: int, *, is_left: bool) -> None:
        self.timers.set(key, time + 1)
        if not is_left and self._tolerance is not None:
            self.timers.set(key, time + self._tolerance + 2)


class TableJoin(RowJoin):
    """A join of each left row at once with the current right row of its key.

    Args:
        options: The options common to all joins.
        is_deleted: Returns whether a right row deletes the current row.
    """

    stamps: ClassVar[bool] = False
    needs_times: ClassVar[bool] = False

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

    def complete(self, timers: Sequence[Timer]) -> dict[tuple[Any, int], list[Pair]]:  # noqa: ARG002  # it sets none
        """Return an empty dict: no row is buffered."""
        return {}


async def _values_later(found: Any) -> list[Any]:
    return [result for _, result in await found]
