"""Operations: accepted or refused as a whole, and stored when the database is back."""

import json
import logging
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.errors import JOB_NAME_TAKEN, OPERATION_FACTS_INVALID, QUOTA_EXCEEDED
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.users.owners import Quota
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import LOCAL, Identity, Role
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S, until

ADA = Identity(name="ada", role=Role.OPERATOR, owners=("ada",))
SUBMIT = {"plugin": "none", "name": "new"}
ABORT = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"


@pytest.fixture
def home(tmp_path):
    """A home with a job that has ended, and a job that runs and has the only slot."""
    home = Home(tmp_path / "home")
    put_job(home, "ended", state=JobState.STOPPED, started_ms=5, ended_ms=9)
    put_job(home, "busy", state=JobState.RUNNING, is_ours=True, started_ms=1)
    return home


@pytest.fixture
def service(home):
    with serve(home) as opened:
        yield opened


def serve(home):
    return Service(home, clock=SystemClock(), slots={"local": 1})


def ask(service, kind, job, facts=None, *, identity=LOCAL, **more):
    return service.operations.ask(kind, job, facts or {}, identity=identity, **more)


def over(service, number):
    def look():
        return found if (found := service.operations.get(number)).is_over else None

    return until(look, f"operation {number}")


def change(home, sql, *values):
    """Change the control tables from outside of the service, or before it starts."""
    with closing(sqlite3.connect(home.path / "service/control.db")) as control, control:
        return control.execute(sql, values).lastrowid


def put_open(home, kind, job, *, asked_ms, facts="{}"):
    return change(
        home,
        "INSERT INTO operations (actor, body_digest, job, kind, facts, state, asked_ms)"
        " VALUES ('ada', '', ?, ?, ?, 'running', ?)",
        job, kind, facts, asked_ms,
    )  # fmt: skip


def logged(caplog, event):
    return until(lambda: [each for each in caplog.records if event in each.getMessage()], event)


@pytest.mark.parametrize(
    ("kind", "job", "facts"),
    [
        ("submit", "ended", SUBMIT),
        ("restore", "ended", {"url": "s", "checkpoint_dir": "c", "name": "new"}),
        ("stop", None, {}),
        ("resume", None, {}),
    ],
)
def test_a_job_is_named_where_the_operation_is_about_one_and_only_there(service, kind, job, facts):
    with raises(OPERATION_FACTS_INVALID):
        ask(service, kind, job, facts)


def test_the_job_of_another_owner_is_not_started_under_the_name_of_an_own_one(home, service):
    change(home, "INSERT INTO owners VALUES ('busy', 'ada')")
    facts = {**SUBMIT, "name": "ended"}
    with raises(OPERATION_FACTS_INVALID):
        ask(service, "submit", "busy", facts, identity=ADA)
    with raises(JOB_NAME_TAKEN):
        ask(service, "submit", None, facts, identity=ADA)


@pytest.fixture
def driver():
    """A process that does nothing, and stands for a driver."""
    process = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    yield process
    process.kill()
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("kind", ["cancel", "stop", "drain", "pause", "suspend"])
def test_an_end_that_was_left_open_is_not_repeated_on_a_later_run(home, driver, kind):
    put_job(
        home, "again", started_ms=50, pid=driver.pid, pid_started=start_ticks(driver.pid),
        checkpoint=str(home.path / "checkpoints"),
    )  # fmt: skip
    with serve(home):
        pass
    number = put_open(home, kind, "again", asked_ms=40)
    with serve(home) as service:
        found = over(service, number)

    assert (found.state, found.error["code"]) == ("interrupted", "BIC-2307")
    assert driver.poll() is None


def test_an_end_that_was_left_open_is_repeated_on_a_run_that_was_restarted(home, driver):
    put_job(
        home, "same", started_ms=50, pid=driver.pid, pid_started=start_ticks(driver.pid),
        restart_count=1,
    )  # fmt: skip
    with serve(home):
        pass
    number = put_open(home, "cancel", "same", asked_ms=60)
    with serve(home) as service:
        found = over(service, number)

    assert (found.state, found.result["state"]) == ("done", "CANCELED")
    assert driver.wait(PATIENCE_S) != 0


def test_an_upgrade_that_was_left_open_continues_on_the_run_that_it_started(home, driver):
    put_job(
        home, "newer", started_ms=50, pid=driver.pid, pid_started=start_ticks(driver.pid),
        checkpoint=str(home.path / "checkpoints"),
    )  # fmt: skip
    with serve(home):
        pass
    digest = "0" * 64
    number = put_open(home, "upgrade", "newer", asked_ms=40, facts=json.dumps({"digest": digest}))
    with serve(home) as service:
        found = over(service, number)

    # It was performed, and looked for its version.
    assert (found.state, digest in found.error["message"]) == ("failed", True)


