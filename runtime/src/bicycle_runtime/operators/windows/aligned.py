"""Tumbling and sliding windows that fire by the watermark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from bicycle_runtime.operators.batch import Batch, emitted
from bicycle_runtime.operators.folding.aggregates import Folding
from bicycle_runtime.operators.folding.blocks import FieldPartials, Partials, open_block
from bicycle_runtime.operators.folding.field_columns import field_columns
from bicycle_runtime.operators.folding.gathering import Contents, FoldedContents, KeptContents
from bicycle_runtime.operators.folding.rows import Rows, rows_of
from bicycle_runtime.operators.folding.slots import WindowSlots
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.operators.tuple_records import joined
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.field_merge import FieldMerge, FieldWindow
from bicycle_runtime.operators.windows.strips import Strips
from bicycle_runtime.state.memory.window_tables import WindowTables
from bicycle_runtime.state.memory.windows import Cells
from bicycle_sdk.windows import AlignedWindows, Window, WindowPlan

__all__ = ["AlignedOperator"]

_RESULTS_PER_BATCH = 4_096


class AlignedOperator(WindowOperator):
    """Keeps one cell (or the records) per key and strip; a window joins its strips when it fires.

    In an epoch: records are folded by strip; ``advance`` puts them into the table, fires windows
    that the watermark has reached and those that fired before and got more records, and drops
    strips whose windows all are over.
    """

    is_by_key: ClassVar[bool] = False

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        assert isinstance(self.plan.assigner, AlignedWindows)
        self._strips = Strips(self.plan.assigner)
        self._is_combined = bool(self.spec.vertex.details.get("is_combined", False))
        self._slots = WindowSlots(self._contents())
        self._updated: dict[int, dict[int, dict[Any, None]]] = {}
        self._least_open = 0
        columns = field_columns(self.folding.functions) or []
        self._arrived = FieldMerge(columns, slide_ms=self._strips.slide_ms)

    @classmethod
    def new_cells(cls, plan: WindowPlan, folding: Folding, windows: WindowTables) -> Cells:
        return windows.cells("c", None if plan.keeps_records else folding.state_type)

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._slots.clear()
        self._arrived.clear()
        self._updated.clear()

    def begin_time(self, advance: Advance) -> None:
        super().begin_time(advance)
        self._least_open = self._strips.least_open(self.complete_before - self.plan.lateness_ms)

    def apply(self, batch: Batch) -> Batch:
        if self._is_combined:
            self._open(batch)
        else:
            self._gather(rows_of(batch, self.key_of, self.policy, operator=self.spec.uid))
        return Batch([], batch.trail)

    def advance(self, advance: Advance) -> Iterator[Batch]:
        self.let_come(advance.watermark)
        self._settle(self._slots.take())
        complete = self._settle_arrived()
        self.begin_firing()
        yield from self._fire(complete)
        self._expire()
        self._updated.clear()

    def next_event_ms(self) -> int | None:
        places = sorted({*self.table.cells.places, *self.table.records.places})
        for start in places:
            end = self._strips.first_end_after(start, self.complete)
            if end is not None:
                return self.watermark_for(end)
        if not places:
            return None
        return self.watermark_for(self._strips.last_end(places[0]) + self.plan.lateness_ms)

    # --- records in --------------------------------------------------------------------------

    def _contents(self) -> Contents:
        if self.keeps_records:
            return KeptContents()
        return FoldedContents(self.folding, self.policy)

    def _open(self, batch: Batch) -> None:
        assert batch.groups is not None
        for data, group in zip(batch.values, batch.groups, strict=True):
            block = open_block(data)
            if isinstance(block, FieldPartials):
                self._arrived.add(group, block)
            elif isinstance(block, Partials):
                self._settle(
                    ((start, group, keys, contents) for start, keys, contents in block.parts)
                )
            else:
                raw = Batch(block.values, batch.trail, [group] * len(block.values))
                keys = list(map(self.key_of, block.values))
                self._gather(Rows(raw, keys, block.times, [group] * len(keys)))

    def _gather(self, rows: Rows) -> None:
        rows.places = starts = self._strips.starts(rows.times)
        outside = set(self._strips.outside(starts))
        if outside:
            rows = rows.picked([i for i in range(len(starts)) if i not in outside])
        # hot path: min() costs 15 ns a record and saves a comparison of each.
        if rows.keys and min(rows.places) < self._least_open:
            rows = self._without_late(rows)
        if rows.keys:
            self._slots.add(rows)

    def _without_late(self, rows: Rows) -> Rows:
        late = rows.picked([i for i, start in enumerate(rows.places) if start < self._least_open])
        windows = [next(self._strips.windows_of(start)) for start in late.places]
        self.count_late(late, windows)
        return rows.picked([i for i, start in enumerate(rows.places) if start >= self._least_open])

    def _settle(self, parts: Iterable[tuple[int, int, list[Any], Sequence[Any]]]) -> None:
        """Put what was gathered into the table: start, key group, keys and their contents."""
        for start, group, keys, contents in parts:
            if self.keeps_records:
                for key, row in zip(keys, contents, strict=True):
                    self.table.records.add(start, group, key, row)
            else:
                self._merge(start, group, keys, contents)
            if start < self.complete_before:
                updated = self._updated.setdefault(start, {}).setdefault(group, {})
                updated.update(dict.fromkeys(keys))

    def _settle_arrived(self) -> dict[int, FieldWindow]:
        """Put what was folded by field into the table; return the windows that fire at once."""
        complete = {}
        for arrived in self._arrived.take():
            if arrived.is_whole and self._fires_at_once(arrived.start):
                complete[arrived.start] = arrived
            else:
                self._settle(arrived.parts(self._arrived.columns))
        return complete

    def _fires_at_once(self, start: int) -> bool:
        """Tell whether the window of a strip fires now, once, and with what this epoch brought."""
        if not self._strips.is_tumbling or self.plan.lateness_ms or self.plan.process is not None:
            return False
        is_due = self.complete_before < self._strips.last_end(start) <= self.complete
        return is_due and start not in self._kept()

    def _merge(self, start: int, group: int, keys: list[Any], contents: Sequence[Any]) -> None:
        cells, merged = self.table.cells, self.folding.merged
        kept = cells.group(start, group)
        cells.touch(start, group, keys)
        if not kept:
            kept.update(zip(keys, contents, strict=True))
            return
        # hot path: 200 ns per key and window that is new, and a merge for the others.
        for key, content in zip(keys, contents, strict=True):
            known = kept.get(key)
            kept[key] = content if known is None else merged(known, content)

    # --- results out -------------------------------------------------------------------------

    def _fire(self, complete: dict[int, FieldWindow]) -> Iterator[Batch]:
        parts: list[Sequence[Any]] = []
        times: list[int] = []
        for window in self._windows_due(sorted(self._kept()), complete):
            # hot path: results that leave before the next are made cost 6 to 10 % less of it all.
            if len(times) >= _RESULTS_PER_BATCH:
                yield emitted(joined(parts), times)
                parts, times = [], []
            for given, given_times in self._results_of(window, complete.pop(window.start, None)):
                parts.append(given)
                times += given_times
        yield emitted(joined(parts), times)

    def _results_of(
        self, window: Window, arrived: FieldWindow | None
    ) -> Iterator[tuple[Sequence[Any], list[int]]]:
        """Yield records that a window gives, and their event times."""
        if arrived is not None:
            yield self.firing.of_columns(window, arrived.keys(), arrived.columns())
            return
        places = self._kept()
        parts = [start for start in self._strips.parts(window) if start in places]
        again = window.end <= self.complete_before
        for group in sorted({group for start in parts for group in places[start]}):
            contents = self._contents_of(parts, group, is_again=again)
            yield self.firing.of_group(window, contents, partial(self._values, window, group))

    def _windows_due(self, places: list[int], complete: Iterable[int]) -> list[Window]:
        """Return the windows that fire, in the order of their ends."""
        due = set()
        # Of strips that lie far back only windows near the watermark fire.
        first = bisect_left(places, self._strips.least_open(self.complete_before))
        for start in places[first:]:
            for window in self._strips.windows_of(start):
                if self.complete_before < window.end <= self.complete:
                    due.add(window)
        for start in complete:
            due.update(self._strips.windows_of(start))
        for start in self._updated:
            for window in self._strips.windows_of(start):
                if window.end <= self.complete_before and not self.is_closed(window.end):
                    due.add(window)
        return sorted(due)

    def _kept(self) -> Any:
        kept = self.table.records if self.keeps_records else self.table.cells
        return kept.places

    def _contents_of(self, parts: list[int], group: int, *, is_again: bool) -> Mapping[Any, Any]:
        """Return the content of a window by key: of all keys, or of those that got more records."""
        keys: set[Any] | None = None
        if is_again:
            keys = set().union(*(self._updated.get(s, {}).get(group, ()) for s in parts))
        if self.keeps_records:
            return self._rows(parts, group, keys)
        found = [self.table.cells.contents(start, group, keys) for start in parts]
        if len(found) == 1 and keys is None:
            return found[0]
        joined: dict[Any, Any] = {}
        own: set[Any] = set()
        merged = self.folding.merged
        for contents in found:
            for key, content in contents.items():
                if keys is not None and key not in keys:
                    continue
                if key not in joined:
                    joined[key] = content
                    continue
                if key not in own:  # What the table holds must not be changed by merging.
                    joined[key] = merged(self.folding.fresh(), joined[key])
                    own.add(key)
                joined[key] = merged(joined[key], content)
        return joined

    def _rows(self, parts: list[int], group: int, keys: set[Any] | None) -> dict[Any, Any]:
        joined: dict[Any, Any] = {}
        for start in parts:
            for key, row in self.table.records.rows(start, group, keys).items():
                times, values = joined.setdefault(key, ([], []))
                times += row[0]
                values += row[1]
        return joined

    def _values(self, window: Window, group: int, key: Any) -> dict[str, Any]:
        """Return the values that a window function keeps for a window, to be changed by it."""
        if self.plan.process is None or not self.plan.lateness_ms:
            return {}
        values = self.table.values.group(window.start, group).setdefault(key, {})
        self.table.values.touch(window.start, group, (key,))
        found: dict[str, Any] = values
        return found

    def _expire(self) -> None:
        closed = self.complete - self.plan.lateness_ms
        for kept in (self.table.cells, self.table.records):
            for start in [s for s in kept.places if self._strips.last_end(s) <= closed]:
                kept.drop(start)
        size = self.plan.assigner.size_ms  # type: ignore[union-attr]  # aligned, see __init__
        for start in [s for s in self.table.values.places if s + size <= closed]:
            self.table.values.drop(start)
