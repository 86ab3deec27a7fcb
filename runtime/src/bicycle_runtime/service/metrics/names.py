"""The names of all metrics: the one table that text, reference, dashboard and tests read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "SERVICE_METRICS", "Metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name of the exposition; ``labels`` are those of each of its samples.

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
           help="1 for the state that the job is in."),
    Metric(name="bicycle_job_info", type="gauge",
           labels=("job", "owner", "plugin", "plugin_version"),
           help="1, for the owner and the version of the job; an owner may be empty."),
    Metric(name="bicycle_job_restarts_total", type="counter",
           help="Restarts in the run that goes on."),
    Metric(name="bicycle_job_ended_workers_total", type="counter",
           help="Worker processes of this run that were killed, crashed, or exited in user code."),
    Metric(name="bicycle_job_guarantee", type="gauge", labels=("job", "guarantee", "weakest"),
           help="1 for what the job promises from end to end, and the operator it is due to."),
    Metric(name="bicycle_job_records_per_second", type="gauge", help="Records read per second."),
    Metric(name="bicycle_job_load_ratio", type="gauge",
           help="Share of the last seconds that went into epochs."),
    Metric(name="bicycle_job_records_total", type="counter", help="Records read in this run."),
    Metric(name="bicycle_job_epochs_total", type="counter", help="Epochs sealed in this run."),
    Metric(name="bicycle_job_state_bytes", type="gauge", help="Size of the sealed state."),
    Metric(name="bicycle_job_state_growth_bytes_per_second", type="gauge",
           help="Growth of the sealed state over the last minute."),
    Metric(name="bicycle_job_waiting_bytes", type="gauge",
           help="Size of what sinks have sealed that is not visible yet."),
    Metric(name="bicycle_job_last_status_age_seconds", type="gauge",
           help="Time since the driver last said how it is; of jobs that have not ended."),
    Metric(name="bicycle_job_epoch_age_seconds", type="gauge",
           help="Age of the epoch that runs; absent between two."),
    Metric(name="bicycle_job_stalled_seconds", type="gauge",
           help="Time for which the running epoch has read no record, or a sink has been "
           "publishing."),
    Metric(name="bicycle_job_epoch_fixed_seconds", type="gauge",
           help="Time that an epoch takes whatever it reads; absent while unknown."),
    Metric(name="bicycle_job_storage_silent_seconds", type="gauge",
           help="Time for which the checkpoint storage gives no answer."),
    Metric(name="bicycle_job_phase_done", type="gauge", labels=("job", "phase", "unit"),
           help="How much of a phase is done; of a job that starts, or loads its state."),
    Metric(name="bicycle_job_phase_size", type="gauge", labels=("job", "phase", "unit"),
           help="How much there is to do in a phase; 0 where that is not known."),
    Metric(name="bicycle_job_phase_total", type="gauge", labels=("job", "phase", "unit"),
           help="Older name of bicycle_job_phase_size.", newer="bicycle_job_phase_size"),
    Metric(name="bicycle_job_watermark_lag_seconds", type="gauge",
           help="Time of day less the watermark of the job, never negative; of jobs with event "
           "time that have not ended."),
    Metric(name="bicycle_job_lag_records", type="gauge",
           help="Records that are unread, of all sources; of files estimated by their lines."),
    Metric(name="bicycle_job_lag_bytes", type="gauge",
           help="Bytes that are unread, of sources that count bytes."),
    Metric(name="bicycle_job_phase_eta_seconds", type="gauge", labels=("job", "phase"),
           help="How long the rest of a phase takes at its pace so far, where that is known."),
    Metric(name="bicycle_epoch_seconds", type="histogram",
           help="Time of an epoch, from the look at the input until it is sealed."),
    Metric(name="bicycle_epoch_phase_seconds", type="histogram", labels=("job", "phase"),
           help="Time of a phase of an epoch: plan, run, publish_wait, seal."),
    Metric(name="bicycle_operator_records_in_total", type="counter", labels=_OPERATOR,
           help="Records that came into the operator in this run."),
    Metric(name="bicycle_operator_records_out_total", type="counter", labels=_OPERATOR,
           help="Records that the operator gave on in this run."),
    Metric(name="bicycle_operator_errors_total", type="counter", labels=_OPERATOR,
           help="Records on which the function failed in this run."),
    Metric(name="bicycle_operator_late_total", type="counter", labels=_OPERATOR,
           help="Records that came too late in this run."),
    Metric(name="bicycle_operator_record_seconds", type="histogram", labels=_OPERATOR,
           help="Time per record, each with the mean of its batch."),
    Metric(name="bicycle_operator_busy_seconds_total", type="counter", labels=_OPERATOR,
           help="Time in the operator, of all its subtasks, in this run."),
    Metric(name="bicycle_operator_busy_ratio", type="gauge", labels=_OPERATOR,
           help="Share of the time of its tasks that went into the operator in the last epochs."),
    Metric(name="bicycle_operator_skew_ratio", type="gauge", labels=_OPERATOR,
           help="Records of the busiest subtask, divided by the mean."),
    Metric(name="bicycle_operator_watermark_seconds", type="gauge", labels=_OPERATOR,
           help="Watermark at the input, in seconds since 1970."),
    Metric(name="bicycle_operator_slowest_input", type="gauge", labels=(*_OPERATOR, "input"),
           help="1 for the partition, or the input, that holds the watermark back."),
    Metric(name="bicycle_partition_watermark_seconds", type="gauge",
           labels=(*_OPERATOR, "partition"),
           help="Watermark of a partition, in seconds since 1970; the 64 slowest of a source."),
    Metric(name="bicycle_partition_event_seconds", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Time of the newest record of a partition, in seconds since 1970."),
    Metric(name="bicycle_operator_state_bytes", type="gauge", labels=_OPERATOR,
           help="Size of the sealed state of the operator."),
    Metric(name="bicycle_operator_state_keys", type="gauge", labels=_OPERATOR,
           help="Keys with state in the operator, in windows once for each; on disk an estimate."),
    Metric(name="bicycle_operator_state_growth_bytes_per_second", type="gauge", labels=_OPERATOR,
           help="Growth of the sealed state of the operator over the last minute."),
    Metric(name="bicycle_source_backpressure_ratio", type="gauge", labels=_OPERATOR,
           help="Share of the last minute in which a source had more input and waited for the end "
           "of an epoch that had taken what it may."),
    Metric(name="bicycle_source_lag_records", type="gauge", labels=(*_OPERATOR, "partition"),
           help="Records that are unread; the 64 partitions of a source that are most behind."),
    Metric(name="bicycle_source_lag_seconds", type="gauge", labels=(*_OPERATOR, "partition"),
           help="How long the first unread record has waited."),
    Metric(name="bicycle_sink_publishing_seconds", type="gauge", labels=_OPERATOR,
           help="Time for which the sink has been publishing an epoch; absent while none does."),
    Metric(name="bicycle_source_silent_seconds", type="gauge", labels=_OPERATOR,
           help="Time for which the system that is read gives no answer."),
    Metric(name="bicycle_operator_bytes_out_total", type="counter", labels=_OPERATOR,
           help="Bytes that a sink has staged in files in this run."),
    Metric(name="bicycle_user_total", type="counter", labels=(*_OPERATOR, "name"),
           help="A counter that a function keeps with ctx.metrics."),
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
           help="Records by stage, receive or emit; another name of bicycle_operator_records."),
    Metric(name="pulse_watermark_lag_ms", type="gauge",
           help="Time of day less the watermark of the job, in ms, never negative; of a job "
           "without event time, for how long its first unread record has waited, 0 for none.",
           newer="bicycle_job_watermark_lag_seconds"),
    Metric(name="pulse_bytes_written_total", type="counter", labels=("job", "sink"),
           help="Bytes that a sink has staged; another name of bicycle_operator_bytes_out."),
    Metric(name="pulse_state_size", type="gauge", labels=_OPERATOR,
           help="Size of the sealed state; another name of bicycle_operator_state_bytes."),
    Metric(name="pulse_operator_process_latency_ms", type="histogram", labels=_OPERATOR,
           help="Time per record in ms, of operators that are no sinks.",
           newer="bicycle_operator_record_seconds"),
    Metric(name="pulse_sink_process_latency_ms", type="histogram", labels=_OPERATOR,
           help="Time per record in ms, of sinks.", newer="bicycle_operator_record_seconds"),
    Metric(name="pulse_queue_depth", type="gauge",
           help="Records that are unread, of all sources; never negative."),
    Metric(name="pulse_dropped_records_total", type="counter", labels=("job", "reason"),
           help="Records dropped in this run, late or for want of a reader."),
)  # fmt: skip

SERVICE_METRICS: tuple[Metric, ...] = (
    Metric(name="bicycle_service_request_seconds", type="histogram", labels=("code",),
           help="Time to the head of an answer."),
    Metric(name="bicycle_service_requests_refused_total", type="counter", labels=(),
           help="Requests of foreign hosts and origins."),
    Metric(name="bicycle_service_spans_total", type="counter", labels=("outcome",),
           help="Spans for a receiver of OpenTelemetry: sent, failed or dropped."),
    Metric(name="bicycle_service_tick_seconds", type="gauge", labels=(),
           help="Time that the last look at all jobs took."),
    Metric(name="bicycle_service_subscribers", type="gauge", labels=(),
           help="Open streams of changes."),
    Metric(name="bicycle_service_operations", type="gauge", labels=(),
           help="Operations that are not over."),
    Metric(name="bicycle_service_slots", type="gauge", labels=("master", "state"),
           help="Slots of a Spark master: total where they are known, and used."),
    Metric(name="bicycle_service_waiting_jobs", type="gauge", labels=("master",),
           help="Jobs that wait for slots of a Spark master."),
    Metric(name="bicycle_service_disk_free_bytes", type="gauge", labels=(),
           help="Free space of the disk that the home is on."),
    Metric(name="bicycle_service_disk_bytes", type="gauge", labels=(),
           help="Size of the same disk."),
)  # fmt: skip
