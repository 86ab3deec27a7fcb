"""`bicycle dev kafka` as people and scripts call it: processes, output, exit codes."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bicycle_runtime.base.processes import wait_for_end
from tests.kafka_broker import broker_in, end
from tests.waiting import PATIENCE_S, until

_BICYCLE = (sys.executable, "-c", "from bicycle_runtime.cli import main; main()")


class Terminal:
    """Runs commands on the broker of one directory."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def words(self, *words):
        return [*_BICYCLE, "dev", "kafka", *words, "--dir", str(self.folder)]

    def run(self, *words):
        return subprocess.run(
            self.words(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env=self.environment,
        )

    def answer(self, *words):
        """Return exit code and JSON document."""
        done = self.run(*words, "--json")
        return done.returncode, json.loads(done.stdout)

    def open(self, *words):
        return subprocess.Popen(
            self.words(*words), stdout=subprocess.PIPE, text=True, env=self.environment
        )


@pytest.fixture
def terminal(tmp_path, guard_broker):
    guard_broker(broker_in(tmp_path / "broker"))
    yield Terminal(tmp_path / "broker")
    end(broker_in(tmp_path / "broker"))


def first_line(process):
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "no output in time"
    return process.stdout.readline()


def test_a_broker_is_started_used_and_stopped(terminal):
    started = terminal.run("start", "--heap-mb", "256")
    [bootstrap] = re.findall(r"\Abootstrap=(127\.0\.0\.1:\d+)\n\Z", started.stdout)
    assert started.returncode == 0

    code, made = terminal.answer("topics", "create", "words", "--partitions", "3")
    assert (code, made) == (0, {"name": "words", "partitions": 3, "replication": 1})
    assert terminal.answer("topics") == (0, {"topics": [made]})
    assert "words  3           1\n" in terminal.run("topics").stdout
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert set(admin.list_topics(timeout=10).topics) == {"words"}

    code, again = terminal.answer("start")
    assert (code, again["bootstrap"], again["started"]) == (0, bootstrap, False)
    code, status = terminal.answer("status")
    assert (code, status["state"], status["bootstrap"]) == (0, "answering", bootstrap)
    assert status["pid"] == again["pid"]

    assert terminal.answer("stop") == (
        0,
        {"folder": str(terminal.folder), "stopped": True, "clean": True},
    )


def test_where_no_broker_runs_commands_say_so(terminal):
    for words in (["status"], ["stop"], ["topics"], ["topics", "create", "words"]):
        code, error = terminal.answer(*words)
        assert (code, error["code"]) == (1, "BIC-2206")
        assert error["facts"] == {"folder": str(terminal.folder)}


def test_a_paused_broker_is_not_answering(terminal, new_kafka_broker):
    broker = new_kafka_broker(folder=terminal.folder)
    broker.pause()

    assert terminal.answer("status")[1]["state"] == "not answering"


def test_a_setting_that_kafka_refuses_ends_the_start_with_its_words(terminal):
    code, error = terminal.answer("start", "--property", "log.retention.ms=soon")

    assert (code, error["code"]) == (1, "BIC-2205")
    assert "log.retention.ms" in "\n".join(error["facts"]["tail"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_in_the_foreground_ends_with_a_signal(terminal, number):
    with terminal.open("start", "--foreground", "--heap-mb", "256") as process:
        assert first_line(process).startswith("bootstrap=127.0.0.1:")
        broker = broker_in(terminal.folder)
        until(lambda: broker.is_answering(timeout_s=10), "an answer")

        process.send_signal(number)

        assert process.wait(PATIENCE_S) == 0
    assert not broker.is_running()


def test_a_broker_in_the_foreground_that_is_killed_is_an_error(terminal):
    with terminal.open("start", "--foreground", "--heap-mb", "256", "--json") as process:
        assert json.loads(first_line(process))["started"]
        broker_in(terminal.folder).kill()

        assert process.wait(PATIENCE_S) == 1
        assert json.loads(process.stdout.read())["code"] == "BIC-2205"


def test_a_broker_in_the_foreground_that_another_command_stops_is_none(terminal):
    with terminal.open("start", "--foreground", "--heap-mb", "256") as process:
        first_line(process)
        assert terminal.run("stop").returncode == 0

        assert process.wait(PATIENCE_S) == 0


def test_a_broker_in_the_background_survives_the_end_of_its_terminal(terminal):
    starter = subprocess.Popen(
        terminal.words("start", "--heap-mb", "256"),
        stdout=subprocess.DEVNULL,
        env=terminal.environment,
        start_new_session=True,
    )
    with starter:
        assert starter.wait(PATIENCE_S) == 0
        record = broker_in(terminal.folder).record()
        assert os.getpgid(record.pid) == os.getsid(record.pid) == record.pid
    # What a terminal does to its session when it is closed, or when somebody types Ctrl-C.
    with pytest.raises(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGINT)
    assert not wait_for_end(record.pid, record.started, timeout_s=0)


def test_brokers_do_not_outlive_the_tests_that_are_killed(tmp_path):
    test = tmp_path / "test_endless.py"
    test.write_text(
        "import os, signal\n"
        "from tests.kafka_broker import guard_broker, kafka_broker\n\n"
        "def test_killed(kafka_broker):\n"
        f"    open({str(tmp_path / 'folder')!r}, 'w').write(str(kafka_broker.folder))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words.append(f"--basetemp={tmp_path / 'base'}")

    done = subprocess.run(words, check=False, timeout=PATIENCE_S, env=environment, cwd=tmp_path)

    assert done.returncode == -signal.SIGKILL
    record = broker_in(Path((tmp_path / "folder").read_text())).record()
    assert wait_for_end(record.pid, record.started, timeout_s=PATIENCE_S)


def test_two_starts_at_once_give_one_broker(terminal):
    starts = [terminal.open("start", "--heap-mb", "256") for _ in range(2)]
    lines = set()
    for process in starts:
        with process:
            lines.add(first_line(process))
            assert process.wait(PATIENCE_S) == 0

    assert len(lines) == 1
