"""Watermarks: the progress of event time, from input shards to each operator.

A *generator* is a source, or an operator that assigns timestamps. It keeps one time per *shard*: a
shard of the source, or the subtask if it is behind an exchange. These times are sealed; the
watermark of an operator is a pure function of them (``watermark_of``), so that each task and the
driver compute the same, and it never goes back. This module reads no clock: ``clock_ms`` is the
job's own, which stops while the job does.

Source: ADR-0013 (watermarks by epoch).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_shapes import RecordShape, shape_of
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.layouts.manifest import ShardTime
from bicycle_runtime.operators.batch import Batch, PickLineage, StampedLineage, time_array
from bicycle_runtime.operators.functions.answers import (
    ColumnAnswer,
    Load,
    answer_by_function,
    keep_shape,
)
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import EpochTime, Operator
from bicycle_runtime.operators.shard_times import source_shard, subtask_shard
from bicycle_runtime.operators.spec import OperatorSpec, WatermarkSpec
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy, user_hook
from bicycle_runtime.operators.user_calls.user_functions import eager
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.time import TIME_MS_MAX, as_ms


class TimeKeeper:
    """Follows the shards of one generator in one task, through one epoch.

    Args:
        spec: The strategy.
        generator: Function of a punctuated strategy, or the user's generator.
    """

    def __init__(self, spec: WatermarkSpec, generator: Any = None) -> None:
        self._spec = spec
        self._generator = generator
        self._copies: dict[str, Any] = {}
        self._marks: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    def begin_epoch(self) -> None:
        """Forget the records of the last epoch."""
        self._copies.clear()
        self._marks.clear()
        self._newest.clear()

    def see(self, shard: str, times: Sequence[int], values: Sequence[Any]) -> None:
        """Take note of records of one shard, in order."""
        if not times:
            return
        newest = max(times)
        self._newest[shard] = max(newest, self._newest.get(shard, newest))
        match self._spec.kind:
            case "ascending" | "bounded":
                # More records of this very time may come.
                mark: int | None = newest - self._spec.delay_ms - 1
            case "punctuated":
                mark = self._read_punctuation(times, values)
            case "custom":
                mark = self._custom(shard, times, values)
        self._raise(shard, mark)

    def shards(self, clock_ms: int) -> dict[str, ShardTime]:
        """Return the times of each shard that had records in this epoch."""
        for shard, generator in self._copies.items():
            with user_hook(self._spec.uid, "on_epoch_end()"):
                self._raise(shard, _as_mark(generator.on_epoch_end(), self._newest[shard]))
        return {
            shard: ShardTime(
                watermark_ms=self._marks.get(shard, WATERMARK_MIN),
                event_ms=newest,
                active_ms=clock_ms,
            )
            for shard, newest in self._newest.items()
        }

    def _raise(self, shard: str, mark: int | None) -> None:
        if mark is not None:
            self._marks[shard] = max(mark, self._marks.get(shard, mark))

    def _read_punctuation(self, times: Sequence[int], values: Sequence[Any]) -> int | None:
        with user_hook(self._spec.uid, "the function of the watermark strategy"):
            return _highest(self._generator, times, values)

    def _custom(self, shard: str, times: Sequence[int], values: Sequence[Any]) -> int | None:
        with user_hook(self._spec.uid, "on_event() of the watermark generator"):
            if shard not in self._copies:
                self._copies[shard] = copy.deepcopy(self._generator)
            return _highest(self._copies[shard].on_event, times, values)


def _highest(
    function: Callable[[int, Any], Any], times: Sequence[int], values: Sequence[Any]
) -> int | None:
    found = map(_as_mark, map(function, times, values), times)
    return max((mark for mark in found if mark is not None), default=None)


def _as_mark(result: Any, timestamp_ms: int) -> int | None:
    if result is None or result is False:
        return None
    return timestamp_ms if result is True else as_ms(result)


class GeneratorOperator(Operator):
    """An operator that may track event time; ``keeper`` is None if it is not needed."""

    def __init__(
        self,
        spec: OperatorSpec,
        policy: RecordPolicy,
        context: WorkerContext,
        keeper: TimeKeeper | None,
    ) -> None:
        super().__init__(spec, policy, context)
        self.keeper = keeper

    def begin_epoch(self, time: EpochTime) -> None:
        super().begin_epoch(time)
        if self.keeper is not None:
            self.keeper.begin_epoch()


class SourceOperator(GeneratorOperator):
    """The operator that emits a source's records, and tracks their event times."""

    def apply(self, batch: Batch) -> Batch:
        times, span = batch.lineage.times(), batch.lineage.span()
        if self.keeper is not None and times is not None and span is not None:
            self.keeper.see(span.shard, times, batch.values)
        return Batch(batch.values, batch.lineage, shape=batch.shape)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:  # noqa: ARG003  # It has no input.
        vertex = spec.vertex
        is_declared = "output_type" in vertex.payloads
        gives = shape_of(load(vertex.payload_id("output_type")) if is_declared else None)
        because = None if gives is not None else "its records have no type with plain fields"
        return ColumnAnswer(because, gives=gives)


