"""Plugins that never come back: the service answers all the same, and ends other jobs."""

import json
import os
import signal

import pytest

from tests.plugin_zoo.zoo import in_builder, install
from tests.unit.serving import light_process
from tests.unit.serving.served import Served
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
        failed = served.get(f"/api/v1/operations/{number}?wait=60")
    finally:
        served.end(signal.SIGKILL)

    assert pages == [200] * 4
    assert niceness >= 5  # It loops in what time the service leaves.
    assert (canceled["state"], canceled["result"]["state"]) == ("done", "CANCELED")
    assert still["state"] == "running"
    assert failed["state"] == "failed"
