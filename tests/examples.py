"""How many examples property tests draw: all of them, or fewer in `make test`."""

from __future__ import annotations

from hypothesis import settings

# What a test draws that names no number.
EXAMPLES_MAX = 100
_EXAMPLES_MIN = 5


def examples(count: int) -> int:
    """Return how many of so many examples this run draws, 5 at least; for ``max_examples``."""
    return max(min(count, _EXAMPLES_MIN), count * settings.default.max_examples // EXAMPLES_MAX)
