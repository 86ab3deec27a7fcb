"""Ending an attempt that makes no progress, so that no job hangs in silence.

The thread that drives a job reports its phase and its progress. Without progress for the time limit
of the phase, the watchdog ends the attempt in steps: it releases the resources that the thread may
wait for (Spark is killed), then interrupts the main thread, then ends the process. The result is
one error, which names the phase and its target; the restart strategy then decides.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from bicycle_runtime.jobs.errors import StalledError
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_CALL_BACK_SIGNAL = signal.SIGUSR2
PATIENCE_S = 10.0  # between two steps


class CalledBack(BaseException):
    """The main thread was called back from a wait. Only the watchdog catches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogSteps:
    """The two ends of an attempt: gently, and for good if that has not helped.

    Both are called in the thread of the watchdog and must not wait for long.
    """

    let_go: Callable[[], None]
    end: Callable[[StalledError], None]


class Watchdog:
    """Watches one driver. Use it as a context manager, in the main thread.

    Args:
        steps: The steps after a stall.
        clock: Measures.
        job: Job id, for errors and logs.
        patience_s: How long each step has before the next.
    """

    def __init__(
        self, steps: WatchdogSteps, *, clock: Clock, job: str, patience_s: float = PATIENCE_S
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._job = job
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._phase: tuple[str, str] | None = None
        self._timeout_s = 0.0
        self._since = 0.0
        self._wakes_at = math.inf
        self._is_closed = False
        self._stalled: StalledError | None = None
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._main = threading.get_ident()
        self._can_call_back = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Watchdog:
        if self._can_call_back:
            signal.signal(_CALL_BACK_SIGNAL, self._call_back)
        self._main = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        if self._can_call_back:
            signal.signal(_CALL_BACK_SIGNAL, signal.SIG_IGN)  # It may be on its way.

    @contextlib.contextmanager
    def phase(self, name: str, target: str, *, timeout_ms: int) -> Iterator[None]:
        """Watch the block; a phase within a phase takes its place meanwhile.

        Args:
            name: The phase, in a word or two.
            target: Its object: a job, an epoch, a source.
            timeout_ms: So long it may be without progress; 0 forever.

        Raises:
            StalledError: it was ended, whatever error that led to.
        """
        outer = (self._phase, self._timeout_s)
        self._enter((name, target), timeout_ms / 1_000)
        try:
            yield
            if (stalled := self.take()) is not None:  # Its resources may have been killed.
                raise stalled
        except StalledError:
            raise
        except (Exception, CalledBack):
            if (stalled := self.take()) is not None:
                raise stalled from None
            raise
        finally:
            self._enter(*outer)

    def beat(self, *, timeout_ms: int | None = None) -> None:
        """Take note of progress. From any thread.

        Args:
            timeout_ms: How long the current work may be without progress; None as before.
        """
        with self._changed:
            self._since = self._clock.monotonic()
            if timeout_ms is not None:
                self._timeout_s = timeout_ms / 1_000
                self._wake()

    def allow(self, wait_ms: int) -> None:
        """Extend the time without progress in the current phase. From any thread."""
        with self._changed:
            self._since += wait_ms / 1_000

    def take(self) -> StalledError | None:
        """Return why the attempt was ended, and forget it; None when it was not."""
        with self._changed:
            stalled, self._stalled = self._stalled, None
            self._changed.notify()
        return stalled

    def _enter(self, phase: tuple[str, str] | None, timeout_s: float) -> None:
        with self._changed:
            self._phase, self._timeout_s = phase, timeout_s
            self._since = self._clock.monotonic()
            self._wake()

    def _wake(self) -> None:
        """Wake the thread if it would sleep for too long; called with the lock."""
        # hot path: twice in each epoch, which may take a millisecond; the thread mostly sleeps on.
        if self._timeout_s and self._since + self._timeout_s < self._wakes_at:
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                self._wakes_at = math.inf
                if self._phase is None or not self._timeout_s:
                    self._changed.wait()
                    continue
                deadline = self._since + self._timeout_s
                left_s = deadline - self._clock.monotonic()
                if left_s > 0:
                    self._wakes_at = deadline
                    self._changed.wait(left_s)
                else:
                    self._end_attempt(self._phase)

    def _end_attempt(self, phase: tuple[str, str]) -> None:
        """End the attempt; called and left with the lock, which is free while a step runs.

        1. Release the resources that the main thread may wait for.
        2. Call the main thread back from whatever else it waits for.
        3. End the process.
        """
        stalled = self._stalled = StalledError(
            job=self._job, phase=phase[0], target=phase[1],
            waited_ms=round(self._timeout_s * 1_000),
        )  # fmt: skip
        log_event(_LOG, "stalled", level=logging.WARNING, job=self._job, error=stalled)
        # 1. Release the resources that the main thread may wait for.
        self._run_unlocked(self._steps.let_go)
        if self._is_over(stalled):
            return
        # 2. Call the main thread back from whatever else it waits for.
        if self._can_call_back:
            self._run_unlocked(lambda: signal.pthread_kill(self._main, _CALL_BACK_SIGNAL))
            if self._is_over(stalled):
                return
        # 3. End the process.
        self._run_unlocked(lambda: self._steps.end(stalled))
        self._is_closed = True

    def _run_unlocked(self, act: Callable[[], object]) -> None:
        self._changed.release()
        try:
            act()
        finally:
            self._changed.acquire()

    def _is_over(self, stalled: StalledError) -> bool:
        """Wait until the error was taken, or patience is over."""
        return self._changed.wait_for(
            lambda: self._stalled is not stalled or self._is_closed, self._patience_s
        )

    def _call_back(self, _number: int, _frame: FrameType | None) -> None:
        if self._stalled is not None:
            raise CalledBack
