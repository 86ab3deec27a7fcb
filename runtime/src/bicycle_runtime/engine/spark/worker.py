"""The Python worker's side: the functions that a Spark task calls.

A worker process keeps the programs of the job it served last. It also keeps the garbage collector
from walking all state after every task: objects alive at the end of a task are frozen, and looked
through only now and then.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle
import msgspec

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.stacks import offer_stacks
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.base.user_code import ProcessEnding
from bicycle_runtime.engine.spark.positions_folder import (
    local_folder,
    positions_folder,
    stacks_folder,
)
from bicycle_runtime.engine.spark.worker_needs import NO_NEEDS, WorkerNeeds
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.routing import ShuffleBlock
from bicycle_runtime.operators.tasks.worker_cache import TaskWorker
from bicycle_runtime.operators.user_calls.user_functions import cancel_calls
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import configure, log_event

if TYPE_CHECKING:
    # It loads PySpark, which a probed host may lack.
    from bicycle_runtime.engine.spark.task_results import ResultBox

_LOG = logging.getLogger(__name__)
_TASKS_PER_COLLECTION = 256
_END_PATIENCE_S = 10
# hot path: with Python's default of 700 the collector costs 1,000 of 2,900 ns a record in a word
# count.
_ALLOCATIONS_PER_COLLECTION = 1_000_000
_workers: dict[str, TaskWorker] = {}
_tasks_done = 0
_is_ending = False
# Spark's functions that wait for a task and run it, and that report an error.
_task_code: CodeType | None = None
_report_code: CodeType | None = None
_ORDER_ENCODER = msgspec.msgpack.Encoder(enc_hook=dict)
_ORDER_DECODER = msgspec.msgpack.Decoder(prepare_type(EpochOrder))


class ImageBox(Protocol):
    """A container whose ``value`` is a pickled job image: a Spark broadcast."""

    value: bytes


def encode_order(order: EpochOrder) -> bytes:
    """Return an order as bytes, for ``LevelTask``."""
    return _ORDER_ENCODER.encode(order)


def do_nothing(_partition: object) -> None:
    """Do nothing: the task only keeps the process alive."""


def target_of(target: int) -> int:
    """Return the task that a block is for, which its sender has chosen.

    Workers are sent the name of this function, and load the module that it is in.
    """
    return target


class OwnError(Exception):
    """One of our errors encoded as text, since Spark transports only text."""

    @classmethod
    def of(cls, error: BicycleError) -> OwnError:
        """Return an error as one line."""
        return cls(json.dumps(error.to_json(), default=str))

    @classmethod
    def found_in(cls, text: str) -> BicycleError | None:
        """Return the error in a text of Spark, or None."""
        mark = f"{cls.__module__}.{cls.__qualname__}: "
        for line in text.splitlines():
            if line.strip().startswith(mark):
                return error_from_json(json.loads(line.strip().removeprefix(mark)))
        return None


class LevelTask:
    """The function of one Spark stage in one epoch.

    Args:
        run_id: Run of the driver; a worker that knows it needs no image.
        image: Broadcast of the pickled job image.
        level: Which level the stage is.
        order: Encoded order of the level.
        needs: The files and settings for a worker that does not know the run.
        box: The target of the last level's data for the driver; None for the others.
    """

    def __init__(
        self, run_id: str, image: ImageBox, level: int, order: bytes,
        *, needs: WorkerNeeds = NO_NEEDS, box: ResultBox | None = None,
    ) -> None:  # fmt: skip
        self._run_id = run_id
        self._image = image
        self._level = level
        self._order = order
        self._needs = needs
        self._box = box

    def __call__(self, subtask: int, blocks: Iterable[Any]) -> Iterator[ShuffleBlock]:
        """Run the task of one partition.

        ``blocks`` are pairs of partition and bytes, and the anchor's, which has no bytes.
        """
        try:
            worker = self._worker()
            inbox = (block for _, block in blocks if block is not None) if self._level else ()
            order = _ORDER_DECODER.decode(self._order)
            sent = worker.run(self._level, subtask, order, inbox)
            if self._box is None:
                yield from sent
            else:
                self._box.leave([block for _, block in sent])
        except BaseException as error:
            if _is_ending:  # The signal has left the running call: clients can be closed here.
                close_workers()
                os._exit(0)
            if isinstance(error, BicycleError):
                raise OwnError.of(error) from error
            raise
        _freeze()

    def _worker(self) -> TaskWorker:
        worker = _workers.get(self._run_id)
        if worker is None:
            if _workers:
                close_workers()
                _forget_frozen()
            if not _tasks_done:
                _close_at_end()
                configure(sys.stderr, level="WARNING")  # It ends up in the log of Spark.
                LAST_POSITION.open(Path(positions_folder()))
                offer_stacks(Path(stacks_folder()))
            self._needs.meet()
            gc.set_threshold(_ALLOCATIONS_PER_COLLECTION, 50, 100)
            image: JobImage = cloudpickle.loads(self._image.value)
            worker = _workers[self._run_id] = TaskWorker(image.with_state_folder(_state_folder))
        return worker


def _state_folder() -> str:
    """Return a folder for state that ends with the executor."""
    return str(Path(local_folder()) / "bicycle-state")


def close_workers() -> None:
    """Close and forget workers of earlier runs in this process; log failures.

    A failure is only logged.
    """
    while _workers:
        _, worker = _workers.popitem()
        try:
            worker.close()
        except Exception as error:  # noqa: BLE001 - the job is over: the error can only be logged.
            others = getattr(error, "__notes__", [])
            log_event(
                _LOG, "functions_not_closed", level=logging.WARNING, error=error, others=others
            )


def _forget_frozen() -> None:
    """Free the frozen state of closed workers, which is in reference cycles."""
    gc.unfreeze()
    gc.collect()


def _close_at_end() -> None:
    """Close user functions when Spark ends this process.

    Calls in flight are canceled before.

    Spark ends it by SIGHUP, or by closing the connection, whichever is seen first. Before each task
    Spark's daemon looks ``main`` up and resets the signal; it ends the process without ``atexit``.
    """
    global _task_code, _report_code  # noqa: PLW0603  # functions of the process
    import pyspark.util  # loaded in the process that runs this; not needed elsewhere
    import pyspark.worker

    main = pyspark.worker.main

    def main_then_close(infile: Any, outfile: Any) -> None:
        signal.signal(signal.SIGHUP, _leave_task)
        try:
            if _is_ending:  # The signal came between two tasks.
                raise SystemExit(0)
            main(infile, outfile)
        except BaseException as error:
            if _is_ending or isinstance(error, ProcessEnding | SystemExit):
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                close_workers()
                _end_if_unheard(outfile)
            if _is_ending or isinstance(error, ProcessEnding):
                raise SystemExit(0) from None
            raise
        _end_if_unheard(outfile)

    _task_code = main.__code__
    _report_code = pyspark.util.handle_worker_exception.__code__
    signal.signal(signal.SIGHUP, _leave_task)
    pyspark.worker.main = main_then_close


def _end_if_unheard(outfile: Any) -> None:
    """End the process if Spark no longer reads its output.

    The daemon would print a traceback, and end it all the same. Spark wanted this end, so the exit
    code is that of an end in order.
    """
    try:
        outfile.flush()
    except OSError:
        _begin_the_end()
        close_workers()
        os._exit(0)


def _leave_task(_signum: int, frame: FrameType | None) -> None:
    """Leave the call that SIGHUP came into, and do nothing else here.

    The call may hold any lock. So functions are closed where the exception arrives, after the call
    has released its locks. Between two tasks the next one ends the process. A report of an error,
    such as a connection that Spark has closed, is finished: Spark ends the process after it.
    """
    global _is_ending  # noqa: PLW0603  # one end of the process
    _is_ending = True
    _begin_the_end()
    if cancel_calls():  # An event loop is left by its own tasks, which raise CancelledError.
        return
    while frame is not None and frame.f_code is not _report_code:
        if frame.f_code is _task_code:
            raise ProcessEnding
        frame = frame.f_back


def _begin_the_end() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # By the kernel: a handler of Python would wait for a call that does not come back.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_END_PATIENCE_S)


def _freeze() -> None:
    # hot path: Spark's worker collects garbage after every task; with 1 M entries of state that is
    # 100 ms each time. Frozen objects are not looked at; cycles among them are found once in 256
    # tasks.
    global _tasks_done  # noqa: PLW0603  # one count for the process
    _tasks_done += 1
    if _tasks_done % _TASKS_PER_COLLECTION == 0:
        gc.unfreeze()
        gc.collect()
    else:
        gc.collect(0)  # only the garbage of this task
    gc.freeze()
