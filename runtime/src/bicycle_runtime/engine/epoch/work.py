"""What the tasks of an epoch did, and the manifest in which it is sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bicycle_runtime.contract import Slice, SnapshotsState
from bicycle_runtime.engine.epoch.merging import (
    merge_ends,
    merge_feedback,
    merge_forms,
    merge_offsets,
    merge_staged,
    merge_states,
    merge_turns,
)
from bicycle_runtime.engine.epoch.stats import lowest_watermark, read_counts
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.resuming.pinning import pins_of
from bicycle_runtime.operators.tasks.reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest, PlanRecord, TimeRecord

__all__ = ["EpochWork", "next_manifest", "plan_record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWork:
    """An epoch that ran. Without reports no task did; ``replay`` is what a replay needs."""

    epoch: int
    slices: Mapping[str, list[Slice]] = field(default_factory=dict)
    reports: list[TaskReport] = field(default_factory=list)
    replay: bytes = b""


def plan_record(setup: JobSetup, *, now_ms: int, is_finished: bool) -> PlanRecord:
    """Return which bundle ran at which widths, and whether all its input is read."""
    return PlanRecord(
        bundle_digest=setup.bundle.digest,
        parallelism={vertex.id: vertex.parallelism for vertex in setup.graph.vertices},
        now_ms=now_ms,
        is_finished=is_finished,
    )


def next_manifest(
    setup: JobSetup,
    last: Manifest,
    work: EpochWork,
    *,
    time: TimeRecord,
    plan: PlanRecord,
    is_last: bool,
) -> Manifest:
    """Return the manifest behind ``last``. Sinks prepare what they will publish of the epoch.

    Args:
        setup: The job.
        last: What is sealed.
        work: What the epoch did.
        time: How far event time came.
        plan: How it ran.
        is_last: Whether sinks are to close what is open.
    """
    reports = work.reports
    ends = {uid: merge_ends(reports, uid) for uid in setup.sources}
    return Manifest(
        epoch=work.epoch,
        time=time,
        watermark_ms=lowest_watermark(time) or 0,
        plan=plan,
        event_count=last.event_count + sum(read_counts(reports).values()),
        offsets={uid: merge_offsets(last.offsets.get(uid, {}), ends[uid]) for uid in setup.sources},
        states=merge_states(last.states, reports),
        forms=merge_forms(last.forms, reports),
        pins=pins_of(setup.graph),
        sinks={
            uid: sink.prepare(work.epoch, merge_staged(reports, uid), is_last=is_last)
            for uid, sink in setup.sinks.items()
        },
        sources={
            uid: source.snapshot(work.slices.get(uid, ()), ends[uid])
            if isinstance(source, SnapshotsState)
            else {}
            for uid, source in setup.sources.items()
        },
        feedback=merge_feedback(reports) if reports else last.feedback,
        turns=merge_turns(last.turns, reports, setup.plan.edges_with_turns()),
        replay=work.replay,
    )
