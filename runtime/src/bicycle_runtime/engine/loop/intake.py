"""What a job reads next: sources are asked what they have, and fast ones wait for slow ones.

Nothing is read here. A source plans slices, which tasks read; how much an epoch may take is the
pacer's to say, and how far event time has come is the timeline's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from bicycle_runtime.contract import Budget, Slice, SourceStatus
from bicycle_runtime.engine.epoch.watermarks import SourceView, Timeline
from bicycle_runtime.engine.loop.pacing import Pacer
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_sdk.graph import JobGraph

__all__ = ["IDLE_MS_MAX", "Intake"]

IDLE_MS_MAX = 1_000


class Intake:
    """The sources of a job as its epoch loop sees them.

    ``order`` is how event time stands for the epoch that is planned.

    Args:
        setup: The job.
        timeline: Its event time.
        options: How much an epoch takes.
    """

    def __init__(self, setup: JobSetup, timeline: Timeline, options: EngineOptions) -> None:
        self._setup = setup
        self.timeline = timeline
        self.pacer = Pacer(options, per_second=_per_second(setup.graph))
        self.order = timeline.order({})
        self._held: set[str] = set()

    def divide(self, setup: JobSetup, timeline: Timeline) -> None:
        """Go on with other widths."""
        self._setup, self.timeline = setup, timeline

    def poll(self) -> dict[str, SourceStatus]:
        """Ask the sources what they have; one that is to wait for slower ones shows no input."""
        statuses = {uid: source.poll() for uid, source in self._setup.sources.items()}
        self.order = self.timeline.order(self._views(statuses, {}))
        self._held = self.timeline.held_back(self.order)
        return {
            uid: replace(status, has_input=False) if uid in self._held else status
            for uid, status in statuses.items()
        }

    def pause(self) -> dict[str, SourceStatus]:
        """Ask the sources, and let each wait that has input."""
        statuses = self.poll()
        self._held |= {uid for uid, status in statuses.items() if status.has_input}
        return {uid: replace(status, has_input=False) for uid, status in statuses.items()}

    def plan(self, statuses: Mapping[str, SourceStatus]) -> dict[str, list[Slice]]:
        """Return what each source with input lets an epoch read."""
        width = {vertex.id: vertex.parallelism for vertex in self._setup.graph.vertices}
        return {
            uid: self._setup.sources[uid].plan(
                Budget(
                    record_count=self.pacer.record_count,
                    byte_count=self.pacer.byte_count,
                    parallelism=width[uid],
                )
            )
            for uid, status in statuses.items()
            if status.has_input
        }

    def begin(
        self, statuses: Mapping[str, SourceStatus], slices: Mapping[str, list[Slice]]
    ) -> None:
        """Take note of what the epoch reads: its order of time goes by that."""
        self.order = self.timeline.order(self._views(statuses, slices))

    def has_more(self, statuses: Mapping[str, SourceStatus]) -> bool:
        """Tell whether input is left after an epoch that was planned with these statuses."""
        return any(status.has_input for status in statuses.values()) and any(
            source.poll().has_input for source in self._setup.sources.values()
        )

    def is_full(self, slices: Mapping[str, list[Slice]], *, record_count: int) -> bool:
        """Tell whether an epoch took so much of what it may that there is probably more.

        Args:
            slices: What it read.
            record_count: How many records that were, of the source that gave most.
        """
        spans = (sum(part.end - part.start for part in parts) for parts in slices.values())
        has_bytes = 2 * max(spans, default=0) >= self.pacer.byte_count
        return has_bytes or 2 * record_count >= self.pacer.record_count

    def wait_ms(self, statuses: Mapping[str, SourceStatus], *, now_ms: int) -> int:
        """Return how long there is nothing to do, as far as sources and event time know."""
        longest_ms = min([IDLE_MS_MAX, *(status.next_poll_ms for status in statuses.values())])
        return self.timeline.wait_ms(now_ms=now_ms, longest_ms=longest_ms)

    def _views(
        self, statuses: Mapping[str, SourceStatus], slices: Mapping[str, list[Slice]]
    ) -> dict[str, SourceView]:
        return {
            uid: SourceView.of(status, slices.get(uid, ()), is_held=uid in self._held)
            for uid, status in statuses.items()
        }


def _per_second(graph: JobGraph) -> float:
    """Return the least rate that the job sets anywhere by ``rate_limit``."""
    rates = (vertex.details.get("per_second", math.inf) for vertex in graph.vertices)
    return min(rates, default=math.inf)
