"""Operations that end a run of a job: stop, drain, suspend, pause, cancel."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from bicycle_runtime.jobs.control.ending import (
    cancel_job,
    drain_job,
    pause_job,
    stop_job,
    suspend_stopped,
)
from bicycle_runtime.jobs.operations.operation import (
    NoOptions,
    OperationCall,
    OperationKind,
    Result,
)
from bicycle_runtime.jobs.operations.savepoint import (
    SavepointOptions,
    require_free_name,
    settle_name,
    take_last_savepoint,
)
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOptions(SavepointOptions):
    """The last steps of a job that stops."""

    drain: bool = option(
        default=False,
        doc="Advance event time to its end first, so that all windows and event-time timers fire. "
        "No more input is read.",
    )
    savepoint: bool = option(default=False, doc="Create a savepoint after the stop.")

    def __post_init__(self) -> None:
        SavepointOptions.__post_init__(self)
        if not self.savepoint and (self.name, self.to) != (None, None):
            raise ConfigError(
                problem="`name` and `to` need `savepoint`",
                hint="set `savepoint`, or omit `name` and `to`",
            )


def _stop(call: OperationCall, options: StopOptions) -> Result:
    if options.savepoint:  # Refused before the job ends.
        require_free_name(call, options)
    end = drain_job if options.drain else stop_job
    status = end(call.home, call.job, clock=call.clock)
    if not options.savepoint:
        return _result_of(status)
    saved = take_last_savepoint(call, options)
    return {**_result_of(suspend_stopped(call.home, call.job)), "savepoint": saved}


def _settle_stop(call: OperationCall, options: StopOptions) -> StopOptions:
    return settle_name(call, options) if options.savepoint else options


def _drain(call: OperationCall, _options: NoOptions) -> Result:
    return _stop(call, StopOptions(drain=True))


def _suspend(call: OperationCall, options: SavepointOptions) -> Result:
    return _stop(call, StopOptions(savepoint=True, **dataclasses.asdict(options)))


def _pause(call: OperationCall, _options: NoOptions) -> Result:
    return _result_of(pause_job(call.home, call.job, clock=call.clock))


def _cancel(call: OperationCall, _options: NoOptions) -> Result:
    return _result_of(cancel_job(call.home, call.job, clock=call.clock))


def _result_of(status: JobStatus) -> Result:
    """Return the state of a job that has ended, with the threads that were stuck."""
    stuck = [msgspec.to_builtins(thread) for thread in status.stuck]
    result: Result = {"state": status.state.value, "epoch": status.epoch}
    return {**result, "stuck": stuck} if stuck else result


STOP = OperationKind(
    name="stop",
    shown="STOPPING",
    command="stop",
    summary="Stop a job gracefully after the current epoch.",
    options=StopOptions,
    settle=_settle_stop,
    perform=_stop,
    is_repeatable=True,
    waits_for_epoch=True,
    available="active",
    path="/jobs/{job_id}/stop",
    button="Stop",
    is_bulk=True,
    is_destructive=True,
    question="{job} finishes and publishes its current epoch, and ends. The next run continues "
    "after this epoch: no record is lost, and none is read twice.",
    help="The command waits until the job has published the epoch. An epoch that exceeds the time "
    "limit is aborted, and its hanging threads are shown. When the job is started again under its "
    "name, it continues and reads no record twice. --name, --to and --timeout-ms apply to the "
    "savepoint.",
    examples=(
        "bicycle stop wordcount",
        "bicycle stop wordcount --drain",
        "bicycle stop wordcount --savepoint --name before-upgrade",
    ),
)
DRAIN = OperationKind(
    name="drain",
    shown="STOPPING",
    command="drain",
    summary="Drain a job: read no more, and fire all windows and timers.",
    perform=_drain,
    is_repeatable=True,
    waits_for_epoch=True,
    available="running",
    path="/jobs/{job_id}/drain",
    button="Drain",
    is_destructive=True,
    question="{job} stops reading. Event time advances to its end, so all windows and event-time "
    "timers fire. The results are published, and the job ends. A later run starts after these "
    "windows have fired.",
    help="No more input is read, event time advances to its end, and all windows and event-time "
    "timers fire. The command waits until the results are published. If an epoch takes longer than "
    "the --stop-timeout-ms of the job, the job is stopped by force, and its hanging threads are "
    "shown. `bicycle stop --drain` does the same and can also create a savepoint.",
    examples=("bicycle drain wordcount",),
)
SUSPEND = OperationKind(
    name="suspend",
    shown="STOPPING",
    summary="Stop a job, and take a savepoint of its last epoch.",
    options=SavepointOptions,
    settle=settle_name,
    perform=_suspend,
    is_repeatable=True,
    needs_running=True,
    waits_for_epoch=True,
    available="running",
    path="/jobs/{job_id}/suspend",
    button="Stop with savepoint",
    inputs=("name",),
    is_destructive=True,
    question="{job} finishes and publishes its current epoch, and ends. Then its state is copied "
    "to a savepoint. The next run continues after this epoch.",
)
PAUSE = OperationKind(
    name="pause",
    shown="STOPPING",
    command="pause",
    summary="Pause a job: keep its position and state, and read nothing.",
    perform=_pause,
    is_repeatable=True,
    needs_running=True,
    waits_for_epoch=True,
    available="active",
    path="/jobs/{job_id}/pause",
    button="Pause",
    question="{job} finishes and publishes its current epoch. Then its processes end, its slots "
    "are free, and it reads nothing until it is resumed. It continues after this epoch: no record "
    "is lost, and none is read twice.",
    help="The job publishes its current epoch, and its processes end. Its slots are free for other "
    "jobs. `bicycle resume JOB` starts it again after this epoch, with its state. A paused job "
    "survives restarts of the service and of the machine, and `bicycle jobs prune` keeps it. Its "
    "lag is unknown, and processing-time timers fire after the resume. `bicycle cancel JOB` ends "
    "it.",
    examples=("bicycle pause wordcount",),
)
CANCEL = OperationKind(
    name="cancel",
    rpc="CancelJob",
    with_savepoint=SUSPEND,
    shown="CANCELING",
    command="cancel",
    summary="Cancel a job immediately, without finishing the epoch.",
    perform=_cancel,
    is_repeatable=True,
    available="not canceling",
    path="/jobs/{job_id}/cancel",
    second_route=("DELETE", "/jobs/{job_id}"),
    button="Cancel",
    is_destructive=True,
    question="All processes of {job} end at once. Epochs up to {epoch} are kept, and their output "
    "is published. {unread}",
    help="All processes of the job end. The last sealed epoch is kept and published. Input "
    "after this epoch is read again at the next start.",
    examples=("bicycle cancel wordcount",),
)
