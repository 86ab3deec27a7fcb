"""Brokers that die or stand still while jobs are within each call of a transaction.

Four jobs, one on Spark, are held at four points of a transaction; then the broker of all is killed
or paused, and they are let go, so that each has another call to make while nobody answers. When
the broker is back all go on by themselves, without a new start, a loss or a duplicate.
"""

from __future__ import annotations

import signal
import time

import pytest

from bicycle_runtime.base.faults import TRANSACTION_POINTS
from tests.spark.jobsite import Life
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.spark]

ON_SPARK = "transaction_marked"
KILLED_S = 10.0


@pytest.fixture
def start_jobs(new_kafka_broker, new_load, new_light_site, new_spark_site):
    """Start a broker that may break, and for each point a job that is held there."""

    def start():
        broker = new_kafka_broker()
        found = {}
        for point in TRANSACTION_POINTS:
            load = new_load(broker, lines_per_s=100)
            load.start()
            site = new_spark_site(load) if point == ON_SPARK else new_light_site(load)
            found[point] = load, site.start(faults=f"{point}@5=hold")
        for point, (load, life) in found.items():
            life.wait_for_fault(f"{point}@5=hold")
            load.counts.look()
        return broker, found

    return start


def test_a_broker_that_is_killed_in_any_call_of_a_transaction_delays_counts_only(start_jobs):
    broker, found = start_jobs()
    broker.kill()
    _outlive(found, KILLED_S)
    broker.start()

    _finish(found)


def test_a_broker_that_stands_still_in_any_call_of_a_transaction_delays_counts_only(
    start_jobs, outage_seconds
):
    broker, found = start_jobs()
    broker.pause()
    try:
        _outlive(found, outage_seconds)
    finally:
        broker.resume()

    _finish(found)


def _outlive(found: dict, seconds: float) -> None:
    """Let the jobs go on, and see that none of them ends for so long."""
    for _, life in found.values():
        life.release()
    over = time.monotonic() + seconds
    until(
        lambda: time.monotonic() > over or any(map(_has_ended, found.values())),
        "the end of the outage",
        patience_s=seconds + 30,
    )
    assert not any(map(_has_ended, found.values()))


def _has_ended(job: tuple) -> bool:
    return job[1].process.poll() is not None


def _finish(found: dict) -> None:
    for load, _ in found.values():
        load.counts.wait_for_more(100)
    for load, life in found.values():
        load.finish()
        _stop(life)


def _stop(life: Life) -> None:
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr
