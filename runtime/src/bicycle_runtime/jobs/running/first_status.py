"""The status with which a driver begins: of a new run, or of one that it goes on with."""

from __future__ import annotations

import os

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.home import JobPlace
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus

__all__ = ["first_status"]


def first_status(
    former: JobStatus | None,
    *,
    request: JobRequest,
    place: JobPlace,
    supervisor: tuple[int, int],
    is_detached: bool,
    now_ms: int,
) -> JobStatus:
    """Return the status with which this process begins as the driver of a job.

    Args:
        former: That of the driver in whose place this one was started; None for a new run.
        request: The job.
        place: Where it lives.
        supervisor: Process id and start time of who starts the driver again; zeros for nobody.
        is_detached: Whether it was submitted.
        now_ms: When a new run begins.
    """
    status = former
    if status is None:
        status = JobStatus(
            id=place.folder.id,
            job=place.job,
            plugin=request.options.plugin,
            is_detached=is_detached,
            checkpoint=place.storage.url,
            started_ms=now_ms,
        )
    status.pid, status.pid_started = os.getpid(), start_ticks(os.getpid())
    status.supervisor_pid, status.supervisor_started = supervisor
    status.java_pid = status.error = status.ended_ms = status.silent_storage_ms = None
    return status
