"""Heartbeats of a task: its progress and its present step.

The size of loaded state, the number of read records and the time of intended waits are small
objects in the checkpoint. The driver reads them for people who wait and for its watchdog, since it
may share nothing else with its workers. A load of less than a second writes nothing, nor does an
epoch of less than two.

A killed process cannot report its work. So each worker keeps its operator and input in a small file
which is mapped into its memory: the kernel has it whatever happens to the process. It is written
once for each batch and operator; nothing is written without an open file, as in tests.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.base.storage import ObjectMissingError, Storage, StorageError
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.layouts.paths import LOADING, READING

if TYPE_CHECKING:
    from bicycle_runtime.operators.batch import Origin

_LOAD_INTERVAL_S = 1.0


class LoadHeartbeat:
    """The reporter of one task's loading progress.

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
        """Report complete loading, if any report was made."""
        if self._last is not None:
            self._write((self._last[1], self._last[1]))

    def _write(self, parts: tuple[int, int]) -> None:
        self._last = parts
        with contextlib.suppress(StorageError):  # Loading itself reports the error.
            self._storage.write(self._path, msgspec.json.encode(parts))
        self._told = self._now()


def loaded_bytes(storage: Storage, run_id: str) -> tuple[int, int]:
    """Return the loaded and the total bytes of all tasks of a run.

    Tasks without a report do not count.
    """
    parts = list(_parts(storage, storage.list(f"{LOADING}/{run_id}")))
    return sum(done for done, _ in parts), sum(total for _, total in parts)


def _parts(storage: Storage, paths: Iterable[str]) -> Iterable[tuple[int, int]]:
    for path in paths:
        with contextlib.suppress(ObjectMissingError):  # It was removed since it was listed.
            yield msgspec.json.decode(storage.read(path), type=tuple[int, int])


_READ_INTERVAL_S = 2.0


class ReadHeartbeat:
    """The reporter of one task's record count and deliberate waits.

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
        """Report the number of records read so far, at most every two seconds."""
        self._record_count = record_count
        if self._now() - self._told >= _READ_INTERVAL_S:
            self._write()

    def wait(self, waited_s: float) -> None:
        """Report the total wait including one that begins now, at once if it is long."""
        self._waited_s = waited_s
        is_long = waited_s - self._waited_told_s >= _READ_INTERVAL_S
        if is_long or self._now() - self._told >= _READ_INTERVAL_S:
            self._write()

    def _write(self) -> None:
        told = (self._epoch, self._record_count, round(self._waited_s * 1_000))
        with contextlib.suppress(StorageError):  # Needed files are written elsewhere, with errors.
            self._storage.write(self._path, msgspec.json.encode(told))
        self._told, self._waited_told_s = self._now(), self._waited_s


def read_so_far(storage: Storage, epoch: int) -> tuple[int, int]:
    """Return the reported progress of an epoch's tasks.

    Returns:
        Records read, and ms of intended waits: at each level the longest wait of a task.
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


_SIZE = 4_096
_OPERATOR_SIZE = 512
_LENGTH = struct.Struct("<H")


class LastPosition(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The operator and input at which a worker process was last.

    ``code`` is its exit code, negative for a signal, and ``peak_bytes`` the most memory that it had
    at a time; None if its end was not observed. ``run_id`` is empty for a worker without a task.
    """

    run_id: str
    epoch: int
    level: int
    subtask: int
    operator: str = ""
    source: str | None = None
    shard: str | None = None
    offset: int | None = None
    end_offset: int | None = None
    code: int | None = None
    pid: int = 0
    host: str = ""
    peak_bytes: int | None = None


class PositionKeeper:
    """Keeps the last place of this process."""

    def __init__(self) -> None:
        self.operator = ""  # The operator at work.
        self._memory: mmap.mmap | None = None
        self._marks: dict[str, bytes] = {}
        self._task = LastPosition(run_id="", epoch=0, level=0, subtask=0)

    def open(self, folder: Path) -> None:
        """Keep the place in a file of this process in a folder; again does nothing."""
        if self._memory is not None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / str(os.getpid())).open("w+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def begin(self, run_id: str, epoch: int, task: tuple[int, int]) -> None:
        """Begin with a task."""
        self._task = LastPosition(run_id=run_id, epoch=epoch, level=task[0], subtask=task[1])
        self.read(None)
        self.enter("")

    def end(self) -> None:
        """Clear the position: the process runs no task of the job."""
        self.begin("", 0, (0, 0))

    def enter(self, operator: str) -> None:
        """Set the present operator."""
        # hot path: 0.2 us for each batch and operator.
        self.operator = operator
        if self._memory is not None:
            mark = self._marks.get(operator) or self._mark(operator)
            self._memory[: len(mark)] = mark

    def read(self, origin: Origin | None) -> None:
        """Set the present batch of input; None if its origin is unknown."""
        if self._memory is None:
            return
        # hot path: 2 us for each batch of a source.
        task = self._task
        if origin is None:
            task.source = task.shard = task.offset = task.end_offset = None
        else:
            task.source, task.shard = origin.source, origin.shard
            task.offset, task.end_offset = origin.offset, origin.end_offset
        body = msgspec.json.encode(task)
        if len(body) <= _SIZE - _OPERATOR_SIZE - _LENGTH.size:
            end = _OPERATOR_SIZE + _LENGTH.size + len(body)
            self._memory[_OPERATOR_SIZE:end] = _LENGTH.pack(len(body)) + body

    def _mark(self, operator: str) -> bytes:
        name = operator.encode()[: _OPERATOR_SIZE - _LENGTH.size]
        mark = self._marks[operator] = _LENGTH.pack(len(name)) + name
        return mark


LAST_POSITION = PositionKeeper()


def ended_workers(folder: Path) -> list[LastPosition]:
    """Return the last positions of ended processes in a folder, the latest end last.

    The name of a file is the process id; after its parent has noted the end, also the exit code and
    the most memory that the process had, in bytes, each after a dot.
    """
    found: list[tuple[int, LastPosition]] = []
    for path in folder.glob("*"):
        pid, _, end = path.name.partition(".")
        if not end and is_alive(int(pid), 0):
            continue
        code, _, peak_bytes = end.partition(".")
        # It is being renamed, or the process was killed while it wrote.
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            position = _decode(path.read_bytes())
            position.pid = int(pid)
            position.code = int(code) if code else None
            position.peak_bytes = int(peak_bytes) if peak_bytes else None
            found.append((path.stat().st_mtime_ns, position))
    return [position for _, position in sorted(found, key=lambda item: item[0])]


def _decode(data: bytes) -> LastPosition:
    if not data:  # It ended before it had a task.
        return LastPosition(run_id="", epoch=0, level=0, subtask=0)
    position = msgspec.json.decode(_field(data, _OPERATOR_SIZE), type=prepare_type(LastPosition))
    position.operator = _field(data, 0).decode()
    return position


def _field(data: bytes, start: int) -> bytes:
    (length,) = _LENGTH.unpack_from(data, start)
    begin = start + _LENGTH.size
    return data[begin : begin + length]
