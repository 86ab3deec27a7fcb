"""Starts of a job that an upgrade is given: at once, or prepared while the job still runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus

__all__ = ["Prepare", "Prepared", "Start"]

Start = Callable[[JobRequest], JobStatus]


class Prepared(Protocol):
    """A start that needs little more than its turn."""

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""

    def wait(self) -> bool:
        """Wait until it is ready; False when it never will be."""

    def start(self, request: JobRequest) -> JobStatus:
        """Start a job, as ``Start`` does."""

    def drop(self) -> None:
        """End what nobody needs any more; one that was started goes on."""


Prepare = Callable[[], Prepared]
