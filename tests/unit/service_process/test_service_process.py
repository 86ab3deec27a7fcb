"""The real process of the service with real, light jobs: it ends, is killed, comes again."""

import json
import signal
import socket
import stat
import threading
from urllib.parse import urlencode

import msgspec
import pytest

from bicycle_runtime.api import shapes
from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def served(tmp_path):
    service = Served(tmp_path / "home")
    yield service
    service.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """One service for requests that none of the others notices."""
    service = Served(tmp_path_factory.mktemp("door") / "home").start()
    yield service
    service.end(signal.SIGKILL)


@pytest.fixture
def light_job(tmp_path):
    process = light_process.start(tmp_path, "ada bob ada\n")
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def running(served, job="job"):
    def look():
        found = served.get("/api/v1/jobs")["items"]
        known = {each["job_id"]: each for each in found}
        is_there = job in known and known[job]["state"] == "RUNNING" and known[job]["records"]
        return known[job] if is_there else None

    return until(look, f"{job} to run")


def test_a_job_survives_two_kills_of_the_service_and_its_history_too(served, light_job, tmp_path):
    served.start()
    before = running(served)
    started = served.get("/api/v1/jobs/job")["status"]["pid_started"]
    served.end(signal.SIGKILL)
    assert is_alive(light_job.pid, started)

    served.start()
    known = served.get("/api/v1/jobs/job")
    states = served.states("job")
    served.end(signal.SIGKILL)
    light_job.send_signal(signal.SIGTERM)  # Nobody looks when it ends.
    assert light_job.wait(PATIENCE_S) == 0

    served.start()
    after = served.get("/api/v1/jobs/job")["summary"]

    assert before["start_time"] == known["summary"]["start_time"] == after["start_time"]
    assert known["status"]["pid"] == light_job.pid
    assert states[-1] == "RUNNING"
    assert served.states("job") == [*states, "STOPPING", "STOPPED"]
    assert after["state"] == "STOPPED"
    assert served.get("/api/v1/operations")["items"] == []


def test_a_job_is_looked_at_saved_and_suspended_as_its_answers_say(served, light_job):
    served.start()
    running(served)
    for path, shape in (
        ("", shapes.JobDetail), ("/tasks", shapes.TaskList), ("/graph", shapes.Graph),
        ("/epochs", shapes.EpochList), ("/exceptions", shapes.ExceptionList),
        ("/config", shapes.JobConfigAnswer), ("/logs", shapes.LogPage),
        ("/savepoints", shapes.SavepointList), ("/samples", shapes.SamplesAnswer),
    ):  # fmt: skip
        msgspec.convert(served.get(f"/api/v1/jobs/job{path}"), shape)
    detail = served.get("/api/v1/jobs/job")
    operators = detail["status"]["operators"]
    for operator in operators:
        found = served.get(f"/api/v1/jobs/job/samples/{operator}?tier=5m")
        msgspec.convert(found, shapes.OperatorSamples)
    unknown = served.ask("GET", "/api/v1/jobs/job/samples/nobody")
    graph = served.get("/api/v1/jobs/job/graph")
    epochs = served.get("/api/v1/jobs/job/epochs?limit=1")

    saved = served.post("/api/v1/jobs/job/savepoints", {"name": "first"})
    inspected = served.get("/api/v1/jobs/job/savepoints/first?verify=true")
    suspended = served.post("/api/v1/jobs/job/suspend", {"name": "last"})
    until(lambda: served.states("job")[-1] == "SUSPENDED", "the state")
    refused = served.ask("POST", "/api/v1/jobs/job/rescale", {"parallelism": 2})
    page = served.ask("GET", "/jobs/job/savepoints")[2].decode()
    question = served.ask("GET", "/jobs/job/actions/delete_savepoint?savepoint=first")[2].decode()
    code, _headers, removal = served.ask("DELETE", "/api/v1/jobs/job/savepoints/first")
    removed = served.ended(json.loads(removal)["id"])
    gone = [
        served.ask(method, f"/api/v1/jobs/job/savepoints/{name}")[0]
        for method in ("GET", "DELETE")
        for name in ("first", "No%20Name")
    ]

    msgspec.convert(inspected, shapes.SavepointReport)
    assert (inspected["name"], inspected["is_verified"]) == ("first", True)
    assert inspected["checkpoint"]["epoch"] == inspected["epoch"] == saved["result"]["epoch"]
    assert "actions/delete_savepoint?savepoint=last" in page
    assert "is deleted" in question
    assert (code, removed["state"]) == (202, "done")
    assert gone == [404, 422, 404, 422], gone
    assert (bool(operators), unknown[0]) == (True, 400)
    [sink_bytes] = [each["bytes_out"] for each in operators.values() if each["bytes_out"]]
    assert detail["metrics"]["bytes_out"] == sink_bytes > 0
    waited = {v["is_source"]: v["backpressure"] for v in graph["vertices"]}
    assert (0.0 <= waited[True] <= 1.0, waited[False]) == (True, None)
    assert [v["records_in"] for v in graph["vertices"] if v["is_sink"]] == [3]
    assert {e["source"] for e in graph["edges"]} <= {v["id"] for v in graph["vertices"]}
    assert len(epochs["items"]) == 1
    assert (saved["state"], saved["result"]["name"]) == ("done", "first")
    assert (suspended["state"], suspended["result"]["state"]) == ("done", "SUSPENDED")
    names = {each["name"] for each in served.get("/api/v1/jobs/job/savepoints")["items"]}
    assert names == {"last"}
    assert served.states("job")[-2:] == ["STOPPING", "SUSPENDED"]
    assert refused[0] == 409
    actions = [each["action"] for each in served.get("/api/v1/audit")["items"]]
    assert actions[:3] == ["savepoint", "suspend", "POST"]  # That one was refused.
    assert actions[3:] == ["delete_savepoint", "DELETE", "DELETE"]


