"""Starts of a job for an upgrade: at once, or prepared while the job still runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus


class Start(Protocol):
    """Starts a job and waits until it runs; of a trial only until its first failure."""

    def __call__(self, request: JobRequest, /, *, is_trial: bool = False) -> JobStatus:
        """Start the job, as ``submit`` does."""


class Prepared(Protocol):
    """A start that needs little more than its turn."""

    @property
    def is_running(self) -> bool:
        """True while its process is running."""

    def wait(self) -> bool:
        """Wait until it is ready; False when it never will be."""

    def start(self, request: JobRequest, *, is_trial: bool = False) -> JobStatus:
        """Start a job, as ``Start`` does."""

    def drop(self) -> None:
        """End an unneeded prepared process; a started one continues."""


Prepare = Callable[[], Prepared]
