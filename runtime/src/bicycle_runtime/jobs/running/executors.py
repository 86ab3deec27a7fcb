"""The executor of a running job, from its first start over all restarts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bicycle_runtime.base.processes import hang_up, kill_all
from bicycle_runtime.base.stacks import ProcessStacks
from bicycle_runtime.engine.deferred import DeferredExecutor
from bicycle_runtime.engine.errors import SparkStartKilledError
from bicycle_runtime.engine.executor import Executor, KeptExecutor
from bicycle_runtime.engine.hosts.shipment import Shipment
from bicycle_runtime.engine.spark.settings import default_master, is_embedded
from bicycle_runtime.jobs.home import Home, JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.running.services import DriverExecutor

T = TypeVar("T")
MakeExecutor = Callable[[JobRequest, Home, JobLocation], DriverExecutor]  # One for each start.
_HANG_UP_S = 1.0


class JobExecutor:
    """The runner of a job's tasks. It outlives the loops of epochs, and can be replaced.

    Args:
        make: Makes the executor, for each start.
        progress: Gets Java's process.
        phases: Get a start that was put off.

    Attributes:
        is_deferred: The next loop starts the executor only when there is something to run.
    """

    def __init__(
        self, make: Callable[[], DriverExecutor], *, progress: JobProgress, phases: Phases
    ) -> None:
        self._make = make
        self._progress = progress
        self._phases = phases
        self._executor = make()
        self.is_deferred = False

    @property
    def java_pid(self) -> int | None:
        """Process id of Spark's Java process, or None (yet)."""
        return self._executor.java_pid

    def boot_beside(self, work: Callable[[], T]) -> T:
        """Start the executor while other work is done, and return the result of that work."""
        with ThreadPoolExecutor(1, thread_name_prefix="java-start") as pool:
            booting = pool.submit(self._executor.boot)
            done = work()
        with contextlib.suppress(SparkStartKilledError):  # ``start`` tries it again.
            booting.result()
        return done

    def ship(self, shipment: Shipment) -> None:
        """Set the plugin's files for workers; before the next loop."""
        self._executor.ship(shipment)

    def for_loop(self, request: JobRequest, *, has_work: Callable[[], bool]) -> Executor:
        """Return the executor for the next loop, whose end leaves it running.

        A job whose input is empty does not wait for embedded Spark.

        Args:
            request: The job.
            has_work: Returns whether tasks are to be expected, once the sources are open.
        """
        master = master_of(request)
        if not self.is_deferred and not is_embedded(master):
            return KeptExecutor(self._executor)
        deferred = DeferredExecutor(
            self._executor,
            starting=lambda: self._starting(master),
            has_work=has_work if not self.is_deferred else lambda: False,
        )
        return KeptExecutor(deferred)

    @contextlib.contextmanager
    def counting_ends(self) -> Iterator[None]:
        """Show workers that ended unasked, also where the epoch inside fails."""
        try:
            yield
        finally:
            self._progress.take_ended_workers(self._executor.take_ended_workers())

    def replace(self) -> None:
        """Stop it; the next loop begins with a new one."""
        self._executor.stop()
        self._executor = self._make()

    def stop(self) -> None:
        """Release everything."""
        self._executor.stop()

    def end_tasks(self) -> list[ProcessStacks]:
        """Cancel the tasks on other hosts; return the stacks of the workers that hang."""
        return self._executor.end_tasks()

    def abort(self) -> None:
        """Allow a moment to cancel calls in flight and close functions; then kill it."""
        if self._executor.java_pid is not None:
            hang_up(self._executor.java_pid, timeout_s=_HANG_UP_S)
        self.kill()

    def kill(self) -> None:
        """End Java and its workers at once."""
        if self._executor.java_pid is not None:
            kill_all(self._executor.java_pid)

    @contextlib.contextmanager
    def _starting(self, master: str) -> Iterator[None]:
        with self._phases.step_of_start("starting Spark", master):
            yield
        self._progress.status.java_pid = self._executor.java_pid


def master_of(request: JobRequest) -> str:
    """Return the Spark master that a job requests, or the embedded one."""
    return request.options.master or default_master()
