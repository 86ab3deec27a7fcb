"""Time as an argument: wall-clock and monotonic time, real or set by a test.

``now_ms`` is the wall clock, may jump, and is the time that is stored; ``monotonic`` only goes
forward and is for measuring. This module does not sleep and starts no timers.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The source of the time. Both calls are cheap, and safe in any thread."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970-01-01 UTC; it may jump."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never less than an earlier answer."""


class SystemClock:
    """The machine's clock. Has no state, so it travels to workers as it is."""

    def now_ms(self) -> int:
        return self.now_ns() // 1_000_000

    def now_ns(self) -> int:
        """Return the wall clock in nanoseconds, for numbers that no two messages share."""
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only on request; ``advance`` moves both readings together.

    Args:
        start_ms: The first wall-clock reading.

    Example:
        >>> clock = ManualClock(start_ms=1_000)
        >>> clock.advance(500)
        >>> clock.now_ms(), clock.monotonic()
        (1500, 0.5)
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1_000

    def advance(self, duration_ms: int) -> None:
        """Move forward by ``duration_ms``, 0 or more.

        Raises:
            ValueError: ``duration_ms`` is negative: the monotonic reading must not go back.
        """
        if duration_ms < 0:
            raise ValueError(f"a clock moves forward only, not by {duration_ms} ms")
        self._now_ms += duration_ms
        self._elapsed_ms += duration_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, either way, as people and time servers do; no time passes."""
        self._now_ms = now_ms
