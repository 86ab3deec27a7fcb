"""Spark's Java process ends with its driver, also when that is killed while Spark comes up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bicycle_runtime.base.work_folders import remove_abandoned
from tests.spark.jobsite import JobSite, Process
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spark
_LOST_WHILE_PICKLING = """
import os, signal
from pathlib import Path
from pyspark import Broadcast
from bicycle_runtime.engine.errors import SparkLostError
from bicycle_runtime.engine.spark.executor import SparkExecutor
from bicycle_runtime.testing import Harness, script_source

spark = SparkExecutor("local[2]", settings={}, cache_dir=Path("cache"), job="lost")
reduced = Broadcast.__reduce__

def reduced_without_java(broadcast):
    os.kill(spark.java_pid, signal.SIGKILL)
    spark.wait_ended()
    return reduced(broadcast)

def upper(env):
    env.add_source(script_source(str)).map(str.upper).collect("out")

with Harness(upper, new_executor=lambda: spark) as harness:
    harness.push(["ada"])
    harness.run_epoch()
    Broadcast.__reduce__ = reduced_without_java
    harness.push(["bob"])
    try:
        harness.run_epoch()
    except SparkLostError as error:
        print(error)
"""


def test_java_ends_with_a_driver_that_is_killed_while_spark_starts(site: JobSite, monkeypatch):
    """The next run of this machine, which removes what is abandoned, is there at once."""
    (site.input / "lines.txt").write_text("ada bob\n")
    monkeypatch.setattr(tempfile, "tempdir", str(site.temporary))
    life = site.start()
    until(lambda: any(map(_is_spark, site.processes())), "Java")
    life.process.kill()
    life.wait()
    assert remove_abandoned() == 0  # Java has it still.

    site.wait_for_no_process()
    until(remove_abandoned, "a folder that nobody has")
    assert not list(site.temporary.glob("bicycle-spark-*"))


def test_a_killed_java_leaves_nothing_outside_the_folder_of_its_run(site: JobSite, monkeypatch):
    """Sockets and unpacked libraries go with it; a socket's path must be short."""
    (site.input / "lines.txt").write_text("ada bob\n")
    with tempfile.TemporaryDirectory(prefix="b-") as short:
        site.environment["TMPDIR"] = short
        fault = "before_seal@1=hold"
        life = site.start(faults=fault)
        life.wait_for_fault(fault)
        [folder] = Path(short).iterdir()
        assert {path.suffix for path in folder.iterdir()} >= {".sock", ".so"}
        os.kill(site.java().pid, signal.SIGKILL)
        life.process.kill()
        site.wait_for_no_process()

        monkeypatch.setattr(tempfile, "tempdir", short)
        assert remove_abandoned() == 1
        assert not list(Path(short).iterdir())


def test_java_that_ends_while_a_broadcast_is_pickled_is_told_without_tracebacks(tmp_path):
    """PySpark asks Java for the id of the broadcast."""
    done = subprocess.run(
        [sys.executable, "-c", _LOST_WHILE_PICKLING], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip

    assert "the Java process of Spark ended with signal 9" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def _is_spark(process: Process) -> bool:
    """Tell Spark itself from the launcher, which only says how to start it."""
    return process.is_java and b"launcher.Main" not in process.command
