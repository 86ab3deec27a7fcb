"""Programs of ours in child processes: question, time limit, last output, end.

A child may run the code of a plugin, which this process never does. Questions and answers are
frames (``pipes``) over pipes of their own, so that whatever the code prints is not taken for an
answer. The child leads a session of its own, and everything that it started ends with it. Nothing
here waits for the end of a pipe, since a grandchild may hold it open forever: the answer, the end
of the child or the deadline ends the wait.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.base.pipes import FrameReader, Message, decode_body, encode_frame
from bicycle_runtime.base.processes import how_it_ended, keep_niceness, process_ids
from bicycle_sdk.clock import Clock, SystemClock

_ANSWER_BYTES_MAX = 1 << 30
_OUTPUT_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_DRAIN_BYTES_MAX = 4 << 20
_DUMP_WAIT_S = 1.0
_POLL_S = 0.02
_STRAY_PASS_COUNT_MAX = 20
_MARK = "BICYCLE_CHILD"


class NoAnswerError(Exception):
    """The child returned no answer, or not in time; the text names the case.

    Callers add the question.
    """

    is_late = False


def ask_child(
    module: str, *words: str, question: dict[str, Any], blobs: Sequence[bytes] = (),
    timeout_s: float,
) -> dict[str, Any]:  # fmt: skip
    """Run a module with arguments, and return its answer to one question.

    Raises:
        NoAnswerError: there is no answer.
    """
    with Child(module, *words) as child:
        return child.answer_to(question, blobs, timeout_s=timeout_s)[0]


class Child:
    """One child process. One thread at a time asks; any thread may end it.

    ``answer`` has the state of the last answer, ``is_late`` whether the time limit came first.

    Args:
        module: The program; its first argument is for ``pipes.Questions``.
        words: Its other arguments.
        python: Interpreter; this one when None.
        environment: Variables; those of this process, with its import path, when None.
        answer_bytes: Size limit of an answer.
        output_bytes: How much of the end of its output to keep.
        output: ``kept``, or ``shown`` as this process's own, with its standard input for the child
            and in its session; ``quiet`` is ``shown`` with all output on standard error.
        clock: Measures the time limits.

    Raises:
        OSError: the interpreter cannot be started.
    """

    def __init__(
        self, module: str, *words: str, python: str | None = None,
        environment: Mapping[str, str] | None = None, answer_bytes: int = _ANSWER_BYTES_MAX,
        output_bytes: int = _OUTPUT_BYTES, output: Literal["kept", "shown", "quiet"] = "kept",
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock or SystemClock()
        self._answer_bytes = answer_bytes
        self._lock = Lock()
        self._has_ended = self._is_closed = self.is_late = False
        self._unsent = memoryview(b"")
        self.stdout, self.stderr, self.dump = (_Tail(output_bytes) for _ in range(3))
        self.answer = FrameReader(answer_bytes)
        self._tails: dict[int, _Tail] = {}
        self._selector = selectors.DefaultSelector()
        mark = uuid.uuid4().hex
        self._mark = f"{_MARK}={mark}".encode()
        variables = environment_for_python() if environment is None else environment
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            ours.callback(self._selector.close)
            questions, self._questions = _pipe(theirs, ours, is_to_child=True)
            answers, self._answers = _pipe(theirs, ours)
            dump = self._tail(theirs, ours, self.dump)
            is_kept = output == "kept"
            quiet = sys.__stderr__.fileno() if output == "quiet" and sys.__stderr__ else None
            self.process = subprocess.Popen(
                [python or sys.executable, "-P", "-u", "-m", module,
                 f"{questions},{answers},{dump}", *words],
                stdin=subprocess.DEVNULL if is_kept else None,
                stdout=self._tail(theirs, ours, self.stdout) if is_kept else quiet,
                stderr=self._tail(theirs, ours, self.stderr) if is_kept else None,
                pass_fds=(questions, answers, dump),
                env={**variables, _MARK: mark},
                start_new_session=is_kept,
            )  # fmt: skip
            # Where the system has no such handle, the child is asked every _POLL_S.
            self._handle = os.pidfd_open(self.process.pid) if sys.platform == "linux" else None
            if self._handle is not None:
                ours.callback(os.close, self._handle)
                self._selector.register(self._handle, selectors.EVENT_READ)
            for reader in (self._answers, *self._tails):
                self._selector.register(reader, selectors.EVENT_READ)
            self._close = ours.pop_all()
        self._leads_session = is_kept
        keep_niceness(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(
        self, question: dict[str, Any], blobs: Sequence[bytes] = (), *, timeout_s: float | None
    ) -> FrameReader:
        """Send a question and wait for the answer, the child's end or the time limit.

        A late child writes a dump of its calls if it can, and has to be ended then.
        """
        with self._lock:
            self.answer = FrameReader(self._answer_bytes, has_greeted=self.answer.has_greeted)
            if self._is_closed:
                return self.answer
            self._unsent = memoryview(encode_frame(question, blobs))
            self._selector.register(self._questions, selectors.EVENT_WRITE)
            self.is_late = not self._pump(timeout_s)
            if self.is_late:
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGUSR1)
                self._pump(_DUMP_WAIT_S)
            self._send_nothing()
            return self.answer

    def answer_to(
        self, question: dict[str, Any], blobs: Sequence[bytes] = (), *, timeout_s: float | None
    ) -> Message:
        """Return the answer to a question.

        Raises:
            NoAnswerError: there is no answer.
        """
        answer = self.ask(question, blobs, timeout_s=timeout_s)
        if answer.body is not None:
            try:
                return decode_body(answer.body)
            except ValueError as error:
                raise NoAnswerError(str(error)) from None
        if self.is_late:
            late = NoAnswerError(f"no result after {timeout_s} s")
            late.is_late = True
            raise late
        if answer.oversize is not None:
            raise NoAnswerError(f"a frame of {answer.oversize} bytes")
        how = f"{how_it_ended(self.exit_code or 0)}: {self.last_line}"
        raise NoAnswerError(answer.problem or how)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the child has ended, or ends within a time."""
        with self._lock:
            return self._pump(timeout_s, is_answer_wanted=False)

    def end(self, *, within_s: float = 0.0) -> str:
        """End the child unless it ends by itself within a time; return how it ended."""
        if within_s:
            self.wait(within_s)
        if not self._is_closed:  # Another process may have its id then.
            self._kill()
        with self._lock:  # A thread that asks sees the end.
            how = how_it_ended(self.process.wait())
            if not self._is_closed:
                self._is_closed = True
                _kill_strays(self._mark)
                self._close.close()
        return how

    @property
    def exit_code(self) -> int | None:
        """Return how the child ended by itself, None when it has not."""
        return self.process.wait() if self._has_ended else None

    @property
    def last_line(self) -> str:
        """Return the last line of its errors."""
        return next(iter(self.stderr.lines(1)), "no output")

    def _tail(self, theirs: contextlib.ExitStack, ours: contextlib.ExitStack, tail: _Tail) -> int:
        writer, reader = _pipe(theirs, ours)
        self._tails[reader] = tail
        return writer

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._leads_session:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def _pump(self, timeout_s: float | None, *, is_answer_wanted: bool = True) -> bool:
        """Serve all pipes until the answer or the end; return False if the time is over."""
        deadline = float("inf") if timeout_s is None else self._clock.monotonic() + timeout_s
        while not self._has_ended and (left := deadline - self._clock.monotonic()) > 0:
            pause_s = left if self._handle is not None else min(left, _POLL_S)
            for key, _ in self._selector.select(None if pause_s == float("inf") else pause_s):
                self._serve(key.fd)
            if self._handle is None and self.process.poll() is not None:
                self._has_ended = True
            if is_answer_wanted and self.answer.is_done:
                break
        is_over = self._has_ended or (is_answer_wanted and self.answer.is_done)
        if is_over:
            self._drain()
        return is_over

    def _serve(self, descriptor: Any) -> None:
        if descriptor == self._handle:
            self._has_ended = True
        elif descriptor == self._questions:
            self._send()
        elif self._read(descriptor) == 0:
            self._selector.unregister(descriptor)

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._questions, self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # It reads no more; its end or its answer shows why.
            self._unsent = self._unsent[:0]
        if not self._unsent:
            self._send_nothing()

    def _send_nothing(self) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._questions)

    def _read(self, reader: int) -> int:
        """Read one chunk; return its size, -1 if the pipe is empty, 0 at its end."""
        try:
            chunk = os.read(reader, _CHUNK_BYTES)
        except BlockingIOError:
            return -1
        (self.answer if reader == self._answers else self._tails[reader]).feed(chunk)
        return len(chunk)

    def _drain(self) -> None:
        """Read the pipes' present content, within bounds, since writers may be active."""
        for reader in (self._answers, *self._tails):
            left = _DRAIN_BYTES_MAX
            while left > 0 and not (reader == self._answers and self.answer.is_done):
                size = self._read(reader)
                if size <= 0:
                    break
                left -= size


