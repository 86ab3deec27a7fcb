"""Event time between epochs: shards that hold it back, epochs without input.

The driver's half of watermarks. Tasks report the times of each shard; here they are joined with the
driver's own knowledge (which shards have unread input, which sources have ended), sealed, and
compared with due times. The clock is the job's own: it stops while the job does, so that neither a
restart nor a jump of the wall clock is taken for silence.

Source: ADR-0013 (watermarks by epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from bicycle_runtime.contract import Slice, SourceStatus
from bicycle_runtime.layouts.manifest import ShardTime, ShardTimes, TimeRecord
from bicycle_runtime.operators.shard_times import (
    before_end,
    joined_times,
    lagging,
    source_shard,
    subtask_shard,
    watermark_of,
)
from bicycle_runtime.operators.spec import StagePlan, WatermarkSpec
from bicycle_runtime.operators.tasks.orders import TimeOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_sdk.clock import Clock
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN

_UNREAD = "(unread)"  # represents the remaining input in batch mode
_UNKNOWN = "(unknown)"  # represents the shards that may have unseen input
_NOBODY = ""  # represents the shards of a generator without any known shard
_IDLE_SHARDS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The driver's knowledge of one source when an epoch is planned.

    ``planned`` are the shards that the epoch reads; ``waiting`` the shards with unread input (None:
    the source does not report its shards); ``unknown`` the shards that may have some.
    """

    is_finished: bool
    is_bounded: bool = False
    is_reachable: bool = True
    has_input: bool = False
    waiting: frozenset[str] | None = None
    unknown: frozenset[str] = frozenset()
    planned: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, status: SourceStatus, slices: Sequence[Slice] = (), *, is_held: bool = False
    ) -> SourceView:
        """Return the view after a poll and a plan; a source held back counts as waiting."""
        return cls(
            is_finished=status.is_finished,
            is_bounded=status.is_bounded,
            is_reachable=status.is_reachable,
            has_input=status.has_input or is_held,
            waiting=status.waiting_shards,
            unknown=status.unknown_shards,
            planned=frozenset(part.shard for part in slices),
        )


