import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.base.remote_storage import FsspecStorage
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.jobs.home import Home, locate_job
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import OptionError
from bicycle_streams.access.errors import HOME_UNUSABLE
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job, request_of


def place(home, **options):
    request = JobOptions(**{"plugin": "wordcount", **options})
    return locate_job(request, home, clock=ManualClock(), source=random.Random(1))


def test_with_a_checkpoint_directory_the_job_is_named_after_its_plugin(home, tmp_path):
    found = place(home, checkpoint_dir=str(tmp_path / "cp"))

    assert (found.job, found.folder.id) == ("wordcount", "wordcount")
    assert found.storage.url == str(tmp_path / "cp/wordcount")
    assert found.lock_path == tmp_path / "cp/wordcount/lock"


def test_without_one_each_run_is_a_new_job_below_the_home(home):
    first = place(home)
    first.folder.write_request(request_of())
    second = place(home)

    assert first.job.startswith("wordcount-19700101-")
    assert second.job != first.job
    assert first.storage.url == str(home.path / "checkpoints" / first.job)


def in_this_directory(request):
    """Return a request as it is stored: with the working directory of the command."""
    return replace(request, directory=str(Path.cwd()))


def test_a_request_is_replaced_as_one_step(home):
    folder = place(home).folder
    folder.write_request(request_of())
    with folder.request_path.open() as before:
        folder.write_request(request_of(name="other"))

        assert JobRequest.from_json(json.load(before)) == in_this_directory(request_of())
    assert folder.read_request() == in_this_directory(request_of(name="other"))
    assert list(folder.path.iterdir()) == [folder.request_path]


def test_a_name_without_a_checkpoint_directory_finds_the_job_below_the_home_again(home):
    assert place(home, name="mine").storage.url == str(home.path / "checkpoints/mine")


def test_a_url_stays_a_url_and_has_no_lock_file(home):
    found = place(home, checkpoint_dir="s3://bucket/checkpoints/")

    assert isinstance(found.storage, FsspecStorage)
    assert found.storage.url == "s3://bucket/checkpoints/wordcount"
    assert found.lock_path is None


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-x", "a" * 64, "ä"])
def test_a_name_that_cannot_be_a_folder_is_refused(home, name):
    with pytest.raises(OptionError) as caught:
        place(home, name=name, checkpoint_dir="cp")
    assert caught.value.facts["name"] == "name"


def test_a_plugin_name_with_foreign_letters_becomes_a_job_name(home):
    assert place(home, plugin="Klicks/Ü", checkpoint_dir="cp").job == "klicks"


def test_two_running_jobs_of_one_name_and_two_checkpoint_directories_have_two_folders(home):
    pid = os.getpid()
    put_job(home, "wordcount", checkpoint="/elsewhere", pid=pid, pid_started=start_ticks(pid))

    found = place(home, checkpoint_dir="cp")

    assert found.job == "wordcount"
    assert found.folder.id != "wordcount"
    assert found.folder.id == place(home, checkpoint_dir="cp").folder.id


def test_a_job_that_has_ended_leaves_its_folder_to_the_next_of_its_name(home):
    put_job(home, "wordcount", checkpoint="/elsewhere", pid=os.getpid(), pid_started=1)

    assert place(home, checkpoint_dir="cp").folder.id == "wordcount"


@pytest.mark.parametrize("use", ["paused", "restarting", "died while it paused"])
def test_a_job_without_a_driver_that_has_not_ended_keeps_its_folder(home, use):
    pid = os.getpid() if use == "restarting" else 0
    folder = put_job(
        home, "wordcount", checkpoint="/elsewhere", supervisor_pid=pid,
        supervisor_started=start_ticks(os.getpid()),
        state=JobState.PAUSED if use == "paused" else JobState.RUNNING,
    )  # fmt: skip
    if use == "died while it paused":
        folder.pause(folder.status())

    assert place(home, checkpoint_dir="cp").folder.id != "wordcount"


def test_a_job_keeps_its_other_folder_when_the_job_of_the_first_has_ended(home):
    put_job(home, "wordcount", checkpoint="/elsewhere", is_ours=True)
    other = place(home, checkpoint_dir="cp")
    assert other.folder.id != "wordcount"
    put_job(home, other.folder.id, checkpoint=other.storage.url, state=JobState.STOPPED)
    put_job(home, "wordcount", checkpoint="/elsewhere", state=JobState.STOPPED)

    assert place(home, checkpoint_dir="cp").folder == other.folder
    assert place(home, checkpoint_dir="third").folder.id == "wordcount"


def test_an_unknown_job_is_an_error_with_the_closest_name(home):
    put_job(home, "orders")

    with raises(JOB_NOT_FOUND) as caught:
        home.find("order")
    assert caught.value.facts["known"] == ["orders"]
    assert "'orders'" in caught.value.facts["suggestion"]


def test_a_home_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")

    with raises(HOME_UNUSABLE):
        Home(tmp_path / "file").prepare()


def test_a_request_is_read_back_from_its_folder(home):
    request = request_of({"input": "x"}, parallelism=3)
    folder = home.folder("a")
    folder.write_request(request)

    assert folder.read_request() == in_this_directory(request)


def test_paths_of_a_request_are_kept_absolute_and_urls_as_they_are(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = home.folder("a")
    given = {
        "plugin_env": "envs/job", "checkpoint_dir": "cp", "from_": "../old", "savepoint_key": "key"
    }  # fmt: skip
    folder.write_request(request_of(**given))
    monkeypatch.chdir("/")

    kept = folder.read_request().options
    assert kept.plugin_env == str(tmp_path / "envs/job")
    assert kept.checkpoint_dir == str(tmp_path / "cp")
    assert kept.from_ == str(tmp_path / "../old")
    assert kept.savepoint_key == str(tmp_path / "key")
    folder.write_request(request_of(checkpoint_dir="s3://bucket/cp"))
    assert folder.read_request().options.checkpoint_dir == "s3://bucket/cp"
    assert folder.read_request().options.plugin_env is None


def test_dead_letters_lie_beside_local_checkpoints_and_else_at_home(home, tmp_path):
    local = place(home, checkpoint_dir=str(tmp_path / "cp"))
    remote = place(home, checkpoint_dir="s3://bucket/cp")

    assert local.dead_letters_dir == str(tmp_path / "cp/wordcount/dead_letters")
    assert remote.dead_letters_dir == str(home.path / "jobs/wordcount/dead_letters")


def test_the_storage_of_a_job_is_as_patient_as_it_is_asked_to_be(home):
    found = place(home, checkpoint_dir="s3://bucket/cp", storage_timeout_ms=5_000)

    assert found.storage.patience_s == 5
