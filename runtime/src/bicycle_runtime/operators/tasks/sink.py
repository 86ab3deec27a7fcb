"""The end of a chain: a sink's writer stages records for the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

from bicycle_runtime.base.user_code import users_error
from bicycle_runtime.contract import (
    EventTimes,
    PreparingWriter,
    PromptWriter,
    SinkWriter,
    StagedFile,
    WriterFactory,
    WriterTask,
)
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.functions.answers import ColumnAnswer, Load
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_sdk.time import TIME_MS_MAX


class SinkOperator(Operator):
    """The operator that writes its input to a sink.

    A writer is opened with the first record of an epoch.
    """

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

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:  # noqa: ARG003  # It has no function.
        if spec.accepts != "frames":
            return ColumnAnswer("its writer reads records")
        return ColumnAnswer(None, spares_records=shape is not None and shape.is_open)

    def apply(self, batch: Batch) -> Batch:
        if self._writer is None:
            assert self.task is not None
            self._writer = writer = self._factory.open(self.task)
            self._preparing = writer if isinstance(writer, PreparingWriter) else None
        values: Any = batch.values
        accepts = self.spec.accepts == "frames" and isinstance(values, Frame)
        if not accepts or values.form is None:
            values = batch.to_list()
        if self._preparing is not None:
            values = self._prepare(self._preparing, values, batch)
        self._writer.write(values)
        return Batch([], batch.lineage)

    def _prepare(self, writer: PreparingWriter, values: Any, batch: Batch) -> Sequence[Any]:
        """Return the prepared records: in one call, or singly if a record fails."""
        times = _event_times(batch) if self.spec.takes_times else None
        try:
            return writer.prepare(values, times)
        except BaseException as error:  # noqa: BLE001  # the boundary to user code
            users_error(error)  # Which record raised it is found out one by one.
            records = list(zip(values, times or repeat(None), strict=False))
            results = each(partial(_prepare_one, writer), records, policy=self.policy, awaits=False)
            return [result for result in results if result is not DROPPED]

    def flush(self) -> None:
        """Make written records visible, if the sink writes at once."""
        if isinstance(self._writer, PromptWriter):
            self._writer.flush()

    def finish(self) -> list[StagedFile]:
        """Close the writer, and return its staged files."""
        writer, self._writer = self._writer, None
        return writer.finish() if writer is not None else []

    def abort(self) -> None:
        """Drop the records written in this epoch."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()


def _event_times(batch: Batch) -> EventTimes:
    """Return the event times of a batch, None for times at the end of all time."""
    times = batch.times()
    if times and not (min(times) > -TIME_MS_MAX and max(times) < TIME_MS_MAX):
        return [time if -TIME_MS_MAX < time < TIME_MS_MAX else None for time in times]
    return times


def _prepare_one(writer: PreparingWriter, record: tuple[Any, int | None]) -> Any:
    return writer.prepare_one(*record)
