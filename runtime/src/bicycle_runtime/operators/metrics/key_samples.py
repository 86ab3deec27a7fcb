"""Which keys come most often: a sample of each keyed stream, cheap enough to be always taken.

One record in so many is looked at. A task reports the keys that it saw most in an epoch, as text;
the driver adds them up. It is a guess of shares, and of no use for anything that must be exact.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

__all__ = ["KeySample", "KeySampler"]

_STRIDE = 61  # a prime: input that comes in rounds of 2, 8 or 100 keys must not look like one key
_KEYS_MAX = 16  # of a task and epoch that are reported
_TEXT_MAX = 80


class KeySample(msgspec.Struct, kw_only=True):
    """How many records were looked at, and how many of them had each of the most frequent keys."""

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
        key_of: Gives the key of a record.
    """

    def __init__(self, key_of: Callable[[Any], Any]) -> None:
        self._key_of = key_of
        self._next = 0  # position of the next record to look at, from the begin of the next batch
        self._seen: Counter[Any] = Counter()

    def see(self, values: Sequence[Any]) -> None:
        """Take note of a batch."""
        picked = values[self._next :: _STRIDE]
        self._next = (self._next - len(values)) % _STRIDE
        # hot path: 1 to 3 ns a record. What a key function raises is settled by its operator.
        with suppress(Exception):
            self._seen.update(map(self._key_of, picked))

    def take(self) -> KeySample | None:
        """Return what was seen since the last call, and forget it; None for nothing."""
        seen, self._seen = self._seen, Counter()
        if not seen:
            return None
        most = heapq.nlargest(_KEYS_MAX, seen.items(), key=lambda item: item[1])
        sample = KeySample(record_count=seen.total())
        for key, count in most:
            sample.add(KeySample(keys={repr(key)[:_TEXT_MAX]: count}))
        return sample
