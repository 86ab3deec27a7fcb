"""The due times of windows: a time index of entries, which can be rebuilt.

It may name times that a window no longer has: the code that gets one looks the window up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bicycle_runtime.layouts.state import WindowKey
from bicycle_runtime.records.keys import encode_key


class DueTimes:
    """The keys that may have a due entry, by time, in one domain."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._window_keys: dict[int, dict[WindowKey, None]] = {}

    def reset(self) -> None:
        """Forget all times."""
        self._heap, self._window_keys = [], {}

    def add(self, time_ms: int, window_key: WindowKey) -> None:
        """Take note of a time."""
        known = self._window_keys.get(time_ms)
        if known is None:
            known = self._window_keys[time_ms] = {}
            heapq.heappush(self._heap, time_ms)
        known[window_key] = None

    def due(self, until_ms: int) -> Iterator[tuple[int, WindowKey]]:
        """Remove and yield due entries, by time, namespace, key group and key.

        Entries added meanwhile are yielded at their time; entries added for the time being yielded
        come last.
        """
        while self._heap and self._heap[0] <= until_ms:
            time_ms = heapq.heappop(self._heap)
            by_part: dict[tuple[int, int], list[Any]] = {}
            for namespace, group, key in self._window_keys.pop(time_ms):
                by_part.setdefault((namespace, group), []).append(key)
            for (namespace, group), keys in sorted(by_part.items(), key=lambda item: item[0]):
                for key in in_order(keys):
                    yield time_ms, (namespace, group, key)

    def first(self, is_set: Callable[[int, WindowKey], bool]) -> int | None:
        """Return the earliest time that is set, or None, and forget earlier times.

        Args:
            is_set: Returns whether anything is due at a time.
        """
        while self._heap:
            time_ms = self._heap[0]
            if any(is_set(time_ms, window_key) for window_key in self._window_keys[time_ms]):
                return time_ms
            heapq.heappop(self._heap)
            del self._window_keys[time_ms]
        return None


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in the firing order of their windows: sorted, else by stable bytes."""
    listed = list(keys)
    if len(listed) < 2:  # hot path: so it is in most key groups with few keys.
        return listed
    kinds = set(map(type, listed))
    if kinds <= {str} or kinds <= {int} or kinds <= {bytes}:
        return sorted(listed)
    return sorted(listed, key=encode_key)
