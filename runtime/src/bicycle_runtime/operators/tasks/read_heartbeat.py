"""How far a task is in an epoch that takes long: a small object in the checkpoint.

It says how many records were read, and how long was waited on purpose. The driver reads them for
people who wait, and for its watchdog. An epoch of less than two seconds writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from time import monotonic

import msgspec

from bicycle_runtime.base.storage import ObjectMissingError, Storage, StorageError

__all__ = ["READING_FOLDER", "ReadHeartbeat", "read_so_far"]

READING_FOLDER = "reading"
_INTERVAL_S = 2.0


class ReadHeartbeat:
    """Tells how many records one task has read, and how long it has waited on purpose.

    Args:
        storage: Checkpoint storage of the job.
        epoch: The epoch.
        task: Level and subtask.
        now: Reads a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        storage: Storage,
        epoch: int,
        task: tuple[int, int],
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._storage = storage
        self._epoch = epoch
        self._path = f"{READING_FOLDER}/{task[0]}-{task[1]}"
        self._now = now
        self._told = now()
        self._record_count = 0
        self._waited_s = self._waited_told_s = 0.0

    def __call__(self, record_count: int) -> None:
        """Tell how many records were read so far, at most every two seconds."""
        self._record_count = record_count
        if self._now() - self._told >= _INTERVAL_S:
            self._write()

    def wait(self, waited_s: float) -> None:
        """Tell how long was waited in all, with a wait that begins now: at once if it is long."""
        self._waited_s = waited_s
        is_long = waited_s - self._waited_told_s >= _INTERVAL_S
        if is_long or self._now() - self._told >= _INTERVAL_S:
            self._write()

    def _write(self) -> None:
        told = (self._epoch, self._record_count, round(self._waited_s * 1_000))
        with contextlib.suppress(StorageError):  # What is needed is written elsewhere, and told.
            self._storage.write(self._path, msgspec.json.encode(told))
        self._told, self._waited_told_s = self._now(), self._waited_s


def read_so_far(storage: Storage, epoch: int) -> tuple[int, int]:
    """Return how far the tasks of an epoch are as far as they have told.

    Returns:
        Records read, and ms waited on purpose: at each level what the task with most has waited.
    """
    total, waited_ms = 0, dict[str, int]()
    for path in storage.list(READING_FOLDER):
        with contextlib.suppress(ObjectMissingError, msgspec.MsgspecError):  # Being replaced.
            told, count, ms = msgspec.json.decode(storage.read(path), type=tuple[int, int, int])
            if told == epoch:
                level = path.rpartition("/")[2].partition("-")[0]
                total += count
                waited_ms[level] = max(ms, waited_ms.get(level, 0))
    return total, sum(waited_ms.values())
