"""Ages of the running epoch and its publication, and an epoch's fixed cost.

All doors show them, so that a job whose target does not answer is not taken for a busy one.
"""

from __future__ import annotations

from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.quantities import duration_text

STALLED_MS = 45_000  # An epoch without a record, or a target without an answer, for so long.
SHOWN_MIN_MS = 2_000  # The doors show the age of an epoch or a publication from here on.
_FIXED_MIN_MS = 500.0
_FIXED_SHARE_MIN = 1 / 3


def epoch_age_ms(status: JobStatus, now_ms: int) -> int | None:
    """Return for how long the epoch that runs has been running; None between two."""
    if status.epoch_began_ms is None or status.state.is_final:
        return None
    return max(now_ms - status.epoch_began_ms, 0)


def publication_age_ms(status: JobStatus, now_ms: int) -> int | None:
    """Return how long a sink has been publishing an epoch, or None if no sink is."""
    if status.publication is None or status.state.is_final:
        return None
    return max(now_ms - status.publication.since_ms, 0)


def stalled_ms(status: JobStatus, now_ms: int) -> int:
    """Return the time without a record read or a sink's answer; 0 for a quiet job."""
    age_ms = epoch_age_ms(status, now_ms)
    if age_ms is not None and status.reading_ms is not None:
        age_ms = min(age_ms, max(now_ms - status.reading_ms, 0))
    return max(age_ms or 0, publication_age_ms(status, now_ms) or 0)


def is_stalled(status: JobStatus, now_ms: int) -> bool:
    """Return whether a job needs attention: no progress in its epoch or publication."""
    return stalled_ms(status, now_ms) >= STALLED_MS


def activity_text(status: JobStatus, now_ms: int) -> str:
    """Return a text on an epoch or publication of 2 s and more; empty without one."""
    texts = []
    age_ms = publication_age_ms(status, now_ms)
    if status.publication is not None and age_ms is not None and age_ms >= SHOWN_MIN_MS:
        epoch, sink, age = status.publication.epoch, status.publication.sink, _age(age_ms)
        texts.append(f"publishing epoch {epoch} for {age}, sink {sink} has not finished")
    age_ms = epoch_age_ms(status, now_ms)
    if age_ms is not None and age_ms >= SHOWN_MIN_MS:
        texts.append(f"in epoch {status.epoch + 1} for {_age(age_ms)}")
    return "; ".join(texts)


def fixed_text(status: JobStatus) -> str:
    """Return the fixed part of an epoch's duration if it is a third or more, else ""."""
    fixed_ms, whole_ms = status.fixed_ms, status.epoch_p50_ms
    if fixed_ms is None or whole_ms is None or fixed_ms < _FIXED_MIN_MS:
        return ""
    if status.state.is_final or fixed_ms < _FIXED_SHARE_MIN * whole_ms:
        return ""
    whole = f"{duration_text(round(fixed_ms))} of {duration_text(round(whole_ms))}"
    return f"fixed time per epoch: {whole}"


def _age(age_ms: int) -> str:
    return duration_text(age_ms // 1_000 * 1_000)
