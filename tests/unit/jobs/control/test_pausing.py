"""Paused jobs: requested once, and PAUSED whatever happens to their processes."""

import pytest

from bicycle_runtime.jobs.control.ending import cancel_job, pause_job, stop_job
from bicycle_runtime.jobs.control.job_queries import job_status, list_jobs
from bicycle_runtime.jobs.control.pruning import prune_jobs
from bicycle_runtime.jobs.status import JobState, ShardLag
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.control.test_job_queries_and_ending import OBEDIENT, STUBBORN, driver
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S

LAGS = {"in": {"a.txt": ShardLag(records=3, waiting_ms=9_000)}}


def pause(home, name="job"):
    return pause_job(home, name, clock=ManualClock(77))


def test_a_job_whose_driver_dies_while_it_pauses_is_paused_and_its_lag_unknown(home):
    with driver(home, "job", OBEDIENT, lag_records=3, lag_ms=9_000, lags=LAGS) as process:
        status = pause(home)
        assert process.wait(PATIENCE_S) == -15  # This driver dies of the signal, without a word.

    assert (status.state, status.error) == (JobState.PAUSED, None)
    assert (status.lag_records, status.lag_ms, status.lags) == (None, None, {})
    assert [each.state for each in list_jobs(home)] == [JobState.PAUSED]


def test_a_job_that_does_not_pause_in_time_is_ended_by_force_and_paused(home):
    with driver(home, "job", STUBBORN) as process:
        status = pause(home)
        assert process.wait(PATIENCE_S) == -9

    assert (status.state, status.ended_ms) == (JobState.PAUSED, 77)
    assert job_status(home, "job").state is JobState.PAUSED


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.FAILED, JobState.STOPPED])
def test_a_job_that_has_ended_is_not_paused(home, state):
    put_job(home, state=state, ended_ms=5)

    assert pause(home).state is state


@pytest.mark.parametrize(
    ("end", "state"), [(stop_job, JobState.STOPPED), (cancel_job, JobState.CANCELED)]
)
def test_a_paused_job_can_be_stopped_or_canceled(home, end, state):
    put_job(home, state=JobState.PAUSED, ended_ms=5)

    assert end(home, "job", clock=ManualClock(99)).state is state
    assert (job_status(home, "job").state, job_status(home, "job").ended_ms) == (state, 99)


@pytest.mark.parametrize(
    ("end", "state"), [(stop_job, JobState.STOPPED), (cancel_job, JobState.CANCELED)]
)
def test_a_job_whose_processes_died_while_it_paused_can_be_stopped_or_canceled(home, end, state):
    folder = put_job(home, started_ms=4)
    folder.pause(folder.status())
    assert job_status(home, "job").state is JobState.PAUSED

    status = end(home, "job", clock=ManualClock(99))

    assert (status.state, status.error, status.ended_ms) == (state, None, 99)
    assert job_status(home, "job") == status


def test_a_stop_after_a_lost_request_to_pause_is_a_stop(home):
    with driver(home, "job", STUBBORN, started_ms=4):
        folder = home.folder("job")
        folder.pause(folder.status())  # The command was killed before it sent the signal.
        status = stop_job(home, "job", clock=ManualClock(77))

    assert status.state is JobState.STOPPED


def test_a_request_to_pause_is_about_one_run(home):
    with driver(home, "job", OBEDIENT, started_ms=4):
        pause(home)
    with driver(home, "job", STUBBORN, started_ms=5) as process:
        process.kill()
        process.wait()
        status = job_status(home, "job")

    assert status.state is JobState.FAILED


def test_a_paused_job_is_not_pruned(home):
    put_job(home, "paused", state=JobState.PAUSED, ended_ms=5)
    put_job(home, "stopped", state=JobState.STOPPED, ended_ms=5)
    clock = ManualClock(10**9)
    pruned = prune_jobs(home, clock=clock, older_than_ms=0, with_checkpoints=True, is_trial=False)

    assert [each.job for each in pruned] == ["stopped"]
    assert [each.id for each in list_jobs(home)] == ["paused"]


def test_pausing_twice_is_pausing_once(home):
    with driver(home, "job", OBEDIENT):
        first = pause(home)

    assert pause(home) == first
