"""Queries on jobs from any process of this machine, by their status files."""

from __future__ import annotations

from datetime import UTC, datetime

from bicycle_runtime.base.processes import is_alive, is_frozen
from bicycle_runtime.jobs.errors import JOB_LOST, JOB_NOT_FOUND
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_sdk.errors import BicycleError


def list_jobs(home: Home) -> list[JobStatus]:
    """Return the status of every known job, the newest first.

    One that cannot be read hides no other: it is FAILED, with the reason.
    """
    found = [_status_in_list(folder) for folder in home.folders()]
    return sorted(
        (status for status in found if status is not None),
        key=lambda status: (-status.started_ms, status.id),
    )


def job_status(home: Home, name: str) -> JobStatus:
    """Return the status of a job.

    It is FAILED, or PAUSED if requested, if its process died without a final status.

    While its supervisor is about to start it again it is RESTARTING.

    Raises:
        JOB_NOT_FOUND: there is no such job.
    """
    status = _current(home.find(name))
    if status is None:  # It was removed since it was found.
        raise JOB_NOT_FOUND(
            job=name, known=[], known_text="none", suggestion="", home=str(home.path)
        )
    return status


def is_supervised(status: JobStatus) -> bool:
    """Return whether a supervisor restarts the driver of a job when it dies."""
    return is_alive(status.supervisor_pid, status.supervisor_started)


def _status_in_list(folder: JobFolder) -> JobStatus | None:
    try:
        return _current(folder)
    except BicycleError as error:
        return unreadable_status(folder, error)


def unreadable_status(folder: JobFolder, error: BicycleError, *, at_ms: int = 0) -> JobStatus:
    """Return the status of a job whose file cannot be read: FAILED, with the reason."""
    return JobStatus(
        id=folder.id, job=folder.id, plugin="", state=JobState.FAILED, error=error.to_json(),
        started_ms=at_ms, updated_ms=at_ms,
    )  # fmt: skip


def _current(folder: JobFolder) -> JobStatus | None:
    """Return the current status: a killed process left the status of a running job."""
    status = folder.status()
    if status is None or status.state.is_final:
        return status
    if is_alive(status.pid, status.pid_started):
        status.is_frozen = is_frozen(status.pid)
        return status
    status = folder.status()  # It may have written its last word since the first look.
    if status is None or status.state.is_final:
        return status
    if is_supervised(status):
        status.state = JobState.RESTARTING
        return status
    return end_lost(folder, status)


def end_lost(folder: JobFolder, status: JobStatus) -> JobStatus:
    """Return the status of a job whose processes are gone without a last word.

    It is FAILED, or PAUSED if it was requested to pause.
    """
    if folder.state_of_stop(status) is JobState.PAUSED:
        status.end(JobState.PAUSED, status.updated_ms)
        return status
    status.end(JobState.FAILED, status.updated_ms)
    seen = datetime.fromtimestamp(status.updated_ms / 1_000, tz=UTC)
    lost = JOB_LOST(job=status.id, pid=status.pid, seen=f"{seen:%Y-%m-%dT%H:%M:%SZ}")
    status.error = lost.to_json()
    return status
