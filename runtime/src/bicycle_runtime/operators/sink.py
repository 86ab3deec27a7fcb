"""The end of a chain: records go to a writer of the sink, which stages them for the epoch."""

from __future__ import annotations

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.contexts import WorkerContext
from bicycle_runtime.operators.io import SinkWriter, StagedFile, WriterFactory, WriterTask
from bicycle_runtime.operators.operator import Operator
from bicycle_runtime.operators.policy import RecordPolicy
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
        self.task: WriterTask | None = None

    def apply(self, batch: Batch) -> Batch:
        if self._writer is None:
            assert self.task is not None
            self._writer = self._factory.open(self.task)
        self._writer.write(batch.values)
        return Batch([], batch.trail)

    def finish(self) -> list[StagedFile]:
        """Close the writer and return what it staged."""
        writer, self._writer = self._writer, None
        return writer.finish() if writer is not None else []

    def abort(self) -> None:
        """Drop what was written in this epoch."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
