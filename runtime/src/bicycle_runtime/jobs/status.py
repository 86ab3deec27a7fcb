"""The status of a job: one small file that its driver replaces and others read.

The file is replaced as one step, so a reader never sees a part. States are the words that the
shared job API uses; ``STOPPED`` is a clean end in the middle of the input, ``PAUSED`` one after
which the job is to be resumed, and ``SUSPENDED`` one of which a savepoint is complete.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.open_files import comes_from_open_files
from bicycle_runtime.base.stored import decode_stored, encode_stored
from bicycle_runtime.jobs.errors import StatusFormatError
from bicycle_runtime.operators.metrics import Durations, OperatorCounts


class JobState(Enum):
    """The state of a job in its life."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_final(self) -> bool:
        """True if the run is over."""
        return self in (
            JobState.FINISHED,
            JobState.STOPPED,
            JobState.PAUSED,
            JobState.SUSPENDED,
            JobState.FAILED,
            JobState.CANCELED,
        )


class ShardStatus(msgspec.Struct, kw_only=True):
    """Event time of a shard of a source or of a timestamp assigner, in ms since 1970.

    ``is_idle``: it has been silent for so long that it holds no watermark back. Times are None
    while there was no record.
    """

    watermark_ms: int | None = None
    event_ms: int | None = None
    is_idle: bool = False


class ShardLag(msgspec.Struct, kw_only=True):
    """The unread input of one shard of a source, and the age of its first record.

    The time counts from when this run first saw it; None if the source does not report it.
    """

    records: int | None = None
    bytes: int | None = None
    waiting_ms: int | None = None


class HotKey(msgspec.Struct, kw_only=True):
    """A frequent key, as text, and its share of the records of the last epochs."""

    key: str
    share: float


class OperatorStatus(OperatorCounts, kw_only=True):
    """Records of one operator in this run, and the event time of its input.

    ``parallelism`` is the current one: a rescale may have changed it in the run. ``slowest_input``
    names the shard that holds the watermark back. ``hot_keys`` are the most frequent keys of the
    input; ``skew`` is how much more records the busiest subtask gets than the mean, None for one
    subtask. Its counts and metrics are from sealed epochs.

    ``busy_share`` is the share of the time of its tasks that was spent in it in the last epochs.
    ``record_p50_ms`` and ``record_p99_ms`` are bounds that half and 99 % of the records of this run
    did not exceed, each with the mean of its batch. ``state_bytes`` is the size of its sealed
    state, of the valid files; ``state_growth`` is in bytes per second, over the last minute.
    ``state_keys`` counts the keys of all its states, in windows once for each; for state on disk it
    is the estimate of the database.

    ``backpressure`` of a source is the share of the last minute in which it had more input and did
    not read, since the epoch was at its limit and still running; None for other operators, as
    nothing waits between operators.
    """

    parallelism: int | None = None
    watermark_ms: int | None = None
    slowest_input: str | None = None
    hot_keys: list[HotKey] = msgspec.field(default_factory=list)
    skew: float | None = None
    busy_share: float | None = None
    backpressure: float | None = None
    record_p50_ms: float | None = None
    record_p99_ms: float | None = None
    state_bytes: int = 0
    state_growth: float | None = None
    state_keys: int | None = None


class GuaranteeStatus(msgspec.Struct, kw_only=True):
    """The end-to-end guarantee of a job: at-most-once, at-least-once or exactly-once.

    ``weakest`` is the source or sink that it is due to, empty where it cannot be more.
    """

    guarantee: str
    weakest: str = ""
    role: str = ""


class PhaseStatus(msgspec.Struct, kw_only=True):
    """The progress of one phase of a start.

    ``done`` of ``total`` are counted in ``unit``; a total of 0 is not known. ``eta_ms`` is how long
    the rest takes at the pace of the phase so far; None when that is not known.
    """

    name: str
    target: str = ""
    unit: str = ""
    done: int = 0
    total: int = 0
    eta_ms: int | None = None
    started_ms: int = 0


