"""The phases of a driver: their timeouts without progress, and their display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from bicycle_runtime.engine.spark.settings import is_embedded
from bicycle_runtime.jobs.home import JobLocation
from bicycle_runtime.jobs.options import LEASE_BEAT_MS_MAX, JobOptions
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.supervision.watchdog import Watchdog
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.lease import WATCH_BEATS


class Phases:
    """The phase of a job's driver, for its watchdog and for people.

    Args:
        watchdog: Ends phases without progress.
        progress: Shows it.
        options: How long it is waited.
        location: The job.
    """

    def __init__(
        self, watchdog: Watchdog, progress: JobProgress, options: JobOptions, location: JobLocation
    ) -> None:
        self._watchdog = watchdog
        self._progress = progress
        self._options = options
        self._location = location
        self._loaded = (0, 0)

    def work(self, name: str) -> AbstractContextManager[None]:
        """Return the phase of work for the job as a whole."""
        timeout_ms = self._options.watchdog_timeout_ms
        return self._watchdog.phase(name, self._location.job, timeout_ms=timeout_ms)

    def taking_over(self) -> AbstractContextManager[None]:
        """Take the job's lease, whose former holder may have to be watched for some beats."""
        timeout_ms = self._options.watchdog_timeout_ms
        wait_ms = WATCH_BEATS * LEASE_BEAT_MS_MAX  # It may have beats of another length.
        return self._watchdog.phase(
            "taking over", self._location.storage.url, timeout_ms=_longer(timeout_ms, wait_ms)
        )

    def epoch(self, number: int) -> AbstractContextManager[None]:
        """Run an epoch: functions of the job may be slow."""
        return self._watchdog.phase("running", f"epoch {number}", timeout_ms=self._epoch_timeout_ms)

    def copying(self) -> AbstractContextManager[None]:
        """Return the phase of a copy, without a timeout."""
        return self._watchdog.phase("copying", self._location.storage.url, timeout_ms=0)

    def waiting(self) -> AbstractContextManager[None]:
        """Wait on purpose."""
        return self._watchdog.phase("waiting", self._location.job, timeout_ms=0)

    @contextlib.contextmanager
    def step_of_start(self, name: str, target: str) -> Iterator[None]:
        """Enter a step of a start, which is shown, and ended without progress."""
        timeout_ms = self._start_timeout_ms
        with (
            self._watchdog.phase(name, target, timeout_ms=timeout_ms),
            self._progress.phase(name, target),
        ):
            yield

    def beginning(self) -> AbstractContextManager[None]:
        """Return the phase that recovers the last sealed epoch, or begins without one."""
        storage = self._location.storage
        name = "recovering" if EpochHistory(storage).epochs() else "starting with empty state"
        return self.step_of_start(name, storage.url)

    def take_loaded(self, done: int, total: int, *, is_running: bool) -> None:
        """Show how far state is loaded or verified; that it continues is progress.

        Args:
            done: Bytes so far.
            total: Bytes in all.
            is_running: Whether it is the first epoch that loads, in which functions run as well.
        """
        if (done, total) != self._loaded:
            self._loaded = (done, total)
            is_done = is_running and done >= total
            # Once all is loaded functions run, which may be slow.
            timeout_ms = self._epoch_timeout_ms if is_done else self._start_timeout_ms
            self._watchdog.beat(timeout_ms=timeout_ms)
        self._progress.advance(self._location.storage.url, done, total, unit="bytes")

    def take_publishing(self, epoch: int, sink: str | None, *, is_running: bool) -> None:
        """Show which sink publishes an epoch; the start may take as long as an epoch.

        Args:
            epoch: The epoch.
            sink: The sink, which may wait for its target system; None after the last sink.
            is_running: Whether the job runs, so that the epochs are watched instead.
        """
        if not is_running:
            timeout_ms = self._start_timeout_ms if sink is None else self._epoch_timeout_ms
            self._watchdog.beat(timeout_ms=timeout_ms)
        self._progress.take_publishing(epoch, sink)

    @property
    def _start_timeout_ms(self) -> int:
        return _longer(self._options.watchdog_timeout_ms, self._cluster_wait_ms)

    @property
    def _epoch_timeout_ms(self) -> int:
        return _longer(self._options.epoch_stall_timeout_ms, self._cluster_wait_ms)

    @property
    def _cluster_wait_ms(self) -> int:
        """The time that a job waits on purpose for executors of a cluster, in ms."""
        options = self._options
        is_embedded_spark = options.master is None or is_embedded(options.master)
        return 0 if is_embedded_spark else options.cluster_timeout_ms


def _longer(timeout_ms: int, wait_ms: int) -> int:
    """Return a timeout extended by a wait that has its own timeout; 0 remains 0."""
    return timeout_ms + wait_ms if timeout_ms else 0
