"""The snapshot of all jobs, and subscriptions to its changes.

A thread replaces the snapshot with a new one; requests read it and never wait. A subscriber runs in
the event loop and buffers one change: further changes are merged into it, so that a slow reader
skips to the newest state and delays no other reader.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.errors import SERVICE_BUSY
from bicycle_runtime.service.watching.states import State, shown_state
from bicycle_runtime.service.watching.summaries import NOTHING_RANK, KnownJob, summary_of

_SUBSCRIBERS_MAX = 200


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """The jobs as of one moment, the last start first."""

    revision: int = 0
    as_of_ms: int = 0
    jobs: tuple[KnownJob, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, KnownJob]:
        """The jobs by their ids."""
        return {job.summary.job_id: job for job in self.jobs}

    def get(self, job_id: str) -> KnownJob | None:
        """Return a job, or None."""
        return self.by_id.get(job_id)

    def totals(self) -> dict[str, Any]:
        """Return totals over all jobs: jobs, states, running, attention, and rates."""
        summaries = [job.summary for job in self.jobs]
        states = Counter(summary.state for summary in summaries)
        running = [summary for summary in summaries if summary.end_time is None]
        lags = [each.lag_records for each in running if each.lag_records is not None]
        sizes = [each.lag_bytes for each in running if each.lag_bytes is not None]
        return {
            "jobs": len(summaries),
            "states": {state.value: states[state.value] for state in State},
            "running": states[State.RUNNING.value],
            "attention": sum(s.attention_rank < NOTHING_RANK for s in summaries),
            "records_per_second": round(sum(s.records_per_second for s in summaries), 1),
            "lag_records": sum(lags) if lags else None,
            "lag_bytes": sum(sizes) if sizes else None,
            "tasks_total": sum(each.tasks_total for each in running),
            "tasks_running": sum(s.tasks_running for s in summaries),
        }


def view_of(statuses: Iterable[JobStatus], *, now_ms: int) -> FleetView:
    """Return a snapshot of jobs that were just read, without a service.

    Requested operations and growth of the lag are then unknown.
    """
    jobs = []
    for status in statuses:
        state = shown_state(
            status,
            is_driven=is_alive(status.pid, status.pid_started),
            is_supervised=is_alive(status.supervisor_pid, status.supervisor_started),
        )
        summary = summary_of(status, state, is_lag_growing=False)
        jobs.append(KnownJob(summary=summary, status=status, revision=0))
    return FleetView(as_of_ms=now_ms, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of a snapshot: changed jobs, removed jobs, advanced operations."""

    revision: int
    jobs: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    operations: frozenset[int] = frozenset()

    def joined(self, later: Change) -> Change:
        """Return this change and a later one as one."""
        return Change(
            revision=max(self.revision, later.revision),
            jobs=(self.jobs | later.jobs) - later.removed,
            removed=(self.removed - later.jobs) | later.removed,
            operations=self.operations | later.operations,
        )


@dataclass(slots=True, eq=False)
class FleetSubscription:
    """Changes for one reader, as an asynchronous iterator; it ends with the service."""

    _waiting: Change | None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_over: bool = False

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        while self._waiting is None:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        change, self._waiting = self._waiting, None
        return change

    def put(self, change: Change) -> None:
        """Take a change, in the event loop."""
        self._waiting = change if self._waiting is None else self._waiting.joined(change)
        self._news.set()

    def close(self) -> None:
        """End the reader after its waiting change."""
        self._is_over = True
        self._news.set()


class Fleet:
    """Holds the snapshot. ``publish`` may be called from any thread, all else from the loop."""

    def __init__(self) -> None:
        self._view = FleetView()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscribers: set[FleetSubscription] = set()
        self._is_closed = False

    @property
    def view(self) -> FleetView:
        """The newest snapshot."""
        return self._view

    @property
    def subscriber_count(self) -> int:
        """The number of subscribed readers."""
        return len(self._subscribers)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publish changes in this loop from now on."""
        self._loop = loop

    def close(self) -> None:
        """End all subscriptions."""
        self._is_closed = True
        self._loop = None
        for subscriber in self._subscribers:
            subscriber.close()

    def publish(
        self, jobs: tuple[KnownJob, ...], changed: Iterable[str], removed: Iterable[str], *,
        as_of_ms: int,
    ) -> None:  # fmt: skip
        """Replace the snapshot; its revision grows only if a shown value changed."""
        change = Change(
            revision=self._view.revision, jobs=frozenset(changed), removed=frozenset(removed)
        )
        with self._lock:
            is_new = bool(change.jobs or change.removed)
            revision = self._view.revision + is_new
            self._view = FleetView(revision=revision, as_of_ms=as_of_ms, jobs=jobs)
        if is_new:
            self._tell(replace(change, revision=revision))

    def tell_news(self) -> None:
        """Publish that there are new events."""
        self._tell(Change(revision=self._view.revision))

    def tell_operation(self, number: int) -> None:
        """Publish that an operation has advanced."""
        self._tell(Change(revision=self._view.revision, operations=frozenset({number})))

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[FleetSubscription]:
        """Subscribe. The first change has all jobs, so that a reader begins with everything.

        Raises:
            SERVICE_BUSY: there are 200 subscribers already.
        """
        if len(self._subscribers) >= _SUBSCRIBERS_MAX:
            raise SERVICE_BUSY(waiting=_SUBSCRIBERS_MAX)
        view = self._view
        subscription = FleetSubscription(Change(revision=view.revision, jobs=frozenset(view.by_id)))
        self._subscribers.add(subscription)
        if self._is_closed:
            subscription.close()
        try:
            yield subscription
        finally:
            self._subscribers.discard(subscription)

    def totals(self) -> dict[str, Any]:
        """Return the totals over all jobs of the newest snapshot."""
        return self._view.totals()

    def _tell(self, change: Change) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._spread, change)
        except RuntimeError:  # The loop has just ended, and with it all subscribers.
            self._loop = None

    def _spread(self, change: Change) -> None:
        for subscriber in self._subscribers:
            subscriber.put(change)
