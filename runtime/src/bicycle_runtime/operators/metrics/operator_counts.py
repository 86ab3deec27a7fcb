"""What is counted of an operator: in one task and epoch, and added up."""

from __future__ import annotations

import msgspec

from bicycle_runtime.operators.metrics.durations import Durations
from bicycle_runtime.operators.metrics.user_metrics import MetricValues, add_metrics

__all__ = ["FailureCount", "OperatorCounts", "add_failure"]

_FAILURES_MAX = 20
_OTHERS = "other failures"


class FailureCount(msgspec.Struct, kw_only=True):
    """How many records failed in one way, and the first of them: message and place."""

    count: int = 0
    example: str = ""


def add_failure(failures: dict[str, FailureCount], kind: str, count: int, example: str) -> None:
    """Count failures of a kind; many kinds are told together behind the first."""
    if kind not in failures and len(failures) >= _FAILURES_MAX:
        kind = _OTHERS
    found = failures.setdefault(kind, FailureCount(example=example))
    found.count += count


class OperatorCounts(msgspec.Struct, kw_only=True):
    """Records of one operator, and what it added to the user's metrics.

    ``on_columns`` of those in ``records_in`` were taken as columns (ADR-0030).
    ``late`` came after what they belong to was complete, ``timed_out`` were left out since a call
    took too long and there is no fallback. ``unread`` went to side outputs that nobody reads, by
    their tags. ``blocked`` calls kept the event loop for ``blocked_ms`` at most, the last of them
    at the user's line ``blocked_at``. ``metrics`` are the function's own: counters and histograms
    added up, of a gauge the last value of each subtask. ``failures`` are those in ``failed``, by
    exception and line of the user's code.

    ``busy_ms`` is the time in the operator, of ``task_ms`` that the tasks took which it is part of;
    ``times`` are those per record, each with the mean of its batch. What a source reads, and what
    fires when event time goes on, is in ``busy_ms`` alone. ``bytes_out`` is the size of the files
    that a sink staged, None of what is no sink.
    """

    records_in: int = 0
    records_out: int = 0
    failed: int = 0
    retried: int = 0
    on_columns: int = 0
    late: int = 0
    timed_out: int = 0
    unread: dict[str, int] = {}
    blocked: int = 0
    blocked_ms: int = 0
    blocked_at: str = ""
    metrics: MetricValues = {}
    failures: dict[str, FailureCount] = {}
    busy_ms: float = 0.0
    task_ms: float = 0.0
    bytes_out: int | None = None
    times: Durations = msgspec.field(default_factory=Durations)

    @property
    def is_all_failed(self) -> bool:
        """Whether each of its records failed, so that nothing came out."""
        return 0 < self.records_in <= self.failed and not self.records_out

    def add(self, part: OperatorCounts) -> None:
        """Add the counts of another task, or of another epoch."""
        self.records_in += part.records_in
        self.records_out += part.records_out
        self.failed += part.failed
        self.retried += part.retried
        self.on_columns += part.on_columns
        self.late += part.late
        self.timed_out += part.timed_out
        for tag, count in part.unread.items():
            self.unread[tag] = self.unread.get(tag, 0) + count
        self.blocked += part.blocked
        self.blocked_ms = max(self.blocked_ms, part.blocked_ms)
        self.blocked_at = part.blocked_at or self.blocked_at
        add_metrics(self.metrics, part.metrics)
        for kind, found in part.failures.items():
            add_failure(self.failures, kind, found.count, found.example)
        self.busy_ms += part.busy_ms
        self.task_ms += part.task_ms
        if part.bytes_out is not None:
            self.bytes_out = (self.bytes_out or 0) + part.bytes_out
        self.times.add(part.times)
