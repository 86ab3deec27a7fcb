"""The records of a batch as columns, for windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.operators.batch import Batch, PickLineage
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.user_calls.batches import each
from bicycle_runtime.operators.user_calls.policy import DROPPED, RecordPolicy
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows import SessionWindows, duration_ms


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


def session_ends(rows: Rows, assigner: SessionWindows, policy: RecordPolicy) -> Rows:
    """Return the rows with the end of each record's interval as its place."""
    gap_of = assigner.gap_of
    if gap_of is None:
        gap_ms = assigner.gap_ms
        assert gap_ms is not None
        rows.namespaces = [time + gap_ms for time in rows.times]
        return rows
    policy.batch = rows.batch
    found = each(gap_of, rows.batch.values, policy=policy, awaits=is_async(gap_of))
    gaps = each(_check, found, policy=policy, awaits=False)
    if any(gap is DROPPED for gap in gaps):
        rows = rows.without_drops(gaps)
        gaps = [gap for gap in gaps if gap is not DROPPED]
    rows.namespaces = [time + gap for time, gap in zip(rows.times, gaps, strict=True)]
    return rows


def _check(gap: Any) -> Any:
    if gap is DROPPED:
        return gap
    try:
        return duration_ms("the gap of a session", gap)
    except StreamDefinitionError as error:
        raise ValueError(error.summary) from None
