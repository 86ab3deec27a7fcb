"""Metrics of operators: records, failures, durations, frequent keys, user metrics.

Workers fill them, and each adds up over tasks and epochs; so durations are a histogram with fixed
bounds, since quantiles would not add up.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from bicycle_runtime.base.user_code import users_error

# In microseconds. Each is at most 2.5 times the bound before, and so is the error of a quantile.
BOUNDS_US = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000,
    250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
    300_000_000,
)  # fmt: skip


class Durations(msgspec.Struct, kw_only=True):
    """A histogram of durations: ``buckets`` counts by index of the upper bound.

    The index behind the last bound counts longer durations. ``seconds`` is the sum of all.
    """

    seconds: float = 0.0
    buckets: dict[int, int] = {}

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets.values())

    def take(self, duration_ns: int, count: int = 1) -> None:
        """Record the total duration of ``count`` things; each counts with the mean.

        Args:
            duration_ns: Nanoseconds, 0 or more.
            count: Things, 1 or more.
        """
        index = bisect_left(BOUNDS_US, duration_ns / (count * 1_000))
        self.buckets[index] = self.buckets.get(index, 0) + count
        self.seconds += duration_ns / 1e9

    def add(self, part: Durations) -> None:
        """Add the durations of another task or epoch."""
        self.seconds += part.seconds
        for index, count in part.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count

    def quantile_ms(self, share: float) -> float | None:
        """Return an upper bound in ms for at least this share of durations, or None.

        Args:
            share: 0 to 1.

        Example:
            >>> times = Durations()
            >>> times.take(3_000_000_000, 10), times.take(8_000_000)
            (None, None)
            >>> times.quantile_ms(0.5), times.quantile_ms(0.99)
            (500.0, 500.0)
            >>> Durations().quantile_ms(0.5) is None
            True
        """
        wanted, seen = share * self.count, 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= wanted:
                return BOUNDS_US[min(index, len(BOUNDS_US) - 1)] / 1_000
        return None


MetricValues = dict[str, dict[str, Any]]
_Snapshot = Mapping[str, Mapping[str, Any]]
_NOTHING = {"count": 0, "sum": 0.0}


def grown_metrics(before: _Snapshot, after: _Snapshot, *, subtask: int) -> MetricValues:
    """Return the metric increase between two snapshots of a subtask, perhaps empty.

    The bounds of a histogram are the bounds of all its values up to now.

    Example:
        >>> before = {"counters": {"seen": 2}, "gauges": {}, "histograms": {}}
        >>> after = {"counters": {"seen": 5}, "gauges": {"depth": 1.0}, "histograms": {}}
        >>> grown_metrics(before, after, subtask=0)
        {'counters': {'seen': 3}, 'gauges': {'depth': {'0': 1.0}}}
    """
    counters = {
        name: value - before["counters"].get(name, 0) for name, value in after["counters"].items()
    }
    gauges = {name: {str(subtask): value} for name, value in after["gauges"].items()}
    histograms = {
        name: {**value, "count": value["count"] - old["count"], "sum": value["sum"] - old["sum"]}
        for name, value in after["histograms"].items()
        for old in (before["histograms"].get(name, _NOTHING),)
    }
    found = {"counters": counters, "gauges": gauges, "histograms": histograms}
    return {kind: values for kind, values in found.items() if values}


def add_metrics(total: MetricValues, part: MetricValues) -> None:
    """Add metrics to a total: counts and sums grow, a gauge is replaced."""
    for kind, values in part.items():
        known = total.setdefault(kind, {})
        for name, value in values.items():
            if kind == "counters":
                known[name] = known.get(name, 0) + value
            elif kind == "gauges":
                known[name] = {**known.get(name, {}), **value}
            else:
                known[name] = _join(known[name], value) if name in known else value


def _join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    bounds = [
        pick(found) if (found := [v[name] for v in (one, other) if v[name] is not None]) else None
        for name, pick in (("min", min), ("max", max))
    ]
    count, total = one["count"] + other["count"], one["sum"] + other["sum"]
    return {"count": count, "sum": total, "min": bounds[0], "max": bounds[1]}


_FAILURES_MAX = 20
_OTHERS = "other failures"


class FailureCount(msgspec.Struct, kw_only=True):
    """The number of records that failed in one way, with the first message.

    ``first_ms`` and ``last_ms`` are when the epochs of the first and the last of them were sealed,
    in ms since 1970; the driver notes them.
    """

    count: int = 0
    example: str = ""
    first_ms: int | None = None
    last_ms: int | None = None


def add_failure(failures: dict[str, FailureCount], kind: str, count: int, example: str) -> None:
    """Count failures of a kind; beyond a limit, further kinds share one entry."""
    if kind not in failures and len(failures) >= _FAILURES_MAX:
        kind = _OTHERS
    found = failures.setdefault(kind, FailureCount(example=example))
    found.count += count


def date_failures(
    failures: Mapping[str, FailureCount], kinds: Iterable[str], *, now_ms: int
) -> None:  # fmt: skip
    """Note when failures of these kinds were counted."""
    for kind in kinds:
        found = failures.get(kind) or failures.get(_OTHERS)
        if found is not None:
            found.first_ms = now_ms if found.first_ms is None else found.first_ms
            found.last_ms = now_ms


class OperatorCounts(msgspec.Struct, kw_only=True):
    """The record counts of one operator, and its additions to the user's metrics.

    ``on_columns`` records of ``records_in`` were taken as columns (ADR-0030). ``late`` came after
    their window was complete, ``timed_out`` were dropped since a call took too long and there is no
    fallback. ``unread`` went to side outputs without a reader, by their tags. ``blocked`` calls
    kept the event loop for ``blocked_ms`` at most, the last of them at the user's line
    ``blocked_at``. ``metrics`` are the function's own: counters and histograms added up, of a gauge
    the last value of each subtask. ``failures`` are the records in ``failed``, by exception and
    line of the user's code.

    ``busy_ms`` is the time in the operator, of ``task_ms`` that its tasks took; ``times`` are the
    times per record, each with the mean of its batch. Reading of a source, and firing when event
    time advances, is in ``busy_ms`` alone. ``bytes_out`` is the size of the files that a sink
    staged, None for other operators.
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
        """Return whether each record failed, without any output."""
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


