"""Paces of a job: from statuses some seconds apart, over restarts and new runs."""

from bicycle_runtime.jobs.status import OperatorStatus
from bicycle_runtime.operators.metrics import Durations
from bicycle_runtime.service.watching.paces import OperatorPace, Paces, PaceWindow
from tests.unit.jobs.job_samples import status_of


def status(at_ms, *, records, busy_s, run=1):
    return status_of(
        "job",
        started_ms=run,
        updated_ms=at_ms,
        epoch_times=Durations(seconds=busy_s),
        operators={"map": OperatorStatus(records_in=records, records_out=2 * records)},
    )


def paces(*statuses):
    window = PaceWindow()
    for each in statuses:
        window.take(each)
    return window.paces()


def test_two_statuses_give_paces_and_load():
    found = paces(status(1_000, records=10, busy_s=1.0), status(5_000, records=50, busy_s=3.0))

    assert found.load == 0.5
    assert found.operators == {"map": OperatorPace(records_in=10.0, records_out=20.0)}


def test_paces_are_those_of_the_last_seconds():
    past = [status(1_000 * second, records=0, busy_s=0.0) for second in range(60)]

    found = paces(*past, status(60_000, records=100, busy_s=1.0))

    assert found.operators["map"].records_in == 10.0


def test_one_status_or_two_that_are_close_give_none():
    first = status(1_000, records=0, busy_s=0.0)

    assert paces(first) == paces(first, status(1_900, records=5, busy_s=0.1)) == Paces()


def test_counts_that_begin_again_are_no_pace():
    first = status(1_000, records=500, busy_s=9.0)

    assert paces(first, status(5_000, records=600, busy_s=9.5, run=2)) == Paces()
    assert paces(first, status(5_000, records=7, busy_s=9.5)) == Paces()
