"""Jobs of a snapshot with defaults."""

from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.watching.fleet import FleetView
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.summaries import KnownJob, summary_of
from tests.unit.jobs.job_samples import status_of


def known(name, *, state=State.RUNNING, is_lag_growing=False, **fields):
    status = status_of(name, **{"state": JobState.RUNNING, **fields})
    summary = summary_of(status, state, is_lag_growing=is_lag_growing)
    return KnownJob(summary=summary, status=status, revision=1)


def view_of(*jobs):
    return FleetView(revision=1, jobs=tuple(jobs))
