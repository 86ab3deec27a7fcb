"""One child process: runs it, keeps its last output, reads its result, kills it.

The child is the leader of a session of its own, so that whatever it forks dies with it. Nothing
here waits for the end of a pipe, since a grandchild may hold it open forever: the answer, the end
of the child or the deadline ends the wait. This module knows nothing of plugins.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bicycle_runtime.base.own_code import own_folders
from bicycle_runtime.base.processes import keep_niceness
from bicycle_runtime.extraction.wire import FrameReader
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.options import check, option

__all__ = ["ChildOutcome", "ExtractionLimits", "run_child"]

_MODULE = "bicycle_runtime.extraction.child"
_CHUNK_BYTES = 64 << 10
_DRAIN_BYTES_MAX = 4 << 20
_DUMP_WAIT_S = 1.0
_POLL_S = 0.02
_STRAY_PASS_COUNT_MAX = 20
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_RUN_MARK = "BICYCLE_EXTRACTION_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOutcome:
    """The end of a child process.

    ``exit_code`` is None when it was killed by us (after its answer, or for being late), negative
    for a signal. ``dump`` is what faulthandler wrote when it crashed or was late.
    """

    result: FrameReader
    is_late: bool
    exit_code: int | None
    stdout_tail: list[str]
    stderr_tail: list[str]
    dump: str


def run_child(
    request: bytes,
    *,
    python: str | None = None,
    limits: ExtractionLimits,
    clock: Clock | None = None,
) -> ChildOutcome:
    """Run one child process to its end. When this returns, all that it started has been killed.

    Args:
        request: What the child reads from its standard input.
        python: Interpreter; this one when None.
        limits: When to give up on it and how much to keep. Memory is the child's own affair.
        clock: Measures the wall time.

    Raises:
        OSError: the interpreter cannot be started.
    """
    with contextlib.ExitStack() as cleanup:
        channels = cleanup.enter_context(_Channels.opened(limits))
        folder = cleanup.enter_context(_work_folder())
        child = cleanup.enter_context(_start(request, python, folder, channels))
        watch = _Watch(child, channels, clock or SystemClock(), limits.wall_time_ms / 1_000)
        cleanup.callback(watch.close)
        is_late = watch.wait()
        return ChildOutcome(
            result=channels.result,
            is_late=is_late,
            exit_code=watch.exit_code(),
            stdout_tail=channels.stdout.lines(limits.output_line_count),
            stderr_tail=channels.stderr.lines(limits.output_line_count),
            dump=channels.dump.text(),
        )


class _Tail:
    """Keeps the end of a stream of bytes."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._data = bytearray()
        self._is_cut = False

    def feed(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * self._size_max:
            self._cut()

    def lines(self, count: int) -> list[str]:
        self._cut()
        lines = self.text().splitlines()
        return lines[1:][-count:] if self._is_cut and len(lines) > 1 else lines[-count:]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def _cut(self) -> None:
        if len(self._data) > self._size_max:
            del self._data[: -self._size_max]
            self._is_cut = True


class _Channels:
    """The four pipes from the child: two for output, one for a result, one for a dump."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self.stdout, self.stderr, self.dump = (_Tail(limits.output_bytes) for _ in range(3))
        self.result = FrameReader(limits.result_bytes)
        self.readers: dict[int, _Tail | FrameReader] = {}
        self.writers: list[int] = []

    @classmethod
    @contextlib.contextmanager
    def opened(cls, limits: ExtractionLimits) -> Iterator[_Channels]:
        channels = cls(limits)
        try:
            for sink in (channels.stdout, channels.stderr, channels.result, channels.dump):
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                channels.readers[reader] = sink
                channels.writers.append(writer)
            yield channels
        finally:
            channels.close_writers()
            for reader in channels.readers:
                os.close(reader)

    def close_writers(self) -> None:
        while self.writers:
            os.close(self.writers.pop())

    def read(self, reader: int) -> int:
        """Read one chunk; return its size, -1 if the pipe is empty, 0 at its end."""
        try:
            chunk = os.read(reader, _CHUNK_BYTES)
        except BlockingIOError:
            return -1
        self.readers[reader].feed(chunk)
        return len(chunk)

    def drain(self) -> None:
        """Read the pipes' present content, within bounds, since writers may be active."""
        for reader, sink in self.readers.items():
            left = _DRAIN_BYTES_MAX
            while left > 0 and not (isinstance(sink, FrameReader) and sink.is_done):
                size = self.read(reader)
                if size <= 0:
                    break
                left -= size


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bicycle-extract-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextlib.contextmanager
def _start(
    request: bytes, python: str | None, folder: Path, channels: _Channels
) -> Iterator[subprocess.Popen[bytes]]:
    stdout, stderr, result, dump = channels.writers
    mark = f"{_RUN_MARK}={folder}".encode()
    environment = {**_environment(python), "PYTHONHASHSEED": "0", _RUN_MARK: str(folder)}
    with tempfile.TemporaryFile() as stdin:
        stdin.write(request)
        stdin.seek(0)
        child = subprocess.Popen(
            [
                python or sys.executable,
                "-P",
                "-u",
                "-m",
                _MODULE,
                str(result),
                str(dump),
                str(folder),
            ],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(result, dump),
            env=environment,
            start_new_session=True,
        )
    try:
        keep_niceness(child.pid)
        channels.close_writers()
        yield child
    finally:
        _kill_group(child.pid)
        child.wait()
        _kill_strays(mark)


def _environment(python: str | None) -> dict[str, str]:
    """Return the child's environment: a copy of the parent's.

    An interpreter of our own also finds Bicycle where we found it, be it a source folder.
    """
    environment = dict(os.environ)
    if python is None:
        parents = [package.parent for package in own_folders()]
        folders = [str(parent) for parent in parents if parent.name not in _INSTALLED]
        former = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*folders, *([former] if former else [])])
    return environment


