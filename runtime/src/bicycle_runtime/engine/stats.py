"""What an epoch was like, in numbers: for the status line, the log and the summary."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bicycle_runtime.connectors.contract import Lag
from bicycle_runtime.operators.reports import OperatorCounts, TaskReport
from bicycle_runtime.operators.user_metrics import add_metrics
from bicycle_runtime.recovery.manifest import OperatorState, TimeRecord
from bicycle_sdk.contexts import WATERMARK_MIN

__all__ = [
    "EpochStats",
    "Stopwatch",
    "lowest_watermark",
    "state_bytes",
    "total_counts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStats:
    """One epoch, as seen by the driver.

    ``record_count`` were read from sources in this epoch, ``event_count`` since the job began.
    ``phases_ms`` are plan, run, publish_wait, seal. ``lag`` is what the sources had left when the
    epoch was planned. ``time`` is how far event time has come, ``watermark_ms`` the least watermark
    of any operator (None while none is known); ``idle_shards`` do not hold it back, and
    ``slowest_inputs`` says for each operator which shard does. ``late_dropped_count`` late records
    went nowhere, since no ``late_to`` takes them. ``shard_lags`` tells the lag shard by shard, of
    the sources that know it.
    """

    epoch: int
    record_count: int
    event_count: int
    duration_ms: float
    phases_ms: Mapping[str, float]
    lag: Lag
    state_bytes: int
    watermark_ms: int | None
    counts: Mapping[str, OperatorCounts] = field(default_factory=dict)
    dropped_count: int = 0
    late_dropped_count: int = 0
    time: TimeRecord = field(default_factory=TimeRecord)
    idle_shards: Mapping[str, Collection[str]] = field(default_factory=dict)
    slowest_inputs: Mapping[str, str] = field(default_factory=dict)
    shard_lags: Mapping[str, Mapping[str, Lag]] = field(default_factory=dict)


class Stopwatch:
    """Measures the phases of one epoch."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.phases_ms: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what runs inside."""
        started = time.perf_counter()
        yield
        self.phases_ms[name] = (time.perf_counter() - started) * 1000

    @property
    def elapsed_ms(self) -> float:
        """Time since the epoch began."""
        return (time.perf_counter() - self._started) * 1000


def state_bytes(states: Mapping[str, OperatorState]) -> int:
    """Return the size of all state files; one that several subtasks share counts once."""
    return sum(
        {
            item.path: item.byte_count
            for state in states.values()
            for part in state.ranges
            for item in part.objects()
        }.values()
    )


def total_counts(reports: Iterable[TaskReport]) -> dict[str, OperatorCounts]:
    """Add up the counts of all subtasks, per operator; the user's metrics are added up too."""
    totals: dict[str, OperatorCounts] = {}
    for report in reports:
        for uid, counts in report.counts.items():
            total = totals.setdefault(uid, OperatorCounts())
            total.records_in += counts.records_in
            total.records_out += counts.records_out
            total.failed += counts.failed
            total.retried += counts.retried
            total.late += counts.late
            total.timed_out += counts.timed_out
            total.blocked += counts.blocked
            total.blocked_ms = max(total.blocked_ms, counts.blocked_ms)
            total.blocked_at = counts.blocked_at or total.blocked_at
            add_metrics(total.metrics, counts.metrics)
    return totals


def lowest_watermark(time: TimeRecord) -> int | None:
    """Return the least watermark of any operator; None while none is known."""
    lowest = min(time.watermarks.values(), default=WATERMARK_MIN)
    return None if lowest == WATERMARK_MIN else lowest
