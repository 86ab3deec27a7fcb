"""The host of each task with state: a pure function, sticky and even.

State is on a host's disk and in its workers' memory, so a task should come back to its host. When
hosts come or go, or the parallelism changes, as little moves as an even share allows. Neighboring
tasks have neighboring key groups, so they begin on one host: wider or narrower, keys stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def assign_tasks(
    parallelism: int, slots: Mapping[str, int], former: Sequence[str] = ()
) -> list[str]:
    """Return the host of each task of a level.

    Args:
        parallelism: How many tasks there are.
        slots: Hosts with the tasks that each runs at a time, 1 or more.
        former: Where the tasks were, by index; empty at first. If they were more or fewer, a task
            was where the middle of its key groups was.

    Returns:
        One host per task. A host gets its share of tasks by its slots, rounded down or up, and
        a task leaves a host that stays only when that has more than its share.

    Example:
        >>> assign_tasks(4, {"a": 1, "b": 1})
        ['a', 'a', 'b', 'b']
        >>> assign_tasks(4, {"a": 1, "c": 1}, ["a", "a", "b", "b"])
        ['a', 'a', 'c', 'c']
        >>> assign_tasks(2, {"a": 1, "c": 1}, ["c", "c", "a", "a"])
        ['c', 'a']
    """
    hosts = sorted(slots)
    before: list[str | None] = [None] * parallelism
    if former:
        before = [
            former[(2 * task + 1) * len(former) // (2 * parallelism)] for task in range(parallelism)
        ]
    counts = _shares(parallelism, {host: slots[host] for host in hosts}, before)
    assigned: list[str | None] = [None] * parallelism
    for task, host in enumerate(before):
        if host is not None and counts.get(host, 0) > 0:
            assigned[task] = host
            counts[host] -= 1
    for task, host in enumerate(assigned):
        if host is None:
            # The host of the task before, if it has room: neighbors go together.
            near = assigned[task - 1] if task else None
            if near is None or not counts[near]:
                near = max(hosts, key=lambda name: (counts[name], -hosts.index(name)))
            assigned[task] = near
            counts[near] -= 1
    return [host for host in assigned if host is not None]


def _shares(
    parallelism: int, slots: Mapping[str, int], before: Sequence[str | None]
) -> dict[str, int]:
    """Return the number of tasks per host; the rest goes to hosts with tasks."""
    total = sum(slots.values())
    shares = {host: parallelism * count // total for host, count in slots.items()}
    left = parallelism - sum(shares.values())
    requests = sorted(
        slots,
        key=lambda host: (
            min(0, shares[host] - before.count(host)),
            -(parallelism * slots[host] % total),
            host,
        ),
    )
    for host in requests[:left]:
        shares[host] += 1
    return shares
