"""Figures of all jobs as text for Prometheus.

Names, types and help come from one table, which the reference page is made of as well. The text of
a job is made again only when its status is another one; for an answer the parts are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.service.watching.fleet import Fleet
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import KnownJob

__all__ = ["METRICS", "Metric", "MetricsText"]

_PARTITIONS_MAX = 64
_Sample = tuple[str, Mapping[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name of the exposition; ``labels`` are those of each of its samples."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ("job",)


_OPERATOR = ("job", "operator")
METRICS: tuple[Metric, ...] = (
    Metric(name="bicycle_job_state", type="gauge", labels=("job", "state"),
           help="1 for the state that the job is in."),
    Metric(name="bicycle_job_restarts_total", type="counter",
           help="Restarts in the run that goes on."),
    Metric(name="bicycle_job_records_per_second", type="gauge", help="Records read per second."),
    Metric(name="bicycle_job_records_total", type="counter", help="Records read in this run."),
    Metric(name="bicycle_job_epochs_total", type="counter", help="Epochs sealed in this run."),
    Metric(name="bicycle_job_state_bytes", type="gauge", help="Size of the sealed state."),
    Metric(name="bicycle_job_last_status_age_seconds", type="gauge",
           help="Time since the driver last said how it is; of jobs that have not ended."),
    Metric(name="bicycle_operator_records_in_total", type="counter", labels=_OPERATOR,
           help="Records that came into the operator in this run."),
    Metric(name="bicycle_operator_records_out_total", type="counter", labels=_OPERATOR,
           help="Records that the operator gave on in this run."),
    Metric(name="bicycle_operator_errors_total", type="counter", labels=_OPERATOR,
           help="Records on which the function failed in this run."),
    Metric(name="bicycle_operator_late_total", type="counter", labels=_OPERATOR,
           help="Records that came too late in this run."),
    Metric(name="bicycle_operator_skew_ratio", type="gauge", labels=_OPERATOR,
           help="Records of the busiest subtask, divided by the mean."),
    Metric(name="bicycle_operator_watermark_seconds", type="gauge", labels=_OPERATOR,
           help="Watermark at the input, in seconds since 1970."),
    Metric(name="bicycle_source_lag_records", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Records that are unread; the 64 partitions of a source that are most behind."),
    Metric(name="bicycle_source_lag_seconds", type="gauge", labels=(*_OPERATOR, "partition"),
           help="How long the first unread record has waited."),
    Metric(name="bicycle_source_silent_seconds", type="gauge", labels=_OPERATOR,
           help="Time for which the system that is read gives no answer."),
    Metric(name="pulse_operator_records_total", type="counter", labels=(*_OPERATOR, "stage"),
           help="Records by stage, receive or emit; another name of bicycle_operator_records."),
    Metric(name="pulse_watermark_lag_ms", type="gauge",
           help="Time of day less the watermark of the job, in ms; never negative."),
    Metric(name="pulse_state_size", type="gauge",
           help="Size of the sealed state; another name of bicycle_job_state_bytes."),
    Metric(name="pulse_queue_depth", type="gauge",
           help="Records that are unread, of all sources; never negative."),
    Metric(name="pulse_dropped_records_total", type="counter", labels=("job", "reason"),
           help="Records dropped in this run, late or for want of a reader."),
)  # fmt: skip


class MetricsText:
    """Makes the text, and keeps that of each job while its status stays.

    Args:
        fleet: The jobs.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kept: dict[str, tuple[JobStatus, str, dict[str, list[str]]]] = {}

    def text(self, *, now_ms: int) -> str:
        """Return the exposition of all jobs. Parts that depend on the time are made each time."""
        parts: dict[str, list[str]] = {metric.name: [] for metric in METRICS}
        kept = {}
        for job in self._fleet.view.jobs:
            name, state = job.summary.job_id, job.summary.state
            known = self._kept.get(name)
            if known is None or known[0] is not job.status or known[1] != state:
                known = (job.status, state, _lines_by_name(_samples(job)))
            kept[name] = known
            for made in (known[2], _lines_by_name(_timed(job, now_ms))):
                for metric_name, lines in made.items():
                    parts[metric_name] += lines
        self._kept = kept
        blocks = []
        for metric in METRICS:
            if parts[metric.name]:
                head = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n"
                blocks.append(head + "\n".join(parts[metric.name]) + "\n")
        return "".join(blocks)


def _lines_by_name(samples: Iterator[_Sample]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for name, labels, value in samples:
        text = ",".join(f'{label}="{_escaped(word)}"' for label, word in labels.items())
        lines.setdefault(name, []).append(f"{name}{{{text}}} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _samples(known: KnownJob) -> Iterator[_Sample]:
    """Yield what only changes with the status."""
    status, summary = known.status, known.summary
    job = {"job": summary.job_id}
    for state in State:
        labels = {**job, "state": state.value}
        yield "bicycle_job_state", labels, float(state.value == summary.state)
    yield "bicycle_job_restarts_total", job, status.restart_count
    yield "bicycle_job_records_per_second", job, summary.records_per_second
    yield "bicycle_job_records_total", job, status.record_count
    yield "bicycle_job_epochs_total", job, status.epoch_count
    yield "bicycle_job_state_bytes", job, status.state_bytes
    yield "pulse_state_size", job, status.state_bytes
    if status.lag_records is not None:
        yield "pulse_queue_depth", job, max(0, status.lag_records)
    yield "pulse_dropped_records_total", {**job, "reason": "late"}, status.late_dropped_count
    yield "pulse_dropped_records_total", {**job, "reason": "no_reader"}, status.dropped_count
    for uid, operator in status.operators.items():
        yield from _operator_samples({**job, "operator": uid}, operator)
    for uid, lags in status.lags.items():
        behind = sorted(lags.items(), key=lambda pair: -(pair[1].records or 0))
        for shard, lag in behind[:_PARTITIONS_MAX]:
            labels = {**job, "operator": uid, "partition": shard}
            if lag.records is not None:
                yield "bicycle_source_lag_records", labels, lag.records
            if lag.waiting_ms is not None:
                yield "bicycle_source_lag_seconds", labels, lag.waiting_ms / 1_000


def _operator_samples(labels: Mapping[str, str], operator: OperatorStatus) -> Iterator[_Sample]:
    yield "bicycle_operator_records_in_total", labels, operator.records_in
    yield "bicycle_operator_records_out_total", labels, operator.records_out
    yield "bicycle_operator_errors_total", labels, operator.failed
    yield "bicycle_operator_late_total", labels, operator.late
    if operator.skew is not None:
        yield "bicycle_operator_skew_ratio", labels, operator.skew
    if operator.watermark_ms is not None:
        yield "bicycle_operator_watermark_seconds", labels, operator.watermark_ms / 1_000
    for stage, count in (("receive", operator.records_in), ("emit", operator.records_out)):
        yield "pulse_operator_records_total", {**labels, "stage": stage}, count


def _timed(known: KnownJob, now_ms: int) -> Iterator[_Sample]:
    """Yield what grows while nothing happens; only of jobs that have not ended."""
    status, job = known.status, {"job": known.summary.job_id}
    if known.summary.end_time is not None:
        return
    age_s = max(0, now_ms - status.updated_ms) / 1_000
    yield "bicycle_job_last_status_age_seconds", job, age_s
    if status.watermark_ms is not None:
        yield "pulse_watermark_lag_ms", job, max(0, now_ms - status.watermark_ms)
    for uid, since_ms in status.silent_sources.items():
        labels = {**job, "operator": uid}
        yield "bicycle_source_silent_seconds", labels, max(0, now_ms - since_ms) / 1_000
