"""Shapes of responses and of request bodies, for the OpenAPI document.

Tests compare real responses with them: a response has exactly these fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bicycle_runtime.api.route import Shape
from bicycle_runtime.jobs.control.dead_letters import DeadLetter
from bicycle_runtime.layouts.savepoint import Savepoint
from bicycle_runtime.service.metrics.metrics import MetricSample
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from bicycle_runtime.service.store.history import AuditEntry, JobStateChange, Operation
from bicycle_runtime.service.watching.summaries import JobSummary
from bicycle_runtime.service.watching.workers import ProcessUse


class QuotaAnswer(Shape, frozen=True, kw_only=True):
    """The quota of an owner, null without limit, and its use.

    ``jobs`` counts running and waiting jobs, ``slots`` the slots of running jobs; ``upload_bytes``
    is the size of stored wheels.
    """

    owner: str
    jobs: int | None
    slots: int | None
    upload_bytes: int | None
    used_jobs: int
    used_slots: int
    used_upload_bytes: int


class PoolSlots(Shape, frozen=True, kw_only=True):
    """Slots of a Spark master; ``local`` is this machine. ``total`` is null where nobody told."""

    master: str
    total: int | None
    used: int
    waiting_jobs: int


class SlotList(Shape, frozen=True, kw_only=True):
    """The masters whose slots are known or used."""

    items: list[PoolSlots]


class DeadLetterList(Shape, frozen=True, kw_only=True):
    """Dead letters, newest first; ``next`` is the value for ``after``."""

    items: list[DeadLetter]
    next: str | None


class MetricsPoint(Shape, frozen=True, kw_only=True):
    """The sums of all jobs at ``timestamp``, ms since 1970; null if unknown."""

    timestamp: int
    records_per_second: float | None = msgspec.field(name="records_per_sec")
    lag_records: float | None
    state_bytes: float | None
    errors: float | None
    late: float | None


class MetricsHistory(Shape, frozen=True, kw_only=True):
    """Points over time, the oldest first."""

    items: list[MetricsPoint]


class ErrorAnswer(Shape, frozen=True, kw_only=True):
    """An error; ``location`` is its location, if known."""

    code: str
    message: str
    fix: str
    location: str | None


class Health(Shape, frozen=True, kw_only=True):
    """``status`` is healthy while jobs are looked at."""

    status: str
    version: str


class JobList(Shape, frozen=True, kw_only=True):
    """One page of jobs; ``next`` is the next page's cursor, ``total`` counts matches."""

    items: list[JobSummary]
    next: str | None
    total: int


class JobMetrics(Shape, frozen=True, kw_only=True):
    """The records of this run, summed over sources, and over final operators.

    ``bytes_out`` is the size of the staged output of all sinks, null if no sink counts bytes.
    """

    records_in: int
    records_out: int
    bytes_out: int | None


class JobDetail(Shape, frozen=True, kw_only=True):
    """A job: its row, its counts, and the output of ``bicycle status --json``."""

    summary: JobSummary
    metrics: JobMetrics
    status: dict[str, Any]


class Task(Shape, frozen=True, kw_only=True):
    """One operator, with the counts of all its subtasks in this run.

    ``bytes_processed`` is the size of the output of a sink, null if it does not count bytes.
    """

    task_id: str
    operator_name: str
    state: str
    parallelism: int
    records_processed: int
    bytes_processed: int | None
    records_in: int
    records_out: int
    failed: int
    retried: int
    late: int
    watermark_ms: int | None
    slowest_input: str | None
    skew: float | None
    hot_keys: list[dict[str, Any]]


class TaskList(Shape, frozen=True, kw_only=True):
    """The operators of a job."""

    items: list[Task]


class GraphVertex(Shape, frozen=True, kw_only=True):
    """One operator in the graph; counts are of this run.

    ``busy_share`` is its share of the task time of the last epochs, 0 to 1: the operator with the
    highest share limits the job. ``backpressure`` of a source is the share of the last minute, 0 to
    1, in which it had more input and waited for the end of an epoch that had reached its limit. It
    is null for other operators, because no records wait between operators.
    """

    id: str
    uid: str | None
    name: str
    operator_type: str
    description: str
    parallelism: int
    slot_sharing_group: str
    chain: int
    is_source: bool
    is_sink: bool
    records_in: int
    records_out: int
    failed: int
    late: int
    busy_share: float | None
    backpressure: float | None
    watermark_ms: int | None
    slowest_input: str | None
    skew: float | None


class GraphEdge(Shape, frozen=True, kw_only=True):
    """The edge between two operators.

    ``exchange`` is chain, direct, shuffle or feedback; ``link`` is its former name, with the word
    parcel for shuffle.
    """

    source: str
    target: str
    partitioning: str
    exchange: str
    link: str
    tag: str | None


class GraphChain(Shape, frozen=True, kw_only=True):
    """Operators that run in one task."""

    index: int
    name: str
    stage: int
    parallelism: int
    operators: list[str]


class Graph(Shape, frozen=True, kw_only=True):
    """The graph as it runs; ``digest`` changes when its form does, not when counts do."""

    job: str
    digest: str
    vertices: list[GraphVertex]
    edges: list[GraphEdge]
    chains: list[GraphChain]


