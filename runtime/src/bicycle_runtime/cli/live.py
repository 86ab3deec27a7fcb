"""The status of a run at the bottom of a terminal, below all other output.

``rich`` draws it again a few times a second, so that it is seen to move. On anything but a terminal
there is no such line, and this module is not imported.
"""

from __future__ import annotations

import os
from io import RawIOBase
from typing import IO, TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from bicycle_runtime.cli.rendering import lag_text, phase_text, watermark_text
from bicycle_sdk.quantities import byte_text, count_text, duration_text
from bicycle_streams.cli.rendering import write_line
from bicycle_streams.cli.terminal import terminal

if TYPE_CHECKING:
    from bicycle_runtime.jobs.status import JobStatus
    from bicycle_sdk.clock import Clock

_GAP = "  "
_STOPPING = "STOPPING"
_LONG_MS = 2_000
_REFRESHES_PER_SECOND = 4
_BAR_WIDTH = 40
_PENDING = frozenset({"created", "restarting", "stopping", "stopped", "canceled"})


def status_parts(status: JobStatus, *, now_ms: int | None = None) -> list[str]:
    """Return the parts of a job's status line: its name, its state, and figures.

    Args:
        status: The last status that the driver reported.
        now_ms: The current time, for durations; None omits them.
    """
    parts = [status.job, status.state.value.lower()]
    if now_ms is not None and status.started_ms:
        parts.append(duration_text(_second(now_ms - status.started_ms)))
    if status.state.value == _STOPPING:
        parts.append("(press again to stop immediately)")
    if status.silent_storage_ms is not None:
        silent_ms = max(status.updated_ms - status.silent_storage_ms, 0)
        wait = "storage refuses writes" if status.storage_reason else "waiting for storage"
        parts.append(f"{wait} for {duration_text(silent_ms)}")
    if status.publication is not None and _is_long(status.publication.since_ms, now_ms):
        text = f"publishing epoch {status.publication.epoch}"
        parts.append(_with_time(text, status.publication.since_ms, now_ms))
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
    return parts


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


class LiveStatus:
    """The status of a run; used in a ``with`` block.

    Other output of this process is printed above it.

    Args:
        stream: The terminal.
        clock: The clock for durations.
    """

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._status: JobStatus | None = None
        self._console = terminal(stream)
        self._live = Live(
            console=self._console,
            get_renderable=self._drawing,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> LiveStatus:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: JobStatus) -> None:
        """Take a status, which the next refresh draws."""
        self._status = status

    def write(self, stream: IO[str], text: str) -> None:
        """Write whole lines to a stream, above the status where it is the same terminal."""
        if stream is self._stream or _is_same_terminal(stream, self._stream):
            self._console.out(text, highlight=False)
        else:
            write_line(stream, text)

    def line_writer(self) -> RawIOBase:
        """Return a byte stream whose whole lines come above the status."""
        return _LineWriter(self, self._stream)

    def _drawing(self) -> RenderableType:
        status = self._status
        if status is None:
            return Text()
        job, state, *more = status_parts(status, now_ms=self._clock.now_ms())
        style = "bicycle.pending" if state in _PENDING else "bicycle.good"
        line = Text(_GAP, overflow="fold").join(
            [Text(job, "bicycle.name"), Text(state, style), *map(Text, more)]
        )
        phase = status.phase
        if phase is None or not phase.total:
            return line
        return Group(line, ProgressBar(phase.total, phase.done, width=_BAR_WIDTH))


class _LineWriter(RawIOBase):
    """A byte stream whose whole lines are written above a live status.

    Args:
        live: The status.
        stream: The terminal.
    """

    def __init__(self, live: LiveStatus, stream: IO[str]) -> None:
        super().__init__()
        self._live = live
        self._stream = stream
        self._rest = b""

    def writable(self) -> bool:
        """Return True: the stream is writable."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; an incomplete line is buffered."""
        lines, newline, rest = bytes(data).rpartition(b"\n")
        if newline:
            self._live.write(self._stream, (self._rest + lines).decode(errors="replace"))
            self._rest = rest
        else:
            self._rest += rest
        return len(data)


def _is_same_terminal(one: IO[str], other: IO[str]) -> bool:
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except OSError:  # One of them has no descriptor.
        return False
