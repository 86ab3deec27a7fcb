"""Names that people read and type: job ids, and collision-free attempt ids.

A job id has a name and a date, ``wordcount-20261121-7f3a``; it is a path segment and fits a DNS
label. Clock and random source are arguments, so a test gets the same ids each time. Nothing here
remembers ids: the caller that stores them passes the taken ones.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime

from bicycle_sdk.clock import Clock

_SLUG_LENGTH_MAX = 40
_TRIES_PER_LENGTH = 16
_SUFFIX_LENGTH_MAX = 12


def slug(name: str) -> str:
    """Return ``name`` in characters of a job id: ``a-z``, ``0-9``, ``-``, up to 40.

    Example:
        >>> slug("Clicks per User (v2)")
        'clicks-per-user-v2'
        >>> slug("???")
        'job'
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words[:_SLUG_LENGTH_MAX].strip("-") or "job"


def job_id(
    name: str,
    *,
    clock: Clock,
    source: random.Random,
    is_taken: Callable[[str], bool] | None = None,
) -> str:
    """Return a new readable job id.

    Args:
        name: The job's name, any text.
        clock: Returns the day (UTC).
        source: Returns the suffix.
        is_taken: Returns whether an id exists already; the suffix grows when many do.

    Returns:
        ``<slug>-<yyyymmdd>-<4 or more hex digits>``.

    Raises:
        RuntimeError: ``is_taken`` answers yes to everything.
    """
    day = datetime.fromtimestamp(clock.now_ms() / 1_000, tz=UTC).strftime("%Y%m%d")
    for length in range(4, _SUFFIX_LENGTH_MAX + 1):
        for _ in range(_TRIES_PER_LENGTH):
            candidate = f"{slug(name)}-{day}-{source.getrandbits(4 * length):0{length}x}"
            if is_taken is None or not is_taken(candidate):
                return candidate
    raise RuntimeError(f"no free job id for {name!r}: every candidate is said to be taken")


def attempt_id(*, source: random.Random) -> str:
    """Return 16 hex digits that name one attempt of one task.

    Two attempts, also of zombies on other hosts, must never write to one path: 64 random bits.
    """
    return f"{source.getrandbits(64):016x}"
