"""Brokers that die or stand still while jobs are within each call of a transaction.

Four jobs, one on Spark, are held at four points of a transaction; then the broker of all is killed
or paused, and they are let go, so that each has another call to make while nobody answers. When
the broker is back all go on by themselves, without a new start, a loss or a duplicate.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bicycle_runtime.base.faults import TRANSACTION_POINTS
from tests.kafka.counting import Load
from tests.kafka.light_driver import let_tell
from tests.spark.jobsite import Life
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.spark]

ON_SPARK = "transaction_marked"
KILLED_S = 5.0


@dataclass(frozen=True)
class Job:
    """A job that was held at a point of a transaction."""

    point: str
    load: Load
    life: Life

    @property
    def has_ended(self) -> bool:
        return self.life.process.poll() is not None

    def go_on(self) -> None:
        """See that counts come again."""
        with self._telling():
            self.load.counts.wait_for_more(100)

    def finish(self) -> None:
        """See that every word was counted once, and end the job as a user does."""
        with self._telling():
            self.load.finish()
            self.life.process.send_signal(signal.SIGTERM)
            assert self.life.wait() == 0

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Say of a failure which job it was, and what it did."""
        try:
            yield
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(self._story()) from error

    def _story(self) -> str:
        code = self.life.process.poll()
        if code is None and self.point != ON_SPARK:
            let_tell(self.life)
        state = "runs" if code is None else f"ended with {code}"
        return f"{self.point}: the job {state}; {self.load.story()}\n{self.life.stderr}"


@pytest.fixture
def start_jobs(new_kafka_broker, new_load, new_light_site, new_spark_site):
    """Start a broker that may break, and for each point a job that is held there."""

    def start():
        broker = new_kafka_broker()
        jobs = []
        for point in TRANSACTION_POINTS:
            load = new_load(broker, lines_per_s=100)
            load.start()
            site = new_spark_site(load) if point == ON_SPARK else new_light_site(load)
            jobs.append(Job(point, load, site.start(faults=f"{point}@5=hold")))
        for job in jobs:
            job.life.wait_for_fault(f"{job.point}@5=hold")
            job.load.rely_on(job.life)
            job.load.counts.look()
        return broker, jobs

    return start


def test_a_broker_that_is_killed_in_any_call_of_a_transaction_delays_counts_only(start_jobs):
    broker, jobs = start_jobs()
    broker.kill()
    _outlive(jobs, KILLED_S)
    broker.start()

    _finish(jobs)


def test_a_broker_that_stands_still_in_any_call_of_a_transaction_delays_counts_only(
    start_jobs, outage_seconds
):
    broker, jobs = start_jobs()
    broker.pause()
    try:
        _outlive(jobs, outage_seconds)
    finally:
        broker.resume()

    _finish(jobs)


def _outlive(jobs: list[Job], seconds: float) -> None:
    """Wait for this time, and check that no job ends in it."""
    for job in jobs:
        job.life.release()
    over = time.monotonic() + seconds
    until(
        lambda: time.monotonic() > over or any(job.has_ended for job in jobs),
        "the end of the outage",
        patience_s=seconds + 30,
    )
    assert [job.life.stderr for job in jobs if job.has_ended] == []


def _finish(jobs: list[Job]) -> None:
    for job in jobs:
        job.go_on()
    for job in jobs:
        job.finish()
