"""A chain on columns: from a source, window or chain to the first use of records.

They are needed nowhere where another window folds them, or a writer takes rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol

from bicycle_runtime.expressions.evaluation import evaluate, mask_of, noted
from bicycle_runtime.expressions.mapping import flat_mapped, mapped
from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Refused, Vector
from bicycle_runtime.operators.batch import Batch, PickLineage, StampedLineage
from bicycle_runtime.operators.columnar.choice import ColumnStep, ColumnSteps
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.watermarks import AssignOperator, is_out_of_bounds
from bicycle_sdk.expressions import Expression
from bicycle_sdk.graph import OperatorKind


class FoldsColumns(Protocol):
    """The last step of a chain on columns."""

    def fold_columns(
        self, key: Vector, times: Any, frame: Frame, batch: Callable[[], Batch]
    ) -> Batch | None:
        """Fold records by field, or return None without effect if they need single folds.

        Args:
            key: Of each record; there is one at least.
            times: Of each, as an array of ints.
            frame: The records.
            batch: Returns the same records as a batch.
        """


class ChainOnColumns:
    """Takes batches past the steps behind a source or a window.

    Args:
        operators: The operators of these steps; the last one is ``folding``, if there is one.
        folding: Folds the columns; None if records are emitted from their columns.
        steps: The choice for the chain.
        first: The place of the first of them in the chain.
    """

    def __init__(
        self, operators: Sequence[Operator], folding: FoldsColumns | None, steps: ColumnSteps,
        *, first: int = 1,
    ) -> None:  # fmt: skip
        self.first = first
        self._operators, self._folding = operators, folding
        self._steps = list(zip(operators, steps.steps, strict=False))
        stamps = [s.value for s in steps.steps if s.kind is OperatorKind.ASSIGN_TIMESTAMPS]
        is_kept = any(value is None for value in stamps)
        self._keeps_times = is_kept or (folding is not None and not stamps)

    def run(self, batch: Batch) -> tuple[Batch, int]:
        """Return the output, and the index of the operator in the chain that takes it.

        All of the time counts for the last operator that works on columns.
        """
        started, count = perf_counter_ns(), len(batch.values)
        output = self.take(batch)
        last = self._operators[-1]
        last.took(perf_counter_ns() - started, 0 if output is None else count)
        first = self.first
        return (batch, first) if output is None else (output, first + len(self._operators))

    def take(self, batch: Batch) -> Batch | None:
        """Return the output of the steps for a batch, or None if records are required.

        That is so when it holds records, when one of them may fail, or has an int of more than 64
        bits, no time, one that no event has or a window that may be closed, or when a replay wants
        to see single records. Nothing is noted anywhere before it is sure.
        """
        if any(operator.select is not None for operator in self._operators):
            return None
        if not isinstance(batch.values, Frame):
            return None
        passage = _Passage(batch.values)
        if self._keeps_times:
            times = batch.times()
            if times is None:
                return None
            passage.times = numpy().array(times, numpy().int64)
        try:
            for operator, step in self._steps:
                if not passage.frame.count:
                    break
                passage.go(operator, step)
        except Refused:
            return None
        output = self._finish(passage, batch)
        if output is None:
            return None
        for assigner, time_ms in passage.newest:
            assigner.follow(batch, [time_ms])
        for operator, count_in, count_out in passage.counts:
            operator.records_in += count_in
            operator.records_out += count_out
            operator.on_columns += count_in
            operator.policy.total += count_in
        return output

    def _finish(self, passage: _Passage, batch: Batch) -> Batch | None:
        """Return folded records, or the records, or None if they need single folds."""
        if not passage.frame.count:
            return Batch([], batch.lineage)
        if self._folding is None:
            return passage.output(batch)
        assert passage.key is not None
        folded = self._folding.fold_columns(
            passage.key, passage.times, passage.frame, partial(passage.output, batch)
        )
        if folded is not None:
            counts = (self._operators[-1], passage.frame.count, len(folded.values))
            passage.counts.append(counts)
        return folded


class _Passage:
    """One batch on its way through the steps.

    Args:
        frame: Its records.

    ``rows`` are the places of the remaining records, None for all; ``times`` are the times of the
    records, None while the times of the batch hold.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.key: Vector | None = None
        self.rows: Any = None
        self.times: Any = None
        self.newest: list[tuple[AssignOperator, int]] = []
        self.counts: list[tuple[Operator, int, int]] = []

    def output(self, batch: Batch) -> Batch:
        """Return the records that are left of a batch, with their lineage."""
        lineage = batch.lineage
        if self.rows is not None:
            lineage = PickLineage(lineage, self.rows.tolist)
        if self.times is not None:
            lineage = StampedLineage(lineage, self.times.tolist())
        return Batch(self.frame, lineage)

    def go(self, operator: Operator, step: ColumnStep) -> None:
        """Take the records past one step.

        Raises:
            Refused: they must go one by one.
        """
        count = self.frame.count
        if step.kind is OperatorKind.ASSIGN_TIMESTAMPS:
            assert isinstance(operator, AssignOperator)
            self._stamp(operator, step.value)
        elif step.value is not None:  # a union computes nothing
            self._compute(step.kind, step.value)
        self.counts.append((operator, count, self.frame.count))

    def _compute(self, kind: OperatorKind, value: Expression) -> None:
        if kind is OperatorKind.MAP:
            self.frame = mapped(value, self.frame)
        elif kind is OperatorKind.FLAT_MAP:
            self.frame, rows = flat_mapped(value, self.frame)
            self.rows = rows if self.rows is None else self.rows[rows]
            self.times = None if self.times is None else self.times[rows]
        elif kind is OperatorKind.KEY_BY:
            self.key = evaluate(value, noted(self.frame))
        else:
            mask = mask_of(evaluate(value, noted(self.frame)))
            if mask.count < self.frame.count:
                self.frame = self.frame.take(mask)
                rows = numpy().flatnonzero(mask.array)
                self.rows = rows if self.rows is None else self.rows[rows]
                self.times = None if self.times is None else self.times[mask.array]

    def _stamp(self, operator: AssignOperator, value: Expression | None) -> None:
        if value is not None:
            times = evaluate(value, self.frame).numbers
            if times is None or times.dtype.kind != "i":
                raise Refused
            if is_out_of_bounds([int(times.min()), int(times.max())]):
                raise Refused
            self.times = times
        self.newest.append((operator, int(self.times.max())))
