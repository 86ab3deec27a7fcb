"""The services that a caller of the driver provides: clock, output, stop request."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Protocol

from bicycle_runtime.base.stacks import ProcessStacks
from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.engine.hosts.shipment import Shipment
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_sdk.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorServices:
    """Clock, random numbers, output for people, and the wish to stop.

    ``console`` writes lines of a console sink, ``announce`` one about the job, ``listener`` gets
    the status after each epoch and while idle, ``stop`` is checked between epochs. ``supervisor``
    is process id and start time of the process that starts the driver again when it dies; a driver
    that was so started continues with the ``former`` status. A driver that ``only_settles`` reads
    nothing: it publishes sealed output, and ends. ``worker_log`` gets the output of workers; None
    is standard error.
    """

    clock: Clock
    source: random.Random
    console: Callable[[str], None]
    announce: Callable[[str], None]
    listener: Callable[[JobStatus], None]
    stop: StopRequest
    is_detached: bool = False
    supervisor: tuple[int, int] = (0, 0)
    former: JobStatus | None = None
    only_settles: bool = False
    worker_log: IO[bytes] | None = None


class DriverExecutor(Executor, Protocol):
    """An executor of a job's driver, which may start long before the loop."""

    @property
    def java_pid(self) -> int | None:
        """Process id of Spark's Java process, or None (yet)."""

    def boot(self) -> None:
        """Begin to start, while other work is done; again does nothing."""

    def take_ended_workers(self) -> list[LastPosition]:
        """Return the worker processes that ended unasked since the last call."""

    def end_tasks(self) -> list[ProcessStacks]:
        """Cancel the tasks on other hosts; return the stacks of the workers that hang."""

    def ship(self, shipment: Shipment) -> None:
        """Set the plugin's files for workers; before ``start``."""
