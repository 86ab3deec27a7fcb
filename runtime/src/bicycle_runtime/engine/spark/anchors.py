"""Keeping tasks with state on the host that has their state.

Spark prefers the host of its join partner: an *anchor* is a tiny cached dataset with one element
per task of a level, put on the host that we want for the task, and of the partitioner of the
level's input. The task ignores the elements. When hosts come or go the anchors are made again, with
as few moves as an even share allows. The host of a task is a wish, never needed for right results.

Source: ADR-0020 (tasks stay with their state).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bicycle_runtime.engine.hosts.placement import assign_tasks
from bicycle_runtime.engine.spark.spark_cluster import assign_to_hosts, host_counts
from bicycle_runtime.operators.spec import StagePlan, StateScope
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)


def levels_with_state(plan: StagePlan) -> list[int]:
    """Return the levels where an operator has state."""
    return [
        level
        for level in range(plan.level_count)
        if any(
            operator.scope is not StateScope.NONE
            for chain in plan.chains_at(level)
            for operator in chain.operators
        )
    ]


class Anchors:
    """The anchors of one job on one context.

    Args:
        context: The running context.
        parallelisms: Tasks of each level.
        levels: The levels that are to be anchored.
        partitioner: The function by which records go to tasks: the very object that the levels are
            partitioned by.
        former: Where tasks of the same job were before its parallelism changed, by level.
    """

    def __init__(
        self, context: Any, parallelisms: Sequence[int], levels: Sequence[int],
        partitioner: Callable[[int], int], *, former: Mapping[int, list[str]] | None = None,
    ) -> None:  # fmt: skip
        self._context = context
        self._parallelisms = parallelisms
        self._levels = levels
        self._partitioner = partitioner
        self._hosts: Mapping[str, int] = {}
        self._executors: frozenset[str] = frozenset()
        self._anchors: dict[int, Any] = {}
        self.task_hosts: dict[int, list[str]] = dict(former or {})

    def refresh(self, hosts: Mapping[str, int], executors: frozenset[str]) -> None:
        """Place tasks again if the executors are others than the last time.

        One that died took its part of the anchors along, even if another is on its host by now.

        Args:
            hosts: Hosts with executors, and how many each has; without any, nothing is done.
            executors: Their ids.
        """
        if not hosts or executors == self._executors:
            return
        if self._executors and hosts != self._hosts:
            log_event(
                _LOG, "hosts_changed", before=host_counts(self._hosts), now=host_counts(hosts)
            )
        self._hosts, self._executors = dict(hosts), executors
        for level in self._levels:
            task_hosts = assign_tasks(
                self._parallelisms[level], hosts, self.task_hosts.get(level, ())
            )
            self.task_hosts[level] = task_hosts
            self._put(level, task_hosts)

    def seed(self, plain: Any) -> Any:
        """Return the seed of level 0: its anchor, or ``plain`` without one."""
        return self._anchors.get(0, plain)

    def hold(self, level: int, records: Any) -> Any:
        """Return the input of a level, joined with its anchor if it has one.

        Spark takes the host that most join partners prefer. Records that all come from one host
        prefer that, so the anchor has two votes.
        """
        anchor = self._anchors.get(level)
        return records if anchor is None else self._context.union([records, anchor, anchor])

    def remove(self) -> None:
        """Remove the anchors from Spark."""
        for level in list(self._anchors):
            self._drop(level)

    def _put(self, level: int, task_hosts: Sequence[str]) -> None:
        """Create the anchor of a level: cached elements at their hosts.

        A shuffled partition prefers the host that all its bytes come from, so the cached one is put
        where the element was.
        """
        from pyspark.core.rdd import RDD  # Spark is imported when it is used
        from pyspark.serializers import UTF8Deserializer

        self._drop(level)
        texts = assign_to_hosts(
            self._context, [(str(task), host) for task, host in enumerate(task_hosts)]
        )
        elements: Any = RDD(texts, self._context, UTF8Deserializer())  # type: ignore[no-untyped-call]  # Spark's own
        if level == 0:  # It is not shuffled, and its place needs no cache.
            self._anchors[0] = elements
            return
        parallelism = self._parallelisms[level]
        anchor = elements.map(_as_pair).partitionBy(parallelism, self._partitioner).persist()
        anchor.count()
        self._anchors[level] = anchor

    def _drop(self, level: int) -> None:
        former = self._anchors.pop(level, None)
        if former is not None and level:
            former.unpersist()


def _as_pair(text: str) -> tuple[int, None]:
    return int(text), None