def test_a_job_that_is_stopped_with_a_savepoint_is_suspended_too(served, light_job):
    served.start()
    running(served)

    stopped = served.post("/api/v1/jobs/job/stop", {"savepoint": True, "name": "last"})

    until(lambda: served.states("job")[-1] == "SUSPENDED", "the state")
    assert (stopped["state"], stopped["result"]["state"]) == ("done", "SUSPENDED")
    assert stopped["result"]["savepoint"]["name"] == "last"
    assert served.home.folder("job").status().state is JobState.SUSPENDED


def test_a_savepoint_is_restored_from_the_page(served, light_job, tmp_path):
    served.start()
    running(served)
    saved = served.post("/api/v1/jobs/job/savepoints", {"name": "first"})

    asked = served.ask("GET", "/jobs/job/actions/restore?savepoint=first")[2].decode()
    form = urlencode({"savepoint": "first", "name": "copy", "checkpoint_dir": str(tmp_path / "cp")})
    sent = served.ask(
        "POST", "/jobs/job/actions/restore", form.encode(), origin=served.url,
        content_type="application/x-www-form-urlencoded",
    )  # fmt: skip
    number = sent[1]["location"].rpartition("/")[2]
    restored = served.ended(number)
    told = served.ask("GET", sent[1]["location"])[2].decode()

    assert 'name="checkpoint_dir"' in asked
    assert (sent[0], restored["state"], restored["job"]) == (303, "done", "copy")
    assert restored["result"]["epoch"] == saved["result"]["epoch"]
    assert str(tmp_path / "cp/copy") in told
    assert served.get("/api/v1/audit")["items"][1]["action"] == "restore"


def test_the_death_of_a_job_is_shown_and_a_cancel_ends_one(served, light_job, tmp_path):
    served.start()
    running(served)
    until_failure, _ = _follow(served, "/api/v1/jobs/job/events", "event: failure")

    light_job.kill()
    light_job.wait(PATIENCE_S)
    until_failure()

    until(lambda: served.states("job")[-1] == "FAILED", "the state")
    failed = served.get("/api/v1/jobs/job")["summary"]
    exceptions = served.get("/api/v1/jobs/job/exceptions")["items"]
    canceled = served.post("/api/v1/jobs/job/cancel")

    assert failed["attention"] == ["failed"]
    assert failed["reason"].startswith("BIC-1906")
    assert [each["code"] for each in exceptions] == ["BIC-1906"]
    assert canceled["result"]["state"] == "FAILED"


def _follow(served, path, wanted):
    """Read a stream in a thread; return what waits until something has come."""
    host, port = served.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    connection.sendall(head.encode())
    first = connection.recv(1 << 16)
    assert b"200 OK" in first
    seen = [first]
    arrived = threading.Event()

    def read():
        with connection:
            while data := connection.recv(1 << 16):
                seen.append(data)
                if wanted.encode() in b"".join(seen):
                    arrived.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def wait():
        log = (served.home.path / "served.log").read_text
        assert arrived.wait(20), (b"".join(seen), log())
        connection.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)

    return wait, thread


