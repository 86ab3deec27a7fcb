"""Ending a job from any process of this machine: by signals, or by a final status.

The sealed but invisible output of an ended job is published by a driver of its own, in a process
that is started here.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess

from bicycle_runtime.base.processes import (
    ABORT_SIGNAL,
    descendants,
    is_alive,
    is_frozen,
    kill_all,
    send_signal,
    start_detached,
    wait_for_end,
)
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.engine.spark.settings import is_embedded
from bicycle_runtime.jobs.control.job_queries import is_supervised, job_status
from bicycle_runtime.jobs.control.requests import DriverRequest, ask_job
from bicycle_runtime.jobs.errors import REQUEST_TIMED_OUT, JobNotRunningError
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState, JobStatus, write_status
from bicycle_runtime.jobs.stuck import stuck_threads, with_stuck
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.errors import BicycleError

_END_RESERVE_MS = 10_000
_STOP_MS_MIN = 10_000  # An abort of an epoch takes seconds, however short the time for stopping.
_STUCK_MIN_MS = 5_000
_ABORT_S = 18.0  # Of a job on a cluster: the stacks of other hosts take up to 10 s.


def stop_job(home: Home, name: str, *, clock: Clock | None = None, waited_ms: int = 0) -> JobStatus:
    """Request a job to stop after its epoch, and wait for its end.

    A job that has ended is left unchanged. A paused job becomes a stopped job.

    Processes of the job that are suspended by a signal are resumed, because they could not handle
    the request. A job that does not end within its stop timeout is killed: its sealed epochs are
    kept, and the status names the threads that were still running.

    Args:
        home: The home of the job.
        name: The job's id.
        clock: Clock for the final status of a job that was killed.
        waited_ms: Time of the stop timeout that has already passed, in ms.

    Returns:
        The last status.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    status = job_status(home, name)  # Before: a job that died while it paused is paused.
    home.folder(name).forget_pause()
    return _stop(home, status, clock or SystemClock(), waited_ms=waited_ms)


def pause_job(home: Home, name: str, *, clock: Clock) -> JobStatus:
    """Stop a job as ``stop_job`` does, to be resumed later: it ends as PAUSED.

    The request is kept in the folder of the job until its next run. The job is PAUSED even if its
    processes are killed before its last epoch is sealed. A job that has ended is left alone.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    folder, status = home.find(name), job_status(home, name)
    if status.state.is_final:
        return status
    folder.pause(status)
    status = _stop(home, status, clock)
    is_paused = status.state is JobState.PAUSED
    return _publish_remaining(home, status, clock=clock) if is_paused else status


def _stop(home: Home, status: JobStatus, clock: Clock, *, waited_ms: int = 0) -> JobStatus:
    folder = home.folder(status.id)
    if status.state is JobState.PAUSED:
        return _end_by_force(
            folder, status, JobState.STOPPED, now_ms=clock.now_ms(), is_stuck=False
        )
    if status.state.is_final:
        return status
    timeout_ms = max(folder.read_request().options.stop_timeout_ms - waited_ms, _STOP_MS_MIN)
    pid, started = _leader(status)
    send_signal(pid, signal.SIGTERM)
    _wake(status)
    if not wait_for_end(pid, started, timeout_s=timeout_ms / 1_000):
        return _end_stuck(folder, status, clock)
    return job_status(home, folder.id)


def suspend_stopped(home: Home, name: str) -> JobStatus:
    """Set a stopped job to SUSPENDED, and return its status.

    A savepoint of its last epoch is complete. Other states are left unchanged: a drained job is
    FINISHED.
    """
    folder, status = home.find(name), job_status(home, name)
    with FileLock(folder.lock_path, job=status.job, location=str(folder.path)):
        status = folder.status() or status
        if status.state is JobState.STOPPED:
            status.state = JobState.SUSPENDED
            write_status(folder.status_path, status)
    return status


def cancel_job(home: Home, name: str, *, clock: Clock) -> JobStatus:
    """Kill all processes of a job, and publish its sealed output.

    A job that has ended is left unchanged.

    A paused job has no processes, and is CANCELED.

    Sealed epochs are kept; the results of the running epoch are discarded.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    folder = home.find(name)
    status = job_status(home, name)
    if status.state.is_final and status.state is not JobState.PAUSED:
        return status
    now_ms, began_ms = clock.now_ms(), status.epoch_began_ms
    is_stuck = began_ms is not None and now_ms - began_ms >= _STUCK_MIN_MS
    master = folder.read_request().options.master
    if is_stuck and master is not None and not is_embedded(master):
        _abort(status)  # Its driver alone can collect the stacks of other hosts.
    status = _end_by_force(folder, status, JobState.CANCELED, now_ms=now_ms, is_stuck=is_stuck)
    return _publish_remaining(home, status, clock=clock)


def _end_stuck(folder: JobFolder, status: JobStatus, clock: Clock) -> JobStatus:
    """Stop a job by force that has not ended in its time for stopping."""
    status = folder.status() or status  # Another driver may run by now.
    state = folder.state_of_stop(status)
    return _end_by_force(folder, status, state, now_ms=clock.now_ms(), is_stuck=True)


