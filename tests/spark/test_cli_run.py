"""``bicycle run`` as a process: to the end, through a kill, a signal, a function that fails."""

import contextlib
import json
import signal
import socket
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import wait_for_end
from tests.plugin_zoo.zoo import install, whole
from tests.spark.cli_process import (
    PATIENCE_S,
    Bicycle,
    counts_in,
    end,
    expected_counts,
    java_children,
)
from tests.waiting import until

pytestmark = pytest.mark.spark

STARTING = "starting Spark and extracting the plugin"
TEXT = "To be or not to be\nthat is the question\nto be is to do\n"
FAILING = whole(
    "failing",
    """
    from bicycle_sdk import bicycle_plugin


    def parse(line: str) -> int:
        return int(line)


    @bicycle_plugin(name="failing", version="3.1.4")
    def job(env, params: "Params") -> None:
        numbers = env.read_text(params.input).uid("lines").map(parse).uid("parse")
        numbers.print()


    from dataclasses import dataclass


    @dataclass
    class Params:
        input: str
    """,
)
SLOW = whole(
    "slow",
    """
    import time
    from dataclasses import dataclass
    from pathlib import Path

    from bicycle_sdk import bicycle_plugin


    @dataclass
    class Params:
        mark: str


    def wait(mark: str) -> str:
        Path(mark).touch()
        time.sleep(300)
        return mark


    @bicycle_plugin(name="slow", version="1")
    def job(env, params: Params) -> None:
        env.from_collection([params.mark]).uid("one").map(wait).uid("wait").print().uid("out")
    """,
)


@pytest.fixture(scope="module")
def bicycle(tmp_path_factory, spark_cache):
    place = tmp_path_factory.mktemp("cli-run")
    install(place / "site", FAILING)
    install(place / "site", SLOW)
    return Bicycle(place / "home", place / "site", spark_cache)


