"""Watermarks: how far event time has come, from the shards of the input to each operator.

A *generator* is a source, or an operator that assigns timestamps. It keeps one time per *shard*:
a shard of the source, or the subtask where it stands behind an exchange. What is sealed are these
times; the watermark of an operator is a pure function of them (``watermark_of``), so that each task
and the driver compute the same, and it never goes back. This module reads no clock: ``clock_ms`` is
the job's own, which stands still while the job does.

Source: ADR-0013 (watermarks by epoch).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bicycle_runtime.operators.batch import Batch, PickTrail, StampedTrail
from bicycle_runtime.operators.calling.policy import DROPPED, RecordPolicy, user_hook
from bicycle_runtime.operators.calling.user_functions import eager, is_async
from bicycle_runtime.operators.fields import FieldRecords, field_of
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.operator import EpochTime, Operator, each
from bicycle_runtime.operators.spec import OperatorSpec, WatermarkSpec
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from bicycle_sdk.time import TIME_MS_MAX, as_ms

__all__ = [
    "AssignOperator",
    "GeneratorOperator",
    "ShardTime",
    "ShardTimes",
    "SourceOperator",
    "TimeKeeper",
    "joined_times",
    "lagging",
    "source_shard",
    "subtask_shard",
    "watermark_of",
]


class ShardTime(msgspec.Struct, frozen=True, kw_only=True):
    """How far one shard has come.

    ``watermark_ms`` as the strategy says, ``event_ms`` of the newest record, ``active_ms`` when (on
    the job's clock) there was a record or unread input last.
    """

    watermark_ms: int = WATERMARK_MIN
    event_ms: int = WATERMARK_MIN
    active_ms: int = 0


# Generator -> shard -> time.
ShardTimes = dict[str, dict[str, ShardTime]]


def joined_times(*parts: Mapping[str, Mapping[str, ShardTime]]) -> ShardTimes:
    """Return the furthest that any part says of each shard.

    The empty shard stands for those that a generator has not shown yet; the first one shown takes
    its place. Driver and tasks must agree on that, or they compute different watermarks.
    """
    joined: ShardTimes = {}
    for part in parts:
        for uid, shards in part.items():
            known = joined.setdefault(uid, {})
            for shard, time in shards.items():
                before = known.get(shard)
                known[shard] = time if before is None else _furthest(before, time)
    for known in joined.values():
        if len(known) > 1:
            known.pop("", None)
    return joined


def _furthest(first: ShardTime, second: ShardTime) -> ShardTime:
    return ShardTime(
        watermark_ms=max(first.watermark_ms, second.watermark_ms),
        event_ms=max(first.event_ms, second.event_ms),
        active_ms=max(first.active_ms, second.active_ms),
    )


def watermark_of(
    generators: Iterable[WatermarkSpec],
    times: Mapping[str, Mapping[str, ShardTime]],
    *,
    finished: Iterable[str],
    clock_ms: int,
) -> int:
    """Return the watermark below some generators. The caller keeps it from going back.

    1. Generators whose input has ended count no more; when all have, it is ``WATERMARK_MAX``.
    2. A shard is idle when it has been silent for the idle timeout of its strategy.
    3. The least watermark of the shards that are not idle counts.
    4. When all are idle, those that were heard last go on with the clock from where they stood.

    Args:
        generators: Those above the operator.
        times: The shards of each.
        finished: Generators whose input has ended.
        clock_ms: The job's clock.
    """
    # 1. Generators whose input has ended count no more; when all have, it is ``WATERMARK_MAX``.
    above, ended = list(generators), set(finished)
    counting = [spec for spec in above if spec.uid not in ended]
    if not counting:
        return WATERMARK_MAX if above else WATERMARK_MIN
    # 2. A shard is idle when it has been silent for the idle timeout of its strategy.
    active: list[int] = []
    idle: list[ShardTime] = []
    for spec in counting:
        for time in times.get(spec.uid, {}).values():
            silent_ms = clock_ms - time.active_ms
            if spec.idle_timeout_ms is None or silent_ms < spec.idle_timeout_ms:
                active.append(time.watermark_ms)
            elif time.watermark_ms > WATERMARK_MIN:
                idle.append(time)
    # 3. The least watermark of the shards that are not idle counts.
    if active:
        return min(active)
    # 4. When all are idle, those that were heard last go on with the clock from where they stood.
    if not idle:
        return WATERMARK_MIN
    heard_ms = max(time.active_ms for time in idle)
    last = min(time.watermark_ms for time in idle if time.active_ms == heard_ms)
    return last + clock_ms - heard_ms


def lagging(watermark: int, lag_ms: int) -> int:
    """Return the watermark of an operator that stays behind its generators.

    Args:
        watermark: The one that ``watermark_of`` gives.
        lag_ms: How far it stays behind.
    """
    return watermark if watermark in (WATERMARK_MIN, WATERMARK_MAX) else watermark - lag_ms


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

    @property
    def follows_newest(self) -> bool:
        """Whether the newest time of a batch is all that ``see`` looks at."""
        return self._spec.kind in ("ascending", "bounded")

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
                mark = self._punctuated(times, values)
            case "custom":
                mark = self._custom(shard, times, values)
        self._raise(shard, mark)

    def shards(self, clock_ms: int) -> dict[str, ShardTime]:
        """Return what this epoch says of each shard that had records."""
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

    def _punctuated(self, times: Sequence[int], values: Sequence[Any]) -> int | None:
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
    """An operator that may follow event time: ``keeper`` is None when nobody below needs it."""

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
    """Passes on what a source has read, and follows the times that the source gave."""

    def apply(self, batch: Batch) -> Batch:
        times, span = batch.trail.times(), batch.trail.span()
        if self.keeper is not None and times is not None and span is not None:
            self.keeper.see(span.shard, times, batch.values)
        return Batch(batch.values, batch.trail)


class AssignOperator(GeneratorOperator):
    """Gives records event times, and follows them.

    Args:
        spec: Which operator this is.
        policy: Settles records whose time can not be told.
        context: Task info.
        function: From a record to its time; None keeps the times that there are.
        keeper: Follows them; None when nobody below needs it.
    """

    def __init__(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext,
        function: Callable[[Any], Any] | None, *, keeper: TimeKeeper | None,
    ) -> None:  # fmt: skip
        super().__init__(spec, policy, context, keeper)
        self.function = function
        # Set where the newest time of a batch is all that is followed.
        follows_newest = keeper is None or keeper.follows_newest
        self.field = field_of(function) if follows_newest else None
        self._call = None if function is None else eager(function)
        self._awaits = self._call is not None and is_async(self._call)

    def apply(self, batch: Batch) -> Batch:
        return self._by_field(batch) or self._by_record(batch)

    def _by_record(self, batch: Batch) -> Batch:
        output = batch if self._call is None else self._stamped(batch, self._call)
        times = output.trail.times() if self.keeper is not None else None
        if self.keeper is not None and times is not None:
            self.keeper.see(self._shard(batch), times, output.values)
        return Batch(output.values, output.trail)

    def _by_field(self, batch: Batch) -> Batch | None:
        """Return the batch with the times that a field holds; None when that does not suffice."""
        if self.field is None or not isinstance(batch.values, FieldRecords):
            return None
        times = batch.values.ints(self.field)
        if times is None:
            return None
        oldest, newest = int(times.min()), int(times.max())
        if _is_out_of_bounds([oldest, newest]):
            return None
        if self.keeper is not None:
            self.keeper.see(self._shard(batch), [newest], batch.values)
        return Batch(batch.values, StampedTrail(batch.trail, batch.values.column(self.field)))

    def _stamped(self, batch: Batch, call: Callable[[Any], Any]) -> Batch:
        failed = self.policy.failed
        times = each(call, batch.values, policy=self.policy, awaits=self._awaits)
        # hot path: one set over the types and two bounds, 35 ns a record, instead of a check each.
        if not set(map(type, times)) <= {int} or _is_out_of_bounds(times):
            times = each(_checked, times, policy=self.policy, awaits=False)
        if self.policy.failed == failed:
            return Batch(batch.values, StampedTrail(batch.trail, times))
        picked = [index for index, time in enumerate(times) if time is not DROPPED]
        trail = PickTrail(batch.trail, lambda: picked)
        return Batch(
            [batch.values[index] for index in picked],
            StampedTrail(trail, [times[index] for index in picked]),
        )

    def _shard(self, batch: Batch) -> str:
        """Return which shard a batch belongs to; a source's name tells equal shards apart."""
        span = batch.trail.span()
        spec = self.spec.watermarks
        if spec is None or not spec.is_by_shard or span is None:
            return subtask_shard(self.context.task_info.subtask_index)
        return source_shard(span.source, span.shard)


def subtask_shard(subtask: int) -> str:
    """Return the shard of a generator behind an exchange."""
    return f"subtask {subtask}"


def source_shard(source: str, shard: str) -> str:
    """Return the shard of an assigner in the chain of a source."""
    return f"{source}: {shard}"


def _is_out_of_bounds(times: Sequence[int]) -> bool:
    return bool(times) and not (min(times) > -TIME_MS_MAX and max(times) < TIME_MS_MAX)


def _checked(time: Any) -> Any:
    return time if time is DROPPED else as_ms(time)
