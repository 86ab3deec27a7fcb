"""Savepoints by the command, on real Spark: of a job that runs, at its end, and as a beginning."""

import shutil

import pytest

from tests.spark.cli_process import Bicycle, counts_in, expected_counts

pytestmark = pytest.mark.spark


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    yield bicycle
    bicycle.kill_jobs()


def words(folder, name, place, *more):
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    where = ("--checkpoint-dir", str(folder / place), "--name", name)
    return ["submit", "--plugin", "wordcount", *settings, *where, "--follow", *more]


def append(path, text, bicycle, name):
    """Let a job read more lines."""
    before = bicycle.status(name)["event_count"]
    with path.open("a") as stream:
        stream.write(text)
    bicycle.wait_until(name, lambda status: status["event_count"] > before)


def test_a_job_is_saved_while_it_runs_and_goes_on_elsewhere_from_its_end(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a b a\n")
    bicycle.answer(*words(tmp_path, "first", "old"))
    bicycle.wait_until("first", lambda status: status["event_count"] == 1)

    running = bicycle.answer("savepoint", "create", "first", "--name", "running")
    append(source, "b c\n", bicycle, "first")
    stopped = bicycle.answer(
        "stop", "first", "--savepoint", "--name", "last", "--to", str(tmp_path / "saved")
    )
    shutil.rmtree(tmp_path / "old")

    last = stopped["savepoint"]
    assert (stopped["state"], last["url"]) == ("SUSPENDED", str(tmp_path / "saved/last"))
    assert running["epoch"] < last["epoch"]
    assert last["event_count"] == 2
    found = bicycle.answer("savepoint", "inspect", last["url"], "--verify")
    assert (found["plugin"], bool(found["graph"]["vertices"])) == ("wordcount", True)

    bicycle.answer(*words(tmp_path, "second", "new", "--from", last["url"], "--parallelism", "2"))
    begun = bicycle.wait_until("second", lambda status: status["state"] == "RUNNING")
    append(source, "c a\n", bicycle, "second")
    drained = bicycle.answer("stop", "second", "--drain")

    assert begun["event_count"] == 2
    assert (drained["state"], drained["event_count"]) == ("FINISHED", 3)
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
