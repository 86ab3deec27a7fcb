"""The executor in this process, in sequence: for tests, previews and the harness.

It runs the same programs, operators, exchange and state files as Spark does; only the shuffle is a
list.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable

from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.operators.tasks.task_reports import TaskReport, decode_report, reports_in
from bicycle_runtime.operators.tasks.worker_cache import TaskWorker
from bicycle_sdk.call_threads import CallThread


class LocalExecutor:
    """An executor in the calling thread, or another thread if an event loop runs.

    Args:
        adapt: Changes each program before it runs, as a replay does.
    """

    def __init__(self, adapt: Callable[[Program], None] | None = None) -> None:
        self.adapt = adapt
        self._image: JobImage | None = None
        self._worker: TaskWorker | None = None
        self._folder: str | None = None
        self._thread = CallThread()

    def start(self, image: JobImage) -> None:
        if self._worker is not None:
            self._thread.call(self._worker.close)
        self._image = image.with_state_folder(self._state_folder)
        self._worker = TaskWorker(self._image, adapt=self.adapt)

    def run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        return self._thread.call(self._run, orders)

    def _run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        assert self._image is not None
        assert self._worker is not None
        parallelisms = (*self._image.plan.level_parallelism, 1)
        inboxes: list[list[bytes]] = [[] for _ in range(parallelisms[0])]
        for level, order in enumerate(orders):
            following: list[list[bytes]] = [[] for _ in range(parallelisms[level + 1])]
            for subtask, inbox in enumerate(inboxes):
                for target, block in self._worker.run(level, subtask, order, inbox):
                    following[target].append(block)
            inboxes = following
        return [decode_report(report) for report in reports_in(inboxes[0])]

    def slots(self) -> int:
        """Return 1: tasks run in sequence."""
        return 1

    def rest(self) -> None:
        """Do nothing: waiting has no cost here."""

    def lose_workers(self) -> None:
        """Forget all open functions and state in memory, as if all workers had died."""
        if self._worker is not None:
            self._thread.call(self._worker.lose)

    def stop(self) -> None:
        try:
            if self._worker is not None:
                self._thread.call(self._worker.close)
        finally:
            self._thread.close()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _state_folder(self) -> str:
        """Return a folder for local state; it is removed at the end."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="bicycle-state-")
        return self._folder
