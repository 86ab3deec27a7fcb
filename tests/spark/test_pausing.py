"""Paused jobs on Spark: they keep position and state, read nothing, and continue exactly once."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.plugin_zoo.zoo import install
from tests.spark.cli_process import Bicycle, counts_in, expected_counts
from tests.spark.impatient import IMPATIENT
from tests.unit.service_process.served import Served
from tests.waiting import until

pytestmark = pytest.mark.spark

JOB = "paused"


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    install(bicycle.site, IMPATIENT)
    yield bicycle
    bicycle.kill_jobs()


def add(folder, *lines):
    with (folder / "in.txt").open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def read(bicycle, event_count):
    return bicycle.wait_until(
        JOB,
        lambda status: status["event_count"] == event_count and status["state"] == "RUNNING",
    )


def is_gone(status):
    return not any(Path(f"/proc/{status[pid]}").exists() for pid in ("pid", "java_pid"))


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_job_pauses_and_resumes_also_when_it_is_killed_while_it_pauses(
    bicycle, tmp_path, backend
):
    # The job seals several epochs before the first pause.
    add(tmp_path, "a b", "a")
    settings = ("--set", f"input={tmp_path / 'in.txt'}", "--set", f"output={tmp_path / 'out'}")
    place = ("--checkpoint-dir", str(tmp_path / "checkpoints"), "--name", JOB)
    state = ("--state-backend", backend, "--state-dir", str(tmp_path / "local"))
    words = ("--plugin", "impatient", *settings, *place, *state, "--follow")
    bicycle.answer("submit", *words)
    read(bicycle, 2)
    add(tmp_path, "b c")
    first = read(bicycle, 3)

    # A clean pause: it reads nothing, and the next run continues with its counts.
    paused = bicycle.answer("pause", JOB)
    published = counts_in(tmp_path / "out")
    add(tmp_path, "c a")
    listed = bicycle.answer("list", "--state", "paused")
    kept = bicycle.answer("jobs", "prune", "--older-than", "0")
    resumed = bicycle.answer("resume", JOB)
    second = read(bicycle, 4)

    # A pause during which the driver is killed.
    add(tmp_path, *(["a b c d"] * 200))
    pausing = bicycle.start("pause", JOB, "--json")
    until(lambda: list((bicycle.home / "jobs" / JOB).glob("pause-*")), "the request")
    os.kill(second["pid"], signal.SIGKILL)
    stdout, stderr = pausing.communicate()
    killed = bicycle.answer("status", JOB)
    add(tmp_path, "e")
    bicycle.answer("resume", JOB)
    third = read(bicycle, 205)
    bicycle.answer("pause", JOB)
    stopped = bicycle.answer("stop", JOB)

    assert (paused["state"], paused["lag_records"], paused["event_count"]) == ("PAUSED", None, 3)
    assert is_gone(first)
    assert published == {"a": [1, 2], "b": [1, 2], "c": [1]}
    assert [each["id"] for each in listed] == [JOB]
    assert kept["jobs"] == []
    assert resumed["state"] == "RUNNING"
    assert (json.loads(stdout)["state"], killed["state"]) == ("PAUSED", "PAUSED"), stderr
    assert killed["error"] is None
    assert third["epoch"] > second["epoch"] > first["epoch"] >= 2
    assert stopped["state"] == "STOPPED"
    assert counts_in(tmp_path / "out") == expected_counts((tmp_path / "in.txt").read_text())


def test_a_paused_job_is_paused_everywhere_and_outlives_the_service(
    tmp_path, spark_cache, monkeypatch
):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    home = tmp_path / "home"
    home.mkdir()
    (home / "cache").symlink_to(spark_cache)
    add(tmp_path, "ada bob ada")
    served = Served(home).start()
    try:
        body = {
            "plugin": "wordcount",
            "name": JOB,
            "params": {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")},
            "options": {"follow": True, "master": "local[2]"},
        }
        served.post("/api/v1/jobs", body)
        job = f"/api/v1/jobs/{JOB}"
        until(lambda: served.get(job)["summary"]["records_total"] == 1, "the first line")
        paused = served.post(f"{job}/pause")
        served.end(signal.SIGKILL)
        served.start()

        shown = served.get(job)
        again = served.ask("POST", f"{job}/pause")
        [listed] = served.get("/api/v1/jobs?state=PAUSED")["items"]
        status = served.get(f"{job}/status")["status"]
        metrics = served.ask("GET", "/metrics")[2].decode().splitlines()
        page = served.ask("GET", f"/jobs/{JOB}", accept="text/html")[2].decode()
        workers = served.get("/api/v1/cluster/workers")["items"]
        states = served.states(JOB)
        add(tmp_path, "bob eve")
        resumed = served.post(f"{job}/resume")
        until(lambda: served.get(job)["summary"]["records_total"] == 2, "the second line")
        again_paused = served.post(f"{job}/pause")
        # The service looks once a second, and shows PAUSED when the operation is over.
        until(lambda: served.get(job)["summary"]["state"] == "PAUSED", "the second pause")
        canceled = again_paused, served.post(f"{job}/cancel")
        end = served.states(JOB)[-4:]
    finally:
        if served.process.poll() is None:
            served.post(f"/api/v1/jobs/{JOB}/cancel")
        served.end()

    assert (paused["state"], paused["result"]["state"]) == ("done", "PAUSED")
    assert (shown["summary"]["state"], listed["state"], status["state"]) == ("PAUSED",) * 3
    assert (shown["summary"]["lag_records"], shown["summary"]["attention"]) == (None, [])
    assert again[0] == 409
    assert f'bicycle_job_state{{job="{JOB}",state="PAUSED"}} 1' in " ".join(metrics)
    assert not [line for line in metrics if line.startswith("bicycle_source_lag")]
    assert ">PAUSED<" in page
    assert "ask-resume" in page
    assert "ask-pause" not in page
    assert workers == []
    assert states[-2:] == ["STOPPING", "PAUSED"]
    assert resumed["result"]["state"] == "RUNNING"
    assert [each["result"]["state"] for each in canceled] == ["PAUSED", "CANCELED"]
    assert end == ["RUNNING", "STOPPING", "PAUSED", "CANCELED"]
    lines = "".join(path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert (lines.count("ada"), lines.count("eve")) == (2, 1)
