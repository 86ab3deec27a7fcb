"""The joins of a pipeline as those of the SDK."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.pipelines.operator_keys import Join
from bicycle_runtime.pipelines.record_functions import JoinedRow
from bicycle_runtime.pipelines.values import duration_ms
from bicycle_sdk.windows import tumbling_windows

__all__ = ["joined"]


def joined(spec: Join, left: Any, right: Any, *, late_to: str | None) -> Any:
    """Return the stream of two keyed streams that are joined.

    Args:
        spec: How.
        left: One side.
        right: The other.
        late_to: Output for rows that come too late; a table join has none.
    """
    row = JoinedRow(spec.on, spec.prefix)
    match spec.type:
        case "interval":
            assert spec.upper is not None
            return left.interval_join(
                right,
                duration_ms(spec.lower),
                duration_ms(spec.upper),
                row,
                how=spec.how,
                late_to=late_to,
            )
        case "window":
            assert spec.size is not None
            windows = tumbling_windows(duration_ms(spec.size))
            return left.window_join(right, windows, row, how=spec.how, late_to=late_to)
        case "as_of":
            tolerance = None if spec.tolerance is None else duration_ms(spec.tolerance)
            return left.as_of_join(right, row, tolerance=tolerance, how=spec.how, late_to=late_to)
        case "table":
            return left.table_join(right, row, how=spec.how)