def test_two_hundred_jobs_are_listed_page_by_page_and_a_page_is_not_sent_twice(served):
    for number in range(200):
        state = (JobState.FINISHED, JobState.FAILED)[number % 2]
        put_job(
            served.home, f"job{number:03}", state=state, started_ms=1_000 + number // 2,
            updated_ms=5, ended_ms=5, operators={"a": OperatorStatus(records_in=number)},
        )  # fmt: skip
    broken = served.home.folder("broken")
    put_job(served.home, "broken")
    broken.status_path.write_text("{")
    served.start()

    found, cursor = [], ""
    while True:
        page = served.get(f"/api/v1/jobs?limit=37&sort=-start_time{cursor}")
        msgspec.convert(page, shapes.JobList)
        found += [each["job_id"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&after={page['next']}"
    failed = served.get("/api/v1/jobs?state=failed&text=JOB1&limit=500")
    code, headers, _data = served.ask("GET", "/api/v1/jobs")
    again = served.ask("GET", "/api/v1/jobs", if_none_match=headers["etag"])

    assert len(found) == len(set(found)) == page["total"] == 201
    assert {each["state"] for each in failed["items"]} == {"FAILED"}
    assert failed["total"] == 50
    assert served.get("/api/v1/jobs/broken")["summary"]["reason"].startswith("BIC-")
    assert (code, again[0], again[2]) == (200, 304, b"")
    assert served.get("/api/jobs?limit=1")["total"] == 201
    assert served.get("/api/v1/cluster")["states"]["FINISHED"] == 100


def test_an_end_in_order_ends_streams_and_leaves_no_address(served):
    served.start()
    _, stream = _follow(served, "/api/v1/events", "never")
    folder = served.home.path / "service"
    mode = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.glob("*.db")}

    second = Served(served.home.path)
    with pytest.raises(AssertionError, match="BIC-2301"):
        second.start()
    second.end()

    assert served.end() == 0
    stream.join(PATIENCE_S)
    assert not stream.is_alive()
    assert not (folder / "address.json").exists()
    assert set(mode.values()) == {0o600}


def test_what_a_foreign_page_sends_is_refused_and_told_in_the_audit_log(door):
    put_job(door.home, "job", state=JobState.FINISHED, ended_ms=1)
    stop = "/api/v1/jobs/job/stop"
    host = door.url.removeprefix("http://")

    codes = {
        "foreign host": door.ask("GET", "/health", host="evil.example")[0],
        "foreign origin": door.ask("POST", stop, origin="http://evil.example")[0],
        "other site": door.ask("POST", stop, sec_fetch_site="cross-site")[0],
        "same site": door.ask("POST", stop, sec_fetch_site="same-site")[0],
        "other port": door.ask("POST", stop, origin="http://127.0.0.1:1")[0],
        "null origin": door.ask("POST", stop, origin="null")[0],
        "a form": door.ask("POST", stop, b"a=1", content_type="text/plain")[0],
        "no type": door.ask("POST", stop, content_type="")[0],
        "delete": door.ask("DELETE", "/api/v1/jobs/job", origin="http://evil.example")[0],
        "a page's form": door.ask("POST", "/jobs/job/stop")[0],
        "large": door.ask("POST", stop, b"x" * (1 << 20) + b"x")[0],
        "ours": door.ask("POST", stop, origin=f"http://{host}", sec_fetch_site="same-origin")[0],
    }
    refused = [each["outcome"] for each in door.get("/api/v1/audit")["items"]]
    answer = door.ask("GET", "/api/v1/jobs")[1]

    assert codes == {
        "foreign host": 403, "foreign origin": 403, "other site": 403, "same site": 403,
        "other port": 403, "null origin": 403, "a form": 415, "no type": 415, "delete": 403,
        "a page's form": 403, "large": 413, "ours": 202,
    }  # fmt: skip
    assert refused.count("refused") == 10
    assert "access-control-allow-origin" not in answer
    assert "default-src 'none'" in answer["content-security-policy"]
    assert answer["x-content-type-options"] == "nosniff"


def test_a_body_without_a_length_is_counted_while_it_comes(door):
    host, port = door.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        head = (
            f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(17):
            connection.sendall(piece)

        assert b" 413 " in connection.recv(1 << 12)


def test_a_key_makes_a_repeated_request_the_same_operation(door):
    place = str(door.home.path / "checkpoints/keyed")
    put_job(door.home, "keyed", state=JobState.FINISHED, ended_ms=1, checkpoint=place)
    path = "/api/v1/jobs/keyed/savepoints"

    first = json.loads(door.ask("POST", path, {"name": "a"}, idempotency_key="k")[2])
    same = json.loads(door.ask("POST", path, {"name": "a"}, idempotency_key="k")[2])
    other = door.ask("POST", path, {"name": "b"}, idempotency_key="k")

    assert first["id"] == same["id"]
    assert (other[0], json.loads(other[2])["code"]) == (409, "BIC-2306")


def test_the_error_of_an_operation_states_whether_it_is_temporary(door):
    place = str(door.home.path / "checkpoints/empty")
    put_job(door.home, "empty", state=JobState.FINISHED, ended_ms=1, checkpoint=place)

    early = door.post("/api/v1/jobs/empty/savepoints", {"name": "a"})["error"]

    assert (early["code"], early["is_temporary"]) == ("BIC-1520", True)


def test_a_start_of_a_plugin_that_is_not_there_fails_as_an_operation_with_its_error(door):

    asked = door.post("/api/v1/jobs", {"plugin": "nowhere", "name": "lost"})
    a_file = door.ask("POST", "/api/v1/jobs", {"plugin": "job.py"})
    unknown = door.ask("POST", "/api/v1/jobs", {"plugin": "a", "options": {"colour": 1}})

    assert (asked["state"], asked["job"]) == ("failed", "lost")
    assert asked["error"]["code"].startswith("BIC-1")
    assert not asked["error"]["is_temporary"]
    assert [a_file[0], unknown[0]] == [422, 422]
    assert not door.home.folder("job.py").path.exists()


def test_a_fault_of_a_library_leaves_the_stacks_of_the_threads_in_the_log(served):
    served.start()

    assert served.end(signal.SIGSEGV) == -signal.SIGSEGV

    log = (served.home.path / "served.log").read_text()
    assert "Fatal Python error: Segmentation fault" in log
    assert "service_process/main.py" in log
