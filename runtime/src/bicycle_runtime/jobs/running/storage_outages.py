"""Outages of the checkpoint storage, for whose end the driver waits.

Nothing is lost by waiting, since nothing of the epoch that met the outage has happened. The status
has the time since when the storage does not respond, and a stop is obeyed meanwhile. Errors that do
not pass by themselves, such as a lack of rights or of space, are no outage.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from bicycle_runtime.base.errors import StorageUnreachableError
from bicycle_runtime.base.remote_storage import FsspecStorage, outages_told_to
from bicycle_runtime.base.storage import Storage
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.running.progress import JobProgress
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.layouts.paths import LEASE
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_MS, _PAUSE_MS_MAX = 500, 10_000
_T = TypeVar("_T")


class StorageOutages:
    """Waits for the checkpoint storage of one job.

    Args:
        storage: The storage.
        progress: Shows since when it does not answer.
        stop: Ends the waiting.
        phases: Knows that it is waited on purpose.
    """

    def __init__(
        self, storage: Storage, *, progress: JobProgress, stop: StopRequest, phases: Phases
    ) -> None:
        self._storage = storage
        self._progress = progress
        self._stop = stop
        self._phases = phases

    def reporting(self) -> contextlib.AbstractContextManager[None]:
        """Show outages that a single call waits for, while inside."""
        return outages_told_to(self._take)

    def prove(self, look: Callable[[], object], *, is_first: bool) -> None:
        """Prove that the storage can hold checkpoints; a job that ran before waits for it.

        Args:
            look: Raises where the storage cannot.
            is_first: Whether the job never ran.

        Raises:
            BicycleError: it cannot, or is away and the job never ran.
        """
        if is_first:
            look()
        else:
            self.survive(look)

    def survive(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call, which is repeated after each storage outage.

        Raises:
            StorageUnreachableError: a stop was requested meanwhile.
        """
        while True:
            try:
                return call()
            except StorageUnreachableError as error:
                self.wait(error)

    def wait(self, error: StorageUnreachableError) -> None:
        """Wait until the storage answers, looking with growing pauses.

        Raises:
            StorageUnreachableError: a stop was requested meanwhile; ``error`` itself.
        """
        self._progress.take_storage(is_away=True)
        log_event(_LOG, "storage_away", level=logging.WARNING, error=error)
        pause_ms = _FIRST_PAUSE_MS
        with self._phases.waiting():
            while not self._answers():
                self._progress.take_storage(is_away=True)
                if self._stop.wait(pause_ms):
                    raise error
                pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)
        self._progress.take_storage(is_away=False)

    def _answers(self) -> bool:
        storage = self._storage
        if isinstance(storage, FsspecStorage):
            storage = replace(storage, patience_s=0.0)  # The pauses are made here.
        try:
            storage.list(LEASE)
        except StorageUnreachableError:
            return False
        return True

    def _take(self, url: str, is_away: bool) -> None:
        if url == self._storage.url:
            self._progress.take_storage(is_away=is_away)
