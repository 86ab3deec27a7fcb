"""Other parallelism for a running job: request, new topology, and result.

``Topology`` holds the parts that depend on the parallelism of operators (the plan, the state of
each subtask, the event time of subtasks); the next one is a pure function of it. The epoch loop
carries it out: it runs one epoch without input, in which every new subtask takes over its state,
and seals it. Until then nothing has happened, and a failure restores the old topology.

Source: ADR-0004 (key groups), ADR-0005 (rescaling copies nothing).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bicycle_runtime.engine.epoch.stats import state_bytes
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.errors import RESCALE_FAILED, WIDTH_OPERATOR_UNKNOWN, WIDTH_REFUSED
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.planning.stages import (
    group_count_of,
    parallelisms_of,
    plan_stages,
    with_parallelisms,
)
from bicycle_runtime.engine.resuming.restoring import restored_states
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRequest:
    """A request for other parallelism; unnamed operators remain unchanged.

    Args:
        parallelism: Of all operators; a source that cannot be divided so far keeps its limit.
        operators: By uid; they win over ``parallelism``.
    """

    parallelism: int | None = None
    operators: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """The result of a rescale.

    ``epoch`` is the first one at the new parallelism. ``pause_ms``: from the last seal at the old
    parallelism to the first at the new one; of a job that had nothing to do, from when it was
    asked.
    """

    epoch: int
    old: Mapping[str, int]
    new: Mapping[str, int]
    pause_ms: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The parts of a running job that depend on the parallelism of its operators."""

    setup: JobSetup
    last: Manifest
    timeline: Timeline

    @property
    def parallelisms(self) -> dict[str, int]:
        """The parallelism of each operator."""
        return parallelisms_of(self.setup.graph)

    def rescaled_to(self, request: RescaleRequest) -> Topology:
        """Return the topology at the requested parallelism, without starting anything.

        Raises:
            WIDTH_OPERATOR_UNKNOWN: there is no such operator.
            WIDTH_REFUSED: an operator cannot have that parallelism.
        """
        parallelisms = _target_parallelisms(self.setup, self.parallelisms, request)
        setup = self.setup
        graph = with_parallelisms(setup.bundle.graph, parallelisms)
        plan = plan_stages(graph, sinks=setup.sinks)
        rescaled = dataclasses.replace(setup, graph=graph, plan=plan)
        states = restored_states(self.last, rescaled.plan, job=setup.job_id)
        return Topology(
            setup=rescaled,
            last=dataclasses.replace(self.last, states=states),
            timeline=self.timeline.with_plan(rescaled.plan),
        )


class RescalableLoop(Protocol):
    """An epoch loop between two steps, as ``rescale`` needs it."""

    @property
    def topology(self) -> Topology:
        """The parts that depend on parallelism, as of the last epoch."""

    @property
    def sealed_at(self) -> float | None:
        """The monotonic time of the last seal, None once the loop was idle."""

    def settle(self) -> None:
        """Wait until it is published."""

    def change_topology(self, topology: Topology) -> None:
        """Continue with other parallelism."""

    def run_without_input(self) -> None:
        """Run an epoch in which no source is read, and every subtask takes over its state."""


def rescale(loop: RescalableLoop, request: RescaleRequest, clock: Clock) -> Rescaled:
    """Continue a job with other parallelism, without stopping connectors.

    No input is read, and no connector is stopped.

    A failure before the first epoch at the new parallelism is sealed is an error, and the job
    continues as before. Nothing is done when it has that parallelism already.

    Args:
        loop: The job's, between two steps.
        request: The parallelism.
        clock: Measures the pause.

    Raises:
        WIDTH_OPERATOR_UNKNOWN: there is no such operator.
        WIDTH_REFUSED: an operator cannot have that parallelism.
        RESCALE_FAILED: the epoch failed, as when a function has no ``merge_state``.
        BicycleError: any error that the next step of the loop would have raised as well.
    """
    asked_at = clock.monotonic()
    old = loop.topology
    new = old.rescaled_to(request)
    pause_s = 0.0
    if new.parallelisms != old.parallelisms:
        loop.settle()
        paused_at = asked_at if loop.sealed_at is None else loop.sealed_at
        _exchange(loop, old, new)
        pause_s = (loop.sealed_at or paused_at) - paused_at
    last = loop.topology.last
    return Rescaled(
        epoch=last.epoch,
        old=old.parallelisms,
        new=new.parallelisms,
        pause_ms=round(pause_s * 1_000),
        state_bytes=state_bytes(last.states),
    )


def _exchange(loop: RescalableLoop, old: Topology, new: Topology) -> None:
    """Run the first epoch at other parallelism; restore the former one on a failure."""
    try:
        loop.change_topology(new)
        loop.run_without_input()
    except BicycleError as error:
        if loop.topology.last.epoch > old.last.epoch:  # It was sealed: nothing takes that back.
            raise
        loop.change_topology(old)
        raise RESCALE_FAILED(
            job=old.setup.job_id, reason=error.summary, hint=error.remedy, cause=error.code
        ) from error


def _target_parallelisms(
    setup: JobSetup, parallelisms: Mapping[str, int], request: RescaleRequest
) -> dict[str, int]:
    unknown = sorted(request.operators.keys() - parallelisms.keys())
    if unknown:
        raise WIDTH_OPERATOR_UNKNOWN(
            job=setup.job_id, operator=unknown[0], known_text=", ".join(sorted(parallelisms))
        )
    limits = {
        uid: source.default_parallelism_max
        for uid, source in setup.sources.items()
        if source.default_parallelism_max is not None
    }
    target = dict(parallelisms)
    if request.parallelism is not None:
        target = {
            uid: min(request.parallelism, limits.get(uid, request.parallelism))
            for uid in parallelisms
        }
    target |= request.operators
    for vertex in setup.graph.vertices:
        uid, group_count = vertex.id, group_count_of(setup.graph, vertex)
        limit = min(group_count, limits.get(uid, group_count))
        if not 1 <= target[uid] <= limit:
            raise WIDTH_REFUSED(
                job=setup.job_id,
                operator=uid,
                found=target[uid],
                limit=limit,
                now=parallelisms[uid],
            )
    return target
