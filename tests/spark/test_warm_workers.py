"""A Spark that is started long before its job: its workers are up, too."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

# A process of its own: a process can have one Spark.
SCRIPT = """
import sys
from pathlib import Path

from bicycle_runtime.engine.spark.executor import SparkExecutor


def children(pid):
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for each in lists for word in each.read_text().split()]


spark = SparkExecutor("local[2]", settings={}, cache_dir=Path(sys.argv[1]), job="warm")
try:
    spark.warm()
    daemons = children(spark.java_pid)
    print(len(daemons), sum(len(children(pid)) for pid in daemons))
finally:
    spark.stop()
"""


def test_workers_are_up_before_there_is_a_job(spark_cache):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, spark_cache], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    daemon_count, worker_count = map(int, done.stdout.split())
    assert (daemon_count, worker_count > 0) == (1, True)  # One may have run both tasks.
