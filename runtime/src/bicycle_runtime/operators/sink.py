"""The end of a chain: records go to a writer of the sink, which stages them for the epoch."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.contexts import WorkerContext
from bicycle_runtime.operators.io import (
    PreparingWriter,
    SinkWriter,
    StagedFile,
    WriterFactory,
    WriterTask,
)
from bicycle_runtime.operators.operator import Operator, each
from bicycle_runtime.operators.policy import DROPPED, RecordPolicy
from bicycle_runtime.operators.spec import OperatorSpec

__all__ = ["SinkOperator"]


class SinkOperator(Operator):
    """Writes what reaches it. A writer is opened with the first record of an epoch."""

    def __init__(
        self,
        spec: OperatorSpec,
        policy: RecordPolicy,
        context: WorkerContext,
        factory: WriterFactory,
    ) -> None:
        super().__init__(spec, policy, context)
        self._factory = factory
        self._writer: SinkWriter | None = None
        self._preparing: PreparingWriter | None = None
        self.task: WriterTask | None = None

    def apply(self, batch: Batch) -> Batch:
        if self._writer is None:
            assert self.task is not None
            self._writer = writer = self._factory.open(self.task)
            self._preparing = writer if isinstance(writer, PreparingWriter) else None
        values = batch.values
        if self._preparing is not None:
            values = self._prepared(self._preparing, values)
        self._writer.write(values)
        return Batch([], batch.trail)

    def _prepared(self, writer: PreparingWriter, values: list[Any]) -> list[Any]:
        """Return what to write: all at once, or record by record when one of them fails."""
        try:
            return writer.prepare(values)
        except Exception:  # noqa: BLE001  # the boundary to user code: the policy decides below
            results = each(writer.prepare_one, values, policy=self.policy, awaits=False)
            return [result for result in results if result is not DROPPED]

    def finish(self) -> list[StagedFile]:
        """Close the writer and return what it staged."""
        writer, self._writer = self._writer, None
        return writer.finish() if writer is not None else []

    def abort(self) -> None:
        """Drop what was written in this epoch."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
