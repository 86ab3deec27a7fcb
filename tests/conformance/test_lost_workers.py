"""Python workers that are killed, or that Spark would end: what they had, and what is kept."""

import ctypes
import inspect
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from bicycle_runtime.base.errors import STORAGE_MISSING
from bicycle_runtime.engine.errors import WORKER_ENDED
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.engine.spark.worker import OwnError
from bicycle_runtime.engine.spark.worker_ends import ends_on_hosts
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.testing import Harness, script_source
from tests.raising import raises
from tests.waiting import until

pytestmark = pytest.mark.spark
_KILLED_PAIRS = 200
_DAEMON_TIMEOUT_S = 60
_PAIRS_PER_EPOCH = 10
NAMES = [f"name{number}" for number in range(40)]


@dataclass
class Recording:
    """Spark, with the reports of all tasks."""

    spark: SparkExecutor
    reports: list[TaskReport] = field(default_factory=list)

    def start(self, image):
        self.spark.start(image)

    def run(self, orders):
        reports = self.spark.run(orders)
        self.reports += reports
        return reports

    def slots(self):
        return self.spark.slots()

    def rest(self):
        self.spark.rest()

    def stop(self):
        """Spark is that of the session."""


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("counts").collect("out")


@pytest.mark.core
def test_a_killed_worker_makes_only_its_ranges_load_again(spark):
    recording = Recording(spark)
    with Harness(counting, parallelism=2, new_executor=lambda: recording) as harness:
        for _ in range(4):
            harness.push(NAMES)
            harness.run_epoch()
        keyed = [report for report in recording.reports if report.states]
        had = {(report.worker, report.subtask) for report in keyed}
        victim = keyed[-1].worker
        spark.take_ended_workers()
        os.kill(victim, signal.SIGKILL)
        ends = until(spark.take_ended_workers, "a note of the end")
        recording.reports.clear()
        for _ in range(4):
            harness.push(NAMES)
            harness.run_epoch()
        counts = harness.results("out")

    loaded = [
        (report.worker, report.subtask)
        for report in recording.reports
        for byte_count in report.loaded.values()
        if byte_count
    ]
    assert [(end.pid, end.code) for end in ends] == [(victim, -signal.SIGKILL)]
    assert ends[0].peak_bytes > 10_000_000
    assert spark.take_ended_workers() == [], "it was taken before"
    assert victim not in {report.worker for report in recording.reports}
    assert loaded, "the ranges of the killed worker were loaded by another one"
    assert not set(loaded) & had, "a worker that lives has loaded what it had"
    assert len(loaded) == len(set(loaded)), "a range was loaded twice by one worker"
    assert sorted(counts) == sorted((name, n) for name in NAMES for n in range(1, 9))


@pytest.mark.extended
def test_no_epoch_waits_for_a_new_daemon_when_pairs_of_idle_workers_are_killed(spark, spark_clock):
    """Java gives a daemon that does not answer 60 s and starts another one."""
    longest_s, daemons, killed_count = 0.0, set(), 0
    with Harness(counting, parallelism=2, new_executor=lambda: Recording(spark)) as harness:
        for number in range(_KILLED_PAIRS):
            began = time.monotonic()
            if number % _PAIRS_PER_EPOCH == 0:
                harness.push(NAMES)
                harness.run_epoch()
            spark_clock.advance(31_000)
            spark.rest()
            longest_s = max(longest_s, time.monotonic() - began)
            [daemon] = _children(spark.java_pid)
            daemons.add(daemon)
            for worker in _children(daemon):
                os.kill(worker, signal.SIGKILL)
                killed_count += 1
        counts = harness.results("out")

    assert len(daemons) == 1
    assert longest_s < _DAEMON_TIMEOUT_S
    assert killed_count >= 2 * _KILLED_PAIRS
    epoch_count = _KILLED_PAIRS // _PAIRS_PER_EPOCH
    assert Counter(counts) == Counter(
        (name, n) for name in NAMES for n in range(1, epoch_count + 1)
    )


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for each in lists for word in each.read_text().split()]


