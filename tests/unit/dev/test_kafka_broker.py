import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.dev.broker_options import BrokerOptions, BrokerSecurity, Keystore
from bicycle_runtime.dev.errors import (
    BROKER_CONFLICT,
    BROKER_JAVA_MISSING,
    BROKER_MISSING,
    BROKER_NOT_STARTED,
    PORT_TAKEN,
)
from bicycle_runtime.dev.kafka_broker import KafkaBroker
from bicycle_runtime.dev.waiting import hold_lock
from tests.raising import raises


def test_a_broker_that_was_never_started_has_no_place_and_no_process(new_broker):
    broker = new_broker()

    assert broker.record() is None
    assert not broker.is_running()
    assert not broker.is_answering()
    for ask in (lambda: broker.bootstrap, lambda: broker.pid, broker.stop, broker.kill):
        with raises(BROKER_MISSING):
            ask()


def test_a_given_port_is_known_before_the_start(new_broker):
    assert new_broker(port=9_092).bootstrap == "127.0.0.1:9092"


def test_making_a_broker_object_touches_nothing(new_broker):
    assert not new_broker().folder.exists()


def test_a_relative_folder_is_fixed_where_the_command_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broker = KafkaBroker(BrokerOptions(folder=Path("kafka")), cache_dir=tmp_path)

    assert broker.folder == broker.options.folder == tmp_path / "kafka"


@pytest.mark.parametrize(("version", "found"), [("11.0.2", "11.0.2"), ("1.8.0_392", "1.8.0_392")])
def test_an_old_java_is_refused(new_broker, fake_java, version, found):
    fake_java(version=version)

    with raises(BROKER_JAVA_MISSING) as error:
        new_broker().start()

    assert found in error.value.facts["found"]
    assert error.value.facts["needed"] == 17


def test_a_machine_without_java_is_told_so(new_broker, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with raises(BROKER_JAVA_MISSING) as error:
        new_broker().start()

    assert error.value.facts["found"] == "no Java in JAVA_HOME or on PATH"


def test_a_broker_that_ends_at_once_is_told_with_what_it_printed(new_broker, fake_java):
    fake_java(running='printf "boom\\n\\tat some.Frame\\n"; exit 3')
    broker = new_broker(start_timeout_ms=30_000)

    with raises(BROKER_NOT_STARTED) as error:
        broker.start()

    assert error.value.facts["tail"] == ["boom"]
    assert error.value.facts["log"] == str(broker.folder / "broker.out")
    assert not broker.is_running()


def test_a_broker_that_does_not_answer_in_time_is_ended_and_its_log_told(new_broker, fake_java):
    broker = new_broker()
    fake_java(running=f"echo still thinking > {broker.log_path}; exec sleep 60")

    with raises(BROKER_NOT_STARTED) as error:
        broker.start()

    assert error.value.facts["tail"] == ["still thinking"]
    assert "1 s" in error.value.facts["reason"]
    assert not broker.is_running()


def test_data_that_cannot_be_prepared_is_told(new_broker, fake_java):
    fake_java(formatting="echo no space; exit 1")

    with raises(BROKER_NOT_STARTED) as error:
        new_broker().start()

    assert error.value.facts["tail"] == ["no space"]


def test_a_taken_port_is_refused_before_data_is_made(new_broker, fake_java):
    fake_java()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        broker = new_broker(port=port)
        with raises(PORT_TAKEN) as error:
            broker.start()

    assert error.value.facts["port"] == port
    assert not (broker.folder / "data").exists()


def test_a_start_that_another_one_holds_up_ends_with_an_error(new_broker, fake_java):
    fake_java()
    broker = new_broker()

    with hold_lock(broker.folder / "lock", timeout_s=0), raises(BROKER_NOT_STARTED) as error:
        broker.start()

    assert "another command" in error.value.facts["reason"]


def test_a_failed_start_keeps_its_port_for_the_next_one(new_broker, fake_java):
    fake_java(running="exit 3")
    broker = new_broker()
    ports = set()
    for _ in range(2):
        with raises(BROKER_NOT_STARTED):
            broker.start()
        ports.add(broker.bootstrap)

    assert len(ports) == 1


class DiesOncePolled(subprocess.Popen):
    """A process that is killed right after its exit code was looked for in vain."""

    def poll(self):
        found = super().poll()
        if found is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return found


def test_a_broker_that_is_killed_between_two_looks_has_failed(new_broker):
    broker = new_broker()
    broker.folder.mkdir()
    broker._process = DiesOncePolled(["sleep", "60"])
    broker._write_record(broker._process.pid, 9_092)

    with raises(BROKER_NOT_STARTED):
        broker.has_ended()


def test_a_process_that_got_the_id_of_an_ended_broker_is_not_taken_for_it(new_broker):
    broker = new_broker()
    broker.folder.mkdir()
    data = {"pid": os.getpid(), "started": 1, "port": 9_092, "users": [], "ca_path": None}
    (broker.folder / "broker.json").write_text(json.dumps(data))

    assert not broker.is_running()
    assert broker.bootstrap == "127.0.0.1:9092"
    with raises(BROKER_MISSING):
        broker.stop()


def test_a_broker_that_does_not_end_when_asked_is_killed(new_broker):
    broker = new_broker(stop_timeout_ms=200)
    broker.folder.mkdir()
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        data = {"pid": process.pid, "started": start_ticks(process.pid), "port": 1, "users": []}
        (broker.folder / "broker.json").write_text(json.dumps(data))
        assert broker.is_running()

        assert not broker.stop()

        assert process.wait(10) == -signal.SIGKILL
    assert not broker.is_running()


def test_passwords_are_read_by_the_owner_only(new_broker, fake_java, tmp_path):
    fake_java(running="exit 3")
    store = Keystore(path=tmp_path / "k", ca_path=tmp_path / "c", password="p")
    broker = new_broker(security=BrokerSecurity(keystore=store, users={"ada": "secret"}))
    with raises(BROKER_NOT_STARTED):
        broker.start()
    settings = broker.folder / "server.properties"

    assert "secret" in settings.read_text()
    assert settings.stat().st_mode & 0o077 == 0
    assert "secret" not in (broker.folder / "broker.json").read_text()


def test_data_with_other_users_is_refused(new_broker, fake_java, tmp_path):
    fake_java(running="exit 3")
    store = Keystore(path=tmp_path / "k", ca_path=tmp_path / "c", password="p")
    with raises(BROKER_NOT_STARTED):
        new_broker(security=BrokerSecurity(keystore=store, users={"ada": "secret"})).start()

    with raises(BROKER_CONFLICT) as error:
        new_broker().start()
    with raises(BROKER_CONFLICT):
        new_broker().client_settings()

    assert (error.value.facts["found"], error.value.facts["asked"]) == ("ada", "none")
