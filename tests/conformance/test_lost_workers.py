"""A Python worker that is killed: only what it had is loaded again, and nothing is lost."""

import os
import signal
from dataclasses import dataclass, field

import pytest

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

    def stop(self):
        """Spark is that of the session."""


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("counts").collect("out")


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