class AssignOperator(GeneratorOperator):
    """The operator that assigns event times to records, and tracks them.

    Args:
        spec: Which operator this is.
        policy: Settles records whose time cannot be determined.
        context: Task info.
        function: From a record to its time; None keeps the times that there are.
        keeper: Follows them; None if no operator below needs it.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext,
        function: Callable[[Any], Any] | None, *, keeper: TimeKeeper | None,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context, keeper)
        self.function = function
        self._call = None if function is None else eager(function)
        self._awaits = self._call is not None and is_async(self._call)

    def apply(self, batch: Batch) -> Batch:
        output = batch if self._call is None else self._stamp(batch, self._call)
        times = output.lineage.times() if self.keeper is not None else None
        if times is not None:
            self._follow(output, times)
        return Batch(output.values, output.lineage)

    @classmethod
    def answer(cls, spec: OperatorSpec, load: Load, shape: RecordShape | None) -> ColumnAnswer:
        follows = spec.watermarks
        if follows is not None and follows.kind not in ("ascending", "bounded"):
            return ColumnAnswer("its watermarks depend on each record")
        shaped = partial(keep_shape, kinds=(int,))
        return answer_by_function(spec, load, shape, method="__call__", shaped=shaped)

    def on_columns(self, batch: Batch, frame: Frame, answer: ColumnAnswer) -> Batch:
        lineage = batch.lineage
        if answer.value is not None:
            times = evaluate(answer.value, frame).numbers
            if times is None or times.dtype.kind != "i":
                raise Refused
            if is_out_of_bounds([int(times.min()), int(times.max())]):
                raise Refused
            lineage = StampedLineage(lineage, times)
        if self.keeper is not None and (times := time_array(lineage)) is not None:
            self._follow(batch, [int(times.max())])
        return Batch(batch.values, lineage)

    def _follow(self, batch: Batch, times: Sequence[int]) -> None:
        """Take note of times of a batch: of all, or of the newest where that is enough."""
        if self.keeper is not None:
            self.keeper.see(self._shard(batch), times, batch.values)

    def _stamp(self, batch: Batch, call: Callable[[Any], Any]) -> Batch:
        failed = self.policy.failed
        times = each(call, batch.values, policy=self.policy, awaits=self._awaits)
        # hot path: one set over the types and two bounds, 35 ns a record, instead of a check each.
        if not set(map(type, times)) <= {int} or is_out_of_bounds(times):
            times = each(_check, times, policy=self.policy, awaits=False)
        if self.policy.failed == failed:
            return Batch(batch.values, StampedLineage(batch.lineage, times))
        picked = [index for index, time in enumerate(times) if time is not DROPPED]
        lineage = PickLineage(batch.lineage, lambda: picked)
        return Batch(
            [batch.values[index] for index in picked],
            StampedLineage(lineage, [times[index] for index in picked]),
        )

    def _shard(self, batch: Batch) -> str:
        """Return the shard of a batch; a source's name distinguishes equal shards."""
        span = batch.lineage.span()
        spec = self.spec.watermarks
        if spec is None or not spec.is_by_shard or span is None:
            return subtask_shard(self.context.task_info.subtask_index)
        return source_shard(span.source, span.shard)


def is_out_of_bounds(times: Sequence[int]) -> bool:
    """Return whether a time is outside of the bounds of event time."""
    return bool(times) and not (min(times) > -TIME_MS_MAX and max(times) < TIME_MS_MAX)


def _check(time: Any) -> Any:
    return time if time is DROPPED else as_ms(time)
