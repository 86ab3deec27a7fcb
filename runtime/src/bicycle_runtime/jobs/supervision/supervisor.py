"""The small process that supervises a submitted job's driver and restarts it.

A driver that fails reports it and is left alone. A driver that dies without a last status (killed,
out of memory, a crash in a library) is started again by the job's restart strategy, and continues
after the last sealed epoch. When this process itself dies, the driver continues without a
supervisor, which its status shows.

Run as ``python -m bicycle_runtime.jobs.supervision.supervisor HOME JOB [STARTER]``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.processes import SIGNAL_BASE, how_it_ended, start_ticks
from bicycle_runtime.jobs.errors import DRIVER_DIED, JobRunningError
from bicycle_runtime.jobs.home import Home, JobFolder
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.status import JobState, JobStatus, write_status
from bicycle_runtime.jobs.supervision.error_reports import plain_error
from bicycle_runtime.jobs.supervision.restarts import Restarts, add_failure_note
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import configure, log_event
from bicycle_sdk.random_source import system_random

_LOG = logging.getLogger(__name__)
_DRIVER_MODULE = "bicycle_runtime.jobs.running.submission"
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
_WATCHED = _STOPS | {signal.SIGCHLD}


class DriverProcess(Protocol):
    """A driver as its supervisor sees it."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens when it is gone."""


class Supervisor:
    """Watches over the driver of one job.

    Args:
        folder: The job's folder in the home.
        start: Starts a driver; gets the number of the start, 0 for the first.
        clock: For times in the history.
        source: Spreads growing delays.
        wait: Returns the next signal to this process, or None after so many seconds.
    """

    def __init__(
        self,
        folder: JobFolder,
        *,
        start: Callable[[int], DriverProcess],
        clock: Clock,
        source: random.Random,
        wait: Callable[[float | None], int | None],
    ) -> None:
        self._folder = folder
        self._start = start
        self._clock = clock
        self._source = source
        self._wait = wait
        self._is_stopping = False
        self._drivers: set[tuple[int, int]] = set()  # Process id and start time of all drivers.
        self._unwritten: JobStatus | None = None

    def run(self) -> int:
        """Start the driver, and again as often as the strategy allows.

        Returns:
            The exit code of the last driver; of one that a signal ended, 128 and its number.
        """
        start_count = 0
        while True:
            driver = self._start(start_count)
            self._drivers.add((driver.pid, start_ticks(driver.pid)))
            code = self._watch(driver)
            delay_ms = self._settle(driver, code)
            if delay_ms is None or not self._pause(delay_ms):
                return code if code >= 0 else SIGNAL_BASE - code
            start_count += 1

    def _watch(self, driver: DriverProcess) -> int:
        """Wait for the driver's end; signals to this process are passed to the driver."""
        while (code := driver.poll()) is None:
            number = self._wait(None)
            if number in _STOPS:
                self._is_stopping = True
                driver.send_signal(number)
        return code

    def _settle(self, driver: DriverProcess, code: int) -> int | None:
        """Return how long to wait before the next start, or None.

        1. A driver with a last word, or one whose place another has taken, is left alone.
        2. A driver that never ran has no strategy yet; the submitting command gets the error,
           unless the job is stopping.
        3. Otherwise the strategy decides, and the status shows the decision. A stopping job is
           stopped instead of started again.
        """
        status = self._status()
        # 1. A driver with a last word, or one whose place another has taken, is left alone.
        #    One that was killed before it wrote its status is not: the last word is of one of ours.
        if status is None or status.state.is_final:
            return None
        if (status.pid, status.pid_started) not in self._drivers:
            return None
        # 2. A driver that never ran has no strategy yet; the submitting command gets the error,
        #    unless the job is stopping.
        if status.running_ms is None and not self._is_stopping:
            return None
        # 3. Otherwise the strategy decides, and the status shows the decision. A stopping job is
        #    stopped instead of started again.
        restarts = Restarts.planned(status.restart_plan, source=self._source)
        restarts.resume(status.restarts)
        error = _death(status, code, pid=driver.pid)
        delay_ms = restarts.delay_ms(epoch=status.epoch)
        final = self._folder.state_of_stop(status)
        if delay_ms is None and final is not JobState.PAUSED:
            final = JobState.FAILED
        if self._is_stopping:
            delay_ms = None
        self._write(status, error, attempt=restarts.used_count, delay_ms=delay_ms, final=final)
        return delay_ms

    def _write(
        self, status: JobStatus, error: BicycleError, *, attempt: int, delay_ms: int | None,
        final: JobState,
    ) -> None:  # fmt: skip
        now_ms = self._clock.now_ms()
        status.restarts = add_failure_note(
            status.restarts, error,
            now_ms=now_ms, epoch=status.epoch, attempt=attempt, delay_ms=delay_ms,
        )  # fmt: skip
        status.updated_ms = now_ms
        if delay_ms is None:
            status.end(final, now_ms)
            status.error = plain_error(error) if final is JobState.FAILED else None
        else:
            status.state, status.error = JobState.RESTARTING, None
            status.restart_count += 1
        log_event(
            _LOG, "driver_died", level=logging.WARNING, job=status.job, error=error,
            delay_ms=delay_ms, attempt=attempt,
        )  # fmt: skip
        self._replace(status)

    def _pause(self, delay_ms: int) -> bool:
        """Wait before the next start; False when the job was stopped meanwhile."""
        deadline = self._clock.monotonic() + delay_ms / 1_000
        while (left_s := deadline - self._clock.monotonic()) > 0:
            if self._wait(left_s) in _STOPS:
                status = self._status()
                if status is not None and status.state is JobState.RESTARTING:
                    status.end(self._folder.state_of_stop(status), self._clock.now_ms())
                    self._replace(status)
                return False
        return True

    def _status(self) -> JobStatus | None:
        """Return the newer of the stored status and one that could not be written."""
        stored, kept = self._folder.status(), self._unwritten
        if stored is None or kept is None or stored.updated_ms > kept.updated_ms:
            return stored
        return kept

    def _replace(self, status: JobStatus) -> None:
        """Write the status, unless another driver holds the job by now.

        A full disk of the home does not end the job: its attempts are counted in memory.
        """
        lock = FileLock(self._folder.lock_path, job=status.job, location=str(self._folder.path))
        try:
            with contextlib.suppress(JobRunningError), lock:
                write_status(self._folder.status_path, status)
            self._unwritten = None
        except OSError as error:
            self._unwritten = status
            reason = error.strerror or str(error)
            log_event(
                _LOG, "status_not_written", level=logging.WARNING, job=status.job, reason=reason
            )


