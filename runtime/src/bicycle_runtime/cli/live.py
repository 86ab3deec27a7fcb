"""One line at the bottom of a terminal that tells how the job is doing.

Everything else that goes to the terminal meanwhile is written above it. On anything but a terminal
the line is not shown, and writing is passed through.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from io import RawIOBase, TextIOBase
from typing import IO, TYPE_CHECKING, Any

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.cli.rendering import (
    byte_text,
    count_text,
    duration_text,
    lag_text,
    phase_text,
    watermark_text,
)

if TYPE_CHECKING:
    from bicycle_runtime.jobs.status import JobStatus

__all__ = ["LineWriter", "LiveLine", "Ticker", "status_line"]

_LOG = logging.getLogger(__name__)
_CLEAR = "\r\x1b[2K"
_GAP = "  "
_STOPPING = "STOPPING"
_LONG_MS = 2_000
_TICK_S = 1.0


def status_line(status: JobStatus, *, now_ms: int | None = None) -> str:
    """Return how a job is doing, in one line.

    Args:
        status: As it was last told.
        now_ms: The time, for what goes on since; None leaves that out.
    """
    parts = [status.job, status.state.value.lower()]
    if now_ms is not None and status.started_ms:
        parts.append(duration_text(_second(now_ms - status.started_ms)))
    if status.state.value == _STOPPING:
        parts.append("(again: at once)")
    if status.silent_storage_ms is not None:
        silent_ms = max(status.updated_ms - status.silent_storage_ms, 0)
        parts.append(f"waiting for storage for {duration_text(silent_ms)}")
    if status.phase is not None:
        parts.append(_with_time(phase_text(status.phase), status.phase.started_ms, now_ms))
    elif status.epoch_began_ms is not None and _is_long(status.epoch_began_ms, now_ms):
        text = _with_time(f"in epoch {status.epoch + 1}", status.epoch_began_ms, now_ms)
        count = status.reading_count
        parts.append(f"{text}, {count_text(count)} read so far" if count else text)
    if status.running_ms is not None:
        parts += [
            f"epoch {status.epoch}",
            f"{count_text(status.records_per_second)} records/s",
            f"{count_text(status.record_count)} read",
            f"lag {lag_text(status.lag_records, status.lag_bytes, status.lag_ms) or 'unknown'}",
            f"state {byte_text(status.state_bytes)}",
            f"watermark {watermark_text(status.watermark_ms)}",
        ]
    return _GAP.join(parts)


def _second(duration_ms: int) -> int:
    """Return whole seconds: tenths would only flicker."""
    return max(duration_ms, 0) // 1_000 * 1_000


def _is_long(began_ms: int, now_ms: int | None) -> bool:
    return now_ms is not None and now_ms - began_ms >= _LONG_MS


def _with_time(text: str, since_ms: int, now_ms: int | None) -> str:
    """Return a text with how long it has been so, from the second second on."""
    if not since_ms or now_ms is None or now_ms - since_ms < _LONG_MS:
        return text
    return f"{text} for {duration_text(_second(now_ms - since_ms))}"


class Ticker:
    """Shows a line again each second while inside, so that it is seen to move.

    Args:
        line: Returns the line.
        live: Where it is shown.
    """

    def __init__(self, line: Callable[[], str], live: LiveLine) -> None:
        self._line = line
        self._live = live
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="live-line", daemon=True)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _tick(self) -> None:
        while not self._end.wait(_TICK_S):
            self._live.show(self._line())


class LineWriter(RawIOBase):
    """A byte stream whose whole lines are written above a live line."""

    def __init__(self, live: LiveLine) -> None:
        super().__init__()
        self._live = live
        self._rest = b""

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def write(self, data: Any) -> int:
        """Take some bytes; what is no whole line yet waits."""
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            self._live.write(line.decode(errors="replace") + "\n")
        return len(data)


class LiveLine(TextIOBase):
    """A text stream that keeps its line below what is written to it.

    Args:
        stream: The terminal.
        is_shown: False passes writes through and shows no line.
    """

    def __init__(self, stream: IO[str], *, is_shown: bool) -> None:
        super().__init__()
        self._stream = stream
        self._is_shown = is_shown
        self._line = ""
        self._lock = threading.RLock()

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, line: str) -> None:
        """Replace the line; an empty one takes it away."""
        if not self._is_shown:
            return
        with self._lock:
            self._line = _cut(line, _width(self._stream) - 1)
            self._stream.write(_CLEAR + self._line)
            self._stream.flush()

    def above(self, stream: IO[str], line: str) -> None:
        """Write a whole line to a stream, maybe the same terminal.

        Whoever read it may be gone, as ``head`` is after some lines: that is told, and no error.
        """
        with self._lock:
            if self._is_shown:
                self._stream.write(_CLEAR)
                self._stream.flush()
            try:
                stream.write(line + "\n")
                stream.flush()
            except BrokenPipeError:
                _let_go(stream)
                log_event(_LOG, "reader_gone", level=logging.WARNING)
            if self._is_shown:
                self._stream.write(self._line)
                self._stream.flush()

    def write(self, text: str) -> int:
        """Write log lines above the line."""
        with self._lock:
            if not self._is_shown:
                return self._stream.write(text)
            self._stream.write(f"{_CLEAR}{text}{self._line if text.endswith(chr(10)) else ''}")
            return len(text)

    def flush(self) -> None:
        """Flush the terminal."""
        self._stream.flush()


def _let_go(stream: IO[str]) -> None:
    """Let a closed pipe lead nowhere, so that nothing fails that is still written to it."""
    with contextlib.suppress(OSError):  # It has no descriptor.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _width(stream: IO[str]) -> int:
    """Return the columns of the terminal that a stream writes to, which need not be stdout's."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # It is no terminal.
        columns = 0
    return columns or shutil.get_terminal_size().columns


def _cut(line: str, width: int) -> str:
    """Return the parts of a line that fit: half a number would be another number."""
    if len(line) <= width:
        return line
    gap = line.rfind(_GAP, 0, width + len(_GAP))
    return line[:gap] if gap > 0 else line[:width]