def _end_by_force(
    folder: JobFolder, status: JobStatus, final: JobState, *, now_ms: int, is_stuck: bool
) -> JobStatus:
    """Kill all processes of a job; write and return its last status.

    Args:
        folder: The job's.
        status: As seen last.
        final: The state that it ends with.
        now_ms: The time.
        is_stuck: Whether its threads are to be named, which takes up to a second.
    """
    stuck = stuck_threads(folder.stacks_path, driver_pid=status.pid) if is_stuck else []
    for pid, started in (
        (status.supervisor_pid, status.supervisor_started),
        (status.pid, status.pid_started),
    ):
        if is_alive(pid, started):
            kill_all(pid)
        if pid:  # Also one that was killed with its supervisor: it holds its locks to its end.
            wait_for_end(pid, started, timeout_s=_END_RESERVE_MS / 1_000)
    with FileLock(folder.lock_path, job=status.job, location=str(folder.path)):
        last = folder.status() or status
        last.end(final, now_ms)
        last.updated_ms, last.error = now_ms, None
        last.stuck = with_stuck(last.stuck, stuck)
        write_status(folder.status_path, last)
    return last


def _abort(status: JobStatus) -> None:
    """Request the driver to abort its epoch, and wait a while for its end."""
    _wake(status)
    send_signal(status.pid, ABORT_SIGNAL)
    wait_for_end(status.pid, status.pid_started, timeout_s=_ABORT_S)


def _wake(status: JobStatus) -> None:
    """Continue processes of a job that were stopped by a signal, workers included."""
    for pid, started in (
        (status.supervisor_pid, status.supervisor_started),
        (status.pid, status.pid_started),
    ):
        if is_alive(pid, started):
            for member in [pid, *descendants(pid)]:
                if is_frozen(member):
                    send_signal(member, signal.SIGCONT)


def _leader(status: JobStatus) -> tuple[int, int]:
    """Return the process to speak to, with its start time: it ends last."""
    if is_supervised(status):
        return status.supervisor_pid, status.supervisor_started
    return status.pid, status.pid_started


def drain_job(home: Home, name: str, *, clock: Clock) -> JobStatus:
    """Request a job to drain, and wait for its end. One that has ended is left alone.

    Its running epoch and the epochs in which it drains have the job's stop timeout together. A job
    that takes longer is stopped by force as by ``stop_job``: its sealed epochs are kept, and the
    status names the threads that were still running.

    Args:
        home: Where jobs are kept.
        name: The job's id.
        clock: Measures how long is waited.

    Returns:
        The last status.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    status = job_status(home, name)
    if status.state.is_final:
        return status
    folder = home.find(name)
    limit_ms = max(folder.read_request().options.stop_timeout_ms * 9 // 10, _STOP_MS_MIN)
    deadline = clock.monotonic() + limit_ms / 1_000
    _wake(status)
    while True:  # A driver of an earlier version answers at once, and may die before its end.
        timeout_ms = max(round((deadline - clock.monotonic()) * 1_000), 0)
        try:
            ask_job(home, name, DriverRequest.DRAIN, {}, clock=clock, timeout_ms=timeout_ms)
        except JobNotRunningError:
            return job_status(home, name)
        except BicycleError as error:
            if error.code != REQUEST_TIMED_OUT.code:
                raise
            return _end_stuck(folder, status, clock)
        status = job_status(home, name)
        left_s = max(deadline - clock.monotonic(), 0.0)
        wait_for_end(status.pid, status.pid_started, timeout_s=left_s)


_DRIVER_MODULE = "bicycle_runtime.jobs.running.submission"
_TIMEOUT_S = 25


def _publish_remaining(home: Home, status: JobStatus, *, clock: Clock) -> JobStatus:
    """Publish the sealed but invisible output of an ended job; its state is unchanged.

    Args:
        home: Where its folder is.
        status: Of the job, whose processes are gone.
        clock: For the last word.

    Returns:
        The status afterwards; output that is still in ``waiting`` could not be published in time.
    """
    if not status.waiting and not _has_untold_epochs(status):
        return status
    folder = home.folder(status.id)
    process = start_detached(_DRIVER_MODULE, str(home.path), folder.id, log_path=folder.log_path)
    try:
        process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        kill_all(process.pid)
        process.wait()
    with FileLock(folder.lock_path, job=status.job, location=str(folder.path)):
        last = folder.status() or status
        last.state, last.error, last.phase = status.state, status.error, None
        last.ended_ms = last.updated_ms = clock.now_ms()
        write_status(folder.status_path, last)
    return last


def _has_untold_epochs(status: JobStatus) -> bool:
    """Return whether epochs were sealed after the last status, which may lag behind."""
    if status.running_ms is None or not status.checkpoint:
        return False
    with contextlib.suppress(StorageError):
        epochs = EpochHistory(open_storage(status.checkpoint)).epochs()
        return bool(epochs) and epochs[-1] > status.epoch
    return False
