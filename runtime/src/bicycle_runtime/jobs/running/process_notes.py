"""Notes on a job's processes: workers that ended, threads that hang."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bicycle_runtime.base.processes import how_it_ended
from bicycle_runtime.jobs.status import EndedWorker, JobStatus, StuckThread
from bicycle_runtime.jobs.stuck import with_stuck
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_SHOWN_MAX = 20


def note_ended_workers(status: JobStatus, ends: Sequence[LastPosition], *, now_ms: int) -> None:
    """Count and log the workers that ended unasked; the status keeps the latest."""
    status.ended_worker_count += len(ends)
    for end in ends:
        how = "no word" if end.code is None else how_it_ended(end.code)
        note = EndedWorker(
            time_ms=now_ms, pid=end.pid, host=end.host, how=how, peak_bytes=end.peak_bytes,
            operator=end.operator,
        )  # fmt: skip
        status.ended_workers = [*status.ended_workers, note][-_SHOWN_MAX:]
        log_event(
            _LOG, "worker_ended", level=logging.WARNING, job=status.job, pid=end.pid,
            host=end.host, how=how, peak_bytes=end.peak_bytes, operator=end.operator,
            epoch=status.epoch + 1, count=status.ended_worker_count,
        )  # fmt: skip


def note_stuck(status: JobStatus, stuck: Sequence[StuckThread]) -> None:
    """Log the threads that hang; the status keeps the newest of each process."""
    for thread in stuck:
        log_event(
            _LOG, "thread_stuck", level=logging.WARNING, job=status.job, pid=thread.pid,
            role=thread.role, host=thread.host, location=thread.location,
            was_frozen=thread.was_frozen,
            stack=thread.stack,
        )  # fmt: skip
    status.stuck = with_stuck(status.stuck, list(stuck))[-_SHOWN_MAX:]
