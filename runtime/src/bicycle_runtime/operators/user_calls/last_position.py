"""The last place of a worker: operator and input that it is at, kept where a kill leaves it.

A process that is killed cannot say what it was doing. So each worker keeps that in a small file
which is mapped into its memory: the kernel has it whatever happens to the process. Written is once
for each batch and operator; nothing is written where nobody opened a file, as in tests.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

import msgspec

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.operators.batch import Origin
from bicycle_runtime.operators.user_calls.blocking import LOOP_WATCH

__all__ = ["LAST_POSITION", "LastPosition", "PositionKeeper", "ended_workers", "enter_operator"]

_SIZE = 4_096
_OPERATOR_SIZE = 512
_LENGTH = struct.Struct("<H")


class LastPosition(msgspec.Struct, kw_only=True):
    """What a worker process was at. ``code`` tells how it ended; None where nobody saw it."""

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


class PositionKeeper:
    """Keeps the last place of this process."""

    def __init__(self) -> None:
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
        """Have no task: what the process does now is none of ours."""
        self.begin("", 0, (0, 0))

    def enter(self, operator: str) -> None:
        """Be at an operator."""
        # hot path: 0.2 us for each batch and operator.
        if self._memory is not None:
            mark = self._marks.get(operator) or self._mark(operator)
            self._memory[: len(mark)] = mark

    def read(self, origin: Origin | None) -> None:
        """Be at a batch of input; None where input and results cannot be told apart."""
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


def enter_operator(operator: str) -> None:
    """Note that an operator is at work in this process."""
    LOOP_WATCH.operator = operator
    LAST_POSITION.enter(operator)


def ended_workers(folder: Path) -> list[LastPosition]:
    """Return where the processes that kept their place in a folder ended, the last one last.

    Those that had no task are left out. The name of a file is the process id, and behind a dot the
    exit code, negative for a signal, once its parent has seen its end.
    """
    found: list[tuple[int, LastPosition]] = []
    for path in folder.glob("*"):
        pid, _, code = path.name.partition(".")
        if not code and is_alive(int(pid), 0):
            continue
        # It is being renamed, or the process was killed while it wrote.
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            position = _decode(path.read_bytes())
            if position.run_id:
                position.code = int(code) if code else None
                found.append((path.stat().st_mtime_ns, position))
    return [position for _, position in sorted(found, key=lambda item: item[0])]


def _decode(data: bytes) -> LastPosition:
    position = msgspec.json.decode(_field(data, _OPERATOR_SIZE), type=LastPosition)
    position.operator = _field(data, 0).decode()
    return position


def _field(data: bytes, start: int) -> bytes:
    (length,) = _LENGTH.unpack_from(data, start)
    begin = start + _LENGTH.size
    return data[begin : begin + length]
