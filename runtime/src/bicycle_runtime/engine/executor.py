"""The contract of executors, which run the tasks of an epoch. It knows nothing of Spark."""

from __future__ import annotations

from typing import Protocol

from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport


class Executor(Protocol):
    """Runs epochs of one job."""

    def start(self, image: JobImage) -> None:
        """Get ready for a job. Called before the first epoch, and again when it is rescaled.

        Programs of an earlier image in workers are closed; it may come back under another run id.
        """

    def run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        """Run one epoch: one order per level, level 0 first. Return the report of every task.

        A failure of user code is in a report. Raises an EpochFailedError or SparkLostError when
        tasks could not be run to their end even after retries; then nothing of the epoch may be
        used.
        """

    def slots(self) -> int:
        """Return how many tasks run at the same time; 0 while that is not known."""

    def rest(self) -> None:
        """Keep the workers alive while there is no work; called repeatedly.

        Called again and again then.
        """

    def stop(self) -> None:
        """Release everything. Called once, also after errors."""


class KeptExecutor:
    """An executor that outlives its loop, for the driver's next loop."""

    def __init__(self, executor: Executor) -> None:
        self.start, self.run, self.rest = executor.start, executor.run, executor.rest
        self.slots = executor.slots

    def stop(self) -> None:
        """Do nothing: its owner stops it."""
