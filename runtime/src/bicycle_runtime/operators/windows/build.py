"""The operators of windows: one that folds, one with triggers and evictors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from bicycle_runtime.operators.batch import Batch, ExchangeLineage
from bicycle_runtime.operators.columnar.fold import ColumnPartials
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows, rows_of
from bicycle_runtime.operators.preaggregation.gathering import FoldedContents, GatheredRecords
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.blocks import Partials, open_block
from bicycle_runtime.operators.windows.kept_slices import KeptSlices
from bicycle_runtime.operators.windows.kept_windows import KeptWindows
from bicycle_runtime.operators.windows.placements import divide, placement_of
from bicycle_runtime.operators.windows.sessions import CutSessions, KeptSessions
from bicycle_runtime.operators.windows.triggered import TriggeredOperator, pane_entries
from bicycle_runtime.state.memory.space import MemorySpace
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import SessionWindows, WindowPlan


class FoldingOperator(WindowOperator):
    """The operator that folds an epoch's records by window and key, or merges folds.

    In an epoch: records are placed and gathered; ``advance`` puts them into the table, fires the
    windows that the watermark has reached and fired windows with new records, and drops windows
    that are over.

    Args:
        parts: As of ``WindowOperator``.
        kind: The kept form of windows.
        options: As of ``WindowOperator``.
    """

    def __init__(self, *parts: Any, kind: type[KeptWindows], **options: Any) -> None:
        self._kind, self.is_by_key = kind, kind.is_by_key
        super().__init__(*parts, **options)
        self._is_combined = bool(self.spec.vertex.details.get("is_combined", False))
        contents = (
            GatheredRecords() if self.keeps_records else FoldedContents(self.folding, self.policy)
        )
        self._placement = placement_of(self.plan, contents, self.policy)
        self._windows = kind(self, self._placement)

    def new_entries(self, windows: WindowTables) -> WindowEntries:
        return self._kind.new_entries(self.plan, self.folding, windows)

    def moments(self, entry: Any) -> Iterable[tuple[TimeDomain, int]]:
        return self._windows.moments(entry)

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._placement.accumulators.clear()
        self._windows.clear()

    def apply(self, batch: Batch) -> Batch:
        if self._is_combined:
            self._open(batch)
        else:
            self._gather(rows_of(batch, self.key_of, self.policy, operator=self.spec.uid))
        return Batch([], batch.lineage)

    def advance(self, advance: Advance) -> Iterator[Batch]:
        self.let_come(advance.watermark)
        self._windows.settle()
        self.begin_firing()
        yield from self._windows.fire()
        self._windows.expire()

    def next_event_ms(self) -> int | None:
        return self._windows.next_event_ms()

    def _open(self, batch: Batch) -> None:
        assert batch.groups is not None
        for number, (data, group) in enumerate(zip(batch.values, batch.groups, strict=True)):
            block = open_block(data)
            if isinstance(block, ColumnPartials):
                self._windows.columns.add(group, block)
            elif isinstance(block, Partials):
                self._windows.take_partials(group, block)
            else:
                lineage = ExchangeLineage(batch.lineage.origin(number), block.times)
                groups = [group] * len(block.values)
                raw = Batch(block.values, lineage, groups)
                keys = list(map(self.key_of, block.values))
                self._gather(Rows(raw, keys, block.times, groups))

    def _gather(self, rows: Rows) -> None:
        rows = self._placement.assign(rows)
        if rows.keys:
            rows = self._windows.admit(rows)
        closed = self.complete_before - self.plan.lateness_ms
        rows, late = divide(rows, self._placement, closed)
        if late.keys:
            self._windows.take_late(late)
        if rows.keys:
            self._placement.accumulators.add(rows)


def window_operator(plan: WindowPlan) -> Callable[..., WindowOperator]:
    """Return the factory of a window's operator."""
    kind = _kind_of(plan)
    return TriggeredOperator if kind is None else partial(FoldingOperator, kind=kind)


def window_table(plan: WindowPlan, folding: Folding, record_type: Any) -> WindowTable:
    """Return an empty table for the state of a window.

    Args:
        plan: The window.
        folding: Its aggregates.
        record_type: Declared type of the records, None when unknown.
    """
    kind, windows = _kind_of(plan), MemorySpace()
    records = windows.records(record_type, is_by_key=kind is None or kind.is_by_key)
    new_entries = pane_entries if kind is None else kind.new_entries
    return windows.table(new_entries(plan, folding, windows), records)


def _kind_of(plan: WindowPlan) -> type[KeptWindows] | None:
    """Return the class that stores untriggered windows, or None with a trigger."""
    if plan.is_triggered:
        return None
    if not isinstance(plan.assigner, SessionWindows):
        return KeptSlices
    return KeptSessions if plan.assigner.max_duration_ms is None else CutSessions