def _death(status: JobStatus, code: int, *, pid: int) -> BicycleError:
    """Return why a driver is gone: its own word when it left one, else how it ended."""
    if status.error is not None:
        return error_from_json(status.error)
    how = how_it_ended(code)
    return DRIVER_DIED(job=status.id, pid=pid, how=how, epoch=status.epoch)


def main(arguments: list[str]) -> int:
    """Run the supervisor of a job.

    Args:
        arguments: The home, the name of the job's folder; process id and start time, with a colon
            between, of the process that starts the first driver ahead of its turn.

    Returns:
        The exit code of the last driver.
    """
    # Blocked here and in processes started here; a driver unblocks them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    folder = Home(Path(arguments[0])).folder(arguments[1])
    configure(sys.stderr, as_json=folder.read_request().logs_json, job=folder.id)
    own = f"{os.getpid()}:{start_ticks(os.getpid())}"

    def start(number: int) -> DriverProcess:
        ahead = arguments[2:] if number == 0 else []
        words = [sys.executable, "-m", _DRIVER_MODULE, *arguments[:2], own, str(number), *ahead]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL)

    supervisor = Supervisor(
        folder, start=start, clock=SystemClock(), source=system_random(), wait=_next_signal
    )
    return supervisor.run()


def _next_signal(timeout_s: float | None) -> int | None:
    if timeout_s is None:
        return signal.sigwait(_WATCHED)
    taken = signal.sigtimedwait(_WATCHED, timeout_s)
    return None if taken is None else taken.si_signo


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
