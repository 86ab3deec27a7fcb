"""What watches over a job: the supervisor of a killed driver, the watchdog of a stopped worker."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import descendants, is_alive
from tests.spark.cli_process import Bicycle, counts_in, end, expected_counts
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # Spark starts twice in each.


@pytest.fixture(scope="module")
def bicycle(tmp_path_factory):
    place = tmp_path_factory.mktemp("supervision")
    bicycle = Bicycle(place / "home", place / "site")
    yield bicycle
    for path in (place / "home/jobs").glob("*/status.json"):
        status = json.loads(path.read_text())
        for pid in (status["supervisor_pid"], status["pid"], status["java_pid"]):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def words(command, folder, name, *more):
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    place = ("--checkpoint-dir", str(folder / "checkpoints"), "--name", name)
    return [command, "--plugin", "wordcount", *settings, *place, *more]


def wait_until(bicycle, job, condition):
    """Wait longer than others do: Spark starts twice in each test."""

    def found():
        status = bicycle.status(job)
        return status if status and condition(status) else None

    return until(found, "a status", patience_s=140)


def python_workers(driver):
    """Return what Spark's Python daemon has forked."""
    found = []
    for pid in descendants(driver):
        with contextlib.suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    daemons = [pid for pid in found if set(descendants(pid)) & set(found)]
    return [pid for pid in found if pid not in daemons]


def test_a_killed_driver_is_started_again_by_its_supervisor_and_nothing_is_counted_twice(
    bicycle, tmp_path
):
    source = tmp_path / "in.txt"
    source.write_text("a b a\n")
    bicycle.answer(*words("submit", tmp_path, "killed", "--follow"))
    first = wait_until(bicycle, "killed", lambda status: status["record_count"] == 1)
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(bicycle, "killed", lambda status: status["state"] == "RESTARTING")
    with source.open("a") as stream:
        stream.write("b c\n")
    second = wait_until(bicycle, "killed", lambda status: status["record_count"] == 2)
    stopped = bicycle.answer("stop", "killed")

    assert second["pid"] != first["pid"]
    assert second["supervisor_pid"] == first["supervisor_pid"]
    assert (second["restart_count"], second["restarts"][0]["code"]) == (1, "BIC-1973")
    assert stopped["state"] == "STOPPED"
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
    assert not is_alive(first["supervisor_pid"], first["supervisor_started"])


def test_an_epoch_with_a_stopped_worker_is_ended_and_run_again(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("x y x\n")
    limits = ("--epoch-stall-timeout-ms", "12s", "--restart-attempts", "1")
    process = bicycle.start(*words("run", tmp_path, "stopped", "--follow", *limits))
    try:
        status = wait_until(bicycle, "stopped", lambda status: status["record_count"] == 1)
        workers = until(lambda: python_workers(status["pid"]), "Python workers")
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        with source.open("a") as stream:
            stream.write("y z\n")
        again = wait_until(bicycle, "stopped", lambda status: status["record_count"] == 2)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        end(process)

    assert process.returncode == 0
    assert [note["code"] for note in again["restarts"]] == ["BIC-1974"]
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
