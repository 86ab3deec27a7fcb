"""The trace that an ended session leaves with its key.

A session has ended when it takes no more records. A record at or before its end would have joined
it, so that record is late, even if its own interval is still open: otherwise the key would get two
sessions that overlap. The key therefore keeps the end of its last ended session, among its open
sessions, for as long as a record may arrive that touches it. The trace has the form of a session
whose start is after its end: its start is the event time until which it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.windows import SessionWindows, WindowPlan


def is_ended(start: int, end: int) -> bool:
    """Return whether these bounds are the trace of an ended session."""
    return start > end


def last_end(sessions: Iterable[tuple[int, int, Any]]) -> int:
    """Return the end of a key's last ended session, or the least time."""
    return max((end for start, end, _ in sessions if is_ended(start, end)), default=WATERMARK_MIN)


def keep_until(plan: WindowPlan, start: int, end: int) -> int:
    """Return the event time until which an ended session is kept.

    One gap later, no open interval of a record touches the session. Another gap later, no such
    interval touches a record that touches it. Where a function returns the gap of each record, no
    gap is taken to be longer than the session itself, or than the longest session.

    Args:
        plan: The window.
        start: Start of the session in ms.
        end: Its end in ms.
    """
    assigner = plan.assigner
    assert isinstance(assigner, SessionWindows)
    gap_ms = assigner.gap_ms
    if gap_ms is None:
        gap_ms = assigner.max_duration_ms or end - start
    return end + plan.lateness_ms + 2 * max(gap_ms, 1)