class _Watch:
    """Waits for the answer, the end or the deadline, whichever is first."""

    def __init__(
        self, child: subprocess.Popen[bytes], channels: _Channels, clock: Clock, wall_time_s: float
    ) -> None:
        self._child = child
        self._channels = channels
        self._clock = clock
        self._deadline = clock.monotonic() + wall_time_s
        self._selector = selectors.DefaultSelector()
        for reader in channels.readers:
            self._selector.register(reader, selectors.EVENT_READ)
        # Where the system has no such handle, the child is asked every _POLL_S.
        self._handle = os.pidfd_open(child.pid) if sys.platform == "linux" else None
        if self._handle is not None:
            self._selector.register(self._handle, selectors.EVENT_READ)
        self._has_ended = False

    def close(self) -> None:
        self._selector.close()
        if self._handle is not None:
            os.close(self._handle)

    def wait(self) -> bool:
        """Return whether the deadline came first, after which the child writes a dump."""
        if self._pump(self._deadline):
            return False
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGUSR1)
        self._pump(self._clock.monotonic() + _DUMP_WAIT_S)
        return True

    def exit_code(self) -> int | None:
        """Return how the child ended by itself, None when it has not."""
        return self._child.wait() if self._has_ended else None

    def _pump(self, deadline: float) -> bool:
        while (left := deadline - self._clock.monotonic()) > 0:
            for key, _ in self._selector.select(
                left if self._handle is not None else min(left, _POLL_S)
            ):
                self._serve(key.fd)
            if self._channels.result.is_done:
                self._channels.drain()
                return True
            if self._has_ended or (self._handle is None and self._child.poll() is not None):
                self._has_ended = True
                self._channels.drain()
                return True
        return False

    def _serve(self, descriptor: Any) -> None:
        if descriptor == self._handle:
            self._has_ended = True
        elif self._channels.read(descriptor) == 0:
            self._selector.unregister(descriptor)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _kill_strays(mark: bytes) -> None:
    """Kill processes which left the session (daemons do), known by their environment."""
    for _ in range(_STRAY_PASS_COUNT_MAX):  # Again, as one may fork while we look.
        strays = [pid for pid in _processes() if mark in _environment_of(pid).split(b"\0")]
        if not strays:
            break
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    except FileNotFoundError:  # No such directory on this system.
        return []


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # Gone, or of another user.
        return b""


# What one extraction may take: time, memory, size of its answer, and what is kept of its output.
#
# Limits are bounds for accidents, not a wall against hostile code: a plugin runs with the rights of
# the runtime's user. This module enforces nothing: the child sets its own memory limit, and the
# parent holds the watch.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """Bounds of one child process.

    Raises:
        OptionError: a value is out of bounds.
    """

    wall_time_ms: int = option(
        60_000,
        low=100,
        high=3_600_000,
        doc=(
            "Time limit of the child process, from its start to its complete result; then it is "
            "killed."
        ),
    )
    memory_bytes: int = option(
        4 << 30,
        low=64 << 20,
        high=1 << 46,
        doc="Memory limit of a child process; its address space may be four times as large.",
    )
    result_bytes: int = option(
        256 << 20, low=1 << 10, high=1 << 33, doc="Size limit of graph and functions together."
    )
    output_bytes: int = option(
        64 << 10,
        low=1 << 10,
        high=1 << 24,
        doc="Maximum amount of the end of its stdout and stderr that is kept.",
    )
    output_line_count: int = option(
        50, low=1, high=10_000, doc="Number of last lines of its output in an error."
    )

    def __post_init__(self) -> None:
        check(self)
