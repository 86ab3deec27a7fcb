"""The driver's side of loading: progress in the first epoch, loaded sizes.

Workers load state when they first run a task of it. While they do, they leave signs in the
checkpoint, which are read here once a second and removed at the end.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator

from bicycle_runtime.base.storage import Storage, StorageError
from bicycle_runtime.layouts.paths import LOADING
from bicycle_runtime.operators.heartbeats import loaded_bytes
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 1.0
_BYTES_MIN = 1 << 20  # Shorter loads end before they are noticed.

OnLoaded = Callable[[int, int], None]


class LoadWatch:
    """Follows the loading of one run.

    Args:
        storage: Checkpoint storage of the job.
        run_id: Run of the driver.
        on_loaded: Gets bytes done and bytes in all, in a thread of its own.
    """

    def __init__(self, storage: Storage, run_id: str, on_loaded: OnLoaded) -> None:
        self._storage = storage
        self._run_id = run_id
        self._on_loaded = on_loaded
        self._is_over = False

    @contextlib.contextmanager
    def watching(self, state_bytes: int) -> Iterator[None]:
        """Follow the loading while the first epoch runs inside; later ones pass.

        Args:
            state_bytes: How much state there is.
        """
        if self._is_over or state_bytes < _BYTES_MIN:
            yield
            return
        self._is_over = True
        end = threading.Event()
        thread = threading.Thread(target=self._follow, args=(end,), name="load-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            with contextlib.suppress(StorageError):  # A task that was given up may still write.
                self._storage.delete_tree(LOADING)

    def _follow(self, end: threading.Event) -> None:
        while not end.wait(_INTERVAL_S):
            with contextlib.suppress(StorageError):  # The store that loads reports it.
                done, total = loaded_bytes(self._storage, self._run_id)
                if total:
                    self._on_loaded(done, total)


def tell_loads(reports: Iterable[TaskReport], *, job: str, epoch: int) -> None:
    """Log which ranges were loaded again in an epoch, and by which worker process."""
    for report in reports:
        for operator, byte_count in report.loaded.items():
            log_event(
                _LOG, "state_loaded", job=job, epoch=epoch, operator=operator,
                subtask=report.subtask, worker=report.worker, byte_count=byte_count,
            )  # fmt: skip
