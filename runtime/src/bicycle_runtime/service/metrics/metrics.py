"""Figures of all jobs as text for Prometheus.

Names, types and help come from one table, which the reference page is made of as well. The text of
a job is made again only when its status is another one; for an answer the parts are joined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Protocol

import msgspec

from bicycle_runtime.jobs.epoch_ages import epoch_age_ms, stalled_ms
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus, PhaseStatus
from bicycle_runtime.operators.metrics import BOUNDS_US, Durations
from bicycle_runtime.service.metrics.names import METRICS
from bicycle_runtime.service.watching.fleet import FleetView
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import KnownJob

_PARTITIONS_MAX = 64
_LABELS_KEPT = 4_096  # One label occurs in hundreds of lines of a job.
_Sample = tuple[str, Mapping[str, str], float]
_ENDS = ("_bucket", "_sum", "_count")
_INDEXES = {metric.name: index for index, metric in enumerate(METRICS)}
_SHOWN_US = (
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000,
    30_000_000, 300_000_000,
)  # fmt: skip
# The bounds in ms that dashboards of the first runtime know; each is among ours.
_PULSE_MS = (0.1, 0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1_000)
# Place of a bound among the buckets, and its label.
_SHOWN = [(BOUNDS_US.index(bound_us), repr(bound_us / 1e6)) for bound_us in _SHOWN_US]
_PULSE = [(BOUNDS_US.index(round(ms * 1_000)), str(float(ms))) for ms in _PULSE_MS]


class MetricSample(msgspec.Struct, frozen=True, kw_only=True):
    """One figure; ``value`` is None where it is no number that JSON has."""

    name: str
    labels: dict[str, str]
    value: float | None

    @property
    def line(self) -> str:
        """The figure as Prometheus writes it."""
        return _line(self.name, self.labels, math.nan if self.value is None else self.value)


def job_samples(known: KnownJob, *, now_ms: int) -> list[MetricSample]:
    """Return the figures of one job, in the order of the table of names."""
    found = [*_samples(known), *_ageing_samples(known, now_ms)]
    found.sort(key=lambda sample: _INDEXES[_family(sample[0])])
    return [
        MetricSample(
            name=name, labels=dict(labels), value=float(value) if math.isfinite(value) else None
        )
        for name, labels, value in found
    ]


class HasView(Protocol):
    """The source of the snapshot of all jobs."""

    @property
    def view(self) -> FleetView:
        """The newest snapshot."""


class MetricsText:
    """Makes the text, and keeps that of each job while its status stays.

    Args:
        fleet: The jobs.
    """

    def __init__(self, fleet: HasView) -> None:
        self._fleet = fleet
        self._kept: dict[str, tuple[JobStatus, str, dict[str, str]]] = {}

    def text(self, view: FleetView | None = None, *, now_ms: int, older_names: bool = True) -> str:
        """Return the exposition of all jobs, or of a part of the snapshot.

        Parts that depend on the time are made each time.

        Args:
            view: The part; None for the whole snapshot.
            now_ms: The time.
            older_names: Whether the older names of renamed metrics are included.
        """
        parts: dict[str, list[str]] = {metric.name: [] for metric in METRICS}
        whole = self._fleet.view
        kept = {name: each for name, each in self._kept.items() if whole.get(name) is not None}
        for job in (view or whole).jobs:
            name, state = job.summary.job_id, job.summary.state
            known = kept.get(name)
            if known is None or known[0] is not job.status or known[1] != state:
                known = (job.status, state, _lines_by_name(_samples(job)))
            kept[name] = known
            for made in (known[2], _lines_by_name(_ageing_samples(job, now_ms))):
                for metric_name, lines in made.items():
                    parts[metric_name].append(lines)
        self._kept = kept
        blocks = []
        for metric in METRICS:
            if parts[metric.name] and (older_names or not metric.newer):
                head = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n"
                blocks.append(head + "\n".join(parts[metric.name]) + "\n")
        return "".join(blocks)


def _lines_by_name(samples: Iterator[_Sample]) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    for name, labels, value in samples:
        lines.setdefault(_family(name), []).append(_line(name, labels, value))
    return {name: "\n".join(found) for name, found in lines.items()}


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(map(_label, labels, labels.values()))
    return f"{name}{{{text}}} {value}"


@lru_cache(_LABELS_KEPT)
def _label(name: str, word: str) -> str:
    escaped = word.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{escaped}"'


@cache
def _family(name: str) -> str:
    """Return the name in the table of a sample."""
    return name.removesuffix(_part_of(name))


def _part_of(name: str) -> str:
    """Return the suffix of a histogram's or summary's sample after the metric's name."""
    return next((end for end in _ENDS if name.endswith(end) and name not in _INDEXES), "")


