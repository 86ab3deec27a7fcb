"""Loading state: signs of life while it takes long, and which ranges were loaded again, where."""

import logging
import threading

import pytest

from bicycle_runtime.base.storage import LocalStorage, StorageError
from bicycle_runtime.engine.loop.loads import LoadWatch
from bicycle_runtime.operators.heartbeats import LoadHeartbeat, loaded_bytes
from bicycle_runtime.testing import Harness, script_source

MANY = 2 << 20


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path), is_synced=False)


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("counts").collect("out")


def loads(caplog):
    found = [record for record in caplog.records if record.getMessage() == "state_loaded"]
    fields = [record.bicycle_fields for record in found]
    return [(each["operator"], each["subtask"], each["byte_count"]) for each in fields]


def test_a_quick_load_writes_nothing(storage):
    heartbeat = LoadHeartbeat(storage, "run", (0, 1), now=lambda: 5.0)
    heartbeat(1, 2)
    heartbeat(2, 2)
    heartbeat.close()

    assert storage.list("") == []


def test_a_long_load_is_told_once_a_second_and_to_its_end(storage):
    times = iter([0.0, 0.5, 1.0, 1.0, 1.2, 2.5])
    heartbeat = LoadHeartbeat(storage, "run", (1, 3), now=lambda: next(times))
    heartbeat(10, 100)
    assert loaded_bytes(storage, "run") == (0, 0)
    heartbeat(20, 100)
    heartbeat(30, 100)
    assert loaded_bytes(storage, "run") == (20, 100)
    heartbeat.close()
    assert loaded_bytes(storage, "run") == (100, 100)


def test_the_driver_adds_up_what_the_tasks_say_and_leaves_nothing_behind(storage):
    seen, is_seen = [], threading.Event()

    def on_loaded(*parts):
        seen.append(parts)
        is_seen.set()

    watch = LoadWatch(storage, "run", on_loaded)
    with watch.watching(MANY):
        storage.write("loading/run/0-0", b"[5,10]")
        storage.write("loading/run/0-1", b"[1,20]")
        assert is_seen.wait(10)
    assert seen[-1] in ((6, 30), (5, 10))
    assert storage.list("") == []


def test_signs_that_cannot_be_removed_fail_no_epoch(monkeypatch, storage):
    def refuse(self, prefix):
        raise StorageError(url=self.url, action="delete", path=prefix, reason="not empty")

    monkeypatch.setattr(LocalStorage, "delete_tree", refuse)
    with LoadWatch(storage, "run", lambda *_: None).watching(MANY):
        storage.write("loading/run/0-0", b"[5,10]")

    assert storage.list("") == ["loading/run/0-0"]


@pytest.mark.parametrize("state_bytes", [0, 1_000])
def test_little_state_is_not_followed(storage, state_bytes):
    with LoadWatch(storage, "run", lambda *_: None).watching(state_bytes):
        names = {thread.name for thread in threading.enumerate()}
    assert "load-watch" not in names


def test_only_ranges_that_are_not_there_are_loaded(caplog):
    caplog.set_level(logging.INFO)
    with Harness(counting, parallelism=2) as harness:
        harness.push(["a", "b", "c", "d"])
        harness.run_epoch()
        harness.push(["a"])
        harness.run_epoch()
        assert loads(caplog) == []
        harness.crash()
        harness.push(["a"])
        harness.run_epoch()
        found = loads(caplog)

    assert {subtask for _, subtask, _ in found} <= {0, 1}
    assert {operator for operator, _, _ in found} == {"counts"}
    assert all(byte_count for _, _, byte_count in found)
