"""Plugins that never come back: the service answers all the same, and ends other jobs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from bicycle_runtime.base.environment import environment_for_python
from tests.plugin_zoo.zoo import in_builder, install
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def light_job(tmp_path):
    process = light_process.start(tmp_path, "ada bob ada\n")
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def test_an_extraction_that_loops_for_ever_leaves_page_metrics_and_cancel_working(
    light_job, tmp_path, monkeypatch
):
    begun = tmp_path / "begun"
    # Its process id comes in one step: a file that is there is whole.
    code = f"import os\nos.symlink(str(os.getpid()), {str(begun)!r})\nwhile True: pass"
    install(tmp_path / "plugins", in_builder("endless", code))
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    served = Served(tmp_path / "home").start()
    try:
        until(lambda: served.get("/api/v1/jobs")["items"], "the other job")
        answer = served.ask("POST", "/api/v1/jobs", {"plugin": "endless", "name": "endless"})
        number = json.loads(answer[2])["id"]
        until(begun.is_symlink, "the endless builder")

        loops = int(str(begun.readlink()))
        niceness = os.getpriority(os.PRIO_PROCESS, loops)
        pages = [served.ask("GET", path)[0] for path in ("/", "/jobs", "/jobs/job", "/metrics")]
        canceled = served.post("/api/v1/jobs/job/cancel")
        still = served.get(f"/api/v1/operations/{number}")
        os.kill(loops, signal.SIGKILL)
        failed = served.ended(number)
    finally:
        served.end(signal.SIGKILL)

    assert pages == [200] * 4
    assert niceness >= 5  # It loops in what time the service leaves.
    assert (canceled["state"], canceled["result"]["state"]) == ("done", "CANCELED")
    assert still["state"] == "running"
    assert failed["state"] == "failed"


STUCK = """
import threading
from pathlib import Path
from bicycle_sdk import StreamEnvironment, bicycle_plugin

def take_forever(line: str) -> str:
    Path("BEGUN").touch()
    threading.Event().wait()
    return line

@bicycle_plugin(name="stuck", version="1.0")
def stuck(env: StreamEnvironment) -> None:
    lines = env.from_collection(["a"]).uid("lines")
    lines.map(take_forever).uid("slow").collect("slow-out")
    lines.collect("quick-out")
"""
RUN = """
import sys
from pathlib import Path
from tests.unit.jobs.running.light_jobs import LightJob

job = LightJob(Path(sys.argv[1]), sys.argv[2], options={"name": "stuck"})
job.home.folder("stuck").write_request(job._request)
job.run()
"""


def test_a_branch_that_takes_forever_stops_no_other_job(tmp_path):
    begun, file = tmp_path / "begun", tmp_path / "stuck.py"
    file.write_text(STUCK.replace("BEGUN", str(begun)))
    words = [sys.executable, "-c", RUN, str(tmp_path), str(file)]
    stuck = subprocess.Popen(words, env=environment_for_python())
    other, served = None, Served(tmp_path / "home").start()

    def records(job):
        known = {each["job_id"]: each for each in served.get("/api/v1/jobs")["items"]}
        return known[job]["records"] if job in known else None

    try:
        until(begun.exists, "the branch that hangs")
        other = light_process.start(tmp_path, "ada bob ada\n")
        until(lambda: records("job") == 1, "the line of the other job")
        with (tmp_path / "in.txt").open("a") as more:
            more.write("eve ada\n")
        until(lambda: records("job") == 2, "another line")
        detail = served.get("/api/v1/jobs/stuck")["status"]
        is_stuck = stuck.poll() is None
    finally:
        for process in (stuck, other):
            if process is not None:
                process.kill()
                process.wait(PATIENCE_S)
        served.end(signal.SIGKILL)

    assert (is_stuck, detail["epoch"]) == (True, 0)
