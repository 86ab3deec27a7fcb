"""Spark's workers before their first record: up with a Spark that waits, and with little loaded."""

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


def run(script, cache):
    return subprocess.run(
        [sys.executable, "-c", script, cache], capture_output=True, text=True, check=False
    )


def test_workers_are_up_before_there_is_a_job(spark_cache):
    done = run(SCRIPT, spark_cache)

    assert done.returncode == 0, done.stderr
    daemon_count, worker_count = map(int, done.stdout.split())
    # The daemon, and the process of it that Java started. One worker may have run both tasks.
    assert (daemon_count, worker_count > 0) == (2, True)


LOADED = """
import sys
from pathlib import Path

from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.testing import Harness, script_source

DRIVER = "bicycle_runtime.engine.spark.executor"


def asking(env):
    words = env.add_source(script_source(str)).uid("words").map(lambda _: DRIVER in sys.modules)
    words.key_by(str).map(lambda before: [before, DRIVER in sys.modules]).collect("out")


def spark():
    return SparkExecutor("local[2]", settings={}, cache_dir=Path(sys.argv[1]), job="loaded")


with Harness(asking, parallelism=2, new_executor=spark) as harness:
    harness.push(["a", "b"])
    harness.run_epoch()
    print(harness.results("out"))
"""


def test_workers_load_nothing_that_only_the_driver_needs(spark_cache):
    """What workers are sent by name loads the module it is in: 66 ms before the first record."""
    done = run(LOADED, spark_cache)

    assert done.stdout.split("\n")[0] == "[[False, False], [False, False]]", done.stderr
