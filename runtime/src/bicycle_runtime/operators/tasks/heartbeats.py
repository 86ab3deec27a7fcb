"""Signs of life of a task that takes long: small objects in the checkpoint.

They tell how much state it has loaded, how many records it has read, and how long it has waited on
purpose. The driver reads them for people who wait and for its watchdog, since it may share nothing
else with its workers. A load of less than a second writes nothing, nor does an epoch of less than
two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from time import monotonic

import msgspec

from bicycle_runtime.base.storage import ObjectMissingError, Storage, StorageError
from bicycle_runtime.layouts.paths import LOADING, READING

__all__ = [
    "LoadHeartbeat",
    "ReadHeartbeat",
    "loaded_bytes",
    "read_so_far",
]

_LOAD_INTERVAL_S = 1.0


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
        self._path = f"{LOADING}/{run_id}/{task[0]}-{task[1]}"
        self._now = now
        self._told = now()
        self._last: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Write how far the task is, at most once a second."""
        if self._now() - self._told >= _LOAD_INTERVAL_S:
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
    parts = list(_parts(storage, storage.list(f"{LOADING}/{run_id}")))
    return sum(done for done, _ in parts), sum(total for _, total in parts)


def _parts(storage: Storage, paths: Iterable[str]) -> Iterable[tuple[int, int]]:
    for path in paths:
        with contextlib.suppress(ObjectMissingError):  # It was removed since it was listed.
            yield msgspec.json.decode(storage.read(path), type=tuple[int, int])


_READ_INTERVAL_S = 2.0


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
        self._path = f"{READING}/{task[0]}-{task[1]}"
        self._now = now
        self._told = now()
        self._record_count = 0
        self._waited_s = self._waited_told_s = 0.0

    def __call__(self, record_count: int) -> None:
        """Tell how many records were read so far, at most every two seconds."""
        self._record_count = record_count
        if self._now() - self._told >= _READ_INTERVAL_S:
            self._write()

    def wait(self, waited_s: float) -> None:
        """Tell how long was waited in all, with a wait that begins now: at once if it is long."""
        self._waited_s = waited_s
        is_long = waited_s - self._waited_told_s >= _READ_INTERVAL_S
        if is_long or self._now() - self._told >= _READ_INTERVAL_S:
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
    for path in storage.list(READING):
        with contextlib.suppress(ObjectMissingError, msgspec.MsgspecError):  # Being replaced.
            told, count, ms = msgspec.json.decode(storage.read(path), type=tuple[int, int, int])
            if told == epoch:
                level = path.rpartition("/")[2].partition("-")[0]
                total += count
                waited_ms[level] = max(ms, waited_ms.get(level, 0))
    return total, sum(waited_ms.values())
