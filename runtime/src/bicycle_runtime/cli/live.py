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
from io import TextIOBase
from typing import IO, TYPE_CHECKING

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.cli.rendering import (
    byte_text,
    count_text,
    lag_text,
    phase_text,
    watermark_text,
)

if TYPE_CHECKING:
    from bicycle_runtime.jobs.status import JobStatus

__all__ = ["LiveLine", "status_line"]

_LOG = logging.getLogger(__name__)
_CLEAR = "\r\x1b[2K"
_GAP = "  "
_STOPPING = "STOPPING"


def status_line(status: JobStatus) -> str:
    """Return how a job is doing, in one line."""
    parts = [status.job, status.state.value.lower()]
    if status.state.value == _STOPPING:
        parts.append("(again: at once)")
    if status.phase is not None:
        parts.append(phase_text(status.phase))
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
