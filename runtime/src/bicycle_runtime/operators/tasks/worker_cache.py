"""A worker's cache of a job between tasks: open functions and warm state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.program import Program, build_program, close_all
from bicycle_runtime.operators.tasks.routing import ShuffleBlock
from bicycle_runtime.operators.tasks.task import run_task
from bicycle_runtime.operators.tasks.task_reports import TaskReport, report_block
from bicycle_runtime.operators.user_calls.blocking import LOOP_WATCH
from bicycle_runtime.records.codecs import refuse_pickles
from bicycle_runtime.state.stores.backends import remove_unowned
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)


class TaskWorker:
    """Runs the tasks of one job that reach this process.

    Args:
        image: The job.
        adapt: Changes each program before it runs, as a replay does.
    """

    def __init__(self, image: JobImage, *, adapt: Callable[[Program], None] | None = None) -> None:
        LOOP_WATCH.start(image.blocking_call_ms)
        self._image = image
        self._adapt = adapt
        self._programs: dict[tuple[int, int], Program] = {}
        self._first_epoch: int | None = None
        self._is_tidy = False

    def run(
        self, level: int, subtask: int, order: EpochOrder, blocks: Iterable[bytes]
    ) -> Iterator[ShuffleBlock]:
        """Run a task and yield its shuffle blocks; report functions that cannot be loaded."""
        LAST_POSITION.begin(self._image.run_id, order.epoch, (level, subtask))
        try:
            yield from self._run(level, subtask, order, blocks)
        finally:
            LAST_POSITION.end()

    def _run(
        self, level: int, subtask: int, order: EpochOrder, blocks: Iterable[bytes]
    ) -> Iterator[ShuffleBlock]:
        refuse_pickles(state=self._image.state.no_pickle)
        try:
            program = self._program(level, subtask)
        except BicycleError as error:
            report = TaskReport(level=level, subtask=subtask, attempt="", failure=error.to_json())
            yield report_block(self._image.plan, report)
            return
        self._tidy(order.epoch)
        yield from run_task(self._image, program, order, blocks)

    def close(self) -> None:
        """Close all user functions and readers, whichever of them fail, and forget them."""
        readers = self._image.readers.values() if self._programs else ()
        opened = [*self._programs.values(), *readers]
        ends = (self._programs.clear, LOOP_WATCH.stop)
        close_all([*(each.close for each in opened), *ends])
        refuse_pickles(state=False)

    def lose(self) -> None:
        """Forget everything without closing it, as when the process dies."""
        for program in self._programs.values():
            program.release()
        self._programs.clear()

    def _tidy(self, epoch: int) -> None:
        """Remove local state of ranges without an owner, once an epoch was sealed."""
        if self._first_epoch is None:
            self._first_epoch = epoch
        if self._is_tidy or epoch <= self._first_epoch:
            return
        self._is_tidy = True
        image = self._image
        owned = {spec.uid: spec.ranges() for spec in image.plan.operators() if spec.ranges()}
        count = remove_unowned(image.state, job_url=image.storage.url, owned=owned)
        if count:
            log_event(_LOG, "state_folders_removed", job=image.job_id, folder_count=count)

    def _program(self, level: int, subtask: int) -> Program:
        position = (level, subtask)
        if position not in self._programs:
            program = self._programs[position] = build_program(self._image, level, subtask)
            if self._adapt is not None:
                self._adapt(program)
        return self._programs[position]
