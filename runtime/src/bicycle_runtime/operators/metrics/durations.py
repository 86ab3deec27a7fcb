"""How long something took, many times: a histogram with fixed bounds, and the sum.

Workers fill them for operators, the driver for the phases of an epoch. Two of them add up, which
quantiles would not; what is told as a quantile is the upper bound of the bucket that it lies in.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

__all__ = ["BOUNDS_US", "Durations"]

# In microseconds. Each is at most 2.5 times the one before, and so is the error of a quantile.
BOUNDS_US = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000,
    250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
    300_000_000,
)  # fmt: skip


class Durations(msgspec.Struct, kw_only=True):
    """``buckets`` counts by the index of the bound that is the first not to be exceeded.

    The index behind the last bound counts what is above it. ``seconds`` is the sum of all.
    """

    seconds: float = 0.0
    buckets: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.buckets.values())

    def take(self, duration_ns: int, count: int = 1) -> None:
        """Take note of what ``count`` things took together; each counts with the mean.

        Args:
            duration_ns: Nanoseconds, 0 or more.
            count: Things, 1 or more.
        """
        index = bisect_left(BOUNDS_US, duration_ns / (count * 1_000))
        self.buckets[index] = self.buckets.get(index, 0) + count
        self.seconds += duration_ns / 1e9

    def add(self, part: Durations) -> None:
        """Add those of another task, or of another epoch."""
        self.seconds += part.seconds
        for index, count in part.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count

    def quantile_ms(self, share: float) -> float | None:
        """Return a bound that at least this share does not exceed, in ms; None without any.

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
