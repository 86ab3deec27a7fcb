"""``bicycle savepoint``, ``stop`` and ``checkpoints`` on jobs that were made in process."""

import subprocess

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.recovery.savepoints import SAVEPOINT_FILES
from bicycle_runtime.testing import Harness
from tests.unit.cli.state_jobs import every_state

NAMES = ["ada", "bob"]


@pytest.fixture
def harness():
    with Harness(every_state, parallelism=2) as harness:
        harness.push([("tea", 3)], source="prices")
        harness.push([(name, number) for name in NAMES for number in (1, 2)], source="records")
        harness.run_epoch()
        yield harness


@pytest.fixture
def site(shell, harness):
    shell.put_job("shop", checkpoint=harness.storage.url, state=JobState.STOPPED)
    return shell


@pytest.fixture
def url(site):
    return site.answer("savepoint", "create", "shop", "--name", "one")["url"]


def test_a_savepoint_is_made_and_its_place_is_printed(site, harness, tmp_path):
    done = site.run("savepoint", "create", "shop", "--name", "one", "--to", str(tmp_path / "to"))

    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("savepoint of epoch 1, ")
    assert done.stdout.rstrip().endswith(str(tmp_path / "to/one"))


def test_savepoints_are_listed_by_job_by_place_and_all_together(site, url, harness):
    [entry] = site.answer("savepoint", "list", "shop")
    by_place = site.answer("savepoint", "list", "--checkpoint-dir", harness.storage.url)
    text = site.run("savepoint", "list").stdout

    assert (entry["url"], entry["name"], entry["epoch"], entry["event_count"]) == (url, "one", 1, 5)
    assert by_place == [entry] == site.answer("savepoint", "list")
    assert text.split()[:3] == ["SAVEPOINT", "JOB", "PLUGIN"]
    assert f"one: {url}" in text


def test_a_savepoint_that_cannot_be_read_is_listed_with_the_reason_below_it(site, url, harness):
    harness.storage.write(f"savepoints/one/{SAVEPOINT_FILES[0]}", b"{")

    [entry] = site.answer("savepoint", "list", "shop")
    heading, row, place, problem = site.run("savepoint", "list").stdout.splitlines()
    assert heading.split()[:2] == ["SAVEPOINT", "JOB"]
    assert (row, place) == ("one", f"one: {url}")
    assert problem == f"  problem: {entry['problem']}"


def test_a_place_without_savepoints_is_said_to_have_none(shell, tmp_path):
    assert shell.run("savepoint", "list").stdout == "no savepoints\n"
    assert shell.answer("savepoint", "list", "--checkpoint-dir", str(tmp_path)) == []
    assert shell.run("savepoint", "list", "x", "--checkpoint-dir", str(tmp_path)).exit_code == 2


def test_a_savepoint_can_be_looked_into(site, url, harness):
    answer = site.answer("savepoint", "inspect", url, "--verify")
    text = site.run("savepoint", "inspect", url).stdout

    assert (answer["name"], answer["epoch"], answer["is_verified"]) == ("one", 1, True)
    assert len(answer["files"]) == answer["file_count"]
    assert answer["checkpoint"]["offsets"]["records"] == {"script": 4}
    assert set(answer["checkpoint"]["state_bytes"]) == set(harness.loop.manifest.states)
    assert f"savepoint one in {url}" in text
    assert "counts: parallelism 2, state" in text
    assert "records: script: 4" in text


def test_damage_is_found_when_a_savepoint_is_verified(site, url, harness):
    path = next(path for path in harness.storage.list("savepoints/one/state"))
    data = harness.storage.read(path)
    harness.storage.write(path, data[:-1] + bytes([data[-1] ^ 1]))

    assert site.answer("savepoint", "inspect", url)["is_verified"] is False
    exit_code, error = site.error("savepoint", "inspect", url, "--verify")
    assert (exit_code, error["code"]) == (5, "BIC-1524")


