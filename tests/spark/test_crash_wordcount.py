"""SIGKILL at every named point, to the driver, a Python worker or Spark's Java process.

After each crash the same command goes on. In the end every word has the counts 1 to n, once each,
and nothing but whole parts was ever visible.
"""

from __future__ import annotations

import gzip
import os
import random
import signal
from collections import Counter

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from tests.plugin_zoo.zoo import install
from tests.spark.impatient import IMPATIENT
from tests.spark.jobsite import (
    JobSite,
    expected_counts,
    leftovers,
    sealed_lines,
    visible_counts,
    visible_lines,
)
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.crash]

WORKER_POINTS = ("read", "operator", "delta_written")
DRIVER_POINTS = FAULT_POINTS[len(WORKER_POINTS) :]
SMALL_EPOCHS = ("--max-records-per-epoch", "40")
PARALLELISM = (2, 1, 3)
NO_RESTART = ("--restart-attempts", "0")
SINK = "out-v1"
LINES_PER_ROUND = 6_000
SPARK_LOST = "BIC-1803"


@pytest.fixture
def words(site: JobSite, crash_round_count: int) -> list[str]:
    """Write the input (four plain files and a compressed one) and return its words."""
    source = random.Random("word count")
    lines = [
        " ".join(f"w{source.randrange(300)}" for _ in range(4))
        for _ in range(LINES_PER_ROUND * crash_round_count)
    ]
    for number in range(5):
        data = "".join(f"{line}\n" for line in lines[number::5]).encode()
        if number == 4:
            (site.input / "4.txt.gz").write_bytes(gzip.compress(data))
        else:
            (site.input / f"{number}.txt").write_bytes(data)
    return " ".join(lines).split()


def test_a_killed_driver_loses_and_doubles_nothing(
    site: JobSite, words: list[str], crash_round_count: int
):
    for number, (point, passage) in enumerate(_visits(crash_round_count)):
        action = "hold" if point in WORKER_POINTS else "kill"
        fault = f"{point}@{passage}={action}"
        life = site.start(*_words(number), faults=fault)
        life.wait_for_fault(fault)
        if action == "hold":
            life.process.kill()
        assert life.wait() == -signal.SIGKILL, life.stderr
        _look_after_crash(site)

    _finish(site, words)


def test_a_killed_java_process_loses_and_doubles_nothing(
    site: JobSite, words: list[str], crash_round_count: int
):
    for number, (point, passage) in enumerate(_visits(crash_round_count)):
        fault = f"{point}@{passage}=hold"
        words_given = (*_words(number), "--json", "--restart-attempts", "0")
        life = site.start(*words_given, faults=fault)
        life.wait_for_fault(fault)
        os.kill(site.java().pid, signal.SIGKILL)
        life.release()
        assert life.wait() == 6, life.stderr
        assert life.answer["code"] == SPARK_LOST
        _look_after_crash(site)

    _finish(site, words)


def test_a_job_that_lost_its_java_process_starts_again_by_itself(site: JobSite, words: list[str]):
    site.plugin = "impatient"
    install(site.plugins, IMPATIENT)
    holds = ("delta_written@2=hold", "half_published@5=hold")
    life = site.start("--max-records-per-epoch", "600", "--json", faults=",".join(holds))
    for hold in holds:
        life.wait_for_fault(hold)
        java = site.java().pid
        os.kill(java, signal.SIGKILL)
        life.release()
        until(lambda lost=java: _has_other_java(site, lost), "another Java process")
        life.hold_again()

    assert life.wait() == 0, life.stderr
    assert life.answer["state"] == "FINISHED"
    events = [event["event"] for event in life.log_events]
    assert events.count("job_restarting") == len(holds)
    _finish(site, words)


def test_killed_workers_are_replaced_in_the_running_job(
    site: JobSite, words: list[str], crash_round_count: int
):
    """Spark runs their tasks again: no restart is needed, and nobody reads the first attempt."""
    for number in range(crash_round_count):
        kills = [f"{point}@{2 + number + i}=kill" for i, point in enumerate(WORKER_POINTS)]
        holds = [f"{point}@{4 * i + 3}=hold" for i, point in enumerate(DRIVER_POINTS)]
        life = site.start(*_words(number), "--json", faults=",".join([*kills, *holds]))
        for hold in holds:
            life.wait_for_fault(hold)
            epoch = site.newest_epoch()
            for worker in until(site.workers, "a worker"):
                os.kill(worker.pid, signal.SIGKILL)
            life.release()
            until(lambda last=epoch: site.newest_epoch() > last, f"an epoch after {epoch}")
            life.hold_again()
        for kill in kills:
            life.wait_for_fault(kill)
        life.process.send_signal(signal.SIGTERM)
        assert life.wait() == 0, life.stderr
        assert life.answer["state"] == "STOPPED"
        _look_after_crash(site)

    _finish(site, words)


def _visits(round_count: int) -> list[tuple[str, int]]:
    """Return each point once a round, with the passage that is hit: another one in each round."""
    return [
        (point, 2 + (number + place) % 3)
        for number in range(round_count)
        for place, point in enumerate(FAULT_POINTS)
    ]


def _words(number: int) -> tuple[str, ...]:
    return (*SMALL_EPOCHS, "--parallelism", str(PARALLELISM[number % len(PARALLELISM)]))


def _has_other_java(site: JobSite, pid: int) -> bool:
    return any(found.is_java and found.pid != pid for found in site.processes())


def _look_after_crash(site: JobSite) -> None:
    """Prove that all processes end, and that no record is visible twice and no file is cut."""
    site.wait_for_no_process()
    assert not [item for item in visible_counts(site.output).items() if item[1] > 1]


def _finish(site: JobSite, words: list[str]) -> None:
    """Run to the end with large epochs and compare with the reference."""
    assert site.newest_epoch() >= 8
    sealed = Counter(sealed_lines(site, SINK))
    site.finish("--parallelism", "2")
    assert not sealed - Counter(visible_lines(site.output))
    assert visible_counts(site.output) == expected_counts(words)
    assert leftovers(site) == []