class WaitingOutput(msgspec.Struct, kw_only=True):
    """The sealed but invisible output of a sink, which is never lost.

    ``records`` is 0 where it is not known. ``visible_ms`` is when it becomes visible at the latest,
    in ms since 1970, while the job runs.
    """

    records: int
    bytes: int
    visible_ms: int | None = None


class OpenPublication(msgspec.Struct, kw_only=True):
    """A sink that publishes an epoch, and since when (ms since 1970)."""

    epoch: int
    sink: str
    since_ms: int


class RestartPlan(msgspec.Struct, kw_only=True):
    """The restart strategy of a job; ``kind`` is a word of ``RestartKind``."""

    kind: str
    max_attempts: int
    delay_ms: int
    delay_max_ms: int


class RestartNote(msgspec.Struct, kw_only=True):
    """One failure that was, or would have been, met by a restart.

    ``attempt`` restarts were used since ``epoch``, the last sealed one. ``delay_ms`` is None when
    the job was not started again. ``position`` is the record on which a function failed, if known;
    ``operator`` and ``subtask`` are where it ran.
    """

    time_ms: int
    code: str
    message: str
    epoch: int
    attempt: int
    delay_ms: int | None = None
    position: str | None = None
    operator: str | None = None
    subtask: int | None = None
    # Of files of earlier versions, where ``position`` has another name.
    former_position: str | msgspec.UnsetType | None = msgspec.field(
        default=msgspec.UNSET, name="place"
    )

    def __post_init__(self) -> None:
        if self.former_position is not msgspec.UNSET:
            self.position = self.position or self.former_position
            self.former_position = msgspec.UNSET


class EndedWorker(msgspec.Struct, kw_only=True):
    """A worker process that ended by a signal, a crash, or an exit in user code.

    ``host`` is empty on the machine of the driver. ``peak_bytes`` is the most memory that it had at
    a time, and ``operator`` the operator that it ran last, empty while it had no task.
    """

    time_ms: int
    pid: int
    how: str
    host: str = ""
    peak_bytes: int | None = None
    operator: str = ""


class StuckThread(msgspec.Struct, kw_only=True):
    """A thread that kept the job from ending, as it was before the forced end.

    ``role`` is ``worker`` or ``driver``. ``location`` is the line of the user's code, as
    ``file:line``, and ``stack`` has the lines of all calls, the innermost last. ``was_frozen``: the
    process had been stopped by a signal. ``host`` is empty for the machine of the driver.
    """

    pid: int
    role: str
    location: str
    host: str = ""
    was_frozen: bool = False
    stack: list[str] = []