def test_all_that_looks_into_a_checkpoint_looks_into_a_savepoint(site, url, tmp_path):
    def same(*words):
        of_job = site.answer(*words, "--job", "shop")
        of_savepoint = site.answer(*words, "--checkpoint-dir", url)
        return {**of_job, "url": ""} == {**of_savepoint, "url": ""}

    assert same("state", "ls")
    assert same("state", "get", "--operator", "counts")
    [epoch] = site.answer("checkpoints", "--checkpoint-dir", url, "--verify")["epochs"]
    assert (epoch["epoch"], epoch["is_published"], epoch["damage"]) == (1, True, None)
    target = str(tmp_path / "rows.jsonl")
    site.answer("state", "export", "--to", target, "--checkpoint-dir", url)


def test_the_checkpoints_of_a_job_are_listed_with_its_savepoints(site, url):
    answer = site.answer("checkpoints", "--job", "shop")

    assert [entry["url"] for entry in answer["savepoints"]] == [url]
    assert "savepoint one: epoch 1, " in site.run("checkpoints", "--job", "shop").stdout


def test_a_savepoint_is_deleted_and_nothing_else_is(site, url, harness):
    exit_code, error = site.error("savepoint", "delete", harness.storage.url)
    assert (exit_code, error["code"]) == (5, "BIC-1530")

    assert site.answer("savepoint", "delete", url) == {"url": url}
    assert site.answer("savepoint", "list") == []
    assert harness.storage.list("epochs")


def test_a_savepoint_is_put_into_an_empty_checkpoint_directory_once(site, url, tmp_path):
    words = ("savepoint", "restore", url, "--checkpoint-dir", str(tmp_path), "--name", "other")
    answer = site.answer(*words)

    assert (answer["epoch"], answer["url"]) == (1, str(tmp_path / "other"))
    assert site.answer("state", "ls", "--checkpoint-dir", answer["url"])["epoch"] == 1
    exit_code, error = site.error(*words)
    assert (exit_code, error["code"]) == (5, "BIC-1528")


def test_stopping_takes_a_savepoint_behind_the_end(site, harness):
    answer = site.answer("stop", "shop", "--savepoint", "--name", "last")

    assert (answer["state"], answer["savepoint"]["name"]) == ("SUSPENDED", "last")
    assert site.answer("status", "shop")["state"] == "SUSPENDED"
    assert "savepoint of epoch 1" in site.run("stop", "shop", "--savepoint").stdout


def test_a_name_without_a_savepoint_is_refused(site):
    assert site.error("stop", "shop", "--name", "last")[1]["code"] == "BIC-1100"
    assert site.error("savepoint", "create", "shop", "--timeout", "soon")[1]["code"] == "BIC-1101"


def test_draining_leaves_a_job_alone_that_has_ended(site):
    assert site.answer("stop", "shop", "--drain")["state"] == "STOPPED"


def test_a_stop_with_a_savepoint_that_is_repeated_returns_the_savepoint_that_it_took(site):
    words = ("stop", "shop", "--savepoint", "--name", "last")
    first = site.answer(*words)["savepoint"]

    assert site.answer(*words)["savepoint"] == first


@pytest.mark.parametrize("to", [False, True])
def test_a_stop_refuses_a_name_that_is_taken_before_the_job_ends(site, harness, tmp_path, to):
    place = ("--name", "one", *(("--to", str(tmp_path / "to")) if to else ()))
    site.answer("savepoint", "create", "shop", *place)
    with subprocess.Popen(["sleep", "600"]) as process:
        driver = {"pid": process.pid, "pid_started": start_ticks(process.pid)}
        site.put_job("shop", checkpoint=harness.storage.url, state=JobState.RUNNING, **driver)
        refused = site.error("stop", "shop", "--savepoint", *place)[1]["code"]
        is_running = process.poll() is None
        process.kill()

    assert (refused, is_running) == ("BIC-1523", True)


def test_a_savepoint_of_the_name_of_another_epoch_is_not_taken_for_that_of_the_stop(
    site, harness, url
):
    harness.push([("ada", 9)], source="records")
    harness.run_epoch()

    assert site.error("stop", "shop", "--savepoint", "--name", "one")[1]["code"] == "BIC-1523"
