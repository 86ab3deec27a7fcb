"""SIGKILL on real Spark, to the driver, its Java process or the Python workers, under load.

The same points as in ``test_crash_kafka_process``, with tasks in processes of their own. Where a
process is killed that is not at the point itself, the driver is held there meanwhile.
"""

from __future__ import annotations

import os
import signal

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS, TRANSACTION_POINTS
from tests.spark.jobsite import JobSite, Life
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.spark]

WORKER_POINTS = ("read", "operator", "delta_written")
DRIVER_POINTS = (*FAULT_POINTS[len(WORKER_POINTS) :], *TRANSACTION_POINTS)
JAVA_POINTS = ("delta_written", "after_seal", "transaction_produced", "transaction_committed")
PARALLELISM = (2, 1, 3)
SPARK_LOST = "BIC-1803"


def test_a_driver_killed_at_any_point_on_spark_loses_and_doubles_nothing(
    spark_site, load, crash_round_count
):
    load.start()
    for number, (point, passage) in enumerate(_visits(FAULT_POINTS, crash_round_count)):
        action = "hold" if point in WORKER_POINTS else "kill"
        fault = f"{point}@{passage}={action}"
        life = spark_site.start(*_words(number), faults=fault)
        life.wait_for_fault(fault)
        if action == "hold":
            life.process.kill()
        assert life.wait() == -signal.SIGKILL, life.stderr
        spark_site.wait_for_no_process()
        load.counts.look()

    _finish(spark_site, load)


def test_a_driver_killed_within_a_transaction_on_spark_loses_and_doubles_nothing(
    spark_site, load, crash_round_count
):
    load.start()
    for number, (point, passage) in enumerate(_visits(TRANSACTION_POINTS, crash_round_count)):
        fault = f"{point}@{passage}=kill"
        life = spark_site.start(*_words(number), faults=fault)
        assert life.wait() == -signal.SIGKILL, life.stderr
        assert (life.folder / fault).exists()
        spark_site.wait_for_no_process()
        load.counts.look()

    _finish(spark_site, load)
    assert load.counts.uncommitted_count() > 0


def test_a_killed_java_process_loses_and_doubles_nothing(spark_site, load, crash_round_count):
    load.start()
    for number, (point, passage) in enumerate(_visits(JAVA_POINTS, crash_round_count)):
        fault = f"{point}@{passage}=hold"
        life = spark_site.start(*_words(number), "--json", "--restart-attempts", "0", faults=fault)
        life.wait_for_fault(fault)
        os.kill(spark_site.java().pid, signal.SIGKILL)
        life.release()
        assert life.wait() == 6, life.stderr
        assert life.answer["code"] == SPARK_LOST
        spark_site.wait_for_no_process()
        load.counts.look()

    _finish(spark_site, load)


def test_killed_workers_are_replaced_in_the_running_job(spark_site, load, crash_round_count):
    """Spark runs their tasks again: no restart is needed, and nobody takes the first attempt."""
    load.start()
    for number in range(crash_round_count):
        kills = [f"{point}@{2 + number + i}=kill" for i, point in enumerate(WORKER_POINTS)]
        holds = {f"{point}@{5 * i + 3}=hold" for i, point in enumerate(DRIVER_POINTS)}
        life = spark_site.start(*_words(number), faults=",".join([*kills, *holds]))
        while holds:
            reached = until(lambda left=holds, at=life: _reached(at, left), f"one of {holds}")
            for worker in until(spark_site.workers, "a worker"):
                os.kill(worker.pid, signal.SIGKILL)
            holds -= reached | _reached(life, holds)  # Two threads may be held at once.
            life.release()
            load.counts.wait_for_more()
            life.hold_again()
        for kill in kills:
            life.wait_for_fault(kill)
        _stop(spark_site, life)

    _finish(spark_site, load)


def _visits(points: tuple[str, ...], round_count: int) -> list[tuple[str, int]]:
    """Return each point once a round, with the passage that is hit: another one in each round."""
    return [
        (point, 1 + (number + place) % 3)
        for number in range(round_count)
        for place, point in enumerate(points)
    ]


def _reached(life: Life, faults: set[str]) -> set[str]:
    assert life.process.poll() is None, life.stderr
    return {fault for fault in faults if (life.folder / fault).exists()}


def _words(number: int) -> tuple[str, ...]:
    return ("--parallelism", str(PARALLELISM[number % len(PARALLELISM)]))


def _stop(site: JobSite, life: Life) -> None:
    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr
    site.wait_for_no_process()


def _finish(site: JobSite, load) -> None:
    """Let the job catch up, and compare with what was written."""
    life = site.start()
    load.finish()
    _stop(site, life)
