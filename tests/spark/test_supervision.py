"""What watches over a job: supervisor and watchdog, and what is left when they are killed, too."""

import os
import signal

import pytest

from bicycle_runtime.base.processes import is_alive, is_frozen
from tests.plugin_zoo.zoo import install, whole
from tests.spark.cli_process import Bicycle, counts_in, end, expected_counts, python_workers
from tests.spark.impatient import IMPATIENT
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spark

# Its sink hangs in the driver's main thread, once, and lets nothing call it back.
STUBBORN = """
import threading
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.connectors.files.sink import JsonlFileSink
from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_sdk import RestartStrategy, bicycle_plugin
from bicycle_sdk.connectors import SinkDescriptor


class StubbornSink(JsonlFileSink):
    def prepare(self, epoch, staged, *, is_last):
        mark = Path(self._options.path) / ".has-hung"
        is_first = not mark.exists()
        mark.touch()
        while is_first:
            try:
                threading.Event().wait()
            except BaseException as error:
                mark.write_text(type(error).__name__)
        return super().prepare(epoch, staged, is_last=is_last)


@connector_hook
def bicycle_sinks():
    return {"stubborn": "stubborn:StubbornSink"}


@dataclass(frozen=True, kw_only=True)
class Params:
    input: str
    output: str


@bicycle_plugin(name="stubborn", version="1.0")
def job(env, params: Params):
    env.set_restart_strategy(RestartStrategy.fixed_delay(max_attempts=9, delay_ms=100))
    sink = SinkDescriptor(connector_type="stubborn", properties={"path": params.output})
    env.read_text(params.input).uid("in").sink_to(sink).uid("out")
"""


@pytest.fixture(scope="module")
def bicycle(tmp_path_factory, spark_cache):
    place = tmp_path_factory.mktemp("supervision")
    bicycle = Bicycle(place / "home", place / "site", spark_cache)
    install(bicycle.site, IMPATIENT)
    install(bicycle.site, whole("stubborn", STUBBORN))
    entries = bicycle.site / "stubborn-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"{entries.read_text()}[bicycle.extensions]\nstubborn = stubborn\n")
    yield bicycle
    bicycle.kill_jobs()


def words(command, folder, name, *more, plugin="impatient"):
    settings = ("--set", f"input={folder / 'in.txt'}", "--set", f"output={folder / 'out'}")
    place = ("--checkpoint-dir", str(folder / "checkpoints"), "--name", name)
    return [command, "--plugin", plugin, *settings, *place, *more]


@pytest.fixture(scope="module", autouse=True)
def stubborn(bicycle, tmp_path_factory):
    """A job that hangs for a minute before it is ended; other tests run meanwhile."""
    folder = tmp_path_factory.mktemp("stubborn")
    (folder / "in.txt").write_text("one\ntwo\n")
    limit = ("--epoch-stall-timeout-ms", "30s")
    bicycle.answer(*words("submit", folder, "stubborn", *limit, plugin="stubborn"))
    return folder


def test_a_killed_driver_is_started_again_by_its_supervisor_and_nothing_is_counted_twice(
    bicycle, tmp_path
):
    source = tmp_path / "in.txt"
    source.write_text("a b a\n")
    bicycle.answer(*words("submit", tmp_path, "killed", "--follow"))
    first = bicycle.wait_until("killed", lambda status: status["record_count"] == 1)
    os.kill(first["pid"], signal.SIGKILL)
    bicycle.wait_until("killed", lambda status: status["restart_count"] == 1)
    with source.open("a") as stream:
        stream.write("b c\n")
    second = bicycle.wait_until("killed", lambda status: status["record_count"] == 2)
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
    limit = ("--epoch-stall-timeout-ms", "12s")
    process = bicycle.start(*words("run", tmp_path, "stopped", "--follow", *limit))
    try:
        status = bicycle.wait_until("stopped", lambda status: status["record_count"] == 1)
        workers = until(lambda: python_workers(status["pid"]), "Python workers")
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        with source.open("a") as stream:
            stream.write("y z\n")
        # Workers are woken for their stacks: they may finish the epoch just before the restart.
        again = bicycle.wait_until(
            "stopped",
            lambda status: (
                status["record_count"] == 2 and status["restarts"] and status["state"] == "RUNNING"
            ),
        )
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)

    assert process.returncode == 0, stderr
    # On a busy machine, workers may take as long to start: that is a stall, too.
    assert {note["code"] for note in again["restarts"]} == {"BIC-1974"}
    assert again["restarts"][-1]["epoch"] >= 1
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())


def listed(bicycle, job):
    """Return what `bicycle list` says of a job."""
    [found] = [status for status in bicycle.answer("list") if status["id"] == job]
    return found


def kill_and_wait(pid, started):
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid, started), f"the end of {pid}")


def freeze(pid):
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_frozen(pid), f"{pid} to stop")


def test_without_its_supervisor_a_job_is_found_told_about_and_stopped(bicycle, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a b a\n")
    bicycle.answer(*words("submit", tmp_path, "alone", "--follow"))
    first = bicycle.wait_until("alone", lambda status: status["record_count"] == 1)
    kill_and_wait(first["supervisor_pid"], first["supervisor_started"])

    freeze(first["pid"])
    found = listed(bicycle, "alone")
    assert (found["state"], found["is_frozen"], found["pid"]) == ("RUNNING", True, first["pid"])
    assert bicycle.run(*words("submit", tmp_path, "alone")).returncode == 5
    kill_and_wait(first["pid"], first["pid_started"])
    found = listed(bicycle, "alone")
    assert (found["state"], found["error"]["code"]) == ("FAILED", "BIC-1906")
    until(lambda: not is_alive(first["java_pid"], 0), "the end of Java")

    with source.open("a") as stream:
        stream.write("b c\n")
    bicycle.answer(*words("submit", tmp_path, "alone", "--follow"))
    second = bicycle.wait_until("alone", lambda status: status["event_count"] == 2)
    kill_and_wait(second["supervisor_pid"], second["supervisor_started"])
    freeze(second["pid"])
    stopped = bicycle.answer("stop", "alone")
    assert (stopped["state"], stopped["is_frozen"]) == ("STOPPED", False)
    assert counts_in(tmp_path / "out") == expected_counts(source.read_text())
    assert not is_alive(second["pid"], second["pid_started"])


def test_a_driver_that_nothing_calls_back_is_ended_and_its_supervisor_starts_another(
    bicycle, stubborn
):
    status = bicycle.wait_until("stubborn", lambda status: status["state"] == "FINISHED")

    assert (stubborn / "out" / ".has-hung").read_text() == "CalledBack"
    # On a busy machine, workers may take as long to start: that is a stall, too.
    assert {(note["code"], note["epoch"]) for note in status["restarts"]} == {("BIC-1974", 0)}
    parts = sorted((stubborn / "out").glob("part-*"))
    assert [line for part in parts for line in part.read_text().split()] == ['"one"', '"two"']
