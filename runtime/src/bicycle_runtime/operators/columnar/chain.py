"""A chain on columns: from what a source has read to what a window folds, without records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.columnar.choice import ColumnSteps
from bicycle_runtime.operators.columnar.records import FieldRecords
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.watermarks import AssignOperator, is_out_of_bounds

__all__ = ["ChainOnColumns", "FoldsColumns"]


class FoldsColumns(Protocol):
    """The last step of a chain on columns."""

    def fold_columns(self, records: FieldRecords) -> Batch | None:
        """Fold records by field; None when these must be folded one by one: none was taken."""


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
        assigners = [one for one in operators if isinstance(one, AssignOperator)]
        self._assigners = list(zip(assigners, steps.times, strict=True))

    @property
    def folder(self) -> Operator:
        """The operator that folds, which all of the time counts for."""
        return self._operators[-1]

    def take(self, batch: Batch) -> Batch | None:
        """Return what the chain gives for a batch; None when it must go record by record.

        That is so when it holds records, or an int of more than 64 bits, a time that no event has,
        a window that may be closed, or when a replay wants to see single records.
        """
        records = batch.values
        if not isinstance(records, FieldRecords):
            return None
        if any(operator.select is not None for operator in self._operators):
            return None
        newest = []
        for assigner, field in self._assigners:
            times = records.numbers(field)
            if times is None or is_out_of_bounds([int(times.min()), int(times.max())]):
                return None
            newest.append((assigner, int(times.max())))
        output = self._folding.fold_columns(records)
        if output is None:
            return None
        for assigner, time_ms in newest:
            assigner.follow(batch, [time_ms])
        for operator in self._operators:
            operator.records_in += len(records)
            operator.records_out += len(records)
            operator.on_columns += len(records)
        self._operators[-1].records_out += len(output.values) - len(records)
        return output
