"""A pause after a time without use, for clients whose waiting costs their brokers."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread

from bicycle_sdk.clock import Clock


class IdleRest:
    """A context manager that calls ``rest`` after a time without use.

    ``rest`` runs on another thread and never while the thing is in use. The thread ends after it;
    the next use starts another one.

    Args:
        rest: The action.
        after_s: How long nothing was used.
        clock: Measures that.
    """

    def __init__(self, rest: Callable[[], None], *, after_s: float, clock: Clock) -> None:
        self._rest = rest
        self._after_s = after_s
        self._clock = clock
        self._changed = Condition()
        self._use_count = 0
        self._used_s = 0.0
        self._has_thread = False

    def __enter__(self) -> None:
        with self._changed:
            self._use_count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._use_count -= 1
            self._used_s = self._clock.monotonic()
            if not self._has_thread:
                self._has_thread = True
                Thread(target=self._watch, name="kafka-idle", daemon=True).start()

    def _watch(self) -> None:
        with self._changed:
            while True:
                left_s = self._used_s + self._after_s - self._clock.monotonic()
                if self._use_count:
                    left_s = self._after_s
                elif left_s <= 0:
                    self._has_thread = False
                    self._rest()
                    return
                self._changed.wait(left_s)
