from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitJobRequest(_message.Message):
    __slots__ = ("plugin", "digest", "name", "options", "params", "engine", "spark", "idempotency_key", "wait_seconds", "pipeline")
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SparkEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SPARK_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    digest: str
    name: str
    options: _struct_pb2.Struct
    params: _containers.ScalarMap[str, str]
    engine: _struct_pb2.Struct
    spark: _containers.ScalarMap[str, str]
    idempotency_key: str
    wait_seconds: float
    pipeline: PipelineFile
    def __init__(self, plugin: _Optional[str] = ..., digest: _Optional[str] = ..., name: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., params: _Optional[_Mapping[str, str]] = ..., engine: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., spark: _Optional[_Mapping[str, str]] = ..., idempotency_key: _Optional[str] = ..., wait_seconds: _Optional[float] = ..., pipeline: _Optional[_Union[PipelineFile, _Mapping]] = ...) -> None: ...

class PipelineFile(_message.Message):
    __slots__ = ("file", "text")
    FILE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    file: str
    text: str
    def __init__(self, file: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "success", "message", "operation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    success: bool
    message: str
    operation: Operation
    def __init__(self, job_id: _Optional[str] = ..., success: _Optional[bool] = ..., message: _Optional[str] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ...) -> None: ...

class GetJobStatusRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "savepoint", "savepoint_name", "savepoint_to", "idempotency_key")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_TO_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    savepoint: bool
    savepoint_name: str
    savepoint_to: str
    idempotency_key: str
    def __init__(self, job_id: _Optional[str] = ..., savepoint: _Optional[bool] = ..., savepoint_name: _Optional[str] = ..., savepoint_to: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class UpgradeJobRequest(_message.Message):
    __slots__ = ("job_id", "digest", "plugin", "strategy", "epochs", "watch_ms", "catch_up_ms", "skip_savepoint", "allow_dropped_state", "plan_only", "idempotency_key", "wait_seconds")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    WATCH_MS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_MS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DROPPED_STATE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ONLY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    digest: str
    plugin: str
    strategy: str
    epochs: int
    watch_ms: int
    catch_up_ms: int
    skip_savepoint: bool
    allow_dropped_state: bool
    plan_only: bool
    idempotency_key: str
    wait_seconds: float
    def __init__(self, job_id: _Optional[str] = ..., digest: _Optional[str] = ..., plugin: _Optional[str] = ..., strategy: _Optional[str] = ..., epochs: _Optional[int] = ..., watch_ms: _Optional[int] = ..., catch_up_ms: _Optional[int] = ..., skip_savepoint: _Optional[bool] = ..., allow_dropped_state: _Optional[bool] = ..., plan_only: _Optional[bool] = ..., idempotency_key: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class StartOperationRequest(_message.Message):
    __slots__ = ("kind", "job_id", "options", "idempotency_key", "wait_seconds")
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    job_id: str
    options: _struct_pb2.Struct
    idempotency_key: str
    wait_seconds: float
    def __init__(self, kind: _Optional[str] = ..., job_id: _Optional[str] = ..., options: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("savepoint_path", "operation")
    SAVEPOINT_PATH_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    savepoint_path: str
    operation: Operation
    def __init__(self, savepoint_path: _Optional[str] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("states", "page_size", "page_token", "text", "sort")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    text: str
    sort: str
    def __init__(self, states: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., text: _Optional[str] = ..., sort: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token", "total")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobSummary]
    next_page_token: str
    total: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class GetClusterInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, items: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[MetricSample]
    def __init__(self, items: _Optional[_Iterable[_Union[MetricSample, _Mapping]]] = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ("job_ids", "after_event")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_EVENT_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    after_event: int
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ..., after_event: _Optional[int] = ...) -> None: ...

class WaitOperationRequest(_message.Message):
    __slots__ = ("id", "wait_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: int
    wait_seconds: float
    def __init__(self, id: _Optional[int] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class JobSummary(_message.Message):
    __slots__ = ("job_id", "name", "plugin", "plugin_version", "state", "reason", "start_time", "end_time", "updated_ms", "tasks_total", "tasks_running", "epoch", "records", "records_total", "records_per_second", "lag_records", "lag_bytes", "lag_ms", "errors", "late", "restarts", "state_bytes", "watermark_ms", "is_frozen", "attention", "attention_rank", "owner")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATED_MS_FIELD_NUMBER: _ClassVar[int]
    TASKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    TASKS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_MS_FIELD_NUMBER: _ClassVar[int]
    IS_FROZEN_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_RANK_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    plugin: str
    plugin_version: str
    state: str
    reason: str
    start_time: int
    end_time: int
    updated_ms: int
    tasks_total: int
    tasks_running: int
    epoch: int
    records: int
    records_total: int
    records_per_second: float
    lag_records: int
    lag_bytes: int
    lag_ms: int
    errors: int
    late: int
    restarts: int
    state_bytes: int
    watermark_ms: int
    is_frozen: bool
    attention: _containers.RepeatedScalarFieldContainer[str]
    attention_rank: int
    owner: str
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., plugin: _Optional[str] = ..., plugin_version: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., updated_ms: _Optional[int] = ..., tasks_total: _Optional[int] = ..., tasks_running: _Optional[int] = ..., epoch: _Optional[int] = ..., records: _Optional[int] = ..., records_total: _Optional[int] = ..., records_per_second: _Optional[float] = ..., lag_records: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., errors: _Optional[int] = ..., late: _Optional[int] = ..., restarts: _Optional[int] = ..., state_bytes: _Optional[int] = ..., watermark_ms: _Optional[int] = ..., is_frozen: _Optional[bool] = ..., attention: _Optional[_Iterable[str]] = ..., attention_rank: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class JobMetrics(_message.Message):
    __slots__ = ("records_in", "records_out", "bytes_out")
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    records_in: int
    records_out: int
    bytes_out: int
    def __init__(self, records_in: _Optional[int] = ..., records_out: _Optional[int] = ..., bytes_out: _Optional[int] = ...) -> None: ...

class JobDetail(_message.Message):
    __slots__ = ("summary", "metrics", "status")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    summary: JobSummary
    metrics: JobMetrics
    status: _struct_pb2.Struct
    def __init__(self, summary: _Optional[_Union[JobSummary, _Mapping]] = ..., metrics: _Optional[_Union[JobMetrics, _Mapping]] = ..., status: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("id", "actor", "job", "kind", "facts", "state", "asked_ms", "ended_ms", "result", "error", "reason", "owner", "key")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    id: int
    actor: str
    job: str
    kind: str
    facts: _struct_pb2.Struct
    state: str
    asked_ms: int
    ended_ms: int
    result: _struct_pb2.Struct
    error: _struct_pb2.Struct
    reason: str
    owner: str
    key: str
    def __init__(self, id: _Optional[int] = ..., actor: _Optional[str] = ..., job: _Optional[str] = ..., kind: _Optional[str] = ..., facts: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., state: _Optional[str] = ..., asked_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., result: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., error: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., reason: _Optional[str] = ..., owner: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ClusterInfo(_message.Message):
    __slots__ = ("version", "home", "started_ms", "uptime_ms", "jobs", "states", "running", "attention", "records_per_second", "lag_records", "tasks_total", "tasks_running", "lag_bytes")
    class StatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    TASKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    TASKS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    home: str
    started_ms: int
    uptime_ms: int
    jobs: int
    states: _containers.ScalarMap[str, int]
    running: int
    attention: int
    records_per_second: float
    lag_records: int
    tasks_total: int
    tasks_running: int
    lag_bytes: int
    def __init__(self, version: _Optional[str] = ..., home: _Optional[str] = ..., started_ms: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., jobs: _Optional[int] = ..., states: _Optional[_Mapping[str, int]] = ..., running: _Optional[int] = ..., attention: _Optional[int] = ..., records_per_second: _Optional[float] = ..., lag_records: _Optional[int] = ..., tasks_total: _Optional[int] = ..., tasks_running: _Optional[int] = ..., lag_bytes: _Optional[int] = ...) -> None: ...

class ProcessUse(_message.Message):
    __slots__ = ("pid", "role", "resident_bytes", "cpu_seconds")
    PID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    role: str
    resident_bytes: int
    cpu_seconds: float
    def __init__(self, pid: _Optional[int] = ..., role: _Optional[str] = ..., resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "hostname", "state", "tasks", "memory_bytes", "cpu_seconds", "processes", "slots", "slots_used", "cpu_usage", "memory_used_mb")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_USED_FIELD_NUMBER: _ClassVar[int]
    CPU_USAGE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_MB_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    hostname: str
    state: str
    tasks: int
    memory_bytes: int
    cpu_seconds: float
    processes: _containers.RepeatedCompositeFieldContainer[ProcessUse]
    slots: int
    slots_used: int
    cpu_usage: float
    memory_used_mb: float
    def __init__(self, worker_id: _Optional[str] = ..., hostname: _Optional[str] = ..., state: _Optional[str] = ..., tasks: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., processes: _Optional[_Iterable[_Union[ProcessUse, _Mapping]]] = ..., slots: _Optional[int] = ..., slots_used: _Optional[int] = ..., cpu_usage: _Optional[float] = ..., memory_used_mb: _Optional[float] = ...) -> None: ...

class MetricSample(_message.Message):
    __slots__ = ("name", "labels", "value")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.ScalarMap[str, str]
    value: float
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., value: _Optional[float] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("id", "job", "gone", "event", "resync")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    id: int
    job: JobSummary
    gone: str
    event: Event
    resync: Resync
    def __init__(self, id: _Optional[int] = ..., job: _Optional[_Union[JobSummary, _Mapping]] = ..., gone: _Optional[str] = ..., event: _Optional[_Union[Event, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "job", "at_ms", "kind", "level", "facts")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    job: str
    at_ms: int
    kind: str
    level: str
    facts: _struct_pb2.Struct
    def __init__(self, id: _Optional[int] = ..., job: _Optional[str] = ..., at_ms: _Optional[int] = ..., kind: _Optional[str] = ..., level: _Optional[str] = ..., facts: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ("latest",)
    LATEST_FIELD_NUMBER: _ClassVar[int]
    latest: int
    def __init__(self, latest: _Optional[int] = ...) -> None: ...
