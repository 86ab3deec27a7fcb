"""The program of a driver in the background: of a submitted job, or an ended one.

A job that was ended in the middle may have sealed records that are not visible yet; a file sink
keeps them in a part that is still open. A driver without a supervisor closes it: it takes the job
over, reads nothing, publishes sealed output, and ends. No Java is needed for that.

A driver may be started ahead of its turn, while another version of the job still runs: it starts
Spark, and waits for a signal from its starter, or for the starter's end. It may follow the job
meanwhile, as its shadow.

Run as ``python -m bicycle_runtime.jobs.running.submission HOME FOLDER``, and of a supervisor with
``SUPERVISOR START [STARTER]``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.shadow import follow_job
from bicycle_runtime.jobs.running.spark_starts import WarmExecutor, spark_starts
from bicycle_runtime.jobs.shadow_note import read_shadow
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import configure, tell_end
from bicycle_sdk.random_source import system_random

_TURN_POLL_S = 0.02


def main(arguments: list[str]) -> int:
    """Run the driver of a job.

    Args:
        arguments: The home, the name of the job's folder; of the supervisor the process id and
            start time with a colon between; the number of the start, 0 for the first. Without the
            last two, sealed output is published, and nothing is run. One more, written like the
            supervisor, is the process that started it ahead of its turn.

    Returns:
        0 when the job ended well, or all is published, 1 when it failed; the status file has the
        error.
    """
    home = Home(Path(arguments[0]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    folder = home.folder(arguments[1])
    request = folder.read_request()
    enter_directory(request)
    configure(sys.stderr, as_json=request.logs_json, job=folder.id)
    only_settles = len(arguments) == 2
    is_again = only_settles or int(arguments[3]) > 0
    with StopRequest().on_signals() as stop:
        services = DoorServices(
            clock=SystemClock(),
            source=system_random(),
            console=_write_line,
            announce=_write_line,
            listener=_ignore_status,
            stop=stop,
            is_detached=True,
            supervisor=(0, 0) if only_settles else _process(arguments[2]),
            former=folder.status() if is_again else None,
            only_settles=only_settles,
        )
        try:
            if len(arguments) > 4:
                starter = _process(arguments[4])
                executor = WarmExecutor(request, home, services)
                run_in_turn(executor, home, services, folder=folder, starter=starter)
                return 0
            run_job(request, home, services, new_executor=spark_starts(services), folder=folder)
        except BicycleError as error:
            tell_end(error, sys.stderr, as_json=request.logs_json)
            return 1
    return 0


def enter_directory(request: JobRequest) -> None:
    """Change to the job's first working directory, for the same relative paths."""
    if request.directory and Path(request.directory).is_dir():
        os.chdir(request.directory)


def run_in_turn(
    executor: WarmExecutor, home: Home, services: DoorServices, *, folder: JobFolder,
    starter: tuple[int, int],
) -> None:  # fmt: skip
    """Start Spark, wait for the turn, and run the request in the folder.

    If the folder requests a shadow of the job, the shadow follows the job until the turn.

    Args:
        executor: The executor that starts Spark.
        home: The home of the job.
        services: The services of the driver.
        folder: The folder of the job.
        starter: Process id and start time of the process that signals the turn.
    """
    turn, ready = (path(services.supervisor[0]) for path in (folder.turn_path, folder.ready_path))

    def is_over() -> bool:
        return turn.exists() or services.stop.is_set or not is_alive(*starter)

    try:
        executor.warm()
        ready.touch()
        note = read_shadow(folder)
        if note is not None:
            follow_job(note, folder, home, services, executor=executor.first, is_over=is_over)
        pause = threading.Event()
        while not is_over():
            pause.wait(_TURN_POLL_S)
        if turn.exists():
            for path in (turn, ready):
                path.unlink(missing_ok=True)
            run_job(folder.read_request(), home, services, folder=folder, new_executor=executor)
    finally:
        for path in (turn, ready):
            path.unlink(missing_ok=True)
        executor.stop()


def _process(text: str) -> tuple[int, int]:
    """Return process id and start time of a supervisor."""
    pid, _, started = text.partition(":")
    return int(pid), int(started)


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ignore_status(_status: JobStatus) -> None:
    """Ignore a status: the status file is enough in the background."""


if __name__ == "__main__":
    faulthandler.enable()  # Before a fault of a library ends the process, the log gets its stacks.
    sys.exit(main(sys.argv[1:]))