class Timeline:
    """Event time of one job, from epoch to epoch.

    Args:
        plan: Which operators wait for which generators.
        clock: Its monotonic reading drives the job's own clock.
        is_batch: Event time does not advance until a generator's input has ended.
    """

    def __init__(self, plan: StagePlan, clock: Clock, *, is_batch: bool = False) -> None:
        self._plan = plan
        self._is_batch = is_batch
        self._clock = clock
        self._started = clock.monotonic()
        self._specs = plan.generators()
        self._reached = {
            operator.uid: operator.generators
            for operator in plan.operators()
            if operator.generators
        }
        self._lags = {operator.uid: operator.lag_ms for operator in plan.operators()}
        self._parallelisms = {o.uid: o.vertex.parallelism for o in plan.operators()}
        self._sealed = TimeRecord()
        self._floor_ms = WATERMARK_MIN

    def resume(self, record: TimeRecord) -> None:
        """Continue where an epoch was sealed, maybe by a plan of other parallelism.

        A watermark at the end of all input goes back to that of the records: the input has more.
        """
        self._started = self._clock.monotonic()
        marks = {
            uid: self._before_end(uid, record) if watermark == WATERMARK_MAX else watermark
            for uid, watermark in record.watermarks.items()
            if uid in self._reached
        }
        # A new operator is as far as others of its inputs: a window trusts its combining step.
        inputs = {uid: (above, self._lags[uid]) for uid, above in self._reached.items()}
        alike = {inputs[uid]: mark for uid, mark in marks.items()}
        new = {uid: alike[inputs[uid]] for uid in inputs if inputs[uid] in alike}
        self._sealed = TimeRecord(
            clock_ms=record.clock_ms,
            shards={
                uid: self._carry_over(self._specs[uid], shards, record.clock_ms)
                for uid, shards in record.shards.items()
                if uid in self._specs
            },
            watermarks=new | marks,
            next_event_ms=record.next_event_ms,
            next_timer_ms=record.next_timer_ms,
        )

    def _before_end(self, uid: str, record: TimeRecord) -> int:
        """Return the watermark of an operator as if no input had ended."""
        above = [self._specs[name] for name in self._reached[uid]]
        return lagging(before_end(above, record.shards, clock_ms=record.clock_ms), self._lags[uid])

    def with_plan(self, plan: StagePlan) -> Timeline:
        """Return a timeline that continues with a plan of other parallelism."""
        other = Timeline(plan, self._clock, is_batch=self._is_batch)
        other._started, other._floor_ms = self._started, self._floor_ms
        clock_ms, specs = self.clock_ms, other._specs
        shards = {
            uid: other._carry_over(specs[uid], found, clock_ms)
            for uid, found in self._sealed.shards.items()
        }
        other._sealed = msgspec.structs.replace(self._sealed, shards=shards)
        return other

    @property
    def record(self) -> TimeRecord:
        """The event time at the end of the last epoch."""
        return self._sealed

    @property
    def clock_ms(self) -> int:
        """The job's own clock."""
        return self._sealed.clock_ms + round((self._clock.monotonic() - self._started) * 1000)

    def raise_floor(self, watermark_ms: int) -> None:
        """Set a minimum of all watermarks, for tests that move event time by hand."""
        self._floor_ms = max(self._floor_ms, watermark_ms)

    def order(self, views: Mapping[str, SourceView]) -> TimeOrder:
        """Return the event time for the tasks of an epoch.

        Args:
            views: The known state of each source.
        """
        clock_ms = self.clock_ms
        return TimeOrder(
            clock_ms=clock_ms,
            times={
                uid: self._hold_back(spec, views, clock_ms) for uid, spec in self._specs.items()
            },
            watermarks=self._sealed.watermarks,
            finished=[uid for uid, spec in self._specs.items() if _has_ended(spec, views)],
            floor_ms=self._floor_ms,
        )

    def sealed_after(
        self, order: TimeOrder, reports: Iterable[TaskReport],
        reached: Mapping[str, int] | None = None,
    ) -> TimeRecord:  # fmt: skip
        """Return the event time after an epoch with tasks; ``reached`` was known before."""
        done = list(reports)
        shards = joined_times(order.times, *(report.times for report in done))
        watermarks = self._watermarks(order, shards)
        for uid in watermarks.keys() & (reached or {}).keys():
            watermarks[uid] = max(self._before(uid), (reached or {})[uid])
        for uid, seen in shards.items():
            seen.pop(_UNREAD, None)
            seen.pop(_UNKNOWN, None)
            if not seen and _NOBODY in order.times.get(uid, {}):
                seen[_NOBODY] = order.times[uid][_NOBODY]
        return TimeRecord(
            clock_ms=order.clock_ms,
            shards={
                uid: _without_old(self._specs[uid], seen, order.clock_ms)
                for uid, seen in shards.items()
            },
            watermarks=watermarks,
            next_event_ms=_least(report.next_event_ms for report in done),
            next_timer_ms=_least(report.next_timer_ms for report in done),
        )

    def take(self, record: TimeRecord) -> None:
        """Continue from an epoch that was sealed just now."""
        elapsed_ms = self.clock_ms - record.clock_ms
        self._started = self._clock.monotonic() - max(elapsed_ms, 0) / 1000
        self._sealed = record

    def is_due(self, order: TimeOrder, *, now_ms: int) -> bool:
        """Return whether an epoch without input would fire something."""
        if any(due_ms <= now_ms for due_ms in self._sealed.next_timer_ms.values()):
            return True
        floors = {uid: lagging(order.floor_ms, self._lags[uid]) for uid in self._reached}
        if self._plan.is_timed and any(floors[uid] > self._before(uid) for uid in floors):
            return True
        waiting = self._sealed.next_event_ms
        if not waiting:
            return False
        watermarks = self._watermarks(order, order.times)
        return any(due_ms <= watermarks.get(uid, due_ms - 1) for uid, due_ms in waiting.items())

    @property
    def is_at_end(self) -> bool:
        """Return whether every watermark is after the last record of all."""
        return all(mark == WATERMARK_MAX for mark in self._sealed.watermarks.values())

    def wait_ms(self, *, now_ms: int, longest_ms: int) -> int:
        """Return how long nothing that waits for the clock is due, at most ``longest_ms``."""
        due = self._sealed.next_timer_ms.values()
        return min([longest_ms, *(max(due_ms - now_ms, 0) for due_ms in due)])

    def idle_shards(self) -> dict[str, set[str]]:
        """Return each generator's shards that hold nothing back, as of the last epoch."""
        return {
            uid: {shard for shard, time in shards.items() if self._is_idle(uid, time)}
            for uid, shards in self._sealed.shards.items()
        }

    def slowest_inputs(self) -> dict[str, str]:
        """Return for each operator with a watermark the shard that held it back last."""
        slowest = {}
        for uid, above in self._reached.items():
            active = [
                (time.watermark_ms, f"{name}: {shard}" if shard else name)
                for name in above
                for shard, time in self._sealed.shards.get(name, {}).items()
                if not self._is_idle(name, time)
            ]
            if active and self._sealed.watermarks.get(uid) != WATERMARK_MAX:
                slowest[uid] = min(active)[1]
        return slowest

    def _is_idle(self, uid: str, time: ShardTime) -> bool:
        timeout_ms = self._specs[uid].idle_timeout_ms
        return timeout_ms is not None and self._sealed.clock_ms - time.active_ms >= timeout_ms

    def held_back(self, order: TimeOrder) -> set[str]:
        """Return the sources that pause because others of their group are far behind."""
        stands: dict[str, int] = {}
        for uid, spec in self._specs.items():
            if spec.alignment_group is None or uid in order.finished:
                continue
            silent_ms = spec.idle_timeout_ms
            active = [
                time.watermark_ms
                for time in order.times[uid].values()
                if silent_ms is None or order.clock_ms - time.active_ms < silent_ms
            ]
            if active:
                stands[uid] = min(active)
        held: set[str] = set()
        for uid, stand in stands.items():
            spec = self._specs[uid]
            others = [
                other
                for name, other in stands.items()
                if name != uid and self._specs[name].alignment_group == spec.alignment_group
            ]
            if stand > WATERMARK_MIN and others and stand - min(others) > spec.max_drift_ms:
                held |= set(spec.sources)
        return held

    def _watermarks(self, order: TimeOrder, shards: ShardTimes) -> dict[str, int]:
        found: dict[tuple[str, ...], int] = {}
        watermarks = {}
        for uid, above in self._reached.items():
            if above not in found:
                found[above] = watermark_of(
                    [self._specs[name] for name in above],
                    shards,
                    finished=order.finished,
                    clock_ms=order.clock_ms,
                )
            watermark = lagging(max(found[above], order.floor_ms), self._lags[uid])
            watermarks[uid] = max(self._before(uid), watermark)
        return watermarks

    def _before(self, uid: str) -> int:
        return self._sealed.watermarks.get(uid, WATERMARK_MIN)

    def _hold_back(
        self, spec: WatermarkSpec, views: Mapping[str, SourceView], clock_ms: int
    ) -> dict[str, ShardTime]:
        """Return the shards of a generator; in batch mode one of them holds back all time."""
        times = self._opening(spec, views, clock_ms)
        if self._is_batch:
            times[_UNREAD] = ShardTime(active_ms=clock_ms)
        return times

    def _opening(
        self, spec: WatermarkSpec, views: Mapping[str, SourceView], clock_ms: int
    ) -> dict[str, ShardTime]:
        """Return the shards of a generator as an epoch finds them.

        1. Shards that were read to their end count no more.
        2. A shard with unread input that is not read in this epoch is not idle, it waits.
        3. A generator without a known shard holds the watermark back until it counts as idle.
        4. A shard that may have unread input holds the watermark back for this epoch alone.
        """
        times = dict(self._sealed.shards.get(spec.uid, {}))
        if not spec.is_by_shard:
            return self._opening_by_subtask(spec, views, clock_ms)
        for source in spec.sources:
            view = views.get(source)
            if view is None:
                continue
            name = _shard_namer(spec, source)
            # 1. Shards that were read to their end count no more.
            if view.is_bounded and view.waiting is not None and not view.is_finished:
                left = set(map(name, view.waiting))
                times = {
                    shard: time
                    for shard, time in times.items()
                    if shard in left or not _is_of(spec, source, shard)
                }
            # 2. A shard with unread input that is not read in this epoch is not idle, it waits.
            waiting = frozenset(map(name, view.waiting or ()))
            planned = frozenset(map(name, view.planned))
            pausing = waiting - planned
            if not view.is_reachable or (view.waiting is None and view.has_input and not planned):
                pausing |= {shard for shard in times if _is_of(spec, source, shard)}
            for shard in pausing:
                times[shard] = _active(times.get(shard), clock_ms)
            for shard in waiting & planned:
                times.setdefault(shard, ShardTime(active_ms=clock_ms))
        # 3. A generator without a known shard holds the watermark back until it counts as idle.
        if not times:
            times[_NOBODY] = ShardTime(active_ms=clock_ms)
        # 4. A shard that may have unread input holds the watermark back for this epoch alone.
        unknown = [
            times.get(shard, times.get(_NOBODY)) for shard in _unknown_shards(spec, views, times)
        ]
        if unknown:
            times[_UNKNOWN] = _holder(unknown, clock_ms)
        return times

    def _opening_by_subtask(
        self, spec: WatermarkSpec, views: Mapping[str, SourceView], clock_ms: int
    ) -> dict[str, ShardTime]:
        """Return a generator's shards behind an exchange, where any subtask gets any."""
        times = dict(self._sealed.shards.get(spec.uid, {}))
        for subtask in range(self._parallelisms[spec.uid]):
            times.setdefault(subtask_shard(subtask), ShardTime(active_ms=clock_ms))
        found = [views[source] for source in spec.sources if source in views]
        if any(not view.is_reachable for view in found):
            return {shard: _active(time, clock_ms) for shard, time in times.items()}
        if any(view.unknown - (view.waiting or frozenset()) for view in found):
            times[_UNKNOWN] = _holder(list(times.values()), clock_ms)
        return times

    def _carry_over(
        self, spec: WatermarkSpec, shards: Mapping[str, ShardTime], clock_ms: int
    ) -> dict[str, ShardTime]:
        """Return the shards of a generator under this plan, perhaps of other parallelism.

        With another number of subtasks any record may come to any of them, also records of the
        slowest shard. So all begin with the time of the slowest: no watermark moves, and nothing
        becomes late.
        """
        if spec.uid in spec.sources or not shards:
            return dict(shards)
        if spec.is_by_shard:
            own = [
                s for s in shards if not s or any(_is_of(spec, name, s) for name in spec.sources)
            ]
            if own:
                return {shard: shards[shard] for shard in own}
            return _rescale(spec, shards.values(), [_NOBODY], clock_ms)
        names = [subtask_shard(subtask) for subtask in range(self._parallelisms[spec.uid])]
        if shards.keys() == set(names):
            return dict(shards)
        return _rescale(spec, shards.values(), names, clock_ms)


