"""Rests between the epochs of a job that keeps up: as long as the latency that is asked for allows.

An epoch has a price of its own, whatever it reads. One for each few records would keep a core busy
with a trickle.
"""

from __future__ import annotations

__all__ = ["pause_ms"]


def pause_ms(target_ms: int, duration_ms: float) -> int:
    """Return how long to wait behind an epoch, so that results come in time and no sooner.

    A record that comes when an epoch has just begun is read by the next one, and seen when that one
    is over: it takes the rest and two epochs.

    Example:
        >>> pause_ms(200, 30.0), pause_ms(200, 120.0)
        (140, 0)
    """
    return round(max(target_ms - 2 * duration_ms, 0))
