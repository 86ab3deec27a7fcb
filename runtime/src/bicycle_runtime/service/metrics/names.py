"""The names of all metrics: one table for exposition, reference, dashboard, tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "SERVICE_METRICS", "Metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the exposition; ``labels`` are labels of each of its samples.

    A histogram has samples with ``_bucket``, ``_sum`` and ``_count`` behind its name, a summary
    those without the buckets. ``newer`` is the name that follows the rules of Prometheus for units
    and types, of a metric whose name does not; a scraper may leave such a metric out.
    """

    name: str
    type: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    labels: tuple[str, ...] = ("job",)
    newer: str = ""


_OPERATOR = ("job", "operator")
METRICS: tuple[Metric, ...] = (
    Metric(name="bicycle_job_state", type="gauge", labels=("job", "state"),
           help="1 for the current state of the job, 0 for the others."),
    Metric(name="bicycle_job_info", type="gauge",
           labels=("job", "owner", "plugin", "plugin_version"),
           help="Always 1; the labels are the owner (may be empty) and the version."),
    Metric(name="bicycle_job_restarts_total", type="counter",
           help="Restarts of the driver in the current run."),
    Metric(name="bicycle_job_ended_workers_total", type="counter",
           help="Worker processes that were killed, crashed, or exited in user code in this run."),
    Metric(name="bicycle_job_guarantee", type="gauge", labels=("job", "guarantee", "weakest"),
           help="1 for the end-to-end guarantee of the job, and the operator that limits it."),
    Metric(name="bicycle_job_records_per_second", type="gauge", help="Records read per second."),
    Metric(name="bicycle_job_load_ratio", type="gauge",
           help="Share of the last seconds that the driver spent in epochs."),
    Metric(name="bicycle_job_records_total", type="counter", help="Records read in this run."),
    Metric(name="bicycle_job_epochs_total", type="counter", help="Epochs sealed in this run."),
    Metric(name="bicycle_job_state_bytes", type="gauge", help="Size of the sealed state."),
    Metric(name="bicycle_job_state_growth_bytes_per_second", type="gauge",
           help="Growth of the sealed state over the last minute."),
    Metric(name="bicycle_job_waiting_bytes", type="gauge",
           help="Size of sealed sink output that is not visible yet."),
    Metric(name="bicycle_job_last_status_age_seconds", type="gauge",
           help="Time since the last report of the driver, for jobs that have not ended."),
    Metric(name="bicycle_job_epoch_age_seconds", type="gauge",
           help="Age of the running epoch; absent between epochs."),
    Metric(name="bicycle_job_stalled_seconds", type="gauge",
           help="Time for which the running epoch has read no record, or a sink has been "
           "publishing."),
    Metric(name="bicycle_job_epoch_fixed_seconds", type="gauge",
           help="Fixed time of an epoch, independent of its input; absent while unknown."),
    Metric(name="bicycle_job_storage_silent_seconds", type="gauge",
           help="Time for which the checkpoint storage has not responded."),
    Metric(name="bicycle_job_phase_done", type="gauge", labels=("job", "phase", "unit"),
           help="Completed work of a phase while a job starts or restores its state."),
    Metric(name="bicycle_job_phase_size", type="gauge", labels=("job", "phase", "unit"),
           help="Total work of a phase; 0 while it is unknown."),
    Metric(name="bicycle_job_phase_total", type="gauge", labels=("job", "phase", "unit"),
           help="Older name of bicycle_job_phase_size.", newer="bicycle_job_phase_size"),
    Metric(name="bicycle_job_watermark_lag_seconds", type="gauge",
           help="Wall-clock time minus the watermark of the job, never negative; for jobs with "
           "event time that have not ended."),
    Metric(name="bicycle_job_lag_records", type="gauge",
           help="Unread records of all sources; for files, estimated from their lines."),
    Metric(name="bicycle_job_lag_bytes", type="gauge",
           help="Unread bytes of sources that count bytes."),
    Metric(name="bicycle_job_phase_eta_seconds", type="gauge", labels=("job", "phase"),
           help="Estimated time to the end of a phase; absent while unknown."),
    Metric(name="bicycle_epoch_seconds", type="histogram",
           help="Duration of an epoch, from planning its input to its seal."),
    Metric(name="bicycle_epoch_phase_seconds", type="histogram", labels=("job", "phase"),
           help="Duration of a phase of an epoch: plan, run, publish_wait, seal."),
    Metric(name="bicycle_operator_records_in_total", type="counter", labels=_OPERATOR,
           help="Input records of the operator in this run."),
    Metric(name="bicycle_operator_records_out_total", type="counter", labels=_OPERATOR,
           help="Output records of the operator in this run."),
    Metric(name="bicycle_operator_errors_total", type="counter", labels=_OPERATOR,
           help="Records on which the function raised an error in this run."),
    Metric(name="bicycle_operator_late_total", type="counter", labels=_OPERATOR,
           help="Late records in this run."),
    Metric(name="bicycle_operator_record_seconds", type="histogram", labels=_OPERATOR,
           help="Time per record, as the mean of its batch."),
    Metric(name="bicycle_operator_busy_seconds_total", type="counter", labels=_OPERATOR,
           help="Time spent in the operator by all subtasks in this run."),
    Metric(name="bicycle_operator_busy_ratio", type="gauge", labels=_OPERATOR,
           help="Share of task time spent in the operator in the last epochs."),
    Metric(name="bicycle_operator_skew_ratio", type="gauge", labels=_OPERATOR,
           help="Records of the busiest subtask, divided by the mean."),
    Metric(name="bicycle_operator_watermark_seconds", type="gauge", labels=_OPERATOR,
           help="Watermark at the input, in seconds since 1970."),
    Metric(name="bicycle_operator_slowest_input", type="gauge", labels=(*_OPERATOR, "input"),
           help="1 for the partition or the input with the lowest watermark."),
    Metric(name="bicycle_partition_watermark_seconds", type="gauge",
           labels=(*_OPERATOR, "partition"),
           help="Watermark of a partition, in seconds since 1970; the 64 slowest of a source."),
    Metric(name="bicycle_partition_event_seconds", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Time of the newest record of a partition, in seconds since 1970."),
    Metric(name="bicycle_operator_state_bytes", type="gauge", labels=_OPERATOR,
           help="Size of the sealed state of the operator."),
    Metric(name="bicycle_operator_state_keys", type="gauge", labels=_OPERATOR,
           help="Keys with state in the operator, counted per window; on disk, an estimate."),
    Metric(name="bicycle_operator_state_growth_bytes_per_second", type="gauge", labels=_OPERATOR,
           help="Growth of the sealed state of the operator over the last minute."),
    Metric(name="bicycle_source_backpressure_ratio", type="gauge", labels=_OPERATOR,
           help="Share of the last minute in which a source had more input and waited for the end "
           "of an epoch that had reached its limit."),
    Metric(name="bicycle_source_lag_records", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Unread records, for the 64 partitions of a source with the largest lag."),
    Metric(name="bicycle_source_lag_seconds", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Waiting time of the oldest unread record."),
    Metric(name="bicycle_sink_publishing_seconds", type="gauge", labels=_OPERATOR,
           help="Time for which the sink has been publishing an epoch; absent otherwise."),
    Metric(name="bicycle_source_silent_seconds", type="gauge", labels=_OPERATOR,
           help="Time for which the external system of the source has not responded."),
    Metric(name="bicycle_operator_bytes_out_total", type="counter", labels=_OPERATOR,
           help="Bytes that a sink has staged in files in this run."),
    Metric(name="bicycle_user_total", type="counter", labels=(*_OPERATOR, "name"),
           help="A counter of ctx.metrics."),
    Metric(name="bicycle_user_counter_total", type="counter", labels=(*_OPERATOR, "name"),
           help="Older name of bicycle_user_total.", newer="bicycle_user_total"),
    Metric(name="bicycle_user_value", type="gauge", labels=(*_OPERATOR, "name", "subtask"),
           help="A gauge of ctx.metrics, the last value of each subtask."),
    Metric(name="bicycle_user_gauge", type="gauge", labels=(*_OPERATOR, "name", "subtask"),
           help="Older name of bicycle_user_value.", newer="bicycle_user_value"),
    Metric(name="bicycle_user_distribution", type="summary", labels=(*_OPERATOR, "name"),
           help="Sum and count of a histogram of ctx.metrics."),
    Metric(name="bicycle_user_histogram", type="summary", labels=(*_OPERATOR, "name"),
           help="Older name of bicycle_user_distribution.", newer="bicycle_user_distribution"),
    Metric(name="pulse_operator_records_total", type="counter", labels=(*_OPERATOR, "stage"),
           help="Records by stage, receive or emit; older bicycle_operator_records_*_total."),
    Metric(name="pulse_watermark_lag_ms", type="gauge",
           help="Wall-clock time minus the watermark of the job, in ms, never negative; without "
           "event time, the waiting time of the oldest unread record, or 0.",
           newer="bicycle_job_watermark_lag_seconds"),
    Metric(name="pulse_bytes_written_total", type="counter", labels=("job", "sink"),
           help="Bytes that a sink has staged; older name of bicycle_operator_bytes_out_total."),
    Metric(name="pulse_state_size", type="gauge", labels=_OPERATOR,
           help="Size of the sealed state; older name of bicycle_operator_state_bytes."),
    Metric(name="pulse_operator_process_latency_ms", type="histogram", labels=_OPERATOR,
           help="Time per record in ms, for operators except sinks.",
           newer="bicycle_operator_record_seconds"),
    Metric(name="pulse_sink_process_latency_ms", type="histogram", labels=_OPERATOR,
           help="Time per record in ms, for sinks.", newer="bicycle_operator_record_seconds"),
    Metric(name="pulse_queue_depth", type="gauge",
           help="Unread records of all sources; never negative."),
    Metric(name="pulse_dropped_records_total", type="counter", labels=("job", "reason"),
           help="Records dropped in this run: late, or sent by a sink without clients."),
)  # fmt: skip

SERVICE_METRICS: tuple[Metric, ...] = (
    Metric(name="bicycle_service_request_seconds", type="histogram", labels=("code",),
           help="Time until the response header of a request."),
    Metric(name="bicycle_service_requests_refused_total", type="counter", labels=(),
           help="Requests rejected because of their host name or origin."),
    Metric(name="bicycle_service_spans_total", type="counter", labels=("outcome",),
           help="Spans for an OpenTelemetry receiver: sent, failed or dropped."),
    Metric(name="bicycle_service_tick_seconds", type="gauge", labels=(),
           help="Duration of the last check of all jobs."),
    Metric(name="bicycle_service_subscribers", type="gauge", labels=(),
           help="Open event streams."),
    Metric(name="bicycle_service_operations", type="gauge", labels=(),
           help="Operations that have not ended."),
    Metric(name="bicycle_service_slots", type="gauge", labels=("master", "state"),
           help="Slots of a Spark master: total (if known), and used."),
    Metric(name="bicycle_service_waiting_jobs", type="gauge", labels=("master",),
           help="Jobs that wait for slots of a Spark master."),
    Metric(name="bicycle_service_disk_free_bytes", type="gauge", labels=(),
           help="Free space on the disk of the home."),
    Metric(name="bicycle_service_disk_bytes", type="gauge", labels=(),
           help="Size of the disk of the home."),
)  # fmt: skip