class _Tail:
    """The end of a stream of bytes."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._data = bytearray()
        self._is_cut = False

    def feed(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * self._size_max:
            self._cut()

    def lines(self, count: int) -> list[str]:
        """Return the last whole lines."""
        self._cut()
        lines = self.text().splitlines()
        return lines[1:][-count:] if self._is_cut and len(lines) > 1 else lines[-count:]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")

    def _cut(self) -> None:
        if len(self._data) > self._size_max:
            del self._data[: -self._size_max]
            self._is_cut = True


def _pipe(
    theirs: contextlib.ExitStack, ours: contextlib.ExitStack, *, is_to_child: bool = False
) -> tuple[int, int]:
    """Return the child's end and our end of a new pipe; ours does not block."""
    reader, writer = os.pipe()
    their_end, our_end = (reader, writer) if is_to_child else (writer, reader)
    theirs.callback(os.close, their_end)
    ours.callback(os.close, our_end)
    os.set_blocking(our_end, False)
    return their_end, our_end


def _kill_strays(mark: bytes) -> None:
    """Kill processes which left the session (daemons do), known by their environment."""
    for _ in range(_STRAY_PASS_COUNT_MAX):  # Again, as one may fork while we look.
        strays = [pid for pid in process_ids() if mark in _environment_of(pid).split(b"\0")]
        if not strays:
            break
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # Gone, or of another user.
        return b""