_STRIDE = 61  # a prime: input that comes in rounds of 2, 8 or 100 keys must not look like one key
_KEYS_MAX = 16  # of a task and epoch that are reported
_TEXT_MAX = 80


class KeySample(msgspec.Struct, kw_only=True):
    """The number of sampled records, and counts of the most frequent keys."""

    record_count: int = 0
    keys: dict[str, int] = {}

    def add(self, other: KeySample) -> None:
        """Add another sample."""
        self.record_count += other.record_count
        for key, count in other.keys.items():
            self.keys[key] = self.keys.get(key, 0) + count


class KeySampler:
    """Looks at one record in so many of a subtask.

    Args:
        key_of: Returns the key of a record.
    """

    def __init__(self, key_of: Callable[[Any], Any]) -> None:
        self._key_of = key_of
        self._next = 0  # position of the next record to look at, from the begin of the next batch
        self._seen: Counter[Any] = Counter()

    def see(self, values: Sequence[Any], *, are_keys: bool = False) -> None:
        """Take note of the records of a batch, or of their keys."""
        picked = values[self._next :: _STRIDE]
        self._next = (self._next - len(values)) % _STRIDE
        # hot path: 1 to 3 ns a record.
        try:
            self._seen.update(picked if are_keys else map(self._key_of, picked))
        except BaseException as error:  # noqa: BLE001  # The operator handles what a key function raises.
            users_error(error)

    def take(self) -> KeySample | None:
        """Return and clear the samples since the last call, or None."""
        seen, self._seen = self._seen, Counter()
        if not seen:
            return None
        most = heapq.nlargest(_KEYS_MAX, seen.items(), key=lambda item: item[1])
        sample = KeySample(record_count=seen.total())
        for key, count in most:
            sample.add(KeySample(keys={repr(key)[:_TEXT_MAX]: count}))
        return sample
