"""Rests between the epochs of a job that keeps up: as long as the latency that is asked for allows.

An epoch has a price of its own, whatever it reads. One for each few records would keep a core busy
with a trickle.
"""

from __future__ import annotations

__all__ = ["pause_ms"]


def pause_ms(target_ms: int, duration_ms: float) -> int:
    """Return how long to wait behind an epoch, so that results come in time and no sooner.

    A record that comes when an epoch has just begun is read by the next one, and seen when that one
    is over: it takes the rest and two epochs. Where epochs are so slow that a third of the time
    that is asked for passes with one, as on a busy machine, the rest is as long as the epoch: there
    would be more epochs, and each would cost the same, just where there is least to spend.

    Example:
        >>> pause_ms(500, 30.0), pause_ms(500, 200.0), pause_ms(0, 200.0)
        (440, 200, 0)
    """
    if not target_ms:
        return 0
    return round(max(target_ms - 2 * duration_ms, min(duration_ms, target_ms)))
