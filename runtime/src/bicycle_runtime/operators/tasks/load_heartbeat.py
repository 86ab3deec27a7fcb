"""A sign of life of a task that loads state: small objects in the checkpoint, while it takes long.

The driver reads them, since it may share nothing else with its workers. A load of less than a
second writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from time import monotonic

import msgspec

from bicycle_runtime.base.storage import ObjectMissingError, Storage, StorageError

__all__ = ["LOADING_FOLDER", "LoadHeartbeat", "loaded_bytes"]

LOADING_FOLDER = "loading"
_INTERVAL_S = 1.0


class LoadHeartbeat:
    """Tells how far one task is.

    Args:
        storage: Checkpoint storage of the job.
        run_id: Run of the driver.
        task: Level and subtask.
        now: Reads a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        storage: Storage,
        run_id: str,
        task: tuple[int, int],
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._storage = storage
        self._path = f"{LOADING_FOLDER}/{run_id}/{task[0]}-{task[1]}"
        self._now = now
        self._told = now()
        self._last: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Write how far the task is, at most once a second."""
        if self._now() - self._told >= _INTERVAL_S:
            self._write((done, total))

    def close(self) -> None:
        """Say that all is loaded, if anything was said."""
        if self._last is not None:
            self._write((self._last[1], self._last[1]))

    def _write(self, parts: tuple[int, int]) -> None:
        self._last = parts
        with contextlib.suppress(StorageError):  # Loading itself tells what is wrong there.
            self._storage.write(self._path, msgspec.json.encode(parts))
        self._told = self._now()


def loaded_bytes(storage: Storage, run_id: str) -> tuple[int, int]:
    """Return how many bytes the tasks of a run have loaded, and how many there are, all together.

    Tasks that have said nothing do not count.
    """
    parts = list(_parts(storage, storage.list(f"{LOADING_FOLDER}/{run_id}")))
    return sum(done for done, _ in parts), sum(total for _, total in parts)


def _parts(storage: Storage, paths: Iterable[str]) -> Iterable[tuple[int, int]]:
    for path in paths:
        with contextlib.suppress(ObjectMissingError):  # It was removed since it was listed.
            yield msgspec.json.decode(storage.read(path), type=tuple[int, int])
