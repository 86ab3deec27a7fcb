"""Spark's Java process ends with its driver, also when that is killed while Spark comes up."""

from __future__ import annotations

import tempfile

import pytest

from bicycle_runtime.engine.spark.work_folder import remove_abandoned
from tests.spark.jobsite import JobSite
from tests.waiting import until

pytestmark = pytest.mark.spark


def test_java_ends_with_a_driver_that_is_killed_while_spark_starts(site: JobSite, monkeypatch):
    """The next run of this machine, which removes what is abandoned, is there at once."""
    (site.input / "lines.txt").write_text("ada bob\n")
    monkeypatch.setattr(tempfile, "tempdir", str(site.temporary))
    life = site.start()
    until(lambda: any(process.is_java for process in site.processes()), "Java")
    life.process.kill()
    life.wait()
    assert remove_abandoned() == 0  # Java has it still.

    site.wait_for_no_process()
    until(remove_abandoned, "a folder that nobody has")
    assert not list(site.temporary.glob("bicycle-spark-*"))
