"""A chain on columns: from what a source has read to what a window folds, without records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.columnar.choice import ColumnStep, ColumnSteps
from bicycle_runtime.operators.columnar.frames import Frame, SourceFrame, mapped
from bicycle_runtime.operators.columnar.kernel import evaluate, mask_of
from bicycle_runtime.operators.columnar.records import FieldRecords
from bicycle_runtime.operators.columnar.vectors import Refused, Vector
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.watermarks import AssignOperator, is_out_of_bounds
from bicycle_sdk.graph import OperatorKind

__all__ = ["ChainOnColumns", "FoldsColumns"]


class FoldsColumns(Protocol):
    """The last step of a chain on columns."""

    def fold_columns(self, key: Vector, times: Any, frame: Frame) -> Batch | None:
        """Fold records by field; None when these must be folded one by one: none was taken.

        Args:
            key: Of each record; there is one at least.
            times: Of each, as an array of ints.
            frame: The records.
        """


class ChainOnColumns:
    """Takes batches of fields past the steps behind a source.

    Args:
        operators: Those steps; the last one is ``folding``.
        folding: Folds the columns.
        steps: What was chosen for the chain.
    """

    def __init__(
        self, operators: Sequence[Operator], folding: FoldsColumns, steps: ColumnSteps
    ) -> None:
        self._operators, self._folding = operators, folding
        self._steps = list(zip(operators, steps.steps, strict=False))
        self._kinds = steps.kinds

    @property
    def folder(self) -> Operator:
        """The operator that folds, which all of the time counts for."""
        return self._operators[-1]

    def take(self, batch: Batch) -> Batch | None:
        """Return what the chain gives for a batch; None when it must go record by record.

        That is so when it holds records, when one of them may fail, or has an int of more than 64
        bits, a time that no event has or a window that may be closed, or when a replay wants to see
        single records. Nothing is noted anywhere before it is sure.
        """
        records = batch.values
        if not isinstance(records, FieldRecords):
            return None
        if any(operator.select is not None for operator in self._operators):
            return None
        frame: Frame = SourceFrame(records.rows, records, self._kinds)
        passage = _Passage(frame)
        try:
            for operator, step in self._steps:
                if not passage.frame.count:
                    break
                passage.go(operator, step)
        except Refused:
            return None
        output = Batch([], batch.lineage)
        if passage.frame.count:
            assert passage.key is not None
            folded = self._folding.fold_columns(passage.key, passage.times, passage.frame)
            if folded is None:
                return None
            output = folded
            passage.counts.append((self.folder, passage.frame.count, len(output.values)))
        for assigner, time_ms in passage.newest:
            assigner.follow(batch, [time_ms])
        for operator, count_in, count_out in passage.counts:
            operator.records_in += count_in
            operator.records_out += count_out
            operator.on_columns += count_in
            operator.policy.total += count_in
        return output


class _Passage:
    """One batch on its way through the steps.

    Args:
        frame: Its records.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.key: Vector | None = None
        self.times: Any = None
        self.newest: list[tuple[AssignOperator, int]] = []
        self.counts: list[tuple[Operator, int, int]] = []

    def go(self, operator: Operator, step: ColumnStep) -> None:
        """Take the records past one step.

        Raises:
            Refused: they must go one by one.
        """
        count = self.frame.count
        match step.kind:
            case OperatorKind.MAP:
                self.frame = mapped(step.value, self.frame)
            case OperatorKind.FILTER:
                mask = mask_of(evaluate(step.value, self.frame))
                if mask.count < count:
                    self.frame = self.frame.picked(mask)
                    self.times = None if self.times is None else self.times[mask.array]
            case OperatorKind.KEY_BY:
                self.key = evaluate(step.value, self.frame)
            case _:
                assert isinstance(operator, AssignOperator)
                self._stamp(operator, evaluate(step.value, self.frame))
        self.counts.append((operator, count, self.frame.count))

    def _stamp(self, operator: AssignOperator, value: Vector) -> None:
        times = value.numbers
        if times is None or times.dtype.kind != "i":
            raise Refused
        newest = int(times.max())
        if is_out_of_bounds([int(times.min()), newest]):
            raise Refused
        self.times = times
        self.newest.append((operator, newest))
