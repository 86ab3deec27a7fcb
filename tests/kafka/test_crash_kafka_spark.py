"""SIGKILL on real Spark, to the driver, its Java process or the Python workers, under load.

The same points as in ``test_crash_kafka_process``, with tasks in processes of their own. A worker
or a Java process is killed within a job that goes on, so that a hundred rounds take no start more
than they must; a driver that is killed is the end of its Spark, so each kill takes one start. Where
a process is killed that is not at the point itself, the one at the point is held meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS, TRANSACTION_POINTS
from tests.kafka.strikes import Strikes
from tests.spark.jobsite import JobSite, Life
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.spark]

POINTS = FAULT_POINTS + TRANSACTION_POINTS
WORKER_POINTS = ("read", "operator", "delta_written")
DRIVER_POINTS = POINTS[len(WORKER_POINTS) :]
PARALLELISM = (2, 1, 3)
ROUNDS_PER_LIFE = 20  # Then the next width has its turn.


@pytest.fixture
def tell(capsys):
    """Say how long kills took, for the table in the documentation."""

    def told(who: str, count: int, begun: float) -> None:
        each_s = (time.monotonic() - begun) / count
        with capsys.disabled():
            sys.stdout.write(f"\n{who}: {count} kills, {each_s:.1f} s each\n")

    return told


def test_a_driver_killed_at_any_point_on_spark_loses_and_doubles_nothing(
    spark_site, load, crash_round_count, tell
):
    load.start()
    begun = time.monotonic()
    visits = _visits(crash_round_count)
    former: set[int] = set()
    for number, (point, passage) in enumerate(visits):
        action = "hold" if point in WORKER_POINTS else "kill"
        fault = f"{point}@{passage}={action}"
        life = spark_site.start("--parallelism", _width(number), faults=fault)
        life.wait_for_fault(fault)
        if action == "hold":
            life.process.kill()
        assert life.wait() == -signal.SIGKILL, life.stderr
        # They end while the next one starts.
        until(lambda gone=former: not gone & _pids(spark_site), f"the end of {former}")
        former = _pids(spark_site)
        load.counts.look()
    tell("driver", len(visits), begun)

    life = spark_site.start()
    load.finish()
    _stop(spark_site, life)
    assert load.counts.uncommitted_count() > 0


def test_a_killed_java_process_loses_and_doubles_nothing(quick_site, load, crash_round_count, tell):
    """The driver starts Spark again by itself; the next kill may come before it has recovered."""
    load.start()
    begun = time.monotonic()
    for first in range(0, crash_round_count, ROUNDS_PER_LIFE):
        width = _width(first // ROUNDS_PER_LIFE)
        strikes = Strikes(quick_site, dict.fromkeys(POINTS, "hold"), "--parallelism", width)
        for number in range(first, min(first + ROUNDS_PER_LIFE, crash_round_count)):
            for place, point in enumerate(POINTS):
                load.counts.wait_for_more(1 + 100 * ((number + place) % 3))
                until(lambda at=point, on=strikes: _kill_java(quick_site, on, at), "a Java")
                load.counts.look()
        # One that was under way may be sealed without Java, no other.
        _wait_for_seals(quick_site)
        _stop(quick_site, strikes.life)
    tell("Java", crash_round_count * len(POINTS), begun)

    life = quick_site.start()
    load.finish()
    _stop(quick_site, life)


def test_killed_workers_are_replaced_in_the_running_job(spark_site, load, crash_round_count, tell):
    """Spark runs their tasks again: no restart is needed, and nobody takes the first attempt."""
    load.start()
    begun = time.monotonic()
    actions = dict.fromkeys(WORKER_POINTS, "kill") | dict.fromkeys(DRIVER_POINTS, "hold")
    for first in range(0, crash_round_count, ROUNDS_PER_LIFE):
        width = _width(first // ROUNDS_PER_LIFE)
        strikes = Strikes(spark_site, actions, "--parallelism", width)
        load.counts.wait_for_more()
        for _ in range(first, min(first + ROUNDS_PER_LIFE, crash_round_count)):
            for point in POINTS:
                strikes.meet(point)
                if point in DRIVER_POINTS:
                    for worker in until(spark_site.workers, "a worker"):
                        os.kill(worker.pid, signal.SIGKILL)
                    strikes.release(point)
                # Spark gives a task four attempts: its epoch is sealed before the next kill.
                _wait_for_seals(spark_site)
                load.counts.wait_for_more()
        _stop(spark_site, strikes.life)
        assert "job_restarting" not in strikes.life.stderr
    tell("worker", crash_round_count * len(POINTS), begun)

    life = spark_site.start()
    load.finish()
    _stop(spark_site, life)


@pytest.mark.core
def test_a_job_whose_workers_java_and_driver_are_killed_in_turn_counts_each_word_once(
    quick_site, load
):
    """What the tests above do at every point, once each: where most is under way."""
    load.start()
    actions = {"delta_written": "kill", "transaction_marked": "hold"}
    strikes = Strikes(quick_site, actions, "--parallelism", "2")
    load.counts.wait_for_more()
    strikes.meet("delta_written")
    load.counts.wait_for_more()
    assert "job_restarting" not in strikes.life.stderr
    until(lambda: _kill_java(quick_site, strikes, "transaction_marked"), "a Java")
    until(lambda: "job_restarting" in strikes.life.stderr, "the restart")
    load.counts.wait_for_more()
    strikes.meet("transaction_marked")
    strikes.life.process.kill()
    assert strikes.life.wait() == -signal.SIGKILL

    life = quick_site.start("--parallelism", "3")
    load.finish()
    _stop(quick_site, life)


def _kill_java(site: JobSite, strikes: Strikes, point: str) -> bool:
    """Kill Java at a point; return whether there was one: a recovery may pass it before."""
    strikes.meet(point)
    found = [process.pid for process in site.processes() if process.is_java]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    strikes.release(point)
    return bool(found)


def _wait_for_seals(site: JobSite) -> None:
    """Wait for two epochs more: the one under way, and another."""
    last = site.newest_epoch()
    until(lambda: site.newest_epoch() > last + 1, f"two epochs behind {last}")


def _visits(round_count: int) -> list[tuple[str, int]]:
    """Return each point once a round, with the passage that is hit: another one in each round."""
    return [
        (point, 1 + (number + place) % 3)
        for number in range(round_count)
        for place, point in enumerate(POINTS)
    ]


def _width(number: int) -> str:
    return str(PARALLELISM[number % len(PARALLELISM)])


def _pids(site: JobSite) -> set[int]:
    return {process.pid for process in site.processes()}


def _stop(site: JobSite, life: Life) -> None:
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr
    until(lambda: not site.processes(), "the end of all that was started")
