"""The size of epochs: an estimate of their cost, and the resulting budget.

An epoch costs a fixed part (Spark, storage, a call that takes three seconds however few records it
gets) and a part for each record. Only the second shrinks with the epoch, so both are estimated.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

from bicycle_runtime.engine.options import EngineOptions

_SAMPLES_MAX = 64
_DECAY = 0.96  # Weight of an epoch relative to the next: the machine of an hour ago is another one.
_SPREAD_MIN = 0.08  # Epochs of one size, within this share of it, show no cost of a record.
_PRIOR_SAMPLES = 2
_PRIOR_NOISE = 0.1
_OUTLIER = 3.5  # in standard deviations
_OUTLIER_SIZE_MAX = 2.5  # A larger epoch is slow because of its records, until others show more.
_SIGMA_OF_MEDIAN = 1.48
_FIXED_MS_GUESS = 40.0  # An epoch on embedded Spark takes about 30 ms.


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The known cost of epochs.

    ``certainty`` is the cost of a record in standard errors of its estimate; None when epochs of
    one size alone were seen, so that it is a guess. ``noise_ms`` is how much epochs of one size
    differ.
    """

    fixed_ms: float
    record_ms: float
    certainty: float | None = None
    noise_ms: float = 0.0


class EpochCosts:
    """A robust estimate of the fixed cost of an epoch and of the cost of a record.

    A line is fitted to the durations of the last 64 epochs, newer ones counting more. Epochs that
    took far longer than others of their size are left out.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=_SAMPLES_MAX)
        self._last: Cost | None = None

    def add(self, record_count: int, duration_ms: float) -> None:
        """Take note of an epoch with at least one record."""
        self._samples.append((record_count, duration_ms))

    def estimate(self) -> Cost:
        """Return the cost of epochs; there was at least one."""
        cost = self._fit() or self._scale_last()
        self._last = cost
        return cost

    def _scale_last(self) -> Cost:
        """Return the last estimate, brought to the level of the last epochs of one size.

        The guess before any estimate: an epoch costs little by itself, but no more than half.
        """
        if self._last is None:
            count, duration_ms = self._samples[-1]
            fixed_ms = min(duration_ms / 2, _FIXED_MS_GUESS)
            return Cost(fixed_ms=fixed_ms, record_ms=(duration_ms - fixed_ms) / count)
        newest = list(self._samples)[-4:]
        fixed_ms, record_ms = self._last.fixed_ms, self._last.record_ms
        expected_ms = sum(fixed_ms + record_ms * count for count, _ in newest)
        scale = sum(duration_ms for _, duration_ms in newest) / max(expected_ms, 1e-9)
        return Cost(fixed_ms=fixed_ms * scale, record_ms=record_ms * scale)

    def _fit(self) -> Cost | None:
        """Return the line through the samples; None when they have one size."""
        base = [_DECAY**age for age in range(len(self._samples))][::-1]
        line = _Line(self._samples, base)
        if len(self._samples) > _PRIOR_SAMPLES + 2:
            for _ in range(3):
                line = _Line(self._samples, line.without_outliers(base))
        return line.cost()


class _Line:
    """A weighted least-squares fit of durations over numbers of records."""

    def __init__(self, samples: deque[tuple[int, float]], weights: list[float]) -> None:
        self._samples, self._weights = samples, weights
        self._weight = sum(weights)
        pairs = list(zip(weights, samples, strict=True))
        self._count = sum(w * n for w, (n, _) in pairs) / self._weight
        self._mean_ms = sum(w * ms for w, (_, ms) in pairs) / self._weight
        self._spread = sum(w * (n - self._count) ** 2 for w, (n, _) in pairs)
        shared = sum(w * (n - self._count) * (ms - self._mean_ms) for w, (n, ms) in pairs)
        self._is_known = math.sqrt(self._spread / self._weight) >= _SPREAD_MIN * self._count
        self._slope = shared / self._spread if self._is_known else 0.0
        self._rests = [ms - self._mean_ms - self._slope * (n - self._count) for n, ms in samples]

    def without_outliers(self, weights: list[float]) -> list[float]:
        """Return the weights, 0 for epochs that something else made slow."""
        noise_ms = _SIGMA_OF_MEDIAN * statistics.median(map(abs, self._rests))
        limit_ms = _OUTLIER * max(noise_ms, 0.03 * self._mean_ms)
        return [
            weight if rest <= limit_ms or count > _OUTLIER_SIZE_MAX * self._count else 0.0
            for weight, rest, (count, _) in zip(weights, self._rests, self._samples, strict=True)
        ]

    def cost(self) -> Cost | None:
        """Return the cost of the line, or None if its slope is unknown."""
        if not self._is_known:
            return None
        squares = sum(weight * weight for weight in self._weights)
        effective = self._weight * self._weight / squares
        rests = zip(self._weights, self._rests, strict=True)
        variance = sum(weight * rest * rest for weight, rest in rests) / self._weight
        prior = _PRIOR_SAMPLES * (_PRIOR_NOISE * self._mean_ms) ** 2
        freedom = _PRIOR_SAMPLES + max(effective - 2, 0)
        error = math.sqrt(
            (prior + variance * effective) / freedom / (self._spread / self._weight * effective)
        )
        most_ms = self._mean_ms / self._count  # if epochs cost nothing by themselves
        slope = max(self._slope, 0.0)
        is_seen = self._slope >= error
        return Cost(
            fixed_ms=max(self._mean_ms - slope * self._count, 0.0),
            record_ms=min(slope if is_seen else slope + error, most_ms),
            certainty=self._slope / max(error, 1e-12),
            noise_ms=math.sqrt(variance),
        )


_FIRST_BYTES = 1 << 20
_FIRST_RECORDS = 10_000
_FIRST_WAVES = 10
_LOW_BYTES = 1 << 16
_HIGH_LIMIT = 1_000_000  # To count so many lines would take a tenth of the time to read them.
_BATCH_MS = 60_000  # of records that pass at a limited rate: an epoch must not seem to hang
_SEEN = 1.0  # Standard errors: below, the cost of records is lost in the noise.
_CERTAIN = 2.0  # from here on a smaller epoch is surely shorter
_SURE = 3.0  # from here on an epoch grows at once
_CAREFUL_GROWTH = 2.0
_FIXED_SHARE = 1.25  # Records get a little more than half: the fixed part is an estimate.
_BAND_MIN, _BAND_MAX = 1.25, 1.75
_PROBE = 2.0
_PROBE_EVERY = 3
_PROBE_NOISE = 0.25
_FULL = 0.5
_IDLE_EVERY, _IDLE_FIRST = 16, 3


class Pacer:
    """The adaptation of epoch budgets to the cost of epochs and records.

    Under backlog the records of an epoch get ``epoch_target_ms``, or a little more than the fixed
    part of the epoch if that is longer: then most of the time goes to records, whatever an epoch
    costs by itself. An epoch grows at once to that size, and shrinks when it is clearly larger. If
    the cost of records is lost in the noise, epochs grow until it is not. If noise or the fixed
    part are large, every third epoch is twice as large, which separates the two.

    Without backlog a budget only shrinks, and only where records are surely slow.

    In batch mode no reader waits for an epoch: each may take all that the limits allow.

    Args:
        options: Target and limits.
        per_second: The rate limit of the job, in records.
        wave: Records that calls in flight take at one time. No epoch gets a smaller budget, and a
            larger one is a multiple.
    """

    def __init__(
        self, options: EngineOptions, *, per_second: float = math.inf, wave: int = 1
    ) -> None:
        self._options = options
        self._per_second = per_second
        self._wave = wave
        self._costs = EpochCosts()
        self._cost: Cost | None = None
        self._learned = 0
        self._fixed_ms: float | None = None
        if options.is_batch:
            self.byte_count = options.max_bytes_per_epoch
            self.record_count = _pace(options.max_records_per_epoch, per_second, _BATCH_MS)
            return
        self.byte_count = min(_FIRST_BYTES, options.max_bytes_per_epoch)
        first = _FIRST_RECORDS if wave <= 1 else min(_FIRST_RECORDS, _FIRST_WAVES * wave)
        first = _pace(first, per_second, options.epoch_target_ms)
        self._size = float(first)
        self.record_count = self._budget(first)

    @property
    def is_approximate(self) -> bool:
        """Return whether some surplus records do no harm: the limit is a guess, or high.

        Calls in flight make it exact: one record too many takes a whole wave.
        """
        limit = self._options.max_records_per_epoch
        return self._wave <= 1 and (self.record_count < limit or limit >= _HIGH_LIMIT)

    @property
    def wave(self) -> int:
        """Records that calls in flight take at one time."""
        return self._wave

    @property
    def fixed_ms(self) -> float | None:
        """The fixed cost of an epoch, None if unknown, or without backlog."""
        return self._fixed_ms

    def change_wave(self, wave: int) -> None:
        """Take note of other parallelism of functions with calls in flight."""
        self._wave = wave
        if not self._options.is_batch:
            self.record_count = self._budget(self._size)

    def learn(self, *, duration_ms: float, record_count: int, has_backlog: bool) -> None:
        """Take note of an epoch that has just run.

        Args:
            duration_ms: How long it took.
            record_count: The records that it read, of the greatest source.
            has_backlog: Whether input was left when it was planned.
        """
        if self._options.is_batch or not record_count:
            return
        self._costs.add(record_count, duration_ms)
        self._learned += 1
        if self._is_idle(duration_ms, record_count):
            return
        self._fixed_ms = None
        if has_backlog:
            self._adapt(self._costs.estimate(), record_count)
        elif duration_ms > _BAND_MAX * self._options.epoch_target_ms:
            self._keep_short(self._costs.estimate())

    def _is_idle(self, duration_ms: float, record_count: int) -> bool:
        """Return whether an epoch was quick and below its budget."""
        is_quick = duration_ms < self._options.epoch_target_ms
        is_small = record_count < _FULL * self._size
        return is_quick and is_small and self._learned % _IDLE_EVERY > _IDLE_FIRST

    def _adapt(self, cost: Cost, record_count: int) -> None:
        """Adjust the budget to the best size, after an epoch that left input."""
        is_full = record_count >= _FULL * self._size
        now = min(self._size, record_count)
        if record_count >= (1 - _SPREAD_MIN) * self._size:
            now = self._size
        new = max(self._next_size(cost, now), self._least())
        is_certain = cost.certainty is not None and cost.certainty >= _CERTAIN
        if is_full or (new < now and is_certain):
            self._size = new
        elif new >= now:  # Bytes bound it, or there was no more.
            self._size = max(self._size, new)
        self.byte_count = _within(
            self.byte_count * new / now, _LOW_BYTES, self._options.max_bytes_per_epoch
        )
        if cost.certainty is not None:
            self._fixed_ms = cost.fixed_ms
        self.record_count = self._budget(self._size * (_PROBE if self._probes(cost) else 1))

    def _next_size(self, cost: Cost, now: float) -> float:
        """Return the size that follows one of ``now`` records."""
        target_ms = self._options.epoch_target_ms
        goal_ms = max(target_ms + cost.fixed_ms / 2, _FIXED_SHARE * cost.fixed_ms)
        goal = goal_ms / max(cost.record_ms, 1e-9)
        if cost.certainty is None:
            most = _BAND_MAX * goal
            # Another size shows how much of the time is for records; half the way, by factors.
            return math.sqrt(most * now) if now > most else most if now > goal else goal
        share = (cost.fixed_ms + cost.noise_ms) / target_ms
        most = min(_BAND_MIN + share, _BAND_MAX) * goal
        if cost.certainty < _SEEN:
            return max(goal, now * _CAREFUL_GROWTH)
        if goal > now:
            return goal if cost.certainty >= _SURE else min(goal, now * _CAREFUL_GROWTH)
        return most if now > most and cost.certainty >= _CERTAIN else now

    def _keep_short(self, cost: Cost) -> None:
        if cost.certainty is not None and cost.certainty >= _CERTAIN:
            self._size = min(self._size, max(self._next_size(cost, self._size), self._least()))
            self.record_count = self._budget(self._size)

    def _probes(self, cost: Cost) -> bool:
        if cost.certainty is None or self._learned % _PROBE_EVERY:
            return False
        unclear_ms = cost.fixed_ms + cost.noise_ms
        return unclear_ms > _PROBE_NOISE * (cost.fixed_ms + cost.record_ms * self._size)

    def _budget(self, size: float) -> int:
        """Return a budget within all limits: whole waves, one at least.

        A rate limit passes no more in the time of an epoch, and wins over a wave.
        """
        limit = self._options.max_records_per_epoch
        size = max(size // self._wave * self._wave, self._least())
        self._size = min(self._size, float(limit))
        return _within(size, 1, limit)

    def _least(self) -> int:
        return _pace(self._wave, self._per_second, self._options.epoch_target_ms)


def _pace(count: int, per_second: float, duration_ms: int) -> int:
    """Return how many records pass in a time, ``count`` at most and one at least."""
    return max(int(min(count, per_second * duration_ms / 1_000)), 1)


def _within(value: float, low: int, high: int) -> int:
    return int(min(max(value, min(low, high)), high))
