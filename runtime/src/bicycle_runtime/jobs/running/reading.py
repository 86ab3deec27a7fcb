"""How far the tasks of a long epoch are, looked up now and then while it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.storage import Storage, StorageError
from bicycle_runtime.jobs.running.progress import Progress
from bicycle_runtime.operators.tasks.read_heartbeat import READING_FOLDER, read_so_far

__all__ = ["ReadingWatch"]

_INTERVAL_S = 2.0
_SHOWN_MIN_MS = 2_000


class ReadingWatch:
    """Shows records of the epoch that runs, from entering to leaving.

    Args:
        storage: The job's checkpoint.
        progress: Knows which epoch runs, and shows it.
        clock: Tells for how long.
        on_wait: Gets the ms that an epoch waits on purpose, in pieces.
    """

    def __init__(
        self, storage: Storage, progress: Progress, *, clock: Clock,
        on_wait: Callable[[int], object],
    ) -> None:  # fmt: skip
        self._on_wait = on_wait
        self._waited = (0, 0)  # epoch and ms
        self._storage = storage
        self._progress = progress
        self._clock = clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="reading-watch", daemon=True)

    def __enter__(self) -> ReadingWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        with contextlib.suppress(StorageError):
            self._storage.delete_tree(READING_FOLDER)

    def look(self) -> None:
        """Show what the tasks have told, when the epoch has run for a while."""
        began_ms = self._progress.status.epoch_began_ms
        if began_ms is not None and self._clock.now_ms() - began_ms >= _SHOWN_MIN_MS:
            with contextlib.suppress(StorageError):
                epoch = self._progress.status.epoch + 1
                count, waited_ms = read_so_far(self._storage, epoch)
                self._progress.take_reading(count)
                self._take_waits(epoch, waited_ms)

    def _take_waits(self, epoch: int, waited_ms: int) -> None:
        before_ms = self._waited[1] if self._waited[0] == epoch else 0
        self._waited = (epoch, waited_ms)  # Less than before when a task begins once more.
        if waited_ms > before_ms:
            self._on_wait(waited_ms - before_ms)

    def _follow(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            self.look()