class Words:
    """One word count with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.input = folder / "in.txt"
        self.output = folder / "out"
        self.checkpoints = folder / "checkpoints"
        self.input.write_text(TEXT)

    def words(self, name: str, *more: str) -> list[str]:
        settings = ("--set", f"input={self.input}", "--set", f"output={self.output}")
        place = ("--checkpoint-dir", str(self.checkpoints), "--name", name)
        return ["run", "--plugin", "wordcount", *settings, *place, *more]

    def assert_exact(self) -> None:
        assert counts_in(self.output) == expected_counts(self.input.read_text())


@pytest.fixture
def count(tmp_path):
    return Words(tmp_path)


def test_bounded_input_ends_with_exit_code_0_and_a_second_run_reads_nothing(bicycle, count):
    first = bicycle.answer(*count.words("twice", "--parallelism", "2"))

    count.assert_exact()
    assert (first["state"], first["record_count"]) == ("FINISHED", 3)
    assert first["outputs"][0]["record_count"] == len(TEXT.split())

    second = bicycle.run(*count.words("twice"))

    assert second.returncode == 0, second.stderr
    assert "no new input" in second.stdout
    assert bicycle.status("twice")["event_count"] == 3
    count.assert_exact()


@pytest.mark.core
def test_the_same_command_continues_after_the_driver_was_killed(bicycle, count):
    killed = bicycle.run(*count.words("killed"), BICYCLE_FAULTS="after_seal@1=kill")
    lost = bicycle.answer("status", "killed")
    again = bicycle.answer(*count.words("killed", "--parallelism", "3"))

    assert killed.returncode == -signal.SIGKILL
    assert (lost["state"], lost["error"]["code"]) == ("FAILED", "BIC-1906")
    assert again["state"] == "FINISHED"
    count.assert_exact()


def test_sigterm_publishes_and_ends_with_0_and_the_next_start_reads_nothing_again(bicycle, count):
    process = bicycle.start(*count.words("stopped", "--follow"))
    try:
        bicycle.wait_until("stopped", lambda status: status["event_count"] == 3)
        second = bicycle.run(*count.words("stopped"), "--json")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)

    assert process.returncode == 0, stderr  # One that takes too long ends with 1.
    assert bicycle.status("stopped")["state"] == "STOPPED"
    count.assert_exact()
    assert second.returncode == 5
    assert json.loads(second.stdout)["code"] == "BIC-1901"

    again = bicycle.answer(*count.words("stopped"))

    assert again["record_count"] == 0
    count.assert_exact()


def test_a_stop_while_spark_starts_ends_at_once_and_nothing_has_happened(bicycle, count):
    process = bicycle.start(*count.words("early"))
    try:
        bicycle.wait_until("early", lambda status: (status["phase"] or {}).get("name") == STARTING)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)

    assert process.returncode == 0, stderr
    assert bicycle.status("early")["state"] == "STOPPED"
    assert not list(count.checkpoints.glob("*/epochs/*"))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def test_the_word_count_takes_lines_and_sends_counts_over_sockets(bicycle, tmp_path):
    port, sink_port = free_ports(2)
    ports = ("--set", f"port={port}", "--set", f"sink_port={sink_port}")
    words = ("run", "--plugin", "wordcount", "--set", "source=socket", *ports)
    process = bicycle.start(*words, "--checkpoint-dir", str(tmp_path), "--name", "sockets")
    try:
        bicycle.wait_until("sockets", lambda status: status["state"] == "RUNNING")
        with (
            socket.create_connection(("127.0.0.1", sink_port), timeout=PATIENCE_S) as reading,
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as writing,
            reading.makefile("r") as lines,
        ):
            writing.sendall(b"To be or not\nto be\n")
            found = [next(lines).strip() for _ in range(6)]
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)

    assert sorted(found) == ["be:1", "be:2", "not:1", "or:1", "to:1", "to:2"]
    assert process.returncode == 0, stderr
    assert f"Input: nc 127.0.0.1 {port}" in stderr
    assert f"Output: nc 127.0.0.1 {sink_port}" in stderr
    assert "dropped" not in stdout


def test_a_wrong_parameter_is_an_error_of_the_run_and_of_its_status(bicycle, count):
    failed = bicycle.run(*count.words("mistaken"), "--set", "sorce=file", "--json")

    assert failed.returncode == 4
    assert json.loads(failed.stdout)["code"] == "BIC-1003"
    assert bicycle.answer("status", "mistaken")["error"]["code"] == "BIC-1003"
    assert java_children(bicycle.status("mistaken")["pid"]) == []


@pytest.mark.core
def test_an_error_of_a_function_names_all_that_matters_in_its_first_lines(bicycle, tmp_path):
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("1\n2\nthree\n")
    words = ("run", "--plugin", "failing", "--set", f"input={numbers}")
    place = ("--checkpoint-dir", str(tmp_path / "checkpoints"))

    failed = bicycle.run(*words, *place, "--restart-attempts", "0")

    assert failed.returncode == 1, failed.stderr
    lines = failed.stderr.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("error: BIC-1401"))
    head = "\n".join(lines[start : start + 15])
    assert "ValueError" in head
    assert f"{bicycle.site}/failing.py:{FAILING.line_of('return int(line)')}" in head
    assert "'parse'" in head
    assert "failing 3.1.4" in head
    assert f"{numbers} line 3" in head
    assert "key none" in head
    assert "bicycle_runtime/" not in head
    assert failed.stderr.count("BIC-1401") == 1
    assert bicycle.status("failing")["error"]["code"] == "BIC-1401"


@pytest.mark.parametrize(("how", "stop_timeout"), [("abort", "10s"), ("second signal", "1h")])
def test_an_epoch_that_takes_too_long_does_not_keep_a_stopped_job(
    bicycle, tmp_path, how, stop_timeout
):
    name, mark = f"slow-{how[:5]}", tmp_path / "called"
    place = ("--checkpoint-dir", str(tmp_path), "--name", name, "--set", f"mark={mark}")
    process = bicycle.start("run", "--plugin", "slow", *place, "--stop-timeout-ms", stop_timeout)
    try:
        # A job that is RUNNING may still be before its first epoch: it stops at once then.
        until(mark.exists, "a call of the function")
        java = bicycle.status(name)["java_pid"]
        process.send_signal(signal.SIGINT)
        bicycle.wait_until(name, lambda status: status["state"] != "RUNNING")
        if how == "second signal":
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)

    if how == "abort":
        assert process.returncode == 0, stderr
        assert "the next run reads its input again" in stdout
        assert bicycle.status(name)["state"] == "STOPPED"
    else:
        assert process.returncode == 130
        assert bicycle.answer("status", name)["state"] == "FAILED"
    assert wait_for_end(java, 0, timeout_s=PATIENCE_S)
    assert not list(tmp_path.glob("*/epochs/*.manifest"))
