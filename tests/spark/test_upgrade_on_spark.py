"""Wheels on real Spark: a job keeps its version, and is upgraded through a service."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf import json_format

from bicycle_runtime.api.rpc.calls import JobManagerStub
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.base.processes import descendants, is_alive
from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.service.address import read_address
from tests.unit.jobs.upgrading.versions import Site, plugin_wheel
from tests.unit.service_process.served import Served
from tests.unit.service_process.test_uploads import upload
from tests.waiting import until

pytestmark = pytest.mark.spark


def upgraded_by_grpc(home, wheel, served, **words):
    """Return the result of an upgrade, or of its plan, that was asked by gRPC."""
    digest = json.loads(upload(served, Path(wheel))[2])["digest"]
    with grpc.insecure_channel(read_address(home)["grpc"]) as channel:
        stub = JobManagerStub(channel)
        asked = stub.UpgradeJob(shapes.UpgradeJobRequest(job_id="job", digest=digest, **words))
        until(
            lambda: stub.WaitOperation(
                shapes.WaitOperationRequest(id=asked.id, wait_seconds=10)
            ).state not in ("waiting", "running"),
            "the upgrade",
        )  # fmt: skip
        over = stub.WaitOperation(shapes.WaitOperationRequest(id=asked.id))
    assert over.state == "done", over
    return json_format.MessageToDict(over.result)


def submit(site, wheel, name, *words, output=None):
    begun = CliRunner().invoke(main, [
        "submit", "--plugin", "demo", "--wheel", wheel, "--name", name, "--master", "local[1]",
        "--set", f"input={site.input}", "--set", f"output={output or site.output}", *words,
    ])  # fmt: skip
    assert begun.exit_code == 0, begun.output


def test_a_job_keeps_its_version_until_it_is_upgraded(tmp_path, spark_cache, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    site = Site(tmp_path)
    (site.home.path / "cache").symlink_to(spark_cache)
    monkeypatch.setenv("BICYCLE_HOME", str(site.home.path))
    served = Served(site.home.path, grpc_port=0).start()

    def bicycle(*words):
        return CliRunner().invoke(main, [*words, "--json"])

    def wheel(version, **more):
        return str(plugin_wheel(tmp_path / "wheels", version, **more))

    try:
        site.feed("ada")
        submit(site, wheel("1.0"), "job", "--follow", "--restart-attempts", "0")
        submit(site, wheel("2.0"), "other", output=tmp_path / "other")
        site.feed("bob")
        until(lambda: site.status.record_count == 2, "both words")
        before = site.status.plugin_version
        told = CliRunner().invoke(main, ["upgrade", "job", "--wheel", wheel("3.0"), "--plan-only"])
        plan = upgraded_by_grpc(site.home, wheel("3.0"), served, plan_only=True)
        planned = site.status.plugin_version
        done = bicycle(
            "upgrade", "job", "--wheel", wheel("2.0"), "--epochs", "1", "--watch-ms", "2000"
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        words = Path(f"/proc/{site.status.supervisor_pid}/cmdline").read_text().split("\0")
        left = [path.name for path in site.home.folder("job").path.glob("*-[0-9]*")]
        site.feed("eve", "ada")
        until(lambda: site.status.event_count == 4, "all words")
        by_grpc = upgraded_by_grpc(site.home, wheel("3.0"), served, epochs=1, watch_ms=2_000)
        site.feed("zoe")
        until(lambda: site.status.event_count == 5, "all words")
        served.post("/api/v1/jobs/job/stop")
    finally:
        for job in ("job", "other"):
            served.ask("POST", f"/api/v1/jobs/{job}/cancel")
        served.end()

    assert words[-2].startswith(f"{served.process.pid}:")  # Spark was up before the stop.
    assert left == []
    assert (before, planned, json.loads(done.stdout)["plugin_version"]) == ("1.0", "1.0", "2.0")
    verdicts = {each["operator"]: each["verdict"] for each in plan["changes"]["operators"]}
    assert (plan["plugin_version"], set(verdicts.values())) == ("3.0", {"kept"}), plan
    assert "would continue with version 3.0; nothing was changed" in told.output
    assert by_grpc["plugin_version"] == "3.0"
    rows = sorted((row["word"], row["count"], row["by"]) for row in site.rows())
    assert rows == [("ada", 1, "1.0"), ("ada", 2, "2.0"), ("bob", 1, "1.0"), ("eve", 1, "2.0"),
                    ("zoe", 1, "3.0")]  # fmt: skip


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
