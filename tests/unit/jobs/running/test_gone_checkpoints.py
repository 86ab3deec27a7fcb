"""Checkpoint directories that are unmounted, moved or emptied, and such without identity file."""

import dataclasses
import random
from pathlib import Path

import pytest

from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.jobs.control.submitting import submit
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.spark_starts import spark_starts
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_runtime.recovery.errors import CHECKPOINT_GONE, CHECKPOINT_UNIDENTIFIED
from bicycle_sdk.clock import SystemClock
from tests.plugin_zoo.zoo import install
from tests.raising import raises
from tests.unit.jobs.job_samples import request_of
from tests.unit.jobs.running.light_jobs import LightJob
from tests.unit.jobs.running.test_driver import COPYING
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job that follows a file of two lines."""
    install(tmp_path / "site", COPYING)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "in.txt").write_text("a\nb\n")
    params = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out")}
    return LightJob(tmp_path, "copying", params, {}, {"lease_beat_ms": 100})


def ran(job):
    """Run the job until its first epoch is sealed, and stop it."""
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    job.end(running)
    job.stop = StopRequest()


def folders(path: Path) -> list[str]:
    return sorted(found.name for found in path.iterdir())


def test_a_running_job_whose_directory_is_moved_away_says_so_and_writes_no_new_one(job, tmp_path):
    mount, away = tmp_path / "checkpoints", tmp_path / "away"
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    (mount / "job").rename(away)
    with raises(CHECKPOINT_GONE) as caught:
        running.result(PATIENCE_S)

    assert caught.value.facts["url"] == str(mount / "job")
    assert "bicycle resume job" in caught.value.to_json()["fix"]
    assert (job.status.state, job.status.error["code"]) == (JobState.FAILED, "BIC-1542")
    assert folders(mount) == []

    # With the directory back the same job goes on behind its first epoch.
    away.rename(mount / "job")
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    job.stop = StopRequest()
    running = job.start()
    job.wait_until(lambda status: status.event_count == 3, "the third line")
    assert job.end(running).record_count == 1


def test_a_mounted_directory_that_is_empty_all_at_once_is_gone_too(job, tmp_path):
    running = job.start()
    job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    (tmp_path / "checkpoints/job").rename(tmp_path / "away")
    (tmp_path / "checkpoints/job").mkdir()
    with raises(CHECKPOINT_GONE):
        running.result(PATIENCE_S)

    assert folders(tmp_path / "checkpoints/job") == []


def test_a_job_with_epochs_does_not_begin_again_without_its_directory(job, tmp_path):
    ran(job)
    before = job.status
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    for start in (
        job.run,
        lambda: submit(
            request_of(job.params, plugin="copying", name="job",
                       checkpoint_dir=str(tmp_path / "checkpoints")),
            job.home, python="never started",
        ),
    ):  # fmt: skip
        with raises(CHECKPOINT_GONE):
            start()

    assert not (tmp_path / "checkpoints").exists()
    assert job.status == before


def test_an_empty_directory_made_by_hand_lets_a_job_begin_empty(job, tmp_path):
    ran(job)
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    (tmp_path / "checkpoints/job").mkdir(parents=True)
    running = job.start()
    status = job.wait_until(lambda status: status.epoch == 1, "the first epoch")
    job.end(running)

    assert status.event_count == 2


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_driver_in_the_place_of_a_dead_one_does_not_begin_empty(job, tmp_path, is_empty):
    ran(job)
    (tmp_path / "checkpoints/job").rename(tmp_path / "away")
    if is_empty:
        (tmp_path / "checkpoints/job").mkdir()
    request_file = job.home.folder("job").request_path.stat().st_ino
    services = DoorServices(
        clock=SystemClock(), source=random.Random(1), console=print, announce=print,
        listener=lambda _status: None, stop=StopRequest(), is_detached=True,
        former=as_left_by_a_dead_driver(job.status),
    )  # fmt: skip
    with raises(CHECKPOINT_GONE):
        run_job(
            job.home.folder("job").read_request(), job.home, services,
            new_executor=spark_starts(services),
        )  # fmt: skip

    assert job.status.state is JobState.FAILED
    assert (tmp_path / "checkpoints/job").exists() == is_empty
    # The disk of the home may be full.
    assert job.home.folder("job").request_path.stat().st_ino == request_file


def as_left_by_a_dead_driver(status):
    status.state = JobState.RUNNING
    return status


@pytest.mark.parametrize(("content", "problem"), [(None, "missing"), (b"{", "damaged")])
def test_epochs_without_their_identity_file_are_refused_and_left_alone(
    job, tmp_path, content, problem
):
    ran(job)
    identity = tmp_path / "checkpoints/job/job.json"
    kept = identity.read_bytes()
    if content is None:
        identity.unlink()
    else:
        identity.write_bytes(content)
    with raises(CHECKPOINT_UNIDENTIFIED) as caught:
        job.run()

    assert caught.value.facts["problem"] == problem
    assert identity.exists() == (content is not None)
    identity.write_bytes(kept)
    running = job.start()
    job.wait_until(lambda status: status.state is JobState.RUNNING, "the job")
    assert job.end(running).state == "STOPPED"


def test_epochs_without_an_identity_file_can_begin_another_job(job, tmp_path):
    ran(job)
    (tmp_path / "checkpoints/job/job.json").unlink()
    other = dataclasses.replace(
        job, options={"name": "other", "from_": str(tmp_path / "checkpoints/job"), "trust": True}
    )
    other.stop = StopRequest()
    running = other.start()

    def is_running():
        status = other.home.folder("other").status()
        return status is not None and status.has_begun

    until(is_running, "the other job")
    summary = other.end(running)

    assert other.home.folder("other").status().event_count == 2
    assert summary.record_count == 0


def test_nothing_is_written_without_the_required_folder(tmp_path):
    storage = LocalStorage(str(tmp_path / "root"), required_folder=str(tmp_path / "root/lease"))
    for write in (
        lambda: storage.write("a", b"1"),
        lambda: storage.create("b/c", b"1"),
        lambda: storage.open_write("d").__enter__().close(),
    ):
        with pytest.raises(StorageError, match="unmounted, moved or deleted"):
            write()
    with pytest.raises(OSError, match="unmounted"):
        storage.path_to_write("e/f")
    assert not (tmp_path / "root").exists()

    storage.make_required_folder()
    storage.write("a", b"1")
    assert storage.read("a") == b"1"
