"""The interval that each record opens in session windows."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.preaggregation.batch_rows import Rows
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows import SessionWindows, duration_ms


def session_ends(rows: Rows, assigner: SessionWindows, policy: RecordPolicy) -> Rows:
    """Return the rows with the end of each record's interval as its place."""
    gap_of = assigner.gap_of
    if gap_of is None:
        gap_ms = assigner.gap_ms
        assert gap_ms is not None
        rows.namespaces = [time + gap_ms for time in rows.times]
        return rows
    policy.batch = rows.batch
    found = each(gap_of, rows.batch.values, policy=policy, awaits=is_async(gap_of))
    gaps = each(_check, found, policy=policy, awaits=False)
    if any(gap is DROPPED for gap in gaps):
        rows = rows.without_drops(gaps)
        gaps = [gap for gap in gaps if gap is not DROPPED]
    rows.namespaces = [time + gap for time, gap in zip(rows.times, gaps, strict=True)]
    return rows


def _check(gap: Any) -> Any:
    if gap is DROPPED:
        return gap
    try:
        return duration_ms("the gap of a session", gap)
    except StreamDefinitionError as error:
        raise ValueError(error.summary) from None
