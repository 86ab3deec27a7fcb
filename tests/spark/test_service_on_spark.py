"""A real Spark job from the service's first request to its last."""

import os
import signal

import pytest

from tests.unit.service_process.served import Served
from tests.waiting import until

pytestmark = pytest.mark.spark


def test_a_job_is_started_rescaled_and_drained_through_the_api_and_outlives_the_service(
    tmp_path, spark_cache, monkeypatch
):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    source, home = tmp_path / "in.txt", tmp_path / "home"
    source.write_text("ada bob ada\n")
    home.mkdir()
    (home / "cache").symlink_to(spark_cache)
    served = Served(home).start()
    try:
        body = {
            "plugin": "wordcount",
            "name": "words",
            "params": {"input": str(source), "output": str(tmp_path / "out")},
            "options": {"follow": True, "master": "local[2]"},
        }
        started = served.post("/api/v1/jobs", body, idempotency_key="once")
        taken = served.ask("POST", "/api/v1/jobs", body)
        served.end(signal.SIGKILL)
        with source.open("a") as stream:
            stream.write("bob eve\n")
        served.start()
        until(lambda: served.get("/api/v1/jobs/words")["summary"]["records"] == 2, "both lines")
        vertices = served.get("/api/v1/jobs/words/graph")["vertices"]
        [worker] = served.get("/api/v1/cluster/workers")["items"]
        nice = {
            each["role"]: os.getpriority(os.PRIO_PROCESS, each["pid"])
            for each in worker["processes"]
        }
        rescaled = served.post("/api/v1/jobs/words/rescale", {"parallelism": 2})
        drained = served.post("/api/v1/jobs/words/drain")
        again = served.post("/api/v1/jobs", body, idempotency_key="once")
    finally:
        if served.process.poll() is None:
            served.post("/api/v1/jobs/words/cancel")
        served.end()

    assert (started["state"], started["result"]["state"]) == ("done", "RUNNING")
    assert taken[0] == 409
    assert {each["operator_type"] for each in vertices} >= {"Source", "Sink"}
    assert nice.keys() == {"supervisor", "driver", "java", "python"}
    assert min(nice.values()) >= 5  # All of them stand back behind the service.
    assert (worker["slots"], worker["slots_used"]) == (1, 1)
    assert rescaled["state"] == "done", rescaled
    assert (drained["state"], drained["result"]["state"]) == ("done", "FINISHED"), drained
    assert again["id"] == started["id"]
    lines = "".join(path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert "ada" in lines
    assert "eve" in lines
