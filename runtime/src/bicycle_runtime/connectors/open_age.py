"""The age of output that is held back: how long it may still wait, by a clock that nobody sets."""

from __future__ import annotations

from bicycle_runtime.base.clock import Clock

__all__ = ["OpenAge"]


class OpenAge:
    """Lets output become visible in time, even when the wall clock is set while it is held.

    Args:
        roll_ms: How long the first record of it may wait.
    """

    def __init__(self, roll_ms: int) -> None:
        self._roll_ms = roll_ms
        self._what: object = None
        self._due_s = 0.0

    def watch(self, what: object, clock: Clock, *, age_ms: int = 0) -> None:
        """Begin with output that is so old already, in place of what was watched.

        Args:
            what: Tells it from what is held later.
            clock: The time.
            age_ms: Since its first record, in ms.
        """
        self._what = what
        self._due_s = clock.monotonic() + (self._roll_ms - age_ms) / 1_000

    def left_ms(self, what: object, clock: Clock) -> int:
        """Return how long output may be held, 0 or less when it is too old; a new one begins."""
        if self._what != what:
            self.watch(what, clock)
        return round((self._due_s - clock.monotonic()) * 1_000)
