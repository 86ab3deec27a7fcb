"""The age of held output: its remaining time on a monotonic clock."""

from __future__ import annotations

from bicycle_sdk.clock import Clock


class OpenAge:
    """A timer that makes output visible in time, even if the wall clock is set.

    Args:
        roll_ms: How long the first record of it may wait.
    """

    def __init__(self, roll_ms: int) -> None:
        self._roll_ms = roll_ms
        self._what: object = None
        self._due_s = 0.0

    def watch(self, what: object, clock: Clock, *, age_ms: int = 0) -> None:
        """Start with output of a given age, instead of the previous output.

        Args:
            what: Distinguishes it from output held later.
            clock: The time.
            age_ms: Since its first record, in ms.
        """
        self._what = what
        self._due_s = clock.monotonic() + (self._roll_ms - age_ms) / 1_000

    def left_ms(self, what: object, clock: Clock) -> int:
        """Return how long output may be held, 0 or less if too old; new output restarts."""
        if self._what != what:
            self.watch(what, clock)
        return round((self._due_s - clock.monotonic()) * 1_000)
