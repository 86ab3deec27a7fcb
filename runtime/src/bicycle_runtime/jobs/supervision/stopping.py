"""Stop requests: the first signal ends the job after its epoch, the second now.

SIGQUIT ends it without waiting for the epoch, but collects the stacks of workers first.

Signals are taken by a thread, through a pipe that the interpreter writes to, so that they count
even while the main thread waits inside a library, and no handler ever runs in the middle of our own
code. An epoch that would keep a stopped job beyond its time is aborted: it is not sealed, so
nothing of it ever happened, and the next start reads its input again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bicycle_runtime.base.pipes import is_readable
from bicycle_runtime.base.processes import ABORT_SIGNAL, descendants
from bicycle_sdk.clock import Clock, SystemClock

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HARD_EXIT_BASE = 128
# So long before the end of the time that it has, the epoch is aborted, and the process ended.
_ABORT_RESERVE_S, _END_RESERVE_S = 12.0, 3.0
_LAST_WORD_S = 2.0
_LATE_EXIT_CODE = 1
_CLOSE = 0  # no signal has this number


def _nothing() -> None:
    """Do nothing: the request is not armed yet."""


class StopRequest:
    """A stop request to this process, and the end of a stop that takes too long.

    Args:
        end: Ends the process with an exit code, at once.
        clock: Measures how long stopping takes.
    """

    def __init__(
        self, *, end: Callable[[int], None] | None = None, clock: Clock | None = None
    ) -> None:
        self._end = end or end_now
        self._clock = clock or SystemClock()
        self._event = threading.Event()
        self._woken = threading.Event()
        self._on_request: Callable[[], None] = _nothing
        self._abort: Callable[[], None] = _nothing
        self._late: Callable[[], None] = _nothing
        self._timeout_s = 30.0
        self.was_aborted = False

    @property
    def is_set(self) -> bool:
        """True once a stop was requested."""
        return self._event.is_set()

    def arm(
        self, *, timeout_s: float, on_request: Callable[[], None], abort: Callable[[], None],
        late: Callable[[], None] = _nothing,
    ) -> None:  # fmt: skip
        """Set the time limit of a stop, and the callbacks. Both are called in a thread.

        Args:
            timeout_s: Before this time is over the process ends, whatever it does.
            on_request: Called once at the request, now if that was before.
            abort: Called some time before the end; must make the running epoch fail.
            late: Called when the process is about to be ended by force; not waited for for long.
        """
        self._late = late
        self._timeout_s = timeout_s
        self._on_request = on_request
        self._abort = abort
        if self.is_set:
            on_request()

    def set(self) -> None:
        """Request the stop. Asking again changes nothing."""
        self._event.set()
        self._woken.set()

    def wake(self) -> None:
        """End the pause that is under way, or the next one. From any thread."""
        self._woken.set()

    def pause(self, timeout_ms: int) -> None:
        """Wait until a stop is requested or ``wake`` is called, at most so long."""
        self._woken.wait(timeout_ms / 1_000)
        self._woken.clear()

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a stop request up to a timeout; return whether there was one."""
        return self._event.wait(timeout_ms / 1_000)

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[StopRequest]:
        """Turn SIGTERM, SIGINT and SIGQUIT into requests while inside. Main thread only."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        former: dict[int, Any] = {
            number: signal.signal(number, _ignore) for number in (*_SIGNALS, ABORT_SIGNAL)
        }
        former_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        watcher = threading.Thread(
            target=self._watch, args=(reader,), name="stop-signals", daemon=True
        )
        watcher.start()
        try:
            yield self
        finally:
            signal.set_wakeup_fd(former_descriptor)
            for number, handler in former.items():
                signal.signal(number, handler)
            writer.send(bytes([_CLOSE]))
            watcher.join()
            reader.close()
            writer.close()

    def _watch(self, reader: socket.socket) -> None:
        """Take signals until closed; from the first one on, watch the time as well."""
        deadlines: list[tuple[float, Callable[[], None]]] = []
        while True:
            left = max(0.0, deadlines[0][0] - self._clock.monotonic()) if deadlines else None
            if not is_readable(reader, left):
                deadlines.pop(0)[1]()
                continue
            number = reader.recv(1)[0]
            if number == _CLOSE:
                return
            is_abort = number == ABORT_SIGNAL
            if not is_abort and number not in _SIGNALS:
                continue
            if self.is_set and not is_abort:
                self._end(_HARD_EXIT_BASE + number)
            is_first = not self.is_set
            self.set()
            if not self.was_aborted:
                deadlines = self._deadlines(is_abort=is_abort)
            if is_first:
                self._on_request()

    def _deadlines(self, *, is_abort: bool) -> list[tuple[float, Callable[[], None]]]:
        now, timeout_s = self._clock.monotonic(), self._timeout_s
        if is_abort:
            reserve_s = _ABORT_RESERVE_S - _END_RESERVE_S
            return [(now, self._abort_epoch), (now + reserve_s, self._end_late)]
        return [
            (now + max(timeout_s - _ABORT_RESERVE_S, timeout_s / 2), self._abort_epoch),
            (now + max(timeout_s - _END_RESERVE_S, timeout_s * 3 / 4), self._end_late),
        ]

    def _end_late(self) -> None:
        # In a thread, as it may wait for a lock of the main thread.
        last_word = threading.Thread(target=self._late, name="last-word", daemon=True)
        last_word.start()
        last_word.join(_LAST_WORD_S)
        self._end(_LATE_EXIT_CODE)

    def _abort_epoch(self) -> None:
        self.was_aborted = True
        self._abort()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing here: the watching thread takes the signal."""


def end_now(exit_code: int) -> None:
    """End this process and all that it started, without another word."""
    for member in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    os._exit(exit_code)
