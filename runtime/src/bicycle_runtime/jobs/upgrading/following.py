"""The progress of a new version in the shadow of its job, as an upgrade sees it.

The version follows the job in a process of its own. One that is killed is started again and begins
with another fork; one that fails has failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.errors import SHADOW_LEFT_BEHIND
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.shadow_note import ShadowNote, forget_shadow, read_shadow, write_shadow
from bicycle_runtime.jobs.status import JobState, JobStatus
from bicycle_runtime.jobs.upgrading.starts import Prepare, Prepared
from bicycle_runtime.layouts.paths import SHADOW
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_STARTS_MAX = 3
_POLL_S = 0.05
_CLOSE_EPOCHS = 1  # So far behind, the next epoch of the job is as near as its own.


class Following:
    """The version that follows a job, until its turn comes or it is dropped.

    Args:
        home: Where the job is.
        job: Its id.
        wanted: The job with the version, in the form of ``JobRequest.to_json``.
        clock: Measures how long is waited.
        prepare: Starts a process for the version beside the job.
    """

    def __init__(
        self, home: Home, job: str, wanted: Mapping[str, Any], *, clock: Clock, prepare: Prepare
    ) -> None:
        self._home, self._job, self._wanted = home, job, dict(wanted)
        self._clock = clock
        self._prepare = prepare
        self._start_count = 0
        self._pause = threading.Event()
        self.ahead: Prepared | None = None

    def prove(self, *, epochs: int, watch_ms: int, catch_up_ms: int) -> None:
        """Wait until the version has caught up and followed some epochs, or for a time.

        Raises:
            SHADOW_LEFT_BEHIND: it does not catch up in time, or the job has ended.
            BicycleError: why it failed.
        """
        begun = self._clock.monotonic()
        caught_up: float | None = None

        def is_proved(note: ShadowNote, status: JobStatus) -> bool:
            nonlocal caught_up
            now = self._clock.monotonic()
            if status.state.is_final and status.state is not JobState.FINISHED:
                raise self._left(f"the job has ended: {status.state.value}")
            is_close = note.first > 0 and status.epoch - note.epoch <= _CLOSE_EPOCHS
            caught_up = now if is_close and caught_up is None else caught_up
            waited_ms = (now - begun) * 1_000
            if not is_close and waited_ms > catch_up_ms + (0 if caught_up is None else watch_ms):
                raise self._left(f"it is at epoch {note.epoch}, the job at {status.epoch}")
            if not is_close or caught_up is None:
                return False
            has_watched = (now - caught_up) * 1_000 >= watch_ms
            return has_watched or note.epoch - note.first >= epochs or status.state.is_final

        self._until(is_proved)

    def reach(self, epoch: int) -> None:
        """Wait until the version has followed the job, which has ended, to its last epoch.

        Raises:
            SHADOW_LEFT_BEHIND: it was killed again and again.
            BicycleError: why it failed.
        """
        self._until(lambda note, _status: note.first > 0 and note.epoch >= epoch)

    def drop(self) -> None:
        """End the version, unless its turn has come."""
        if self.ahead is not None:
            self.ahead.drop()
            self.ahead = None

    def forget(self) -> None:
        """Remove the files of the version in the shadow, which must not be running.

        Files that a storage does not remove now are removed by the next upgrade: they have no
        reader.
        """
        folder = self._home.folder(self._job)
        forget_shadow(folder)
        status = folder.status()
        if status is None or not status.checkpoint:
            return
        try:
            open_storage(status.checkpoint).delete_tree(SHADOW)
        except StorageError as error:
            log_event(_LOG, "shadow_not_removed", level=logging.WARNING, job=self._job, error=error)

    def _until(self, is_met: Callable[[ShadowNote, JobStatus], bool]) -> None:
        while True:
            note = read_shadow(self._home.folder(self._job))
            if note is not None and note.error is not None:
                raise error_from_json(note.error)
            if note is None or self.ahead is None or not self.ahead.is_running:
                self._begin()
            elif is_met(note, job_status(self._home, self._job)):
                return
            else:
                self._pause.wait(_POLL_S)

    def _begin(self) -> None:
        self.drop()
        if self._start_count == _STARTS_MAX:
            raise self._left(f"its process ended {_STARTS_MAX} times without a report")
        self._start_count += 1
        epoch = job_status(self._home, self._job).epoch
        write_shadow(self._home.folder(self._job), ShadowNote(request=self._wanted, epoch=epoch))
        self.ahead = self._prepare()
        self.ahead.wait()

    def _left(self, reason: str) -> Exception:
        return SHADOW_LEFT_BEHIND(job=self._job, reason=reason)