class JobStatus(msgspec.Struct, kw_only=True):
    """One run of a job as last seen. Counts are of this run, ``event_count`` of all runs.

    A run continues over restarts; ``restarts`` has the latest of them. ``supervisor_pid`` is the
    process that starts the driver of a submitted job again, 0 without one. ``is_frozen`` is set by
    readers: the driver was stopped by a signal, and cannot report it.

    ``id`` names the run's folder and is the argument of commands; ``job`` is the name in the
    checkpoint directory, and is the same but when two checkpoint directories hold jobs of one name
    at once.

    ``epoch_began_ms`` is when the running epoch began, None between two, and ``reading_count`` the
    records that it has read so far, as far as reported; ``reading_ms`` is when that last grew.

    ``silent_sources`` has the time since when (ms since 1970) a source gets no answer from its
    system. While there is one the lag of the job is not known: ``lag_records``, ``lag_bytes`` and
    ``lag_ms`` are None, and ``lags`` has the last known lags of that source. ``waiting`` is the
    sealed but invisible output, by sink.

    ``master`` is the URL of the requested Spark master, empty for embedded Spark. ``has_begun``
    means that the first look at the input is over: an epoch of this run was sealed, or there was
    nothing to read.

    ``phases_ms`` are the phases of the last epoch, ``epoch_p50_ms`` and ``epoch_p99_ms`` quantiles
    of the last 100: from the look at the input until the epoch is sealed. ``epoch_times`` and
    ``phase_times`` count all epochs of this run. ``state_growth`` is in bytes per second, over the
    last minute.

    ``silent_storage_ms`` is the time since when (ms since 1970) the checkpoint storage does not
    answer; None while it does. ``storage_reason`` is the error with which it refuses writes, as a
    full disk does; empty when there is no answer at all.

    ``publication`` is the sink that publishes an epoch now, or None. ``fixed_ms`` is the fixed cost
    of an epoch, however few records it reads; None while that is not known, and without backlog.

    ``ended_worker_count`` counts the workers of this run that ended unasked, and ``ended_workers``
    has the latest of them. ``stuck`` has the threads for which a stop, a cancel or the watchdog did
    not wait any longer.
    """

    id: str
    job: str
    plugin: str
    plugin_version: str = ""
    state: JobState = JobState.CREATED
    pid: int = 0
    pid_started: int = 0
    java_pid: int | None = None
    is_detached: bool = False
    is_frozen: bool = False
    supervisor_pid: int = 0
    supervisor_started: int = 0
    checkpoint: str = ""
    master: str = ""
    bundle_digest: str = ""
    started_ms: int = 0
    running_ms: int | None = None
    has_begun: bool = False
    updated_ms: int = 0
    ended_ms: int | None = None
    epoch: int = 0
    epoch_count: int = 0
    record_count: int = 0
    event_count: int = 0
    records_per_second: float = 0.0
    lag_records: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    state_bytes: int = 0
    watermark_ms: int | None = None
    dropped_count: int = 0
    late_dropped_count: int = 0
    epoch_began_ms: int | None = None
    reading_count: int = 0
    reading_ms: int | None = None
    operators: dict[str, OperatorStatus] = {}
    shards: dict[str, dict[str, ShardStatus]] = {}
    lags: dict[str, dict[str, ShardLag]] = {}
    silent_sources: dict[str, int] = {}
    waiting: dict[str, WaitingOutput] = {}
    silent_storage_ms: int | None = None
    storage_reason: str = ""
    publication: OpenPublication | None = None
    fixed_ms: float | None = None
    guarantee: GuaranteeStatus | None = None
    phases_ms: dict[str, float] = {}
    epoch_p50_ms: float | None = None
    epoch_p99_ms: float | None = None
    epoch_times: Durations = msgspec.field(default_factory=Durations)
    phase_times: dict[str, Durations] = {}
    state_growth: float | None = None
    phase: PhaseStatus | None = None
    restart_plan: RestartPlan | None = None
    stuck: list[StuckThread] = []
    ended_worker_count: int = 0
    ended_workers: list[EndedWorker] = []
    restart_count: int = 0
    restarts: list[RestartNote] = []
    error: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    def end(self, state: JobState, ended_ms: int) -> None:
        """Set the state of a run that is over.

        The lag of a paused job is unknown, since nothing looks at its input.
        """
        self.state, self.ended_ms = state, ended_ms
        if state is JobState.PAUSED:
            self.error = None
            self.lag_records = self.lag_bytes = self.lag_ms = None
            self.lags = {}
            self.silent_sources = {}


def write_status(path: Path, status: JobStatus) -> None:
    """Replace the file as one step."""
    replace_file(path, msgspec.json.format(encode_stored(status)) + b"\n")


def read_status(path: Path) -> JobStatus | None:
    """Return the status; None when there is no file.

    Raises:
        StatusFormatError: the file is damaged, or cannot be read.
        STORED_NEWER: a newer version of the runtime wrote it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        if comes_from_open_files(error):  # This process lacks them, whatever it reads.
            raise
        raise StatusFormatError(path=str(path), reason=error.strerror or str(error)) from error
    try:
        return decode_stored(data, JobStatus, path=str(path))
    except msgspec.MsgspecError as error:
        raise StatusFormatError(path=str(path), reason=str(error)) from error
