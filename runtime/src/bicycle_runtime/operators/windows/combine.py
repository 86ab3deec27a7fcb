"""The step before the shuffle: sends one content per key and window.

It folds like the window. Records whose window may be closed are not folded: they travel as they
are, so that the window can count them with their lateness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.keys import Keys
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.frames.vectors import Refused, Vector
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, time_array
from bicycle_runtime.operators.columnar.field_columns import field_columns, fold_problem
from bicycle_runtime.operators.columnar.fold import ColumnFold
from bicycle_runtime.operators.functions.answers import ColumnAnswer, Load, loaded_function
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import Advance, EpochTime, Operator, Timed
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.preaggregation.batch_rows import Rows, rows_of
from bicycle_runtime.operators.preaggregation.gathering import FoldedContents
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.windows.blocks import Block, RawRecords, seal_block
from bicycle_runtime.operators.windows.meaning import complete_end
from bicycle_runtime.operators.windows.placements import divide, placement_of
from bicycle_runtime.records.blobs import BYTE_GROUPS_MAX
from bicycle_runtime.records.keys import GroupCache
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.windows import AlignedWindows, SessionWindows, WindowPlan

_ACCUMULATORS_MAX = 1 << 17  # contents that are held back at most; then they travel


class CombineOperator(Operator, Timed):
    """Folds the records of an epoch by key and window.

    Args:
        spec: Which operator this is.
        policy: Settles records that a function refuses, by the window's own policy.
        context: Task info and time.
        plan: The window.
        key_selector: Returns the key of a record.
        record_type: Declared type of the records, None when unknown.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, plan: WindowPlan,
        *, key_selector: Callable[[Any], Any], record_type: Any,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context)
        self._plan = plan
        self._key_of = key_selector
        self._folding = Folding(plan, record_type, undoes=policy.undoes)
        self._contents = FoldedContents(self._folding, policy)
        self._placement = placement_of(plan, self._contents, policy)
        self._groups = GroupCache(spec.group_count)
        self._columns: ColumnFold | None = None
        self._closed = WATERMARK_MIN
        self._last_ms = 0

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        self._placement.accumulators.clear()
        if self._columns is not None:
            self._columns.clear()

    def begin_time(self, advance: Advance) -> None:
        self._closed = complete_end(self._plan, advance.previous) - self._plan.lateness_ms

    def apply(self, batch: Batch) -> Batch:
        if isinstance(batch.keys, Keys):
            keys = batch.keys.to_list()
            batch = replace(batch, keys=keys, groups=list(map(self._groups.__getitem__, keys)))
        window = self.spec.uid.removesuffix("-combine")  # That one the user knows.
        return self._take(rows_of(batch, self._key_of, self.policy, operator=window))

    def _take(self, rows: Rows) -> Batch:
        if rows.keys:
            self._last_ms = rows.times[-1]
        rows = self._placement.assign(rows)
        rows, late = divide(rows, self._placement, self._closed)
        if rows.keys:
            self._placement.accumulators.add(rows)
        sent: list[tuple[int, Block]] = [*_raw_blocks(late)]
        if len(self._placement.accumulators) >= _ACCUMULATORS_MAX:
            sent += self._placement.blocks()
        return self._batch(sent)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:
        problem = fold_problem(loaded_function(spec, load), shape)
        return ColumnAnswer(problem, spares_records=problem is None)

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:  # noqa: ARG002  # as of the base
        """Return the blocks of partial results that are due, if any.

        If selectors must be called, they are called once: results that columns do not fold are
        folded one by one here.
        """
        times = time_array(batch.lineage)
        if times is None or not isinstance(batch.keys, Keys):
            raise Refused
        fold, last_ms = self._fold(), int(times[-1])
        starts, inside = fold.starts(times)
        if inside is not None:
            batch = batch.take(inside)
        keys, records = batch.keys, batch.values
        assert isinstance(keys, Keys)
        assert isinstance(records, Frame)
        if not records.count:
            self._last_ms = last_ms
            return self._batch([])
        is_open = starts.min() >= self._placement.least_open(self._closed)
        if not (is_open and fold.takes(keys)):
            raise Refused
        values = fold.read(records)
        if not fold.calls and not fold.add(keys, starts, values):
            raise Refused
        self._last_ms = last_ms
        if fold.calls:
            rows = self._rows(batch, keys)
            rows.selected = {index: vector.items for index, vector in values.items()}
            for index in fold.calls:
                rows = self._contents.select(index, rows)
            called = {index: Vector(len(rows.keys), rows.selected[index]) for index in fold.calls}
            is_whole = len(rows.keys) == records.count
            if not (is_whole and fold.add(keys, starts, {**values, **called})):
                return self._take(rows)
        return self._batch(fold.take() if fold.is_full else [])

    def _fold(self) -> ColumnFold:
        """Return the fold on columns, made at its first use: most jobs need no libraries."""
        if self._columns is None:
            columns, windows = field_columns(self._folding.functions), self._plan.assigner
            assert columns is not None
            assert isinstance(windows, AlignedWindows | SessionWindows)
            self._columns = ColumnFold(columns, windows, group_count=self.spec.group_count)
        return self._columns

    def _rows(self, batch: Batch, column: Keys) -> Rows:
        """Return the records of a batch with times, as they go one by one."""
        keys = column.to_list()
        return Rows(batch, keys, batch.times() or [], list(map(self._groups.__getitem__, keys)))

    def advance(self, advance: Advance) -> Iterator[Batch]:  # noqa: ARG002  # held records are emitted at any time
        columns = [] if self._columns is None else self._columns.take()
        yield self._batch([*columns, *self._placement.blocks()])

    def next_event_ms(self) -> int | None:
        return None

    def next_timer_ms(self) -> int | None:
        return None

    def _batch(self, blocks: Iterable[tuple[int, Block]]) -> Batch:
        sealed = [(group, seal_block(block)) for group, block in blocks]
        groups = [group for group, _ in sealed]
        column = bytes(groups) if self.spec.group_count <= BYTE_GROUPS_MAX else groups
        times = [self._last_ms] * len(sealed)
        return Batch([data for _, data in sealed], ExchangeLineage(None, times), column)


def _raw_blocks(rows: Rows) -> list[tuple[int, RawRecords]]:
    by_group: dict[int, RawRecords] = {}
    for group, time, value in zip(rows.groups, rows.times, rows.batch.values, strict=True):
        block = by_group.setdefault(group, RawRecords([], []))
        block.values.append(value)
        block.times.append(time)
    return sorted(by_group.items(), key=lambda item: item[0])
