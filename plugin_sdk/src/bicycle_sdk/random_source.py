"""Randomness as an argument: the random source that a program passes on.

A function that needs random numbers takes a ``random.Random``, so a test gets the same ones each
time.
"""

from __future__ import annotations

import random

__all__ = ["system_random"]


def system_random() -> random.Random:
    """Return the operating system's random source: no seed, distinct after a fork."""
    return random.SystemRandom()
