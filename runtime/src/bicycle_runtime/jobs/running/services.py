"""What a door, the foreground or a process of its own, lends the driver of a job."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.jobs.supervision.stopping import StopRequest

__all__ = ["DoorServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorServices:
    """Clock, random numbers, output for people, and the wish to stop.

    ``console`` writes a line of a console sink, ``announce`` one about the job, ``listener`` gets
    the status after each epoch and while idle, ``stop`` is asked between epochs. ``supervisor`` is
    process id and start time of who starts the driver again when it dies; a driver that was so
    started goes on with the ``former`` status. One that ``only_settles`` reads nothing: it
    publishes what is sealed, and ends. ``worker_log`` gets what workers print; None is standard
    error.
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
