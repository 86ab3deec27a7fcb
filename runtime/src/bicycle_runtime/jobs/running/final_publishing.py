"""Making visible what a job has sealed, when it was ended in the middle and does not go on.

A file sink keeps sealed records in a part that is still open. A driver of its own closes it: it
takes the job over, reads nothing, publishes what is sealed, and ends. No Java is needed for that.

Run as ``python -m bicycle_runtime.jobs.running.final_publishing HOME FOLDER``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from bicycle_runtime.base.clock import Clock, SystemClock
from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.ids import system_random
from bicycle_runtime.base.logging import configure, tell_end
from bicycle_runtime.base.processes import kill_all
from bicycle_runtime.base.storage import StorageError, open_storage
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.status import JobStatus, write_status
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_sdk.errors import BicycleError

__all__ = ["main", "publish_remaining"]

_MODULE = "bicycle_runtime.jobs.running.final_publishing"
_TIMEOUT_S = 60


def publish_remaining(home: Home, status: JobStatus, *, clock: Clock) -> JobStatus:
    """Publish what an ended job has sealed and not shown; its state stays what it is.

    Args:
        home: Where its folder is.
        status: Of the job, whose processes are gone.
        clock: For the last word.

    Returns:
        The status afterwards; what is still in ``waiting`` could not be published in time.
    """
    if not status.waiting and not _has_untold_epochs(status):
        return status
    folder = home.folder(status.id)
    with folder.log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(home.path), folder.id],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=environment_for_python({"PYTHONIOENCODING": "utf-8:backslashreplace"}),
        )  # fmt: skip
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill_all(process.pid)
            process.wait()
    with FileLock(folder.lock_path, job=status.job, place=str(folder.path)):
        last = folder.status() or status
        last.state, last.error, last.phase = status.state, status.error, None
        last.ended_ms = last.updated_ms = clock.now_ms()
        write_status(folder.status_path, last)
    return last


def main(arguments: list[str]) -> int:
    """Be the driver that publishes what is sealed.

    Args:
        arguments: The home, and the name of the job's folder.

    Returns:
        0 when all is published, 1 when not; the log of the job says why.
    """
    home = Home(Path(arguments[0]))
    folder = home.folder(arguments[1])
    request = folder.read_request()
    configure(sys.stderr, as_json=request.logs_json, job=folder.id)
    with StopRequest().on_signals() as stop:
        services = DoorServices(
            clock=SystemClock(), source=system_random(),
            console=_write_line, announce=_write_line, listener=_ignore, stop=stop,
            is_detached=True, former=folder.status(), only_settles=True,
        )  # fmt: skip
        try:
            run_job(request, home, services, folder=folder)
        except BicycleError as error:
            tell_end(error, sys.stderr, as_json=request.logs_json)
            return 1
    return 0


def _has_untold_epochs(status: JobStatus) -> bool:
    """Tell whether epochs were sealed behind the last word of the status, which may lag behind."""
    if status.running_ms is None or not status.checkpoint:
        return False
    with contextlib.suppress(StorageError):
        epochs = EpochHistory(open_storage(status.checkpoint)).epochs()
        return bool(epochs) and epochs[-1] > status.epoch
    return False


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _ignore(_status: JobStatus) -> None:
    """Say nothing."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
