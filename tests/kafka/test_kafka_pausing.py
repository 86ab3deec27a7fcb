"""A job between Kafka topics is paused and resumed under load: each count is there once."""

import os
import signal

import pytest

from tests.spark.cli_process import Bicycle
from tests.waiting import until

pytestmark = pytest.mark.spark

JOB = "counts"


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    yield bicycle
    bicycle.kill_jobs()


def count_all(load):
    """Return the number of counts in the topic: read until no more come."""
    before = -1
    while before < load.counts.count:
        before = load.counts.count
        load.counts.look(1)
    return before


def test_a_job_pauses_and_resumes_under_load_also_when_it_is_killed_while_it_pauses(bicycle, load):
    load.start()
    settings = [f"--set={name}={value}" for name, value in load.params.items()]
    bicycle.answer("submit", "--plugin", "wordcount_kafka", "--name", JOB, *settings)
    load.counts.wait_for_more(1_000)

    # A clean pause: nothing is read or published, while lines keep coming.
    paused = bicycle.answer("pause", JOB)
    counted, written = count_all(load), load.lines.totals.total()
    until(lambda: load.lines.totals.total() > written + 1_000, "more lines")
    counted_later = count_all(load)
    bicycle.answer("resume", JOB)
    load.counts.wait_for_more(2_000)

    # A pause during which the driver is killed.
    running = bicycle.status(JOB)
    pausing = bicycle.start("pause", JOB, "--json")
    until(lambda: list((bicycle.home / "jobs" / JOB).glob("pause-*")), "the request")
    os.kill(running["pid"], signal.SIGKILL)
    pausing.communicate()
    killed = bicycle.answer("status", JOB)
    bicycle.answer("resume", JOB)
    load.finish()
    stopped = bicycle.answer("stop", JOB)

    assert (paused["state"], killed["state"]) == ("PAUSED", "PAUSED")
    assert counted_later == counted
    assert stopped["state"] == "STOPPED"
