"""Jobs that have ended: started again as they were, and dismissed as known."""

import json

import pytest

from bicycle_runtime.jobs.control.submitting import resumed_request
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobState, OperatorStatus, write_status
from bicycle_runtime.service.errors import QUOTA_EXCEEDED
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.owners import Quota
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.roles import LOCAL
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job, request_of, status_of
from tests.waiting import until

ERROR = {"code": "BIC-1", "message": "m", "fix": "f"}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def service(home):
    put_job(home, "bad", state=JobState.FAILED, started_ms=5, ended_ms=9, error=ERROR,
            operators={"map": OperatorStatus(failed=2, late=1)})  # fmt: skip
    with Service(home, clock=SystemClock(), slots={"local": 1}) as opened:
        yield opened


def attention(service, job="bad"):
    return service.fleet.view.get(job).summary.attention


def asked(service, kind, job):
    operation = service.operations.ask(kind, job, {}, identity=LOCAL)
    return until(
        lambda: found if (found := service.operations.get(operation.id)).is_over else None, kind
    )


def changed(service, home, **fields):
    write_status(home.folder("bad").status_path, status_of("bad", **fields))
    service.watcher.wake()


def test_what_was_dismissed_needs_attention_again_when_something_new_happens(service, home):
    assert attention(service) == ("failed", "errors", "late")
    assert asked(service, "dismiss", "bad").state == "done"
    until(lambda: attention(service) == (), "the dismissal")
    assert service.fleet.totals()["attention"] == 0

    run = {"state": JobState.FAILED, "started_ms": 5, "ended_ms": 9, "error": ERROR}
    changed(service, home, **run, operators={"map": OperatorStatus(failed=3, late=1)})
    until(lambda: attention(service) == ("errors",), "another error")
    changed(service, home, **{**run, "started_ms": 20, "ended_ms": 21})
    until(lambda: attention(service) == ("failed",), "another run")


def test_a_dismissal_outlives_the_service(service, home):
    asked(service, "dismiss", "bad")
    service.__exit__()
    with Service(home, clock=SystemClock()) as again:
        assert attention(again) == ()


def test_a_job_is_resumed_as_it_was_started_last_from_the_directory_it_was_started_in(
    home, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = home.folder("orders-2")
    folder.write_request(request_of({"input": "in.txt"}, parallelism=3))
    write_status(folder.status_path, status_of("orders-2", job="orders", state=JobState.STOPPED))
    monkeypatch.chdir("/")
    request = resumed_request(home, "orders-2")
    folder.write_request(request)

    assert (request.options.name, request.options.parallelism) == ("orders", 3)
    assert request.params == {"input": "in.txt"}
    assert folder.read_request().directory == str(tmp_path)


def test_requests_of_before_have_no_directory():
    plain = request_of().to_json()
    plain.pop("directory")
    assert JobRequest.from_json(plain).directory == ""


def test_a_job_that_runs_is_not_resumed(service, home):
    put_job(home, "busy", state=JobState.RUNNING, is_ours=True, started_ms=1)
    service.watcher.wake()
    until(lambda: service.fleet.view.get("busy"), "the job")
    with pytest.raises(JobRunningError):
        asked(service, "resume", "busy")


def test_a_resumed_job_waits_for_slots_like_one_that_is_submitted_and_can_be_withdrawn(
    service, home
):
    put_job(home, "busy", state=JobState.RUNNING, is_ours=True, started_ms=1)
    service.watcher.wake()
    until(lambda: service.fleet.view.get("busy"), "the job that has the slot")
    operation = service.operations.ask("resume", "bad", {}, identity=LOCAL)
    reason = until(lambda: service.operations.get(operation.id).reason, "the reason")
    [kept] = [json.loads(path.read_bytes()) for path in (home.path / "service/queued").iterdir()]
    withdrawn = service.operations.withdraw(operation.id, identity=LOCAL)

    assert reason == "needs 1 slot; 0 of 1 slots on this machine are free"
    assert kept == {"slots": None, "master": None}
    assert withdrawn.state == "canceled"


def test_a_resumed_job_counts_for_the_quota_of_its_owner(service):
    service.set_quota("", Quota(jobs=0), identity=LOCAL)
    with raises(QUOTA_EXCEEDED):
        service.operations.ask("resume", "bad", {}, identity=LOCAL)


def test_the_environment_of_the_service_sets_the_checkpoints_of_a_job_without_a_name(
    service, tmp_path, monkeypatch
):
    monkeypatch.setenv("BICYCLE_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))

    # With a checkpoint directory, a job has the name of its plugin.
    assert service.operations.ask("submit", None, {"plugin": "none"}, identity=LOCAL).job == "none"
