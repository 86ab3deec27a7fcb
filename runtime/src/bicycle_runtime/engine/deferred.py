"""An executor that starts on first use, so that a look at the input is cheap.

A job with empty input, without new input, or with only sealed output to publish, needs no Java.
While it waits for input the executor gets ready beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from bicycle_runtime.engine.executor import Executor
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport


class BootedExecutor(Executor, Protocol):
    """An executor whose process can be started before it is needed."""

    def boot(self) -> None:
        """Start the process without waiting for it; again does nothing."""


class DeferredExecutor:
    """Starts another executor at the first epoch that has tasks.

    Args:
        executor: The executor of the tasks.
        starting: Is entered around a start within an epoch, to show it.
        has_work: Returns whether to start at once.
    """

    def __init__(
        self, executor: BootedExecutor, *, starting: Callable[[], AbstractContextManager[None]],
        has_work: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._executor = executor
        self._starting = starting
        self._has_work = has_work
        self._image: JobImage | None = None
        self._is_started = False

    def start(self, image: JobImage) -> None:
        """Take the image; an executor that runs or has work gets it at once."""
        self._image = image
        if self._is_started or self._has_work():
            self._executor.start(image)
            self._is_started = True

    def run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        """Run an epoch, after a start where that is still to be done."""
        if not self._is_started:
            assert self._image is not None
            with self._starting():
                self._executor.start(self._image)
            self._is_started = True
        return self._executor.run(orders)

    def slots(self) -> int:
        """Return how many tasks run at the same time; 0 before the start."""
        return self._executor.slots() if self._is_started else 0

    def rest(self) -> None:
        """Keep the workers alive; before the start, boot in the background."""
        if self._is_started:
            self._executor.rest()
        else:
            self._executor.boot()

    def stop(self) -> None:
        """Release everything."""
        self._executor.stop()
