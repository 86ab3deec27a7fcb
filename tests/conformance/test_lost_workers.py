"""Python workers that are killed, or that Spark would end: what they had, and what is kept."""

import os
import signal
from dataclasses import dataclass, field

import pytest
from pyspark import SparkContext

from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.operators.tasks.reports import TaskReport
from bicycle_runtime.testing import Harness, script_source

pytestmark = pytest.mark.spark
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
        os.kill(victim, signal.SIGKILL)
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
    assert victim not in {report.worker for report in recording.reports}
    assert loaded, "the ranges of the killed worker were loaded by another one"
    assert not set(loaded) & had, "a worker that lives has loaded what it had"
    assert len(loaded) == len(set(loaded)), "a range was loaded twice by one worker"
    assert sorted(counts) == sorted((name, n) for name in NAMES for n in range(1, 9))


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
