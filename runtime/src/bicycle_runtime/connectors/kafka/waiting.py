"""How long unread messages have been waiting, told from when the ends of partitions were seen.

Timestamps of messages are not asked for: that would take a fetch for each partition, and producers
set them at will. What lay there when the run began waits from then on.
"""

from __future__ import annotations

from collections import deque

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.connectors.contract import Lag

__all__ = ["WaitingTimes"]

_SEEN_COUNT_MAX = 512


class WaitingTimes:
    """Remembers for each partition at which times it had grown to which ends.

    Args:
        clock: Tells the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[int, float]]] = {}

    def see(self, shard: str, end: int) -> None:
        """Take note of the end of a partition, as of now; one that shrank is another one."""
        seen = self._seen.setdefault(shard, deque())
        if seen and seen[-1][0] > end:
            seen.clear()
        if not seen or seen[-1][0] < end:
            seen.append((end, self._clock.monotonic()))
        if len(seen) > _SEEN_COUNT_MAX:  # Each second one takes the time of the one before it.
            pairs = list(seen)
            merged = [
                (later[0], earlier[1])
                for earlier, later in zip(pairs[::2], pairs[1::2], strict=False)
            ]
            self._seen[shard] = deque([*merged, *pairs[2 * len(merged) :]])

    def lag(self, shard: str, *, position: int, end: int) -> Lag:
        """Return what is unread from a position on, and for how long the first of it is known."""
        seen = self._seen.get(shard, deque())
        while seen and seen[0][0] <= position:
            seen.popleft()
        if end <= position:
            return Lag(record_count=0, age_ms=0)
        age_s = self._clock.monotonic() - seen[0][1] if seen else 0.0
        return Lag(record_count=end - position, age_ms=round(age_s * 1000))