def _rescale(
    spec: WatermarkSpec, times: Iterable[ShardTime], names: Sequence[str], clock_ms: int
) -> dict[str, ShardTime]:
    """Return times for other shards that together have the same watermark.

    If some held it back since their input was not yet heard of, one of the others continues so.
    """
    every = list(times)
    marked = [time for time in every if time.watermark_ms > WATERMARK_MIN]
    unheard = [time for time in every if time.watermark_ms == WATERMARK_MIN]
    found = dict.fromkeys(names, _slowest(spec, marked or unheard, clock_ms))
    if marked and _active_ones(spec, unheard, clock_ms) and len(names) > 1:
        found[names[-1]] = _slowest(spec, unheard, clock_ms)
    return found


def _slowest(spec: WatermarkSpec, times: Sequence[ShardTime], clock_ms: int) -> ShardTime:
    """Return one time for several: the least that counts, with the latest activity."""
    heard_ms = max(time.active_ms for time in times)
    last = [time for time in times if time.active_ms == heard_ms]
    counting = _active_ones(spec, times, clock_ms) or last
    return ShardTime(
        watermark_ms=min(time.watermark_ms for time in counting),
        event_ms=max(time.event_ms for time in times),
        active_ms=heard_ms,
    )


def _active_ones(spec: WatermarkSpec, times: Iterable[ShardTime], clock_ms: int) -> list[ShardTime]:
    timeout_ms = spec.idle_timeout_ms
    return [t for t in times if timeout_ms is None or clock_ms - t.active_ms < timeout_ms]


