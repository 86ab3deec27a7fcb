"""What is counted of an operator: in one task and epoch, and added up."""

from __future__ import annotations

import msgspec

from bicycle_runtime.operators.counting.user_metrics import MetricValues, add_metrics

__all__ = ["OperatorCounts"]


class OperatorCounts(msgspec.Struct, kw_only=True):
    """Records of one operator, and what it added to the user's metrics.

    ``late`` came after what they belong to was complete, ``timed_out`` were left out since a call
    took too long and there is no fallback. ``unread`` went to side outputs that nobody reads, by
    their tags. ``blocked`` calls kept the event loop for ``blocked_ms`` at most, the last of them
    at the user's line ``blocked_at``. ``metrics`` are the function's own: counters and histograms
    added up, of a gauge the last value of each subtask.
    """

    records_in: int = 0
    records_out: int = 0
    failed: int = 0
    retried: int = 0
    late: int = 0
    timed_out: int = 0
    unread: dict[str, int] = {}
    blocked: int = 0
    blocked_ms: int = 0
    blocked_at: str = ""
    metrics: MetricValues = {}

    def add(self, part: OperatorCounts) -> None:
        """Add the counts of another task, or of another epoch."""
        self.records_in += part.records_in
        self.records_out += part.records_out
        self.failed += part.failed
        self.retried += part.retried
        self.late += part.late
        self.timed_out += part.timed_out
        for tag, count in part.unread.items():
            self.unread[tag] = self.unread.get(tag, 0) + count
        self.blocked += part.blocked
        self.blocked_ms = max(self.blocked_ms, part.blocked_ms)
        self.blocked_at = part.blocked_at or self.blocked_at
        add_metrics(self.metrics, part.metrics)
