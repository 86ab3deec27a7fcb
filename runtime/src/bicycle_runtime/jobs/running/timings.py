"""Timings of epochs, records and operators, and the growth of state.

Sums of each epoch become readable figures when the status is written. Shares and quantiles of
epochs are from the last epochs, quantiles of records from the whole run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from bicycle_runtime.engine.epoch.stats import EpochStats
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.operators.metrics import Durations
from bicycle_sdk.clock import Clock

_EPOCHS_MAX = 100
_RECENT_MS = 10_000.0  # of the time of tasks; then the sums are halved
_GROWTH_WINDOW_S = 60.0
_GROWTH_STEP_S = 1.0
_HELD_WINDOW_S = 60.0


class Timings:
    """Timings of one run of a driver, beyond counts.

    Args:
        clock: Measures how long the state has grown.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epochs_ms: deque[float] = deque(maxlen=_EPOCHS_MAX)
        self._busy: dict[str, tuple[float, float]] = {}
        self._size = _Growth()
        self._sizes: dict[str, _Growth] = {}
        self._held: dict[str, Rate] = {}
        self._began_s = clock.monotonic()

    def take(self, status: JobStatus, stats: EpochStats) -> None:
        """Add an epoch."""
        status.phases_ms = {name: round(ms, 3) for name, ms in stats.phases_ms.items()}
        status.epoch_times.take(round(stats.duration_ms * 1e6))
        for name, duration_ms in stats.phases_ms.items():
            times = status.phase_times.setdefault(name, Durations())
            times.take(round(duration_ms * 1e6))
        self._epochs_ms.append(stats.duration_ms)
        for uid, counts in stats.counts.items():
            busy_ms, task_ms = self._busy.get(uid, (0.0, 0.0))
            fading = 0.5 if task_ms > _RECENT_MS else 1.0
            self._busy[uid] = (busy_ms * fading + counts.busy_ms, task_ms * fading + counts.task_ms)
        now_s = self._clock.monotonic()
        for uid, byte_count in stats.operator_bytes.items():
            status.operators.setdefault(uid, OperatorStatus()).state_bytes = byte_count
            self._sizes.setdefault(uid, _Growth()).take(now_s, byte_count)
        for uid, count in stats.operator_keys.items():
            status.operators.setdefault(uid, OperatorStatus()).state_keys = count
        self._size.take(now_s, stats.state_bytes)
        self._take_held(stats)

    def show(self, status: JobStatus) -> None:
        """Write the accumulated figures into the status."""
        ordered = sorted(self._epochs_ms)
        if ordered:
            status.epoch_p50_ms = _quantile(ordered, 0.5)
            status.epoch_p99_ms = _quantile(ordered, 0.99)
        for uid, (busy_ms, task_ms) in self._busy.items():
            operator = status.operators[uid]
            operator.busy_share = round(min(busy_ms / task_ms, 1.0), 3) if task_ms else None
            operator.record_p50_ms = operator.times.quantile_ms(0.5)
            operator.record_p99_ms = operator.times.quantile_ms(0.99)
        for uid, held in self._held.items():
            operator = status.operators.setdefault(uid, OperatorStatus())
            operator.backpressure = round(min(held.per_second(), 1.0), 3)
        status.state_growth = self._size.per_second(status.state_growth)
        for uid, growth in self._sizes.items():
            operator = status.operators[uid]
            operator.state_growth = growth.per_second(operator.state_growth)

    def _take_held(self, stats: EpochStats) -> None:
        """Add the time in which a source with input waited for the end of the epoch."""
        for uid in stats.sources:
            held = self._held.setdefault(
                uid, Rate(self._clock, _HELD_WINDOW_S, began_s=self._began_s)
            )
            if uid not in stats.full_sources:
                continue
            counts, width = stats.counts.get(uid), len(stats.subtask_counts.get(uid, ())) or 1
            reading_ms = 0.0 if counts is None else counts.busy_ms / width
            held.add(max(stats.duration_ms - reading_ms, 0.0) / 1_000)


class Rate:
    """An amount per second over the last seconds, such as records.

    Args:
        clock: Measures how long ago it was.
        window_s: Over so many seconds, or since ``began_s`` if that is less.
        began_s: Since when it is counted, by the clock; None for now.
    """

    def __init__(self, clock: Clock, window_s: float, *, began_s: float | None = None) -> None:
        self._clock = clock
        self._window_s = window_s
        self._started = clock.monotonic() if began_s is None else began_s
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, amount: float) -> None:
        """Add an amount that has just passed."""
        self._seen.append((self._clock.monotonic(), amount))

    def per_second(self) -> float:
        """Return the rate, 0 when nothing came within the window."""
        now = self._clock.monotonic()
        while self._seen and now - self._seen[0][0] > self._window_s:
            self._seen.popleft()
        span = min(self._window_s, now - self._started)
        return sum(amount for _, amount in self._seen) / span if span > 0 else 0.0


class _Growth:
    """A size over the last minute."""

    def __init__(self) -> None:
        self._sizes: deque[tuple[float, int]] = deque()

    def take(self, now_s: float, byte_count: int) -> None:
        """Add a size; of sizes close together, the first is kept."""
        sizes = self._sizes
        if sizes and now_s - sizes[-1][0] < _GROWTH_STEP_S:
            return
        sizes.append((now_s, byte_count))
        while len(sizes) > 2 and now_s - sizes[1][0] >= _GROWTH_WINDOW_S:
            sizes.popleft()

    def per_second(self, former: float | None) -> float | None:
        """Return the growth; before two sizes, the former growth."""
        if len(self._sizes) < 2:
            return former
        (began_s, before), (ended_s, now) = self._sizes[0], self._sizes[-1]
        return round((now - before) / (ended_s - began_s), 1)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[max(math.ceil(share * len(ordered)), 1) - 1], 3)