def _has_ended(spec: WatermarkSpec, views: Mapping[str, SourceView]) -> bool:
    return all(source in views and views[source].is_finished for source in spec.sources)


def _shard_namer(spec: WatermarkSpec, source: str) -> Callable[[str], str]:
    return str if spec.uid == source else partial(source_shard, source)


def _is_of(spec: WatermarkSpec, source: str, shard: str) -> bool:
    return spec.uid == source or shard.startswith(source_shard(source, ""))


def _active(time: ShardTime | None, clock_ms: int) -> ShardTime:
    if time is None:
        return ShardTime(active_ms=clock_ms)
    return ShardTime(watermark_ms=time.watermark_ms, event_ms=time.event_ms, active_ms=clock_ms)


def _unknown_shards(
    spec: WatermarkSpec, views: Mapping[str, SourceView], times: Mapping[str, ShardTime]
) -> Iterator[str]:
    """Yield the shards that may have undiscovered input.

    A source that cannot be reached and has shown no shard yet counts as one.
    """
    for source in spec.sources:
        view = views.get(source)
        if view is None:
            continue
        yield from map(_shard_namer(spec, source), view.unknown - (view.waiting or frozenset()))
        has_shown = any(shard != _NOBODY and _is_of(spec, source, shard) for shard in times)
        if not view.is_reachable and not has_shown:
            yield source_shard(source, _UNKNOWN)


def _holder(times: Iterable[ShardTime | None], clock_ms: int) -> ShardTime:
    """Return an active time at the least watermark; None means no watermark yet."""
    marks = [WATERMARK_MIN if time is None else time.watermark_ms for time in times]
    return ShardTime(watermark_ms=min(marks), active_ms=clock_ms)


def _without_old(
    spec: WatermarkSpec, shards: Mapping[str, ShardTime], clock_ms: int
) -> dict[str, ShardTime]:
    """Leave out the idle shards heard longest ago, when there are very many."""
    if spec.idle_timeout_ms is None or len(shards) <= _IDLE_SHARDS_MAX:
        return dict(shards)
    idle_ms = clock_ms - spec.idle_timeout_ms
    idle = sorted(
        (shard for shard, time in shards.items() if time.active_ms <= idle_ms),
        key=lambda shard: (shards[shard].active_ms, shard),
    )
    dropped = set(idle[:-_IDLE_SHARDS_MAX])
    return {shard: time for shard, time in shards.items() if shard not in dropped}


def _least(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    least: dict[str, int] = {}
    for part in parts:
        for uid, due_ms in part.items():
            least[uid] = min(due_ms, least.get(uid, due_ms))
    return least
