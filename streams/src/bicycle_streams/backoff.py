"""Backoff before another try: pauses that double, with random variation."""

from __future__ import annotations

import random


class Backoff:
    """The pauses before further tries.

    Args:
        first_ms: Maximum length of the first pause.
        longest_ms: Maximum length of a pause.
        source: Random source that selects each pause between half and the whole, so that clients
            that lost the same server do not reconnect at the same time.

    Example:
        >>> pauses = Backoff(first_ms=100, longest_ms=300, source=random.Random(1))
        >>> [round(pauses.next_s(), 2) for _ in range(4)]
        [0.06, 0.18, 0.26, 0.19]
    """

    def __init__(self, *, first_ms: int, longest_ms: int, source: random.Random) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._source = source
        self._next_ms = first_ms

    def next_s(self) -> float:
        """Return the seconds of the next pause."""
        pause_s = self._next_ms / 1_000 * self._source.uniform(0.5, 1.0)
        self._next_ms = min(2 * self._next_ms, self._longest_ms)
        return pause_s

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._next_ms = self._first_ms
