"""Wheels on real Spark: a job keeps its version, and is upgraded through a service."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bicycle_runtime.base.processes import descendants, is_alive
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from tests.unit.jobs.upgrading.versions import Site, plugin_wheel
from tests.unit.serving.served import Served
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_job_keeps_its_version_until_it_is_upgraded(tmp_path, spark_cache, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    monkeypatch.setenv("BICYCLE_HOME", str(site.home.path))
    served = Served(site.home.path).start()

    def bicycle(*words):
        return CliRunner().invoke(main, [*words, "--json"])

    def wheel(version, **more):
        return str(plugin_wheel(tmp_path / "wheels", version, **more))

    settings = [f"input={site.input}", f"output={site.output}"]
    words = [word for each in settings for word in ("--set", each)]
    try:
        site.feed("ada")
        begun = bicycle(
            "submit", "--plugin", "demo", "--wheel", wheel("1.0"), "--name", "job", "--follow",
            "--master", "local[1]", "--restart-attempts", "0", *words,
        )  # fmt: skip
        assert begun.exit_code == 0, begun.output
        other = bicycle(
            "submit", "--plugin", "demo", "--wheel", wheel("2.0"), "--name", "other",
            "--master", "local[1]", "--set", f"input={site.input}",
            "--set", f"output={tmp_path / 'other'}",
        )  # fmt: skip
        assert other.exit_code == 0, other.output
        site.feed("bob")
        until(lambda: site.status.record_count == 2, "both words")
        before = site.status.plugin_version
        done = bicycle(
            "upgrade", "job", "--wheel", wheel("2.0"), "--epochs", "1", "--watch-ms", "2000"
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        words = Path(f"/proc/{site.status.supervisor_pid}/cmdline").read_text().split("\0")
        left = [path.name for path in site.home.folder("job").path.glob("*-[0-9]*")]
        site.feed("eve", "ada")
        until(lambda: site.status.event_count == 4, "all words")
        served.post("/api/v1/jobs/job/stop")
    finally:
        for job in ("job", "other"):
            served.ask("POST", f"/api/v1/jobs/{job}/cancel")
        served.end()

    assert words[-2].startswith(f"{served.process.pid}:")  # Spark was up before the stop.
    assert left == []
    assert (before, json.loads(done.output)["plugin_version"]) == ("1.0", "2.0")
    rows = sorted((row["word"], row["count"], row["by"]) for row in site.rows())
    assert rows == [("ada", 1, "1.0"), ("ada", 2, "2.0"), ("bob", 1, "1.0"), ("eve", 1, "2.0")]


STARTER = """
import sys, threading
from pathlib import Path
from bicycle_runtime.jobs.control.submitting import PreparedStart
from bicycle_runtime.jobs.home import Home

home = Home(Path(sys.argv[1]))
ahead = PreparedStart(home.folder("job"), home, python=sys.executable)
print(ahead.wait(), flush=True)
threading.Event().wait()
"""


def test_a_driver_that_was_started_ahead_ends_with_who_has_started_it(tmp_path, spark_cache):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.path / "cache").symlink_to(spark_cache)
    folder = home.folder("job")
    options = JobOptions(plugin="wordcount", name="job", master="local[1]")
    folder.write_request(JobRequest(options=options))
    words = [sys.executable, "-c", STARTER, str(home.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        try:
            is_ready = starter.stdout.readline()
            [ready] = folder.path.glob("ready-*")
            supervisor = int(ready.name.partition("-")[2])
            family = [supervisor, *descendants(supervisor)]
        finally:
            os.kill(starter.pid, signal.SIGKILL)

    assert is_ready == "True\n"
    until(lambda: not any(is_alive(pid, 0) for pid in family), "the end of all of it")
    assert list(folder.path.glob("ready-*")) == []
    assert folder.status() is None