@pytest.mark.parametrize("state", ["running", "done"])
def test_an_operation_is_not_lost_when_its_progress_cannot_be_stored(home, service, caplog, state):
    change(
        home,
        f"CREATE TRIGGER full BEFORE UPDATE ON operations WHEN NEW.state = '{state}' {ABORT}",
    )
    with caplog.at_level(logging.WARNING):
        number = ask(service, "stop", "ended").id
        logged(caplog, "operation_not_stored")
        intent = service.operations.intent("ended")
        change(home, "DROP TRIGGER full")
        found = over(service, number)

    assert (found.state, found.result["state"]) == ("done", "STOPPED")
    assert intent is None  # Neither before it begins nor after it is over.
    until(lambda: service.operations.open_count() == 0, "the end in memory")


def test_a_withdrawal_is_not_lost_when_it_cannot_be_stored(home, service, caplog):
    number = ask(service, "submit", None, SUBMIT).id
    change(home, f"CREATE TRIGGER full BEFORE INSERT ON audit {ABORT}")
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as threads:
        withdrawn = threads.submit(service.operations.withdraw, number, identity=LOCAL)
        logged(caplog, "operation_not_stored")
        change(home, "DROP TRIGGER full")

        assert withdrawn.result(PATIENCE_S).state == "canceled"


def test_an_operation_that_could_not_be_stored_continues_at_the_next_start(home, caplog):
    with serve(home) as service, caplog.at_level(logging.WARNING):
        change(home, f"CREATE TRIGGER full BEFORE UPDATE ON operations {ABORT}")
        number = ask(service, "stop", "ended").id
        logged(caplog, "operation_not_stored")
    logged(caplog, "operation_broke")  # Its thread has ended.
    change(home, "DROP TRIGGER full")
    with serve(home) as service:
        assert over(service, number).state == "done"


def test_a_start_whose_request_cannot_be_stored_is_not_accepted(home, service):
    queued = home.path / "service/queued"
    queued.touch()  # No folder, so no file can be made in it.
    with pytest.raises(OSError):
        ask(service, "submit", None, SUBMIT, key="once")
    refused = service.operations.recent()
    queued.unlink()
    accepted = ask(service, "submit", None, SUBMIT, key="once")

    assert (refused, accepted.state) == ([], "waiting")
    assert json.loads((queued / f"{accepted.id}.json").read_bytes())["name"] == "new"


def test_requests_of_starts_that_are_over_are_removed_when_the_service_starts(home):
    with serve(home) as service:
        waits = ask(service, "submit", None, SUBMIT).id
        (home.path / "service/queued" / f"{waits + 1}.json").write_text("{}")
    with serve(home):
        left = [path.name for path in (home.path / "service/queued").iterdir()]

    assert left == [f"{waits}.json"]


def test_requests_at_the_same_time_do_not_exceed_the_quota(service):
    service.set_quota("ada", Quota(jobs=1), identity=LOCAL)

    def submit(number):
        try:
            return ask(service, "submit", None, {**SUBMIT, "name": f"j{number}"}, identity=ADA).job
        except BicycleError as error:
            return error.code

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(submit, range(6)))

    [refusal] = {each for each in found if each.startswith("BIC-")}
    assert refusal == QUOTA_EXCEEDED.code
    assert len([each for each in found if each.startswith("j")]) == 1


def test_changes_of_jobs_are_written_when_the_database_is_back(home, service, caplog):
    change(home, f"CREATE TRIGGER full BEFORE INSERT ON state_changes {ABORT}")
    with caplog.at_level(logging.WARNING):
        put_job(home, "later", state=JobState.FINISHED, started_ms=20, ended_ms=30)
        service.watcher.wake()
        logged(caplog, "findings_not_written")
    assert not service.history.state_changes("later")
    change(home, "DROP TRIGGER full")
    until(lambda: service.history.state_changes("later"), "the changes")

    [first, *_] = service.history.state_changes("later")
    assert first.new == "FINISHED"


def test_a_dismissal_is_written_when_the_database_is_back(home, service, caplog):
    change(home, f"CREATE TRIGGER full BEFORE UPDATE OF dismissed ON jobs {ABORT}")
    with caplog.at_level(logging.WARNING):
        assert over(service, ask(service, "dismiss", "ended").id).state == "done"
        logged(caplog, "findings_not_written")
    assert service.history.known_rows()["ended"].dismissed is None
    change(home, "DROP TRIGGER full")

    until(lambda: service.history.known_rows()["ended"].dismissed, "the dismissal")
