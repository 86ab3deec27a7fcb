"""From a sealed epoch, and from what sources said, to numbers about them. Pure: asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bicycle_runtime.contract import Lag, SourceStatus, total_lag
from bicycle_runtime.engine.epoch.stats import (
    EpochStats,
    Stopwatch,
    Unread,
    key_samples,
    lowest_watermark,
    read_counts,
    state_bytes,
    subtask_counts,
    total_counts,
)
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.operators.counting.counts import OperatorCounts
from bicycle_runtime.operators.tasks.reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_sdk.graph import JobGraph

__all__ = ["stats_of", "unread_of"]


def stats_of(
    manifest: Manifest,
    reports: Sequence[TaskReport],
    statuses: Mapping[str, SourceStatus],
    watch: Stopwatch,
    *,
    graph: JobGraph,
    timeline: Timeline,
    duration_ms: float,
    dropped_count: int,
) -> EpochStats:
    """Return what an epoch was like.

    Args:
        manifest: As it was sealed.
        reports: Of its tasks.
        statuses: What the sources had when it was planned.
        watch: Measured its phases.
        graph: Of the job.
        timeline: Where event time stands behind it.
        duration_ms: How long it took.
        dropped_count: Records that sinks published to nobody in this run.
    """
    counts = total_counts(reports)
    return EpochStats(
        epoch=manifest.epoch,
        record_count=sum(read_counts(reports).values()),
        event_count=manifest.event_count,
        duration_ms=duration_ms,
        phases_ms=watch.phases_ms,
        unread=unread_of(statuses) if statuses else None,
        state_bytes=state_bytes(manifest.states),
        watermark_ms=lowest_watermark(manifest.time),
        counts=counts,
        dropped_count=dropped_count,
        late_dropped_count=sum(_late_dropped_counts(counts, graph)),
        time=manifest.time,
        idle_shards=timeline.idle_shards(),
        slowest_inputs=timeline.slowest_inputs(),
        keys=key_samples(reports, graph),
        subtask_counts=subtask_counts(reports),
    )


def _late_dropped_counts(counts: Mapping[str, OperatorCounts], graph: JobGraph) -> Iterator[int]:
    for vertex in graph.vertices:
        if (found := counts.get(vertex.id)) is not None:
            tag = vertex.details.get("late_tag")
            yield found.late if tag is None else found.unread.get(tag, 0)


def unread_of(statuses: Mapping[str, SourceStatus]) -> Unread:
    """Return what sources have left by their own words."""
    silent = frozenset(uid for uid, status in statuses.items() if not status.is_reachable)
    return Unread(
        lag=Lag() if silent else total_lag([status.lag for status in statuses.values()]),
        shard_lags={uid: status.shard_lags for uid, status in statuses.items()},
        silent=silent,
    )
