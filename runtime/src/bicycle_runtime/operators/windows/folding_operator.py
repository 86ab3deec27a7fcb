"""Windows that fire by the watermark: folded first, so that state is touched once per key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.columnar.fold import ColumnPartials
from bicycle_runtime.operators.columnar.merge import ColumnMerge
from bicycle_runtime.operators.functions.operator import Advance, EpochTime
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.gathering import FoldedContents, KeptContents
from bicycle_runtime.operators.preaggregation.rows import Rows, rows_of
from bicycle_runtime.operators.windows.base import WindowOperator
from bicycle_runtime.operators.windows.blocks import Partials, open_block
from bicycle_runtime.operators.windows.placements import Placement, divide, place_records
from bicycle_runtime.state.memory.windows import WindowEntries, WindowTable, WindowTables
from bicycle_sdk.state import TimeDomain
from bicycle_sdk.windows import WindowPlan

__all__ = ["FoldingOperator", "KeptWindows"]


class KeptWindows(ABC):
    """The windows of one kind as state keeps them: how they grow, fire and go.

    Args:
        window: The operator: its table, and how far event time has come.
        placement: Where the records of an epoch are gathered.
    """

    # Whether each key has windows of its own, with times and records that are replaced one by one.
    is_by_key: ClassVar[bool] = True
    # What arrives in columns is merged there, where the windows take it.
    columns: ColumnMerge | None = None

    def __init__(self, window: WindowOperator, placement: Placement) -> None:  # noqa: ARG002  # each kind has its own
        self.window = window
        self.plan, self.folding = window.plan, window.folding
        self.keeps_records = window.keeps_records

    @property
    def table(self) -> WindowTable:
        """The state of the operator."""
        return self.window.table

    @classmethod
    @abstractmethod
    def new_entries(
        cls, plan: WindowPlan, folding: Folding, windows: WindowTables
    ) -> WindowEntries:
        """Return empty entries of the shape that is kept."""

    def moments(self, entry: Any) -> Iterable[tuple[TimeDomain, int]]:  # noqa: ARG002  # for those by key
        """Return the times that an entry waits for. They follow from the plan and the entry."""
        return ()

    @abstractmethod
    def clear(self) -> None:
        """Forget what an epoch brought."""

    def admitted(self, rows: Rows) -> Rows:
        """Return the rows that no window which has fired would hold; all of them, as a rule."""
        return rows

    @abstractmethod
    def take_late(self, rows: Rows) -> None:
        """Take records whose own windows are closed: they are late, or to be decided about."""

    @abstractmethod
    def take_partials(self, group: int, block: Partials) -> None:
        """Put what was folded before the shuffle into the table."""

    @abstractmethod
    def settle(self) -> None:
        """Put what was gathered in the epoch into the table."""

    @abstractmethod
    def fire(self) -> Iterator[Batch]:
        """Yield the results of the windows that are due."""

    @abstractmethod
    def expire(self) -> None:
        """Let go of windows that take no more records."""

    @abstractmethod
    def next_event_ms(self) -> int | None:
        """Return the least watermark at which something is due; None for never."""


class FoldingOperator(WindowOperator):
    """Folds the records of an epoch by window and key, or takes what was folded before the shuffle.

    In an epoch: records are placed and gathered; ``advance`` puts them into the table, fires the
    windows that the watermark has reached and those that fired before and got more records, and
    drops those that are over.

    Args:
        parts: As of ``WindowOperator``.
        kind: What is kept.
        options: As of ``WindowOperator``.
    """

    def __init__(self, *parts: Any, kind: type[KeptWindows], **options: Any) -> None:
        self._kind, self.is_by_key = kind, kind.is_by_key
        super().__init__(*parts, **options)
        self._is_combined = bool(self.spec.vertex.details.get("is_combined", False))
        contents = (
            KeptContents() if self.keeps_records else FoldedContents(self.folding, self.policy)
        )
        self._placement = place_records(self.plan, contents, self.policy)
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
        for data, group in zip(batch.values, batch.groups, strict=True):
            block = open_block(data)
            if isinstance(block, ColumnPartials):
                assert self._windows.columns is not None
                self._windows.columns.add(group, block)
            elif isinstance(block, Partials):
                self._windows.take_partials(group, block)
            else:
                raw = Batch(block.values, batch.lineage, [group] * len(block.values))
                keys = list(map(self.key_of, block.values))
                self._gather(Rows(raw, keys, block.times, [group] * len(keys)))

    def _gather(self, rows: Rows) -> None:
        rows = self._placement.placed(rows)
        if rows.keys:
            rows = self._windows.admitted(rows)
        closed = self.complete_before - self.plan.lateness_ms
        rows, late = divide(rows, self._placement.least_open(closed))
        if late.keys:
            self._windows.take_late(late)
        if rows.keys:
            self._placement.accumulators.add(rows)