def _samples(known: KnownJob) -> Iterator[_Sample]:
    """Yield samples that only change with the status."""
    status, summary = known.status, known.summary
    job = {"job": summary.job_id}
    for state in State:
        labels = {**job, "state": state.value}
        yield "bicycle_job_state", labels, float(state.value == summary.state)
    info = {
        "owner": summary.owner,
        "plugin": summary.plugin,
        "plugin_version": summary.plugin_version,
    }
    yield "bicycle_job_info", {**job, **info}, 1.0
    yield "bicycle_job_restarts_total", job, status.restart_count
    yield "bicycle_job_ended_workers_total", job, status.ended_worker_count
    if known.paces.load is not None and summary.end_time is None:
        yield "bicycle_job_load_ratio", job, round(known.paces.load, 3)
    yield "bicycle_job_records_per_second", job, summary.records_per_second
    yield "bicycle_job_records_total", job, status.record_count
    yield "bicycle_job_epochs_total", job, status.epoch_count
    yield "bicycle_job_state_bytes", job, status.state_bytes
    if status.guarantee is not None:
        promise = status.guarantee
        labels = {**job, "guarantee": promise.guarantee, "weakest": promise.weakest}
        yield "bicycle_job_guarantee", labels, 1.0
    if status.state_growth is not None:
        yield "bicycle_job_state_growth_bytes_per_second", job, status.state_growth
    waiting = sum(each.bytes for each in status.waiting.values())
    yield "bicycle_job_waiting_bytes", job, waiting
    if status.phase is not None and summary.end_time is None:
        yield from _phase_samples(job, status.phase)
    yield from _histogram("bicycle_epoch_seconds", job, status.epoch_times)
    for phase, times in status.phase_times.items():
        yield from _histogram("bicycle_epoch_phase_seconds", {**job, "phase": phase}, times)
    # Nothing looks at the input of a job that has ended: its last lag is not the present one.
    if summary.end_time is None or summary.state == State.FINISHED.value:
        yield from _lag_samples(job, status)
    yield "pulse_dropped_records_total", {**job, "reason": "late"}, status.late_dropped_count
    yield "pulse_dropped_records_total", {**job, "reason": "no_reader"}, status.dropped_count
    for uid, operator in status.operators.items():
        yield from _operator_samples({**job, "operator": uid}, operator)
    yield from _partition_samples(job, status)


def _phase_samples(job: Mapping[str, str], phase: PhaseStatus) -> Iterator[_Sample]:
    labels = {**job, "phase": phase.name}
    yield "bicycle_job_phase_done", {**labels, "unit": phase.unit}, phase.done
    for name in ("bicycle_job_phase_size", "bicycle_job_phase_total"):
        yield name, {**labels, "unit": phase.unit}, phase.total
    if phase.eta_ms is not None:
        yield "bicycle_job_phase_eta_seconds", labels, phase.eta_ms / 1_000


def _lag_samples(job: Mapping[str, str], status: JobStatus) -> Iterator[_Sample]:
    if status.lag_records is not None:
        yield "bicycle_job_lag_records", job, max(0, status.lag_records)
        yield "pulse_queue_depth", job, max(0, status.lag_records)
    if status.lag_bytes is not None:
        yield "bicycle_job_lag_bytes", job, max(0, status.lag_bytes)
    for uid, lags in status.lags.items():
        behind = sorted(lags.items(), key=lambda pair: -(pair[1].records or 0))
        for shard, lag in behind[:_PARTITIONS_MAX]:
            labels = {**job, "operator": uid, "partition": shard}
            if lag.records is not None:
                yield "bicycle_source_lag_records", labels, lag.records
            if lag.waiting_ms is not None:
                yield "bicycle_source_lag_seconds", labels, lag.waiting_ms / 1_000


def _partition_samples(job: Mapping[str, str], status: JobStatus) -> Iterator[_Sample]:
    for uid, shards in status.shards.items():
        for shard, time in shards.items():
            labels = {**job, "operator": uid, "partition": shard}
            if time.watermark_ms is not None:
                yield "bicycle_partition_watermark_seconds", labels, time.watermark_ms / 1_000
            if time.event_ms is not None:
                yield "bicycle_partition_event_seconds", labels, time.event_ms / 1_000