def test_workers_without_work_get_a_task_before_spark_ends_them(spark, spark_clock):
    with Harness(counting, parallelism=2, new_executor=lambda: Recording(spark)) as harness:
        harness.push(NAMES)
        harness.run_epoch()
        begun = _job_ids()

        spark.rest()
        assert _job_ids() == begun, "they have just worked"
        spark_clock.advance(29_000)
        spark.rest()
        assert _job_ids() == begun, "it was not long"
        spark_clock.advance(2_000)
        spark.rest()
        assert len(_job_ids() - begun) == 1
        spark.rest()
        assert len(_job_ids() - begun) == 1, "that task counts"


def _job_ids() -> set[int]:
    return set(SparkContext.getOrCreate().statusTracker().getJobIdsForGroup())


def killed(word):
    if word == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return word


def crashed(word):
    if word == "bad":
        ctypes.string_at(0)
    return word


def exited(word):
    if word == "bad":
        os._exit(3)
    return word


def falling(function):
    def build(env):
        words = env.add_source(script_source(str)).uid("words").map(str.strip)
        words.key_by(str).map(function).collect("out")

    return build


def the_end_of(spark, function):
    """Run over good records and a bad one; return the error."""
    with Harness(falling(function), new_executor=lambda: Recording(spark)) as harness:
        harness.push(NAMES)
        harness.run()
        harness.push([*NAMES[:10], "bad"])
        with raises(WORKER_ENDED) as caught:
            harness.run()
    return caught.value


@pytest.mark.core
def test_of_a_killed_worker_signal_operator_and_input_are_told(spark):
    error = the_end_of(spark, killed)

    line = inspect.getsourcelines(falling)[1] + 3
    assert (error.code, error.facts["how"]) == ("BIC-1808", "signal 9 (SIGKILL)")
    assert error.facts["told"] == f"'vertex_4' (Map without uid, {__file__}:{line})"
    assert (error.facts["operator"], error.facts["source"]) == ("vertex_4", "words")
    assert error.facts["offset"] <= len(NAMES) + 10 < error.facts["end_offset"]
    assert f"before record {error.facts['end_offset']} of the script" in error.summary
    assert "possibly out of memory" in error.remedy
    assert "BIC-" not in error.summary


def test_of_a_worker_that_crashed_the_line_of_the_function_is_told(spark):
    error = the_end_of(spark, crashed)

    line = inspect.getsourcelines(crashed)[1] + 2
    assert error.facts["how"] == "signal 11 (SIGSEGV)"
    assert error.facts["location"] == f"{__file__}:{line}"
    assert error.facts["operator"] == "vertex_4"


def test_of_a_worker_that_its_function_ended_the_exit_code_is_told(spark):
    error = the_end_of(spark, exited)

    assert (error.facts["how"], error.facts["operator"]) == ("exit code 3", "vertex_4")


def test_hosts_are_asked_for_the_workers_that_ended_there(spark):
    error = the_end_of(spark, exited)
    ends = ends_on_hosts(SparkContext.getOrCreate(), {"localhost": 1})

    assert (ends[-1].operator, ends[-1].code) == (error.facts["operator"], 3)
    assert ends[-1].offset == error.facts["offset"]


def refuse(_partition):
    raise OwnError.of(STORAGE_MISSING(url="s3://none", action="read", path="a\nb"))


def test_an_error_of_ours_comes_out_of_a_worker_whole(spark):
    with Harness(counting, new_executor=lambda: Recording(spark)) as harness:
        harness.push(NAMES)
        harness.run_epoch()
        tasks = SparkContext.getOrCreate().parallelize([0], 1)
        with pytest.raises(Py4JJavaError) as caught:
            tasks.foreachPartition(refuse)

    found = OwnError.found_in(str(caught.value.java_exception))
    assert found.code == STORAGE_MISSING.code
    assert found.facts == {"url": "s3://none", "action": "read", "path": "a\nb"}
