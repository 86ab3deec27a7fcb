"""The skew of records over keys and subtasks in the last epochs.

Shares of keys come from samples; the older half of the samples fades, so that the shares are
current. Both are for people: nothing in the job depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.jobs.status import HotKey
from bicycle_runtime.operators.metrics import KeySample

_RECORDS_MIN = 100  # samples before any share is reported
_RECORDS_MAX = 4_000  # then the samples are halved
_KEYS_MAX = 128
_SHOWN_MAX = 5


class Skew:
    """The keys of one operator, and how its subtasks are used."""

    def __init__(self) -> None:
        self._sample = KeySample()
        self._subtasks: dict[int, float] = {}
        self._parallelism = 0

    def add_keys(self, sample: KeySample) -> None:
        """Take note of the keys of an epoch."""
        self._sample.add(sample)
        if self._sample.record_count > _RECORDS_MAX or len(self._sample.keys) > 2 * _KEYS_MAX:
            most = sorted(self._sample.keys.items(), key=lambda item: -item[1])[:_KEYS_MAX]
            halved = {key: count // 2 for key, count in most if count > 1}
            self._sample = KeySample(record_count=self._sample.record_count // 2, keys=halved)

    def add_records(self, counts: Mapping[int, int], parallelism: int) -> None:
        """Take note of the records of each subtask in an epoch."""
        if parallelism != self._parallelism:
            self._subtasks, self._parallelism = {}, parallelism
        for subtask, count in counts.items():
            self._subtasks[subtask] = self._subtasks.get(subtask, 0) + count

    def hot_keys(self) -> list[HotKey]:
        """Return the keys with the greatest shares; [] before enough records were sampled."""
        total = self._sample.record_count
        if total < _RECORDS_MIN:
            return []
        most = sorted(self._sample.keys.items(), key=lambda item: (-item[1], item[0]))
        return [HotKey(key=key, share=round(n / total, 3)) for key, n in most[:_SHOWN_MAX]]

    def ratio(self) -> float | None:
        """Return the ratio of the busiest subtask to the mean; None for one subtask."""
        total = sum(self._subtasks.values())
        if self._parallelism < 2 or not total:  # one subtask is as busy as itself
            return None
        return round(max(self._subtasks.values()) * self._parallelism / total, 2)
