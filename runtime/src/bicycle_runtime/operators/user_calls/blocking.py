"""Detection of calls that block the event loop: the operator and the user's line.

An ``async`` function that waits without ``await`` stops every other call in flight, without a sign.
So a thread beside the loop pings it while user code runs in it; when no ping is answered for too
long, it samples the stack of the loop's thread. Calls one after another delay no other call: for
them a finished call is an answer, too. Nothing is interrupted, and plain functions are not watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from types import FrameType

from bicycle_runtime.base.code_paths import show_paths
from bicycle_runtime.operators.heartbeats import LAST_POSITION
from bicycle_runtime.operators.user_calls.stack_frames import blamed_frame, is_ours, without_loop
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_LOOKS_PER_LIMIT = 4
_LIMIT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """The blocking calls of one operator: count, longest, line of the last.

    The time is that of the looks of a thread, so it is a little less than the truth.
    """

    count: int = 0
    longest_ms: int = 0
    location: str = ""


NONE = Blocking()


class _Turn:
    """One run of the loop with user code in it."""

    def __init__(self, operator: str, loop: asyncio.AbstractEventLoop, done: Sized) -> None:
        self.operator = operator
        self.thread = threading.get_ident()
        self._loop = loop
        self._done = done
        self._ping_count = self._pong_count = 0
        self._seen = (-1, -1)
        self._since = 0.0
        self.is_told = False

    def stuck_s(self, now: float) -> float:
        """Return the seconds without progress, and send a ping if the last was answered."""
        seen = (self._pong_count, len(self._done))
        if seen != self._seen:
            self._seen, self._since, self.is_told = seen, now, False
        if self._ping_count == self._pong_count:
            self._ping_count += 1
            with contextlib.suppress(RuntimeError):  # The loop was closed just now.
                self._loop.call_soon_threadsafe(self._answer)
        return now - self._since

    def _answer(self) -> None:
        self._pong_count += 1


class LoopWatch:
    """Watches the event loop of this process."""

    def __init__(self) -> None:
        self._limit_s = _LIMIT_MS / 1000
        self._turn: _Turn | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._found: dict[str, Blocking] = {}
        self._logged: set[str] = set()

    def start(self, limit_ms: int) -> None:
        """Start with a new job: report calls that block the loop longer than the limit."""
        self._limit_s = limit_ms / 1000
        self._found.clear()
        self._logged.clear()

    def stop(self) -> None:
        """Stop the thread; the next run of the loop starts another."""
        self._is_over.set()

    @contextlib.contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop, done: Sized = ()) -> Iterator[None]:
        """Watch one run of the loop.

        Args:
            loop: The loop, about to run in this thread.
            done: Results so far, when each of them is an answer.
        """
        outer, self._turn = self._turn, _Turn(LAST_POSITION.operator, loop, done)
        is_gone = self._thread is None or not self._thread.is_alive()  # As behind a fork.
        if is_gone or self._is_over.is_set():
            self._is_over = threading.Event()
            self._thread = threading.Thread(
                target=self._look_on, args=(self._is_over,), name="loop-watch", daemon=True
            )
            self._thread.start()
        try:
            yield
        finally:
            self._turn = outer

    def take(self, operator: str) -> Blocking:
        """Return and clear an operator's blocking calls."""
        return self._found.pop(operator, NONE)

    def _look_on(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._limit_s / _LOOKS_PER_LIMIT):
            turn = self._turn
            if turn is not None:
                stuck_s = turn.stuck_s(time.perf_counter())
                if stuck_s >= self._limit_s:
                    self._tell(turn, stuck_s)

    def _tell(self, turn: _Turn, stuck_s: float) -> None:
        location = _location_in(sys._current_frames().get(turn.thread))
        if location is None or turn is not self._turn:
            return
        stuck_ms = round(stuck_s * 1000)
        if turn.operator not in self._logged:
            self._logged.add(turn.operator)
            log_event(
                _LOG, "event_loop_blocked", level=logging.WARNING, operator=turn.operator,
                location=location, blocked_ms=stuck_ms,
            )  # fmt: skip
        found = self._found.get(turn.operator, NONE)
        self._found[turn.operator] = replace(
            found,
            count=found.count + (not turn.is_told),
            longest_ms=max(found.longest_ms, stuck_ms),
            location=location,
        )
        turn.is_told = True


LOOP_WATCH = LoopWatch()


@dataclass(frozen=True, slots=True)
class _Line:
    """A frame of a running thread."""

    filename: str
    number: int
    function: str


def _location_in(frame: FrameType | None) -> str | None:
    """Return the user's ``file:line in function`` of a thread, or None in our code."""
    lines: list[_Line] = []
    while frame is not None:
        code = frame.f_code
        line = _Line(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_qualname)
        frame = frame.f_back
        if line.filename == asyncio.events.__file__ or (lines and is_ours(line)):
            break  # Outer frames run the loop, or called us.
        if not is_ours(line):
            lines.append(line)
    users = without_loop(lines[::-1])
    if not users:
        return None
    location = blamed_frame(users)
    return f"{show_paths(location.filename)}:{location.number} in {location.function}"
