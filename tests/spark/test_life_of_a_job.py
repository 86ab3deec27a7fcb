"""The whole life of one job, as its owner sees it: each promise about files in turn, on real Spark.

Each of them has tests of its own at every point where it could break; those are extended ones. Here
the job starts as seldom as it must, and state is on disk.
"""

import os
import random
import shutil
import signal
import threading
from pathlib import Path

import pytest

from tests.plugin_zoo.zoo import install
from tests.spark.cli_process import Bicycle, counts_in, expected_counts, python_workers
from tests.spark.impatient import IMPATIENT

# Spark starts four times.
pytestmark = [pytest.mark.spark, pytest.mark.core]

JOB = "life"


class Feeder(threading.Thread):
    """Adds lines to a file until it is left."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._source = random.Random("life")
        self._ended = threading.Event()
        self.line_count = 0

    def __enter__(self) -> "Feeder":
        self._write()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self._write()

    def _write(self) -> None:
        lines = [" ".join(self._source.choices("abcdefghij", k=4)) for _ in range(20)]
        with self._path.open("a") as stream:
            stream.writelines(f"{line}\n" for line in lines)
        self.line_count += len(lines)


@pytest.fixture
def bicycle(tmp_path, spark_cache):
    bicycle = Bicycle(tmp_path / "home", tmp_path / "site", spark_cache)
    install(bicycle.site, IMPATIENT)
    yield bicycle
    bicycle.kill_jobs()


def words(folder, checkpoints):
    """Return what says which job it is; its counts go to the same place each time."""
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    place = ("--checkpoint-dir", str(folder / checkpoints), "--name", JOB)
    state = ("--state-backend", "rocksdb", "--state-dir", str(folder / "local"))
    return ("--plugin", "impatient", *settings, *place, *state, "--follow")


def read_more(bicycle, *, restart_count):
    """Wait until the job has counted more, in the life after so many restarts."""
    before = bicycle.status(JOB).get("event_count", 0)
    return bicycle.wait_until(
        JOB,
        lambda status: (
            status["event_count"] > before
            and status["state"] == "RUNNING"
            and status["restart_count"] == restart_count
        ),
    )


def test_a_job_is_hurt_rescaled_saved_and_moved_and_counts_each_word_once(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    with Feeder(source) as feeder:
        bicycle.answer("submit", *words(tmp_path, "old"), "--parallelism", "2")
        first = read_more(bicycle, restart_count=0)

        for worker in python_workers(first["pid"]):
            os.kill(worker, signal.SIGKILL)
        read_more(bicycle, restart_count=0)
        wider = bicycle.answer("rescale", JOB, "--parallelism", "3")
        read_more(bicycle, restart_count=0)
        os.kill(first["java_pid"], signal.SIGKILL)
        second = read_more(bicycle, restart_count=1)
        os.kill(first["pid"], signal.SIGKILL)
        third = read_more(bicycle, restart_count=2)

        [listed] = bicycle.answer("list", "--state", "running")
        again = bicycle.run("submit", *words(tmp_path, "old"))

        running = bicycle.answer("savepoint", "create", JOB, "--name", "running")
        place = ("--name", "last", "--to", str(tmp_path / "saved"))
        stopped = bicycle.answer("stop", JOB, "--savepoint", *place)
        last = stopped["savepoint"]
        shutil.rmtree(tmp_path / "old")
        elsewhere = ("--from", last["url"], "--parallelism", "2")
        bicycle.answer("submit", *words(tmp_path, "new"), *elsewhere)
        moved = read_more(bicycle, restart_count=0)
    bicycle.wait_until(JOB, lambda status: status["event_count"] == feeder.line_count)
    drained = bicycle.answer("drain", JOB)

    assert (set(wider["old"].values()), set(wider["new"].values())) == ({2}, {3})
    assert (first["pid"], first["java_pid"]) == (second["pid"], first["java_pid"])
    assert second["java_pid"] != first["java_pid"]
    assert third["supervisor_pid"] == first["supervisor_pid"]
    assert third["pid"] != first["pid"]
    assert {found["parallelism"] for found in third["operators"].values()} == {3}
    assert (listed["id"], again.returncode) == (JOB, 5)
    assert (stopped["state"], running["epoch"] < last["epoch"]) == ("SUSPENDED", True)
    assert moved["event_count"] > last["event_count"]
    assert (drained["state"], drained["event_count"]) == ("FINISHED", feeder.line_count)
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
    assert list((tmp_path / "local").glob("*/slot-*/rocksdb-*/CURRENT"))
