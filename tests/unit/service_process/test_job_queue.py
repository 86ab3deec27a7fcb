"""The queue of jobs in the real process of the service: reasons, kills, quotas, the page."""

import json
import os
import signal
import subprocess
import sys

import pytest

from bicycle_runtime.cli.remote import Remote
from bicycle_sdk.errors import BicycleError
from tests.plugin_zoo.zoo import install, whole
from tests.unit.service.test_plugins import demo
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

SUBMIT = {"plugin": "refusing", "name": "second", "params": {"api_token": "canary-7f3a"}}
REFUSING = """
    from dataclasses import dataclass

    from bicycle_sdk import StreamEnvironment, bicycle_plugin


    @dataclass(frozen=True, kw_only=True)
    class Params:
        api_token: str = ""


    @bicycle_plugin(name="refusing", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        raise ValueError("no")
"""
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A service with one slot, which a job has that it did not start."""
    install(tmp_path / "plugins", whole("refusing", REFUSING))
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    process = light_process.start(tmp_path, "ada bob ada\n")
    service = Served(tmp_path / "home", slots={"local": 1}).start()
    until(lambda: service.get("/api/v1/jobs")["items"], "the other job")
    yield service
    service.end(signal.SIGKILL)
    process.kill()
    process.wait(PATIENCE_S)


def submitted(served, **more):
    code, _, data = served.ask("POST", "/api/v1/jobs", {**SUBMIT, **more})
    assert code == 202, data
    return json.loads(data)["id"]


PIPELINE = """
name = "third"
[source]
kind = "file"
path = "{input}"
[[steps]]
operator = "map"
function = "{function}"
[ops]
count_by = "word"
[sink]
kind = "console"
"""


def test_a_pipeline_is_taken_as_a_file_and_names_functions_of_plugins_only(served, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"word": "ada"}\n')
    text = PIPELINE.format(input=tmp_path / "in.jsonl", function="os:getcwd")
    pipeline = {"file": "third.toml", "text": text}
    served.post("/api/v1/jobs/job/cancel")

    refused = [
        served.ask("POST", "/api/v1/jobs", body)
        for body in (
            {},
            {"pipeline": pipeline, "plugin": "refusing"},
            {"pipeline": {**pipeline, "file": "../third.toml"}},
            {"pipeline": {**pipeline, "text": text.replace("count_by", "count_bye")}},
            {"plugin": str(tmp_path / "third.toml")},
        )
    ]
    done = served.post(
        "/api/v1/jobs", {"pipeline": pipeline, "options": {"functions_of_plugins": False}}
    )  # fmt: skip

    assert [code for code, _, _ in refused] == [422] * 5
    assert "count_bye" in json.loads(refused[3][2])["message"]
    assert done["job"].startswith("third-")
    assert done["state"] == "failed"
    assert "'os:getcwd' is not in an installed plugin" in done["error"]["message"]
    assert "os:getcwd" not in json.dumps(done["facts"])


def operation(served, number):
    return served.get(f"/api/v1/operations/{number}")


def test_a_job_waits_over_kills_of_the_service_and_begins_when_slots_are_free(served):
    number = submitted(served)
    until(lambda: operation(served, number)["reason"], "the reason")
    before = operation(served, number)
    page = served.ask("GET", "/jobs")[2].decode()
    slots = served.get("/api/v1/slots")["items"]
    for _ in range(2):
        served.end(signal.SIGKILL)
        served.start()
    until(lambda: operation(served, number)["reason"], "the reason again")
    shown = json.dumps(
        [
            served.get("/api/v1/operations"),
            served.get("/api/v1/cluster"),
            served.get("/api/v1/jobs"),
        ]
    ) + json.dumps(served.get("/api/v1/audit"))
    served.post("/api/v1/jobs/job/cancel")
    after = served.ended(number)

    assert (before["state"], before["actor"]) == ("waiting", "local")
    assert before["reason"] == "needs 1 slot; 0 of 1 slots on this machine are free"
    assert before["reason"] in page
    assert slots == [{"master": "local", "total": 1, "used": 1, "waiting_jobs": 1}]
    assert "canary-7f3a" not in shown
    assert after["state"] == "failed"  # It began, and its plugin refuses.
    assert not list((served.home.path / "service" / "queued").iterdir())


def test_a_waiting_job_is_found_by_its_name_with_the_key_of_its_request(served):
    served.ask("POST", "/api/v1/jobs", SUBMIT, idempotency_key="of-second")
    submitted(served, name="third")
    found = served.get("/api/v1/operations?job=second")["items"]
    others = served.get("/api/v1/operations?job=third")["items"]

    assert [(each["job"], each["key"]) for each in found] == [("second", "of-second")]
    assert [(each["job"], each["key"]) for each in others] == [("third", None)]
    assert served.ask("GET", "/api/v1/jobs/second/operations")[0] == 404


def test_operations_are_listed_by_kind_and_state(served):
    submitted(served, name="third")
    number = submitted(served, name="second")
    served.ask("DELETE", f"/api/v1/operations/{number}")
    listed = {
        query: [each["job"] for each in served.get(f"/api/v1/operations?{query}")["items"]]
        for query in ("kind=submit&state=waiting", "kind=submit&state=canceled", "kind=rescale",
                      "kind=submit&job=second&limit=1")
    }  # fmt: skip

    assert listed == {
        "kind=submit&state=waiting": ["third"], "kind=submit&state=canceled": ["second"],
        "kind=rescale": [], "kind=submit&job=second&limit=1": ["second"],
    }  # fmt: skip


def test_a_job_is_taken_out_of_the_queue_by_request_and_by_page(served):
    first, second = submitted(served), submitted(served, name="third")
    until(lambda: operation(served, second)["reason"], "the queue")
    question = served.ask("GET", f"/queue/{first}")[2].decode()
    gone = json.loads(served.ask("DELETE", f"/api/v1/operations/{first}")[2])
    again = served.ask("DELETE", f"/api/v1/operations/{first}")
    sent = served.ask("POST", f"/queue/{second}", b"", origin=served.url, content_type=FORM)
    page = served.ask("GET", "/jobs")[2].decode()

    assert "no data is lost" in question
    assert (gone["state"], gone["error"]["code"]) == ("canceled", "BIC-2362")
    assert again[0] == 409
    assert (sent[0], operation(served, second)["state"]) == (303, "canceled")
    assert "Waiting for slots" not in page


def test_an_owner_has_no_more_jobs_than_the_quota_says(served):
    path, json_type = "/api/v1/quotas/local", "application/json"
    before = served.get(path)
    quota = {"jobs": 1, "upload_bytes": 0}
    put = served.ask("PUT", path, quota, content_type=json_type)
    wrong = served.ask("PUT", path, {"jobs": -1}, content_type=json_type)
    submitted(served)
    refused = served.ask("POST", "/api/v1/jobs", {**SUBMIT, "name": "third"})
    served.end(signal.SIGKILL)
    served.start()
    after = served.get(path)

    assert (before["jobs"], before["used_jobs"]) == (None, 0)
    assert (put[0], wrong[0], refused[0]) == (200, 400, 429)
    assert json.loads(refused[2])["code"] == "BIC-2360"
    assert (after["jobs"], after["slots"], after["used_jobs"]) == (1, None, 1)
    assert "quota" in [each["action"] for each in served.get("/api/v1/audit")["items"]]


def test_a_command_says_that_its_job_waits_and_fails_when_it_is_taken_out(served, tmp_path):
    words = ["submit", "--plugin", "refusing", "--name", "second", "--service", served.url]
    path = os.pathsep.join([str(tmp_path / "plugins"), *sys.path])
    command = subprocess.Popen(
        [sys.executable, "-c", "from bicycle_runtime.cli.root import main; main()", *words],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    first = command.stderr.readline()
    served.ask("DELETE", "/api/v1/operations/1")
    rest = command.communicate(timeout=PATIENCE_S)[1]

    assert first == "second is queued: it needs 1 slot; 0 of 1 slots on this machine are free\n"
    assert "BIC-2362" in rest
    assert command.returncode == 1


def test_a_wheel_beyond_the_quota_is_refused(served, tmp_path):
    served.ask("PUT", "/api/v1/quotas/local", {"upload_bytes": 10}, content_type="application/json")
    with pytest.raises(BicycleError, match="BIC-2360"):
        Remote(url=served.url, token=None, ca=None).upload(wheel=demo(tmp_path), lock=None)
    assert served.get("/api/v1/plugins")["items"] == []
