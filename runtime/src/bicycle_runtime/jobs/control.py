"""Looking at jobs and ending them, from any process of this machine: files and signals only."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import UTC, datetime

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.processes import is_alive, kill_all, wait_for_end
from bicycle_runtime.jobs.errors import JobLostError, JobNotFoundError, StopTimeoutError
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState, JobStatus, write_status

__all__ = ["cancel_job", "is_supervised", "job_status", "list_jobs", "stop_job"]

_END_RESERVE_MS = 10_000


def list_jobs(home: Home) -> list[JobStatus]:
    """Return the status of every known job, the newest first."""
    found = [_current(folder) for folder in home.folders()]
    return sorted(
        (status for status in found if status is not None),
        key=lambda status: (-status.started_ms, status.id),
    )


def job_status(home: Home, name: str) -> JobStatus:
    """Return the status of a job; one whose process is gone without a last word is FAILED.

    While its supervisor is about to start it again it is RESTARTING.

    Raises:
        JobNotFoundError: there is no such job.
    """
    return _status_of(home, home.find(name))


def is_supervised(status: JobStatus) -> bool:
    """Tell whether somebody starts the driver of a job again when it dies."""
    return is_alive(status.supervisor_pid, status.supervisor_started)


def stop_job(home: Home, name: str, *, reserve_ms: int = _END_RESERVE_MS) -> JobStatus:
    """Ask a job to stop after its epoch and wait until it has. One that has ended is left alone.

    Args:
        home: Where jobs are kept.
        name: The job's id.
        reserve_ms: How much longer than the job's own time for stopping it is waited for.

    Returns:
        The last status.

    Raises:
        JobNotFoundError: there is no such job.
        StopTimeoutError: it did not end in the time that it was given when it was started.
    """
    folder = home.find(name)
    status = _status_of(home, folder)
    if status.state.is_final:
        return status
    timeout_ms = folder.read_request().options.stop_timeout_ms + reserve_ms
    pid, started = _leader(status)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_for_end(pid, started, timeout_s=timeout_ms / 1_000):
        raise StopTimeoutError(job=name, pid=pid, waited_ms=timeout_ms)
    return _status_of(home, folder)


def cancel_job(home: Home, name: str, *, clock: Clock) -> JobStatus:
    """End a job at once, with all its processes. One that has ended is left alone.

    The last sealed epoch stays; what ran behind it never happened.

    Raises:
        JobNotFoundError: there is no such job.
    """
    folder = home.find(name)
    status = _status_of(home, folder)
    if status.state.is_final:
        return status
    for pid, started in (
        (status.supervisor_pid, status.supervisor_started),
        (status.pid, status.pid_started),
    ):
        if is_alive(pid, started):
            kill_all(pid)
        if pid:  # Also one that was killed with its supervisor: it holds its locks to its end.
            wait_for_end(pid, started, timeout_s=_END_RESERVE_MS / 1_000)
    with FileLock(folder.lock_path, job=status.job, place=str(folder.path)):
        last = folder.status() or status
        last.state = JobState.CANCELED
        last.ended_ms = last.updated_ms = clock.now_ms()
        last.error = None
        write_status(folder.status_path, last)
    return last


def _leader(status: JobStatus) -> tuple[int, int]:
    """Return the process to speak to, with its start time: it ends last."""
    if is_supervised(status):
        return status.supervisor_pid, status.supervisor_started
    return status.pid, status.pid_started


def _status_of(home: Home, folder: JobFolder) -> JobStatus:
    status = _current(folder)
    if status is None:  # It was removed since it was found.
        raise JobNotFoundError(
            job=folder.id, known=[], known_text="none", suggestion="", home=str(home.path)
        )
    return status


def _current(folder: JobFolder) -> JobStatus | None:
    """Return the status as it is now: the file of a killed process still says that it runs."""
    status = folder.status()
    if status is None or status.state.is_final or is_alive(status.pid, status.pid_started):
        return status
    status = folder.status()  # It may have written its last word since the first look.
    if status is None or status.state.is_final:
        return status
    if is_supervised(status):
        status.state = JobState.RESTARTING
        return status
    seen = datetime.fromtimestamp(status.updated_ms / 1_000, tz=UTC)
    error = JobLostError(job=status.id, pid=status.pid, seen=f"{seen:%Y-%m-%dT%H:%M:%SZ}")
    status.state = JobState.FAILED
    status.error = error.to_json()
    status.ended_ms = status.updated_ms
    return status
