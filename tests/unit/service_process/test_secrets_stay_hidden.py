"""Secrets that are planted in a job: nothing that the service tells has one of them."""

import json
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import grpc
import msgspec
import pytest

from bicycle_runtime.api.routes import ROUTES
from bicycle_runtime.api.rpc.calls import JobManagerStub
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.jobs.control.dead_letters import dead_letters_folder
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState, read_status, write_status
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.users.redaction import JobSecrets
from bicycle_sdk.errors import BicycleError
from tests.unit.jobs.running.light_jobs import LightJob
from tests.unit.service_process.served import Served

GIVEN, IN_FILE, IN_URL = "canary-given-7Yq", "canary-filed-8Zr", "canary-in-url-9As"
CANARIES = (GIVEN, IN_FILE, IN_URL)
JOB = """
from dataclasses import dataclass
from bicycle_sdk import Secret, StreamEnvironment, bicycle_plugin, dead_letter

@dataclass
class Params:
    db_password: str
    api_key: Secret
    dsn: str
    goes_on: bool = False

@bicycle_plugin
def careless(env: StreamEnvironment, params: Params) -> None:
    def refuse(value: int) -> int:
        raise ValueError(f"cannot log in with {params.db_password} and {params.api_key.reveal()}")

    refused = env.from_collection([1, 2, 3]).map(refuse).uid("refuse")
    (refused.on_error(dead_letter()) if params.goes_on else refused).collect("out")
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A service with a job that tells its secrets wherever it can, and the job's home."""
    root = tmp_path_factory.mktemp("secrets")
    (root / "careless.py").write_text(JOB)
    (root / "key").write_text(f"{IN_FILE}\n")
    params = {
        "db_password": GIVEN, "api_key": f"file:{root / 'key'}",
        "dsn": f"postgres://ada:{IN_URL}@db/shop",
    }  # fmt: skip
    patient = LightJob(
        root / "patient", str(root / "careless.py"), params={**params, "goes_on": "true"}
    )
    patient.run()
    job = LightJob(root, str(root / "careless.py"), params=params)
    folder = job.home.folder("job")
    folder.write_request(job._request)
    with suppress(BicycleError):
        job.run()
    status = read_status(folder.status_path)
    assert status.state is JobState.FAILED
    assert GIVEN in json.dumps(status.to_json())  # The test would show nothing otherwise.
    far = job.home.folder("far")
    far.write_request(job._request)
    place = f"s3://ada:{IN_URL}@bucket/job"
    write_status(far.status_path, msgspec.structs.replace(status, id="far", checkpoint=place))
    letters = dead_letters_folder(patient.home, "job")
    assert GIVEN in "".join(file.read_text() for file in letters.iterdir() if file.is_file())
    shutil.copytree(letters, dead_letters_folder(job.home, "job"), dirs_exist_ok=True)
    folder.log_path.write_text(f"connecting with {GIVEN} and {IN_FILE}\n")
    served = Served(root / "home", grpc_port=0).start()
    asked = {"plugin": "nothing", "name": "shop", "params": params}
    served.post("/api/v1/jobs", asked)
    served.post("/api/v1/jobs/job/cancel")
    yield served, job.home
    served.end(signal.SIGKILL)


def shown(data):
    return [canary for canary in CANARIES if canary in data]


def paths():
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = route.path if route.is_root else f"/api/v1{route.path}"
        path = path.replace("{job_id}", "job").replace("{operation_id:int}", "1")
        path = re.sub(r"\{\w+\}", "x", path)
        if route.media != "text/event-stream":
            yield path


FAR = ("/api/v1/jobs/far", "/api/v1/jobs/far/status", "/api/v1/statuses")


@pytest.mark.parametrize("path", [*sorted(set(paths())), *FAR])
def test_no_route_tells_a_secret(told, path):
    _code, headers, data = told[0].ask("GET", path)

    assert shown(data.decode()) == []
    assert shown(json.dumps(headers)) == []


def test_what_is_hidden_was_there_to_be_told(told):
    served, _home = told

    assert "cannot log in with *** and ***" in json.dumps(served.get("/api/v1/jobs/job/exceptions"))
    assert served.get("/api/v1/jobs/job/logs")["lines"] == ["connecting with *** and ***"]
    config = served.get("/api/v1/jobs/job/config")["params"]
    assert config["db_password"] == "***"
    assert config["api_key"].startswith("file:")
    assert config["dsn"] == "postgres://***@db/shop"
    operation = served.get("/api/v1/operations?limit=9")["items"][-1]
    assert operation["facts"]["params"]["db_password"] == "***"


def test_a_dead_letter_tells_no_secret_of_its_job(told):
    served, _home = told
    letters = served.get("/api/v1/jobs/job/dead-letters")["items"]
    path = f"/api/v1/jobs/job/dead-letters/{letters[0]['id']}"
    answers = [served.ask("GET", path + query)[2].decode() for query in ("", "?reveal=true")]

    assert letters[0]["message"] == "cannot log in with *** and ***"
    assert shown(json.dumps(letters) + "".join(answers)) == []


PAGES = ("", "/graph", "/epochs", "/savepoints", "/exceptions", "/dead-letters", "/state", "/logs",
         "/config")  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["/", "/jobs", "/plugins", "/workers", "/audit", *(f"/jobs/job{page}" for page in PAGES)],
)
def test_no_page_shows_a_secret(told, path):
    code, _headers, data = told[0].ask("GET", path, accept="text/html")

    assert code == 200
    assert shown(data.decode()) == []


def test_streams_and_grpc_tell_no_secret(told):
    served, home = told
    _, _, lines = served.ask("GET", "/api/v1/jobs/job/logs?follow=true")
    with grpc.insecure_channel(read_address(home)["grpc"]) as channel:
        stub = JobManagerStub(channel)
        answers = [
            stub.ListJobs(shapes.ListJobsRequest()),
            stub.GetJobStatus(shapes.GetJobStatusRequest(job_id="job")),
            stub.GetMetrics(shapes.GetMetricsRequest()),
            stub.WaitOperation(shapes.WaitOperationRequest(id=1)),
        ]
        events = stub.WatchJobs(shapes.WatchJobsRequest(after_event=0))
        answers += [next(events) for _ in range(3)]
        events.cancel()

    assert shown(lines.decode() + "".join(map(str, answers))) == []


def test_the_service_stores_no_secret_and_its_processes_name_none(told):
    served, home = told
    kept = b"".join(
        path.read_bytes() for path in (home.path / "service").rglob("*") if path.is_file()
    )
    log = (home.path / "served.log").read_bytes()
    commands = b"".join(_read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))

    assert shown((kept + log + commands).decode(errors="replace")) == []
    assert served.process.poll() is None


def _read(path):
    try:
        return path.read_bytes()
    except OSError:  # It has ended meanwhile.
        return b""


def test_short_values_and_other_jobs_are_left_alone(tmp_path):
    home = Home(tmp_path)
    params = {"password": "abc", "token": "env:NOTHING_OF_THIS_NAME", "user": "somebody"}
    home.folder("a").write_request(JobRequest(options=JobOptions(plugin="p"), params=params))
    secrets = JobSecrets(home)

    assert secrets.hide("a", {"x": ["abc", "somebody"]}) == {"x": ["abc", "somebody"]}
    assert secrets.hide("b", "abc") == "abc"

    home.folder("a").write_request(
        JobRequest(options=JobOptions(plugin="p"), params={"password": "longer one"})
    )
    assert secrets.hide("a", {"a longer one": ["the longer one"]}) == {"a ***": ["the ***"]}
