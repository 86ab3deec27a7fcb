"""The journal of a job: a line for each epoch that was sealed, beside its status.

The status has the current values, and the journal has all epochs, so that a reader that polls once
per second misses no epoch. The driver appends, in single writes; readers continue at their last
position. Results do not depend on the journal: it may be lost, and a failed write ends no job.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_BYTES_MAX = 4 << 20
_READ_BYTES_MAX = 1 << 20
_RECENT_BYTES = 64 << 10
_INTERVAL_S = 0.5


class EpochLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One epoch, or the last of ``count`` epochs that came close together.

    Times are in ms since 1970; durations are the durations of all of them together.
    """

    epoch: int
    began_ms: int
    sealed_ms: int
    phases_ms: dict[str, float] = {}
    records: int = 0
    state_bytes: int = 0
    count: int = 1

    def joined(self, later: EpochLine) -> EpochLine:
        """Return this line and a later one as one."""
        names = {**self.phases_ms, **later.phases_ms}
        phases = {n: self.phases_ms.get(n, 0.0) + later.phases_ms.get(n, 0.0) for n in names}
        return EpochLine(
            epoch=later.epoch, began_ms=self.began_ms, sealed_ms=later.sealed_ms, phases_ms=phases,
            records=self.records + later.records, state_bytes=later.state_bytes,
            count=self.count + later.count,
        )  # fmt: skip


class LineJournal:
    """Appends lines, two a second at most; more frequent ones are merged into one.

    Args:
        path: The file; of its predecessors one is kept.
        job: The job, for the log.
        bytes_max: When the file becomes the predecessor.
    """

    def __init__(self, path: Path, *, job: str, bytes_max: int = _BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._job = job
        self._waiting: EpochLine | None = None
        self._written_s = -_INTERVAL_S
        self._is_told = False

    def take(self, line: EpochLine, *, now_s: float) -> None:
        """Add an epoch; ``now_s`` is a clock that does not go back."""
        self._waiting = line if self._waiting is None else self._waiting.joined(line)
        if now_s - self._written_s >= _INTERVAL_S:
            self._written_s = now_s
            self.flush()

    def flush(self) -> None:
        """Write the waiting line; a full disk is logged once."""
        if self._waiting is None:
            return
        data = msgspec.json.encode(self._waiting) + b"\n"
        self._waiting = None
        try:
            self._append(data)
        except OSError as error:
            if not self._is_told:
                reason = error.strerror or str(error)
                log_event(
                    _LOG, "journal_not_written", level=logging.WARNING, job=self._job,
                    reason=reason,
                )  # fmt: skip
            self._is_told = True

    def _append(self, data: bytes) -> None:
        number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, data)
            size = os.fstat(number).st_size
        finally:
            os.close(number)
        if size >= self._bytes_max:
            self._path.replace(_predecessor(self._path))


class JournalTail:
    """Reads a journal on from where it was, over a change of files.

    Args:
        path: The file; it need not be there.
        is_whole: Begin with the first line; else with lines added from now on.
    """

    def __init__(self, path: Path, *, is_whole: bool = False) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._offset = 0
        if not is_whole:
            stat = _stat(path)
            if stat is not None:
                self._file, self._offset = (stat.st_dev, stat.st_ino), stat.st_size

    def read(self) -> list[EpochLine]:
        """Return the lines that are new, at most a MiB of them; the rest comes next time."""
        stat = _stat(self._path)
        if stat is None:
            return []
        file = (stat.st_dev, stat.st_ino)
        found: list[EpochLine] = []
        if self._file is not None and file != self._file:
            former = _stat(_predecessor(self._path))
            if former is not None and (former.st_dev, former.st_ino) == self._file:
                found = self._lines(_predecessor(self._path))
            self._offset = 0
        self._file = file
        if stat.st_size > self._offset:
            found += self._lines(self._path)
        return found

    def _lines(self, path: Path) -> list[EpochLine]:
        with path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read(_READ_BYTES_MAX)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return _decode(whole, path)


def recent_lines(path: Path) -> list[EpochLine]:
    """Return the lines in the last 64 KiB of a journal, the oldest first."""
    found: list[EpochLine] = []
    room = _RECENT_BYTES
    for file in (path, _predecessor(path)):
        stat = _stat(file)
        if stat is None or room <= 0:
            continue
        with file.open("rb") as stream:
            start = max(0, stat.st_size - room)
            stream.seek(start)
            data = stream.read(room)
        room -= len(data)
        if start:
            data = data[data.find(b"\n") + 1 :]
        found = [*_decode(data[: data.rfind(b"\n") + 1], file), *found]
    return found


def _decode(data: bytes, path: Path) -> list[EpochLine]:
    decoder, lines = msgspec.json.Decoder(prepare_type(EpochLine)), []
    for text in data.splitlines():
        try:
            lines.append(decoder.decode(text))
        except msgspec.MsgspecError:  # Of a disk that was full in the middle of a line.
            log_event(_LOG, "journal_line_unreadable", level=logging.WARNING, path=str(path))
    return lines


def _predecessor(path: Path) -> Path:
    return path.with_name("journal.1.jsonl")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
