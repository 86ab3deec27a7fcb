"""Statistics of an epoch: for the status line, the log and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bicycle_runtime.contract import Lag, SourceStatus, Waiting, total_lag
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.layouts.manifest import OperatorState, TimeRecord
from bicycle_runtime.operators.metrics import KeySample, OperatorCounts
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.sealed.refs import objects_of
from bicycle_sdk.clock import Clock
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.graph import JobGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The unread input of sources, at their last poll.

    ``shard_lags`` has it shard by shard, for the sources that know it. ``silent`` are the sources
    without an answer from their system: their lags are the last known ones, and ``lag`` is unknown
    while there is such a source.
    """

    lag: Lag = field(default_factory=Lag)
    shard_lags: Mapping[str, Mapping[str, Lag]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStats:
    """One epoch, as seen by the driver.

    ``record_count`` were read from sources in this epoch, ``event_count`` since the job began.
    ``phases_ms`` are plan, run, publish_wait, seal. ``unread`` is the remaining input of the
    sources after the epoch, None when they were not queried. ``time`` is the event time,
    ``watermark_ms`` the least watermark of any operator (None while there is no watermark);
    ``idle_shards`` do not hold it back, and ``slowest_inputs`` has for each operator the shard that
    does. ``late_dropped_count`` late records were dropped: no ``late_to`` takes them, or their side
    output has no reader. ``keys`` samples the keys of operators behind ``key_by``, and
    ``subtask_counts`` has the records of each subtask. ``waiting`` is the sealed but invisible
    output of sinks. ``operator_bytes`` is the size of the state of each operator, ``operator_keys``
    the number of keys with state. ``sources`` were queried for input; ``full_sources`` returned as
    much as they may, so that they probably have more. ``fixed_ms`` is the fixed cost of an epoch,
    None while it is not known.
    """

    epoch: int
    record_count: int
    event_count: int
    duration_ms: float
    phases_ms: Mapping[str, float]
    unread: Unread | None
    state_bytes: int
    watermark_ms: int | None
    counts: Mapping[str, OperatorCounts] = field(default_factory=dict)
    dropped_count: int = 0
    late_dropped_count: int = 0
    time: TimeRecord = field(default_factory=TimeRecord)
    idle_shards: Mapping[str, Collection[str]] = field(default_factory=dict)
    slowest_inputs: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, KeySample] = field(default_factory=dict)
    subtask_counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    operator_bytes: Mapping[str, int] = field(default_factory=dict)
    operator_keys: Mapping[str, int] = field(default_factory=dict)
    sources: Collection[str] = ()
    full_sources: Collection[str] = ()
    fixed_ms: float | None = None


class Stopwatch:
    """Measures the phases of one epoch by the job's clock.

    A job whose clock is moved by hand has the same epochs on any machine: no epoch seems to be
    slow.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self.phases_ms: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the duration of the block."""
        started = self._clock.monotonic()
        yield
        self.phases_ms[name] = (self._clock.monotonic() - started) * 1000

    @property
    def elapsed_ms(self) -> float:
        """Time since the epoch began."""
        return (self._clock.monotonic() - self._started) * 1000


def read_counts(reports: Iterable[TaskReport]) -> dict[str, int]:
    """Return the number of records of each source."""
    found: dict[str, int] = {}
    for report in reports:
        for uid, count in report.source_counts.items():
            found[uid] = found.get(uid, 0) + count
    return found


def state_bytes(states: Mapping[str, OperatorState]) -> int:
    """Return the size of all state files; one that several subtasks share counts once."""
    return sum(
        {
            item.path: item.byte_count
            for state in states.values()
            for part in state.ranges
            for item in objects_of(part)
        }.values()
    )


def tasks_ms(reports: Iterable[TaskReport]) -> float:
    """Return the duration of an epoch's tasks: the sum of each level's slowest one."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), report.busy_ms)
    return sum(slowest.values())


def state_keys(reports: Iterable[TaskReport]) -> dict[str, int]:
    """Return how many keys have state, per operator, of all subtasks."""
    found: Counter[str] = Counter()
    for report in reports:
        found.update(report.state_keys)
    return dict(found)


def total_counts(reports: Iterable[TaskReport]) -> dict[str, OperatorCounts]:
    """Return the total counts of all subtasks per operator, with user metrics."""
    totals: dict[str, OperatorCounts] = {}
    for report in reports:
        for uid, counts in report.counts.items():
            total = totals.setdefault(uid, OperatorCounts())
            total.add(counts)
            total.task_ms += report.busy_ms
            if (files := report.staged.get(uid)) is not None:
                total.bytes_out = (total.bytes_out or 0) + sum(file.byte_count for file in files)
    return totals


def key_samples(reports: Iterable[TaskReport], graph: JobGraph) -> dict[str, KeySample]:
    """Return key samples of operators after ``key_by`` that send single records.

    Records that are folded before they travel burden no subtask, however frequent their key is.
    """
    by_stream: dict[str, KeySample] = {}
    for report in reports:
        for uid, sample in report.keys.items():
            by_stream.setdefault(uid, KeySample()).add(sample)
    found: dict[str, KeySample] = {}
    for uid, sample in by_stream.items():
        for edge in graph.outputs_of(uid):
            if not graph.vertex(edge.target_id).descriptor.packs_records:
                found.setdefault(edge.target_id, KeySample()).add(sample)
    return found


def subtask_counts(reports: Iterable[TaskReport]) -> dict[str, dict[int, int]]:
    """Return how many records each subtask of each operator got."""
    found: dict[str, dict[int, int]] = {}
    for report in reports:
        for uid, counts in report.counts.items():
            found.setdefault(uid, {})[report.subtask] = counts.records_in
    return found


def lowest_watermark(time: TimeRecord) -> int | None:
    """Return the least watermark of any operator, or None if unknown."""
    lowest = min(time.watermarks.values(), default=WATERMARK_MIN)
    return None if lowest == WATERMARK_MIN else lowest


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
    """Return the statistics of an epoch.

    Args:
        manifest: As it was sealed.
        reports: Of its tasks.
        statuses: The remaining input of the sources.
        watch: Measured its phases.
        graph: Of the job.
        timeline: The event time behind it.
        duration_ms: How long it took.
        dropped_count: Records that sinks published in this run without a receiver.
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
        operator_bytes={uid: state_bytes({uid: each}) for uid, each in manifest.states.items()},
        operator_keys=state_keys(reports),
        sources=tuple(statuses),
    )


def _late_dropped_counts(counts: Mapping[str, OperatorCounts], graph: JobGraph) -> Iterator[int]:
    for vertex in graph.vertices:
        if (found := counts.get(vertex.id)) is not None:
            tag = vertex.details.get("late_tag")
            yield found.late if tag is None else found.unread.get(tag, 0)


def unread_of(statuses: Mapping[str, SourceStatus]) -> Unread:
    """Return the unread input of sources from their statuses."""
    silent = frozenset(uid for uid, status in statuses.items() if not status.is_reachable)
    return Unread(
        lag=Lag() if silent else total_lag([status.lag for status in statuses.values()]),
        shard_lags={uid: status.shard_lags for uid, status in statuses.items()},
        silent=silent,
    )
