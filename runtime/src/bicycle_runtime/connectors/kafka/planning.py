"""The offsets that one epoch reads: a function of positions and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bicycle_runtime.contract import Budget, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The available offsets of a partition: next offset, and readable end."""

    shard: str
    start: int
    end: int


def plan_slices(backlogs: Sequence[Backlog], budget: Budget) -> list[Slice]:
    """Return at most one slice for each partition, within the budget.

    1. Records are shared fairly: the share that a partition cannot use goes to the others.
    2. The budget of bytes is shared in proportion to the records; the reader observes it, since
       sizes are only known there. It reads at least one record.
    3. Partition number n is read by subtask ``n % parallelism`` in every epoch, so that a worker
       continues with its prefetched messages. The engine gives slice i to subtask ``i %
       parallelism``: empty slices of idle partitions fill the gaps.
    4. Where tasks read on, each partition has its slice, be it empty.

    Args:
        backlogs: All partitions of the source, in a lasting order; the idle ones included.
        budget: The limit of the epoch. When it has fewer records than there are partitions, the
            smallest backlogs wait.
    """
    shares = fair_shares([backlog.end - backlog.start for backlog in backlogs], budget.record_count)
    total = sum(shares)
    busy: list[list[Slice]] = [[] for _ in range(budget.parallelism)]
    idle: list[list[Slice]] = [[] for _ in range(budget.parallelism)]
    for number, (backlog, share) in enumerate(zip(backlogs, shares, strict=True)):
        part = Slice(
            shard=backlog.shard,
            start=backlog.start,
            end=backlog.start + share,
            details={"bytes": budget.byte_count * share // max(total, 1)},
        )
        (busy if share or budget.reads_on else idle)[number % budget.parallelism].append(part)
    planned = _in_rows(busy, idle)
    while planned and not budget.reads_on and planned[-1].start == planned[-1].end:
        planned.pop()
    return planned


def fair_shares(wanted: Sequence[int], total: int) -> list[int]:
    """Divide ``total`` fairly: shares are at most the requests, surplus is shared.

    Example:
        >>> fair_shares([10, 1000, 1000], 500)
        [10, 245, 245]
    """
    shares = [0] * len(wanted)
    left = total
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for rank, index in enumerate(order):
        shares[index] = min(wanted[index], left // (len(order) - rank))
        left -= shares[index]
    return shares


def _in_rows(busy: list[list[Slice]], idle: list[list[Slice]]) -> list[Slice]:
    """Return the slices in rows of one per subtask.

    There are always enough idle ones: the subtasks' partitions differ in number by one at most, and
    only the last subtasks have fewer.
    """
    height = max(map(len, busy))
    return [
        lane[row] if row < len(lane) else spare[row - len(lane)]
        for row in range(height)
        for lane, spare in zip(busy, idle, strict=True)
        if row < len(lane) + len(spare)
    ]
