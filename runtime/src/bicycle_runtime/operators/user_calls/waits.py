"""Deliberate waits inside an epoch: pauses before retries, and rate limits.

The watchdog of epochs must not take them for a call that never returns. So a wait is reported
before it begins; the waits of several calls at the same time count once.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Waits:
    """The waits of one process, which runs one task at a time.

    Args:
        now: Reads a clock that only goes forward, in seconds.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self.begin(None)

    def begin(self, tell: Callable[[float], object] | None) -> None:
        """Begin with a task: nothing was waited for yet.

        Args:
            tell: Gets the seconds of all its waits so far, each with its expected duration.
        """
        self._tell = tell
        self._total_s = 0.0
        self._until = self._now()

    def tell(self, seconds: float) -> None:
        """Announce a wait of some seconds from now on."""
        began = max(self._until, self._now())
        self._until = max(self._until, self._now() + seconds)
        self._total_s += max(0.0, self._until - began)
        if self._tell is not None:
            self._tell(self._total_s)


WAITS = Waits()
