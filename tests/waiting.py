"""Waiting in tests: for a condition, looked at often, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Longer than a loaded machine needs: only a test that fails waits for all of it.
PATIENCE_S = 600.0
_POLL_S = 0.01


def until(
    condition: Callable[[], Any], what: str | Callable[[], str], *, patience_s: float = PATIENCE_S
) -> Any:
    """Return the first true answer of a condition; fail when there is none.

    Args:
        condition: Is asked at least once.
        what: What is waited for; a function of it is asked when it did not come.
        patience_s: How long to go on.
    """
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {patience_s} s for {what() if callable(what) else what}")
        time.sleep(_POLL_S)
    return answer
