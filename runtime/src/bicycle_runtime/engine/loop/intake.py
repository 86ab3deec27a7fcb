"""The intake of an epoch: sources report input, and fast ones wait for slow ones.

Nothing is read here. A source plans slices, which tasks read; the pacer decides how much an epoch
may take, and the timeline has the event time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from bicycle_runtime.contract import Budget, ReadOn, ReadsOn, Slice, SourceStatus
from bicycle_runtime.engine.epoch.watermarks import SourceView, Timeline
from bicycle_runtime.engine.loop.pacing import Pacer
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.operators.spec import DEAD_LETTERS, REPLAYED_LETTERS, Link, StateScope
from bicycle_sdk.graph import JobGraph

__all__ = ["IDLE_MS_MAX", "Intake", "Pacer", "reads_on"]

IDLE_MS_MAX = 1_000
_READ_ON_FACTOR = 2  # Times the target: then the end of an epoch meets few records.
_LETTER_SINKS = (DEAD_LETTERS, REPLAYED_LETTERS)


class Intake:
    """The sources of a job as its epoch loop sees them.

    ``order`` is the event time for the planned epoch, ``read_on`` how far its tasks read behind
    their slices; ``slots`` is the number of tasks that run at the same time, 0 if no task reads on.

    Args:
        setup: The job.
        timeline: Its event time.
        options: How much an epoch takes.
    """

    def __init__(self, setup: JobSetup, timeline: Timeline, options: EngineOptions) -> None:
        self._setup = setup
        self.timeline = timeline
        graph = setup.graph
        self.pacer = Pacer(options, per_second=_per_second(graph), wave=_wave(graph))
        self._options = options
        self.order = timeline.order({})
        self.slots = 0
        self.read_on: ReadOn | None = None
        self._held: set[str] = set()

    def change_topology(self, setup: JobSetup, timeline: Timeline) -> None:
        """Continue with other parallelism."""
        self._setup, self.timeline = setup, timeline
        self.pacer.change_wave(_wave(setup.graph))

    def poll(self) -> dict[str, SourceStatus]:
        """Poll the sources; a source that waits for slower ones has no input."""
        statuses = {uid: source.poll() for uid, source in self._setup.sources.items()}
        self.order = self.timeline.order(self._views(statuses, {}))
        self._held = self.timeline.held_back(self.order)
        return {
            uid: replace(status, has_input=False) if uid in self._held else status
            for uid, status in statuses.items()
        }

    def pause(self) -> dict[str, SourceStatus]:
        """Poll the sources, and hold back each source with input."""
        statuses = self.poll()
        self._held |= {uid for uid, status in statuses.items() if status.has_input}
        return {uid: replace(status, has_input=False) for uid, status in statuses.items()}

    def plan(self, statuses: Mapping[str, SourceStatus]) -> dict[str, list[Slice]]:
        """Return the slices that each source with input plans for an epoch."""
        parallelism = {vertex.id: vertex.parallelism for vertex in self._setup.graph.vertices}
        self.read_on = self.how_far(statuses)
        return {
            uid: self._setup.sources[uid].plan(
                Budget(
                    record_count=self.pacer.record_count,
                    byte_count=self.pacer.byte_count,
                    parallelism=parallelism[uid],
                    is_approximate=self.pacer.is_approximate,
                    reads_on=self.read_on is not None,
                    wave=self.pacer.wave,
                )
            )
            for uid, status in statuses.items()
            if status.has_input
        }

    def learn(
        self, duration_ms: float, counts: Mapping[str, int], statuses: Mapping[str, SourceStatus]
    ) -> Mapping[str, SourceStatus]:
        """Learn from a sealed epoch, and return the unread input of its sources.

        An epoch that read on lasted as long as it was to, and teaches nothing.

        Args:
            duration_ms: How long it took.
            counts: The records that it read of each source.
            statuses: The input of the sources when it was planned.
        """
        had_input = _has_input(statuses)
        left = {uid: self._setup.sources[uid].poll() for uid in statuses} if had_input else statuses
        if self.read_on is None:
            self.pacer.learn(
                duration_ms=duration_ms,
                record_count=max(counts.values(), default=0),
                has_backlog=had_input and _has_input(left),
            )
        return left

    def begin(
        self, statuses: Mapping[str, SourceStatus], slices: Mapping[str, list[Slice]]
    ) -> None:
        """Note the slices of the epoch, on which its event time depends."""
        self.order = self.timeline.order(self._views(statuses, slices))

    def full_sources(
        self, slices: Mapping[str, list[Slice]], counts: Mapping[str, int]
    ) -> frozenset[str]:
        """Return the sources that filled their budget, and so probably have more input.

        Args:
            slices: The slices that the epoch read.
            counts: How many records of each source that were.
        """
        spans = {uid: sum(part.end - part.start for part in slices[uid]) for uid in slices}
        is_timed = self.read_on is not None
        most = self._options.max_records_per_epoch if is_timed else self.pacer.record_count
        return frozenset(
            uid
            for uid in spans
            if 2 * spans[uid] >= self.pacer.byte_count or 2 * counts.get(uid, 0) >= most
        )

    def wait_ms(self, statuses: Mapping[str, SourceStatus], *, now_ms: int) -> int:
        """Return how long there is nothing to do, as far as sources and event time know."""
        longest_ms = min([IDLE_MS_MAX, *(status.next_poll_ms for status in statuses.values())])
        return self.timeline.wait_ms(now_ms=now_ms, longest_ms=longest_ms)

    def how_far(self, statuses: Mapping[str, SourceStatus]) -> ReadOn | None:
        """Return how far tasks read on: only if all of them run at once and keep up."""
        width = max(self._setup.plan.level_parallelism)
        options, is_paced = self._options, self._options.epoch_interval_ms > 0
        if is_paced or self.slots < width or not statuses or not reads_on(self._setup):
            return None
        for status in statuses.values():
            count = status.lag.record_count
            if not status.has_input or not status.waiting_shards or status.is_bounded:
                return None
            if count is None or 2 * count > self.pacer.record_count:
                return None
        return ReadOn(
            duration_ms=_READ_ON_FACTOR * options.epoch_target_ms,
            record_count=max(options.max_records_per_epoch // (2 * width), 1),
            byte_count=max(options.max_bytes_per_epoch // (2 * width), 1),
        )

    def _views(
        self, statuses: Mapping[str, SourceStatus], slices: Mapping[str, list[Slice]]
    ) -> dict[str, SourceView]:
        return {
            uid: SourceView.of(status, slices.get(uid, ()), is_held=uid in self._held)
            for uid, status in statuses.items()
        }


def reads_on(setup: JobSetup) -> bool:
    """Return whether tasks may read beyond slices, for results within an epoch.

    That is so where records go from one source to sinks that write at once, in one stage.
    """
    plan = setup.plan
    sinks = {uid: sink for uid, sink in setup.sinks.items() if uid not in _LETTER_SINKS}
    routes = [route for chain in plan.chains for route in chain.routes]
    return (
        plan.level_count == 1
        and len(setup.sources) == 1
        and all(isinstance(source, ReadsOn) for source in setup.sources.values())
        and all(sink.writes_at_once for sink in sinks.values())
        and all(route.link is Link.DIRECT for route in routes)
        and all(
            operator.vertex.descriptor.is_prompt and operator.scope is StateScope.NONE
            for operator in plan.operators()
        )
    )


def _per_second(graph: JobGraph) -> float:
    """Return the least rate that the job sets anywhere by ``rate_limit``."""
    rates = (vertex.details.get("per_second", math.inf) for vertex in graph.vertices)
    return min(rates, default=math.inf)


def _has_input(statuses: Mapping[str, SourceStatus]) -> bool:
    return any(status.has_input for status in statuses.values())


def _wave(graph: JobGraph) -> int:
    """Return the most records that any operator has in flight, in all subtasks."""
    waves = [1]
    for vertex in graph.vertices:
        settings = {**vertex.config, **vertex.details}
        in_flight = settings.get("capacity", 1) * settings.get("batch_size", 1)
        if in_flight > 1:
            waves.append(in_flight * vertex.parallelism)
    return max(waves)
