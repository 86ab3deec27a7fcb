"""Savepoints of jobs: asked of one that runs, taken of one that has ended."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Event

import pytest

from bicycle_runtime.base.faults import InjectedFault
from bicycle_runtime.base.process_identity import ProcessIdentity
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.control.requests import Inbox
from bicycle_runtime.jobs.errors import ORIGIN_RUNNING, JobNotRunningError, JobRunningError
from bicycle_runtime.jobs.locks import FileLock
from bicycle_runtime.jobs.savepoints.commands import (
    create_savepoint,
    known_savepoints,
    list_savepoints,
    open_origin,
    restore_savepoint,
)
from bicycle_runtime.jobs.savepoints.taking import RunningSavepoints
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_MISSING,
    CHECKPOINT_OCCUPIED,
    COPY_REFUSED,
    EPOCH_UNPUBLISHED,
    SAVEPOINT_TAKEN,
    LeaseHeldError,
)
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.lease import Lease, LeaseKeeper
from bicycle_runtime.recovery.savepoints import SavepointWriter, read_savepoint, verify_savepoint
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk.clock import ManualClock, SystemClock
from bicycle_sdk.errors import OptionError
from bicycle_sdk.random_source import system_random
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job

NOW_MS = 1_772_000_000_000


def counts(env):
    env.add_source(script_source(str)).uid("words").key_by(str).count().uid("counts").collect("out")


@pytest.fixture
def harness():
    with Harness(counts, parallelism=2) as harness:
        harness.push(["ada", "bob", "ada"])
        harness.run_epoch()
        yield harness


@pytest.fixture
def ended(home, harness):
    put_job(home, checkpoint=harness.storage.url, state=JobState.STOPPED)
    return home


@pytest.fixture
def running(home, harness):
    put_job(home, is_ours=True, checkpoint=harness.storage.url)
    return home


def create(home, name="one", to=None, clock=None):
    return create_savepoint(
        home, "job", name=name, to=to, clock=clock or SystemClock(), timeout_ms=20_000
    )


def ask(home, harness, between=lambda: None, **facts):
    """Let the job go on epoch by epoch until somebody who asks has the answer."""
    inbox = Inbox(home.folder("job").path)
    inbox.open()
    savepoints = RunningSavepoints(harness.storage, job="job", clock=ManualClock(NOW_MS))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(create, home, **facts)
        try:
            while not answer.done():
                inbox.serve({"savepoint": savepoints.ask})
                savepoints.meet(harness.loop)
                between()
        finally:
            savepoints.wait()
        return answer.result()


def test_of_a_job_that_has_ended_the_last_epoch_is_taken(ended, harness):
    answer = create(ended)

    assert answer["url"] == f"{harness.storage.url}/savepoints/one"
    assert (answer["epoch"], answer["event_count"]) == (1, 3)
    assert verify_savepoint(open_storage(answer["url"])).name == "one"
    assert harness.epoch == 1


def test_a_name_that_nobody_chose_tells_time_and_epoch(ended):
    assert create(ended, name=None, clock=ManualClock(NOW_MS))["name"] == "20260225-061320-epoch-1"


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "x" * 64])
def test_a_name_that_cannot_be_a_folder_is_refused(ended, harness, name):
    before = harness.storage.list("savepoints")
    with pytest.raises(OptionError):
        create(ended, name=name)
    assert harness.storage.list("savepoints") == before


def test_an_incomplete_savepoint_of_a_job_that_has_ended_is_replaced(ended, harness, tmp_path):
    harness.storage.write("savepoints/one/savepoint.unfinished", b"")
    (tmp_path / "elsewhere/one").mkdir(parents=True)
    (tmp_path / "elsewhere/one/savepoint.unfinished").touch()

    assert verify_savepoint(open_storage(create(ended)["url"])).epoch == 1
    with raises(SAVEPOINT_TAKEN):
        create(ended)
    with raises(SAVEPOINT_TAKEN):  # Another job may be making it.
        create(ended, to=str(tmp_path / "elsewhere"))


def test_a_savepoint_may_lie_anywhere(ended, tmp_path):
    answer = create(ended, to=str(tmp_path / "elsewhere"))

    assert answer["url"] == str(tmp_path / "elsewhere/one")
    [entry] = list_savepoints(open_storage(str(tmp_path / "elsewhere")))
    assert (entry.name, entry.epoch, entry.problem) == ("one", 1, None)
    assert known_savepoints(ended, "job") == []


def test_a_name_that_is_taken_is_refused(ended):
    create(ended)
    with raises(SAVEPOINT_TAKEN):
        create(ended)


def test_an_epoch_whose_output_is_not_visible_is_refused(ended, harness):
    harness.storage.delete("epochs/000000000001.published")

    with raises(EPOCH_UNPUBLISHED) as caught:
        create(ended)

    assert caught.value.facts["epoch"] == 1
    assert harness.storage.list("savepoints") == []


def test_a_job_that_never_sealed_an_epoch_has_nothing_to_save(home):
    with Harness(counts) as harness:
        put_job(home, checkpoint=harness.storage.url, state=JobState.FAILED)
        with raises(CHECKPOINT_MISSING):
            create(home)


def test_a_job_that_somebody_else_runs_on_this_checkpoint_is_left_alone(ended, harness):
    lock = harness.storage.local_path("lock")
    with FileLock(lock, job="job", location="x"), pytest.raises(JobRunningError):
        create(ended)


def test_a_running_job_is_asked_and_goes_on(running, harness):
    answer = ask(running, harness)
    harness.push(["ada"])
    harness.run_epoch()

    assert answer["epoch"] == 2
    assert read_savepoint(open_storage(answer["url"])).created_ms == NOW_MS
    assert sorted(harness.results("out")) == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]


def test_a_running_job_replaces_the_incomplete_savepoint_of_a_crash(running, harness, tmp_path):
    harness.storage.write("savepoints/one/savepoint.unfinished", b"")
    harness.storage.write("savepoints/one/state/left", b"")
    (tmp_path / "elsewhere/one").mkdir(parents=True)
    (tmp_path / "elsewhere/one/savepoint.unfinished").touch()

    storage = open_storage(ask(running, harness)["url"])
    assert verify_savepoint(storage).epoch == 2
    assert not storage.exists("state/left")
    with raises(SAVEPOINT_TAKEN):
        ask(running, harness)
    with raises(SAVEPOINT_TAKEN):  # Another job may be making it.
        ask(running, harness, to=str(tmp_path / "elsewhere"))


def test_a_request_for_the_savepoint_that_is_being_copied_gets_that_one(harness, monkeypatch):
    savepoints = RunningSavepoints(harness.storage, job="job", clock=ManualClock(NOW_MS))
    copying = Event()
    finish = SavepointWriter.finish

    def finish_later(writer):
        assert copying.wait(20)
        return finish(writer)

    monkeypatch.setattr(SavepointWriter, "finish", finish_later)
    answers = [savepoints.ask({"name": "one", "to": None}) for _ in range(2)]
    savepoints.meet(harness.loop)
    assert not any(answer.done() for answer in answers)
    copying.set()
    savepoints.wait()

    assert answers[0].result() == answers[1].result()
    assert verify_savepoint(open_storage(answers[0].result()["url"])).epoch == 2


def test_a_running_job_seals_and_collects_while_its_files_are_copied(running, harness, tmp_path):
    def work():
        harness.push(["cy"])
        harness.run_epoch()

    answer = ask(running, harness, between=work, to=str(tmp_path / "elsewhere"))
    for _ in range(5):
        work()

    storage = open_storage(answer["url"])
    assert verify_savepoint(storage).epoch == answer["epoch"]
    assert len(EpochHistory(harness.storage).epochs()) <= 3


def test_what_goes_wrong_with_a_savepoint_is_told_and_the_job_goes_on(running, harness):
    [path, *_] = harness.storage.list("state")
    data = harness.storage.read(path)
    harness.storage.write(path, data[:-1])

    with raises(COPY_REFUSED) as caught:
        ask(running, harness)

    harness.storage.write(path, data)
    harness.push(["ada"])
    harness.run_epoch()
    assert caught.value.facts["path"] == path
    assert harness.storage.list("savepoints") == []
    assert harness.results("out")[-1] == ("ada", 3)


def test_a_savepoint_whose_epoch_fails_is_taken_behind_the_restart_and_so_are_the_others(harness):
    savepoints = RunningSavepoints(harness.storage, job="job", clock=ManualClock(NOW_MS))
    answers = [savepoints.ask({"name": name, "to": None}) for name in ("one", "two")]
    harness.fail_at("before_seal")

    with pytest.raises(InjectedFault):
        savepoints.meet(harness.loop)

    assert not any(answer.done() for answer in answers)
    assert harness.storage.list("savepoints") == []

    harness.crash()
    savepoints.meet(harness.loop)
    savepoints.wait()
    assert [answer.result()["name"] for answer in answers] == ["one", "two"]


def test_a_job_that_ends_before_it_meets_the_request_is_saved_as_it_ended(running, harness):
    inbox = Inbox(running.folder("job").path)
    inbox.open()

    def end(_facts):
        put_job(running, checkpoint=harness.storage.url, state=JobState.STOPPED)
        raise JobNotRunningError(job="job", kind="savepoint", state="STOPPED")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(create, running)
        while not answer.done():
            inbox.serve({"savepoint": end})

    assert answer.result()["epoch"] == 1


def test_savepoints_are_listed_newest_first_with_those_that_were_never_finished(ended, harness):
    for number, name in enumerate(["old", "new"]):
        create(ended, name=name, clock=ManualClock(NOW_MS + number))
    harness.storage.write("savepoints/dead/savepoint.unfinished", b"")
    harness.storage.write("savepoints/bad/savepoint.json", b"{")

    found = {entry.name: entry for entry in known_savepoints(ended, None)}

    assert list(found)[:2] == ["new", "old"]
    assert (found["dead"].problem, found["old"].problem) == ("it is incomplete", None)
    assert found["bad"].problem
    assert json.loads(json.dumps(asdict(found["old"])))["event_count"] == 3


def test_a_savepoint_becomes_the_last_epoch_of_another_job(ended, tmp_path):
    url = create(ended)["url"]
    target = LocalStorage(str(tmp_path / "jobs/other"))

    assert restore_savepoint(open_origin(url), target, job="other", clock=SystemClock()) == 1
    assert json.loads(target.read("job.json"))["job"] == "other"
    assert open_origin(target.url).manifest == open_origin(url).manifest
    with raises(CHECKPOINT_OCCUPIED):
        restore_savepoint(open_origin(url), target, job="other", clock=SystemClock())


def lease_of(storage):
    """Return the lease of a driver on another machine."""
    process = ProcessIdentity(host="elsewhere", pid=7, started=1, space="other")
    return Lease(
        storage, job="job", clock=SystemClock(), source=system_random(), beat_ms=10, process=process
    )


def test_nothing_is_restored_where_another_machine_is_at_work(ended, tmp_path):
    origin = open_origin(create(ended)["url"])
    target = LocalStorage(str(tmp_path / "jobs/other"))

    with LeaseKeeper(lease_of(target), beat_ms=10, on_lost=None), pytest.raises(LeaseHeldError):
        restore_savepoint(origin, target, job="other", clock=SystemClock())
    assert target.list("state") == []
    assert restore_savepoint(origin, target, job="other", clock=SystemClock()) == 1


def test_a_checkpoint_of_a_job_that_runs_is_no_beginning_for_another(harness, tmp_path):
    origin = open_origin(harness.storage.url)
    target = LocalStorage(str(tmp_path / "other"))
    lock = harness.storage.local_path("lock")
    with FileLock(lock, job="job", location="x"), raises(ORIGIN_RUNNING):
        restore_savepoint(origin, target, job="other", clock=SystemClock())
    lease = lease_of(harness.storage)
    with LeaseKeeper(lease, beat_ms=10, on_lost=None), raises(ORIGIN_RUNNING) as caught:
        restore_savepoint(origin, target, job="other", clock=SystemClock())

    assert caught.value.facts["host"] == "elsewhere"
    assert restore_savepoint(origin, target, job="other", clock=SystemClock()) == 1
    with raises(CHECKPOINT_OCCUPIED):
        restore_savepoint(origin, harness.storage, job="other", clock=SystemClock())
