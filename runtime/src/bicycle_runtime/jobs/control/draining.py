"""Ending a job as if its input had ended: nothing more is read, and what waits for time fires."""

from __future__ import annotations

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.processes import wait_for_end
from bicycle_runtime.jobs.control.looking import job_status
from bicycle_runtime.jobs.control.requests import ask_job
from bicycle_runtime.jobs.errors import STOP_TIMED_OUT, JobNotRunningError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobStatus

__all__ = ["drain_job"]

_END_RESERVE_MS = 10_000


def drain_job(
    home: Home, name: str, *, clock: Clock, reserve_ms: int = _END_RESERVE_MS
) -> JobStatus:
    """Ask a job to drain and wait until it has ended. One that has ended is left alone.

    Args:
        home: Where jobs are kept.
        name: The job's id.
        clock: Measures how long is waited.
        reserve_ms: How much longer than the job's own time for stopping it is waited for.

    Returns:
        The last status.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        REQUEST_TIMED_OUT: it does not end its epoch; it goes on as if nobody had asked.
        STOP_TIMED_OUT: it drains for longer than it was given for stopping, and goes on with it.
    """
    status = job_status(home, name)
    if status.state.is_final:
        return status
    timeout_ms = home.find(name).read_request().options.stop_timeout_ms + reserve_ms
    try:
        ask_job(home, name, "drain", {}, clock=clock, timeout_ms=timeout_ms)
    except JobNotRunningError:  # It has ended by itself.
        return job_status(home, name)
    status = job_status(home, name)  # Another driver may have been the one to answer.
    if not wait_for_end(status.pid, status.pid_started, timeout_s=timeout_ms / 1_000):
        raise STOP_TIMED_OUT(job=name, pid=status.pid, waited_ms=timeout_ms)
    return job_status(home, name)
