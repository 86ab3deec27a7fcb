"""The timers of all panes, by time: a heap that may name timers which are no longer set."""

from __future__ import annotations

import heapq
from typing import Any

from bicycle_runtime.operators.windows.firing import in_order

__all__ = ["Spot", "Timetable"]

Spot = tuple[int, int, Any]  # place, key group, key


class Timetable:
    """Which keys may have a timer at which time; who takes one looks whether it is still set."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._spots: dict[int, dict[Spot, None]] = {}

    def add(self, time_ms: int, spot: Spot) -> None:
        """Take note of a timer."""
        known = self._spots.get(time_ms)
        if known is None:
            known = self._spots[time_ms] = {}
            heapq.heappush(self._heap, time_ms)
        known[spot] = None

    def first(self) -> int | None:
        """Return the earliest time; None when there is none."""
        return self._heap[0] if self._heap else None

    def at(self, time_ms: int) -> list[Spot]:
        """Return who may have a timer at a time."""
        return list(self._spots.get(time_ms, ()))

    def take(self, time_ms: int) -> list[Spot]:
        """Remove the earliest time and return its spots by place, key group and key."""
        heapq.heappop(self._heap)
        by_part: dict[tuple[int, int], list[Any]] = {}
        for place, group, key in self._spots.pop(time_ms):
            by_part.setdefault((place, group), []).append(key)
        return [
            (place, group, key)
            for (place, group), keys in sorted(by_part.items(), key=lambda item: item[0])
            for key in in_order(keys)
        ]
