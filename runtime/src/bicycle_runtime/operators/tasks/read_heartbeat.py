"""How far a task has read in an epoch that takes long: a small object in the checkpoint.

The driver reads them for people who wait. An epoch of less than two seconds writes nothing.
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
    """Tells how many records one task has read.

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

    def __call__(self, record_count: int) -> None:
        """Write how many records were read so far, at most every two seconds."""
        if self._now() - self._told < _INTERVAL_S:
            return
        with contextlib.suppress(StorageError):  # What is needed is written elsewhere, and told.
            self._storage.write(self._path, msgspec.json.encode((self._epoch, record_count)))
        self._told = self._now()


def read_so_far(storage: Storage, epoch: int) -> int:
    """Return how many records the tasks of an epoch have read as far as they have told."""
    total = 0
    for path in storage.list(READING_FOLDER):
        with contextlib.suppress(ObjectMissingError, msgspec.MsgspecError):  # Being replaced.
            told, count = msgspec.json.decode(storage.read(path), type=tuple[int, int])
            total += count if told == epoch else 0
    return total