class EpochList(Shape, frozen=True, kw_only=True):
    """Epochs that the checkpoint storage retains, the newest first."""

    items: list[dict[str, Any]]
    next: str | None


class SavepointList(Shape, frozen=True, kw_only=True):
    """Savepoints beside the checkpoints of the job, the newest first."""

    items: list[dict[str, Any]]


class ExceptionEntry(Shape, frozen=True, kw_only=True):
    """One kind of failure; ``is_record``: of records, after which the job continued.

    ``task_id`` is the id of ``Task``, ``task_index`` the subtask that failed last. Both are null if
    no function failed; ``task_index`` is null for failed records, which are counted over all
    subtasks. ``stack_trace`` has the frames of the user's code, ``whole_trace`` also the frames of
    Bicycle.
    """

    timestamp: int | None
    code: str
    message: str
    fix: str
    position: str | None
    task_id: str | None
    task_index: int | None
    operator_name: str | None
    epoch: int | None
    is_record: bool
    stack_trace: str | None
    whole_trace: str | None
    root_cause: str | None
    location: str | None
    count: int
    first_ms: int | None
    last_ms: int | None


class ExceptionList(Shape, frozen=True, kw_only=True):
    """The failures, newest first."""

    items: list[ExceptionEntry]


class JobConfigAnswer(Shape, frozen=True, kw_only=True):
    """The configuration of a job's start, with the ``command``, without secrets.

    Secrets are not shown.

    ``directory`` is the working directory of the command that started it, empty where unknown.
    """

    directory: str
    options: dict[str, Any]
    params: dict[str, Any]
    engine: dict[str, Any]
    spark: dict[str, Any]
    widths: dict[str, int]
    command: list[str]


class LogPage(Shape, frozen=True, kw_only=True):
    """Lines of the log between the bytes ``start`` and ``next`` of ``size``."""

    lines: list[str]
    start: int
    next: int
    size: int


class SamplesAnswer(Shape, frozen=True, kw_only=True):
    """Columns over time, the oldest first; null is a gap."""

    tier: str
    step_s: int
    at_s: list[int]
    records_per_second: list[float | None]
    lag_records: list[float | None]
    lag_bytes: list[float | None]
    lag_ms: list[float | None]
    state_bytes: list[float | None]
    errors: list[float | None]
    late: list[float | None]


class OperatorSamples(Shape, frozen=True, kw_only=True):
    """The columns of one operator over time, oldest first; null is a gap."""

    tier: str
    step_s: int
    at_s: list[int]
    records_in: list[int | None]
    records_out: list[int | None]
    failed: list[int | None]
    late: list[int | None]
    busy_share: list[float | None]
    record_p99_ms: list[float | None]
    state_bytes: list[int | None]


class StateChangeList(Shape, frozen=True, kw_only=True):
    """Steps in the life of a job, the newest first."""

    items: list[JobStateChange]


class PluginList(Shape, frozen=True, kw_only=True):
    """Plugins that were uploaded, the last first."""

    items: list[UploadedPlugin]


class OperationList(Shape, frozen=True, kw_only=True):
    """Operations, the newest first."""

    items: list[Operation]


class AuditList(Shape, frozen=True, kw_only=True):
    """Lines of the audit log, the oldest first."""

    items: list[AuditEntry]
    next: str | None


class StatusAnswer(Shape, frozen=True, kw_only=True):
    """The data of a job's driver, read now, as in ``bicycle status --json``."""

    status: dict[str, Any]


class StatusList(Shape, frozen=True, kw_only=True):
    """The data of all drivers, read now, newest job first, as in ``bicycle list``."""

    items: list[dict[str, Any]]


class MetricList(Shape, frozen=True, kw_only=True):
    """Figures with the names and labels of ``/metrics``, as JSON."""

    items: list[MetricSample]


class Worker(Shape, frozen=True, kw_only=True):
    """The processes of one job on this machine, and their total usage.

    ``slots`` are the slots of its Spark master that the job holds, ``slots_used`` the slots in
    which its tasks run: 0 while it starts. ``cpu_usage`` is the number of used cores, measured over
    a quarter of a second; ``cpu_seconds`` is the total since the processes started.
    """

    worker_id: str
    hostname: str
    state: str
    tasks: int
    slots: int
    slots_used: int
    cpu_usage: float
    memory_used_mb: float
    memory_bytes: int
    cpu_seconds: float
    processes: list[ProcessUse]


class WorkerList(Shape, frozen=True, kw_only=True):
    """The processes of jobs that have not ended, most memory first."""

    items: list[Worker]


class SavepointReport(Savepoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a savepoint, and its epoch."""

    url: str
    is_verified: bool
    checkpoint: dict[str, Any]


class ClusterTotals(Shape, frozen=True, kw_only=True):
    """The totals over all jobs of this home, and the service."""

    version: str
    home: str
    started_ms: int
    uptime_ms: int
    jobs: int
    states: dict[str, int]
    running: int
    attention: int
    records_per_second: float
    lag_records: int | None
    lag_bytes: int | None
    tasks_total: int
    tasks_running: int
