"""``bicycle up`` and ``bicycle down``."""

import importlib.util
import json
import socket
import tracemalloc
import urllib.request

import pytest

from bicycle_runtime.cli.up import _why
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.errors import SERVICE_GONE
from tests.unit.jobs.job_samples import put_job


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_addresses_that_others_reach_are_refused_before_anything_is_there(shell, host):
    done = shell.run("up", "--host", host, "--port", "0")

    assert (done.exit_code, "BIC-2501" in done.stderr) == (2, True)
    assert not (shell.home.path / "service/control.db").exists()


def test_a_detached_service_tells_why_it_did_not_start(shell):
    code, error = shell.error("up", "--host", "0.0.0.0", "--detach")

    assert (code, error["code"]) == (2, "BIC-2501")


def test_only_the_end_of_a_long_log_is_read_for_that(tmp_path):
    log = tmp_path / "log"
    error = SERVICE_GONE(home="/home").to_json()
    log.write_bytes(b"former\n" * 2**22 + json.dumps(error).encode() + b"\n")
    tracemalloc.start()
    try:
        why = _why(log, 1)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert why.code == error["code"]
    assert peak_bytes < 2**22


def test_a_service_is_started_found_and_ended_while_jobs_go_on(shell):
    put_job(shell.home, "mine", is_ours=True, state=JobState.RUNNING, running_ms=1)

    up = shell.answer("up", "--detach", "--port", "0")
    again = shell.error("up", "--detach", "--port", "0")
    with urllib.request.urlopen(f"{up['url']}/api/v1/jobs") as answer:  # our own loopback address
        jobs = json.load(answer)
    down = shell.answer("down")
    gone = shell.error("down")

    assert [job["state"] for job in jobs["items"]] == ["RUNNING"]
    assert (again[0], again[1]["code"]) == (5, "BIC-2301")
    assert (down["pid"], down["running"]) == (up["pid"], ["mine"])
    assert (gone[0], gone[1]["code"]) == (2, "BIC-2302")
    assert read_address(shell.home) is None


@pytest.mark.parametrize(
    "text", ["local", "=4", "local=0", "local=http://h:1", "spark://h:1=http://h", "spark://h:1=x"]
)
def test_slots_that_say_no_number_and_no_page_are_refused(shell, text):
    done = shell.run("up", "--port", "0", "--slots", text)

    assert (done.exit_code, "MASTER=NUMBER" in done.stderr) == (2, True)


def test_the_page_of_a_master_is_passed_on(shell):
    shell.answer("up", "--detach", "--port", "0", "--slots", "spark://a:7077=http://a:8081")
    url = read_address(shell.home)["url"]
    with urllib.request.urlopen(f"{url}/api/v1/slots") as answer:
        masters = {each["master"]: each["total"] for each in json.load(answer)["items"]}
    shell.answer("down")

    assert masters["spark://a:7077"] is None


def test_without_its_libraries_the_service_says_what_to_install(shell, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    code, error = shell.error("up", "--detach")

    assert (code, error["code"]) == (6, "BIC-2313")
    assert "bicycle-runtime[service]" in error["fix"]


def test_json_is_for_a_service_that_runs_on(shell):
    assert shell.error("up")[0] == 2


def test_a_port_that_is_taken_is_told(shell):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        done = shell.run("up", "--port", port)

    assert (done.exit_code, "BIC-2502" in done.stderr) == (6, True)
