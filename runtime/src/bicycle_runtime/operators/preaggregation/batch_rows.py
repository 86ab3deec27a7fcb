"""The records of a batch as columns, for windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.operators.batch import Batch, PickLineage
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy


@dataclass(slots=True)
class Rows:
    """Columns of equal length; ``batch`` holds the records, for errors.

    ``namespaces`` has the namespace of each record: the start of its slice, or the end of its
    session. ``selected`` has the results of selectors, by the place of their first aggregate.
    """

    batch: Batch
    keys: list[Any]
    times: list[int]
    groups: Sequence[int]
    namespaces: Sequence[int] = ()
    selected: dict[int, list[Any]] = field(default_factory=dict)

    def take(self, indexes: Sequence[int]) -> Rows:
        """Return some of the rows."""
        batch, groups = self.batch, self.groups
        values = [batch.values[index] for index in indexes]
        return Rows(
            Batch(values, PickLineage(batch.lineage, lambda: indexes)),
            [self.keys[index] for index in indexes],
            [self.times[index] for index in indexes],
            [groups[index] for index in indexes],
            [self.namespaces[index] for index in indexes] if self.namespaces else (),
            {index: [found[i] for i in indexes] for index, found in self.selected.items()},
        )

    def without_drops(self, results: Sequence[Any]) -> Rows:
        """Return the rows whose result is not DROPPED."""
        return self.take([i for i, result in enumerate(results) if result is not DROPPED])


def rows_of(
    batch: Batch, key_of: Callable[[Any], Any], policy: RecordPolicy, *, operator: str
) -> Rows:
    """Return the columns of a batch behind ``key_by``.

    Raises:
        NO_EVENT_TIME: the records have no event time.
    """
    times = batch.times()
    if times is None:
        raise NO_EVENT_TIME(operator=operator)
    assert batch.groups is not None
    if isinstance(batch.keys, list):
        return Rows(batch, batch.keys, times, batch.groups)
    failed = policy.failed
    keys = each(key_of, batch.values, policy=policy, awaits=False)
    rows = Rows(batch, keys, times, batch.groups)
    return rows if policy.failed == failed else rows.without_drops(keys)