def _operator_samples(labels: Mapping[str, str], operator: OperatorStatus) -> Iterator[_Sample]:
    yield "bicycle_operator_records_in_total", labels, operator.records_in
    yield "bicycle_operator_records_out_total", labels, operator.records_out
    yield "bicycle_operator_errors_total", labels, operator.failed
    yield "bicycle_operator_late_total", labels, operator.late
    yield "bicycle_operator_busy_seconds_total", labels, operator.busy_ms / 1_000
    yield "bicycle_operator_state_bytes", labels, operator.state_bytes
    if operator.state_keys is not None:
        yield "bicycle_operator_state_keys", labels, operator.state_keys
    if operator.state_growth is not None:
        yield "bicycle_operator_state_growth_bytes_per_second", labels, operator.state_growth
    yield "pulse_state_size", labels, operator.state_bytes
    if operator.busy_share is not None:
        yield "bicycle_operator_busy_ratio", labels, operator.busy_share
    if operator.backpressure is not None:
        yield "bicycle_source_backpressure_ratio", labels, operator.backpressure
    if operator.times.buckets:
        yield from _histogram("bicycle_operator_record_seconds", labels, operator.times)
        yield from _pulse_latency(labels, operator)
    if operator.bytes_out is not None:
        yield "bicycle_operator_bytes_out_total", labels, operator.bytes_out
        sink = {"job": labels["job"], "sink": labels["operator"]}
        yield "pulse_bytes_written_total", sink, operator.bytes_out
    yield from _user_samples(labels, operator)
    if operator.skew is not None:
        yield "bicycle_operator_skew_ratio", labels, operator.skew
    if operator.watermark_ms is not None:
        yield "bicycle_operator_watermark_seconds", labels, operator.watermark_ms / 1_000
    if operator.slowest_input is not None:
        yield "bicycle_operator_slowest_input", {**labels, "input": operator.slowest_input}, 1.0
    for stage, count in (("receive", operator.records_in), ("emit", operator.records_out)):
        yield "pulse_operator_records_total", {**labels, "stage": stage}, count


def _histogram(name: str, labels: Mapping[str, str], times: Durations) -> Iterator[_Sample]:
    return _buckets(name, labels, times, bounds=_SHOWN, total=times.seconds)


def _pulse_latency(labels: Mapping[str, str], operator: OperatorStatus) -> Iterator[_Sample]:
    kind = "operator" if operator.bytes_out is None else "sink"
    name, times = f"pulse_{kind}_process_latency_ms", operator.times
    return _buckets(name, labels, times, bounds=_PULSE, total=times.seconds * 1_000)


def _buckets(
    name: str, labels: Mapping[str, str], times: Durations, *, bounds: list[tuple[int, str]],
    total: float,
) -> Iterator[_Sample]:  # fmt: skip
    """Yield a histogram, always with all bounds: a rate needs each from the beginning."""
    bucket = f"{name}_bucket"
    for last, text in bounds:
        count = sum(number for index, number in times.buckets.items() if index <= last)
        yield bucket, {**labels, "le": text}, count
    yield bucket, {**labels, "le": "+Inf"}, times.count
    yield f"{name}_sum", labels, total
    yield f"{name}_count", labels, times.count


def _user_samples(labels: Mapping[str, str], operator: OperatorStatus) -> Iterator[_Sample]:
    """Yield samples of functions' metrics, with names as labels to prevent collisions.

    Names are labels: two of them never become one.
    """
    kept = operator.metrics
    for name, count in kept.get("counters", {}).items():
        for metric in ("bicycle_user_total", "bicycle_user_counter_total"):
            yield metric, {**labels, "name": name}, count
    for name, values in kept.get("gauges", {}).items():
        for subtask, value in values.items():
            for metric in ("bicycle_user_value", "bicycle_user_gauge"):
                yield metric, {**labels, "name": name, "subtask": subtask}, value
    for name, found in kept.get("histograms", {}).items():
        for metric in ("bicycle_user_distribution", "bicycle_user_histogram"):
            yield f"{metric}_sum", {**labels, "name": name}, found["sum"]
            yield f"{metric}_count", {**labels, "name": name}, found["count"]


def _ageing_samples(known: KnownJob, now_ms: int) -> Iterator[_Sample]:
    """Yield samples that grow with time alone, of jobs that have not ended."""
    status, job = known.status, {"job": known.summary.job_id}
    if known.summary.end_time is not None:
        return
    age_s = max(0, now_ms - status.updated_ms) / 1_000
    yield "bicycle_job_last_status_age_seconds", job, age_s
    if status.watermark_ms is not None:
        lag_ms = max(0, now_ms - status.watermark_ms)
        yield "bicycle_job_watermark_lag_seconds", job, lag_ms / 1_000
        yield "pulse_watermark_lag_ms", job, lag_ms
    elif status.lag_ms is not None or (not status.lag_bytes and status.lag_records == 0):
        yield "pulse_watermark_lag_ms", job, status.lag_ms or 0
    if status.silent_storage_ms is not None:
        silent_ms = max(0, now_ms - status.silent_storage_ms)
        yield "bicycle_job_storage_silent_seconds", job, silent_ms / 1_000
    if (age_ms := epoch_age_ms(status, now_ms)) is not None:
        yield "bicycle_job_epoch_age_seconds", job, age_ms / 1_000
    yield "bicycle_job_stalled_seconds", job, stalled_ms(status, now_ms) / 1_000
    if status.fixed_ms is not None:
        yield "bicycle_job_epoch_fixed_seconds", job, status.fixed_ms / 1_000
    if status.publication is not None:
        labels = {**job, "operator": status.publication.sink}
        since_ms = status.publication.since_ms
        yield "bicycle_sink_publishing_seconds", labels, max(0, now_ms - since_ms) / 1_000
    for uid, since_ms in status.silent_sources.items():
        labels = {**job, "operator": uid}
        yield "bicycle_source_silent_seconds", labels, max(0, now_ms - since_ms) / 1_000
