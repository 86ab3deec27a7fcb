"""Spark's Java process ends with its driver, also when that is killed while Spark comes up."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from bicycle_runtime.engine.spark.work_folder import remove_abandoned
from tests.spark.jobsite import JobSite, Process
from tests.waiting import until

pytestmark = pytest.mark.spark


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


def _is_spark(process: Process) -> bool:
    """Tell Spark itself from the launcher, which only says how to start it."""
    return process.is_java and b"launcher.Main" not in process.command
