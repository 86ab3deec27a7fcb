"""The driver's half of savepoints: taken between two epochs, copied meanwhile.

The driver carries out a request when nothing is in flight: in an epoch without input sinks close
open output, so that the savepoint needs no files of theirs. Changing files are copied at once, the
rest in a thread, while the ledger leaves the epoch alone. An error of that epoch is an error of the
job; an error of the copy belongs to the command that requested it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.jobs.errors import SAVEPOINT_FAILED
from bicycle_runtime.jobs.savepoints.paths import answer_of, new_savepoint_path
from bicycle_runtime.recovery.savepoints import SavepointWriter, Sign
from bicycle_sdk.clock import Clock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

if TYPE_CHECKING:
    from bicycle_runtime.engine.loop.epoch_loop import EpochLoop

_LOG = logging.getLogger(__name__)
_Answer = Future[Mapping[str, Any]]


class RunningSavepoints:
    """The requested savepoints of a job that are not yet complete.

    Args:
        storage: Checkpoint storage of the job.
        job: Its name.
        clock: Returns the time of day.
        signer: Returns the signer, when the first is taken; None signs nothing.
    """

    def __init__(
        self, storage: Storage, *, job: str, clock: Clock, signer: Callable[[], Sign] | None = None
    ) -> None:
        self._storage = storage
        self._job = job
        self._clock = clock
        self._signer = signer
        self._asked: list[tuple[Mapping[str, Any], _Answer]] = []
        self._copies: ThreadPoolExecutor | None = None
        self._copying: dict[str, _Answer] = {}  # By URL.

    def ask(self, facts: Mapping[str, Any]) -> _Answer:
        """Take note of a request: ``name`` and ``to``, both maybe None. The answer comes later."""
        answer: _Answer = Future()
        self._asked.append((facts, answer))
        return answer

    @property
    def is_asked(self) -> bool:
        """True if a request waits for an epoch."""
        return bool(self._asked)

    def meet(self, loop: EpochLoop) -> None:
        """Take all requested savepoints; return while their files are still copied.

        Raises:
            Exception: the epoch that closes the outputs failed, as any epoch may.
        """
        while self._asked:
            # After a failed epoch the request remains for the loop behind a restart.
            epoch = loop.close_outputs()
            facts, answer = self._asked.pop(0)
            self._begin(loop, epoch, facts, answer)

    def wait(self) -> None:
        """Wait for the copies, since the job's files must not be removed before."""
        if self._copies is not None:
            self._copies.shutdown(wait=True)
            self._copies = None

    def _begin(
        self, loop: EpochLoop, epoch: int, facts: Mapping[str, Any], answer: _Answer
    ) -> None:
        now_ms = self._clock.now_ms()
        with ExitStack() as holding:
            holding.enter_context(loop.holding(epoch))
            try:
                name, target = new_savepoint_path(
                    self._storage, epoch=epoch, name=facts["name"], to=facts["to"], now_ms=now_ms
                )
                if (copying := self._copying.get(target.url)) is not None:
                    copying.add_done_callback(partial(_repeat, answer))
                    return
                writer = SavepointWriter(
                    self._storage, target, epoch=epoch, name=name, now_ms=now_ms,
                    sign=None if self._signer is None else self._signer(),
                    replaces_incomplete=facts["to"] is None,  # Only this process takes one there.
                )  # fmt: skip
                writer.begin()
            except Exception as error:  # noqa: BLE001 - the command reports it; the job continues.
                answer.set_exception(self._as_ours(error))
                return
            held = holding.pop_all()
        if self._copies is None:
            self._copies = ThreadPoolExecutor(1, thread_name_prefix="savepoint-copies")
        self._copying[target.url] = answer
        answer.add_done_callback(lambda _: self._copying.pop(target.url))
        self._copies.submit(self._finish, writer, target, held, answer)

    def _finish(
        self, writer: SavepointWriter, target: Storage, held: ExitStack, answer: _Answer
    ) -> None:
        try:
            with held:
                savepoint = writer.finish()
        except Exception as error:  # noqa: BLE001 - as above.
            answer.set_exception(self._as_ours(error))
            return
        log_event(
            _LOG, "savepoint_taken", job=self._job, epoch=savepoint.epoch, url=target.url,
            file_count=savepoint.file_count, byte_count=savepoint.byte_count,
        )  # fmt: skip
        answer.set_result(answer_of(savepoint, target))

    def _as_ours(self, error: Exception) -> BicycleError:
        """Return an error for the command, and log it here, where the job runs."""
        log_event(_LOG, "savepoint_failed", level=logging.WARNING, job=self._job, error=error)
        if isinstance(error, BicycleError):
            return error
        return SAVEPOINT_FAILED(job=self._job, reason=f"{type(error).__name__}: {error}")


def _repeat(answer: _Answer, copied: _Answer) -> None:
    """Answer a request for a savepoint of which the files were already being copied."""
    if (error := copied.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(copied.result())
