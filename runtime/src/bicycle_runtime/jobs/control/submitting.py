"""Jobs in processes of their own: start one, and see it run.

The process is the leader of a session of its own, so it outlives the command and its terminal. It
logs into the job's folder; the starter reads everything from the status file. It runs the
supervisor, and below that the driver (``running.submission``).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.processes import (
    SIGNAL_BASE,
    how_it_ended,
    kill_all,
    last_log_lines,
    start_detached,
    start_ticks,
)
from bicycle_runtime.jobs.control.job_queries import is_supervised, job_status
from bicycle_runtime.jobs.control.previous_run import PreviousRun, job_locks, require_checkpoint
from bicycle_runtime.jobs.errors import DRIVER_ENDED, JobRunningError
from bicycle_runtime.jobs.home import Home, JobFolder, locate_job
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.random_source import system_random

_POLL_S = 0.05
_WAIT_POLL_COUNT_MAX = 2_400  # two minutes: Spark may have to start on a busy cluster
_FIRST_EPOCH_POLL_COUNT_MAX = 1_200  # one minute: functions may be slow
_LOG_TAIL_LINES = 20
_SUPERVISOR = "bicycle_runtime.jobs.supervision.supervisor"
Begin = Callable[[JobFolder], "subprocess.Popen[bytes]"]


def submit(request: JobRequest, home: Home, *, python: str, is_trial: bool = False) -> JobStatus:
    """Start a job in a background process, and wait until its first epoch is sealed.

    The wait ends after a minute within one epoch. If the epoch fails and runs again, the wait
    continues, because the next attempt may fail the job. A rejected start leaves the status of the
    previous run unchanged.

    A supervisor starts the process again if it dies without a final status.

    Args:
        request: The job.
        home: The home of the job.
        python: Interpreter of the process.
        is_trial: Whether the wait ends at the first failure that causes a restart.

    Returns:
        The status: RUNNING; FINISHED if the job has already ended; CREATED if the start takes very
        long; RESTARTING for a trial that failed.

    Raises:
        JobRunningError: a process of this machine runs the job.
        DRIVER_ENDED: the process ended without a final status.
        BicycleError: the job failed at its start or in its first epoch.
    """

    def begin(folder: JobFolder) -> subprocess.Popen[bytes]:
        return start_detached(
            _SUPERVISOR, str(home.path), folder.id, log_path=folder.log_path, python=python
        )

    return _submit(request, home, begin, is_trial=is_trial)


def resume_job(home: Home, name: str, *, python: str) -> JobStatus:
    """Start an ended job again with its last request, after its last sealed epoch.

    Args:
        home: Where its folder is.
        name: The job's id.
        python: Interpreter of the process.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        JobRunningError: it has not ended.
        BicycleError: see ``submit``.
    """
    return submit(resumed_request(home, name), home, python=python)


def resumed_request(home: Home, name: str) -> JobRequest:
    """Return the last request of a job, under the job's name in its checkpoints.

    Raises:
        JOB_NOT_FOUND: there is no such job.
        JobRunningError: it has not ended.
    """
    folder, status = home.find(name), job_status(home, name)
    if not status.state.is_final:
        raise JobRunningError(job=name, pid=status.pid, location=str(folder.path))
    return _with_name(folder.read_request(), status.job)


class PreparedStart:
    """A driver started ahead of its turn, beside a running one: Spark is up already.

    Args:
        folder: That of the job, whose master and settings do not change.
        home: Where it is.
        python: Interpreter of the process.
    """

    def __init__(self, folder: JobFolder, home: Home, *, python: str) -> None:
        self._folder, self._home, self._python = folder, home, python
        own = f"{os.getpid()}:{start_ticks(os.getpid())}"
        self._process = start_detached(
            _SUPERVISOR, str(home.path), folder.id, own, log_path=folder.log_path, python=python
        )
        self._turn = folder.turn_path(self._process.pid)
        self._ready = folder.ready_path(self._process.pid)
        self._is_taken = False

    @property
    def is_running(self) -> bool:
        """True while the process is running."""
        return self._process.poll() is None

    def wait(self) -> bool:
        """Wait until Spark has come up; False when it does not."""
        for _ in range(_WAIT_POLL_COUNT_MAX):
            if self._ready.exists():
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
                return False
        return False

    def start(self, request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        """Start a job like ``submit``, in the waiting process if that is still running."""
        if self._process.poll() is not None:
            return submit(request, self._home, python=self._python, is_trial=is_trial)

        def begin(_folder: JobFolder) -> subprocess.Popen[bytes]:
            self._is_taken = True
            self._turn.touch()
            return self._process

        return _submit(request, self._home, begin, is_trial=is_trial)

    def drop(self) -> None:
        """End the process, unless a job was started in it."""
        if self._is_taken:
            return
        if self._process.poll() is None:
            kill_all(self._process.pid)
            self._process.wait()
        self._ready.unlink(missing_ok=True)


def _submit(request: JobRequest, home: Home, begin: Begin, *, is_trial: bool) -> JobStatus:
    home.prepare()
    location = locate_job(request.options, home, clock=SystemClock(), source=system_random())
    folder = location.folder
    former = folder.status()
    if former is not None and not former.state.is_final and is_supervised(former):
        # Between two drivers the locks are free.
        text = str(folder.path)
        raise JobRunningError(job=former.id, pid=former.supervisor_pid, location=text)
    require_checkpoint(location, former, is_again=False)
    # Tried here already, as the error belongs to the caller; the process then holds them.
    with job_locks(location):
        before = PreviousRun.of(folder)
        # The status of the former run stays until the driver writes its own: a job that starts
        # again is never missing from the list.
        folder.write_request(_with_name(request, location.job))
    process = begin(folder)
    try:
        return _wait_until_running(process, folder, is_trial=is_trial)
    except BicycleError:
        if before is not None:
            before.put_back()
        raise


def _with_name(request: JobRequest, job: str) -> JobRequest:
    """Return the request with a fixed name, so that the process chooses no other."""
    data = request.to_json()
    return JobRequest.from_json({**data, "options": {**data["options"], "name": job}})


def _wait_until_running(
    process: subprocess.Popen[bytes], folder: JobFolder, *, is_trial: bool
) -> JobStatus:  # fmt: skip
    own = process.pid, start_ticks(process.pid)
    status: JobStatus | None = None
    calm_count = 0  # looks at which it ran, and nothing had failed
    for _ in range(_WAIT_POLL_COUNT_MAX):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
        status = _own_status(own, folder)
        if status is not None and (status.has_begun or status.state.is_final):
            break
        if is_trial and status is not None and status.restarts:
            break
        is_calm = status is not None and status.state is JobState.RUNNING and not status.restarts
        calm_count += is_calm
        if calm_count > _FIRST_EPOCH_POLL_COUNT_MAX:
            break
        if process.returncode is not None:
            raise DRIVER_ENDED(
                job=folder.id, how=_how(process.returncode), log_tail=_log_tail(folder)
            )
    if status is None:
        raise DRIVER_ENDED(job=folder.id, how="no answer", log_tail=_log_tail(folder))
    if status.error is not None:
        process.wait()
        raise error_from_json(status.error)
    return status


def _own_status(own: tuple[int, int], folder: JobFolder) -> JobStatus | None:
    """Return the status if a driver of this supervisor wrote it, not another one.

    Args:
        own: Process id and start time of the supervisor; ids recur, above all in containers.
        folder: That of the job.
    """
    status = folder.status()
    if status is None or (status.supervisor_pid, status.supervisor_started) != own:
        return None
    return status


def _how(return_code: int) -> str:
    """Return how a driver ended, from the exit code of its supervisor."""
    return how_it_ended(SIGNAL_BASE - return_code if return_code > SIGNAL_BASE else return_code)


def _log_tail(folder: JobFolder) -> str:
    lines = last_log_lines(folder.log_path)[-_LOG_TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines)
