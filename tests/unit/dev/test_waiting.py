import subprocess
import sys
import tracemalloc

import pytest

from bicycle_runtime.dev.waiting import hold_lock, last_lines, wait_until
from bicycle_sdk.clock import ManualClock
from tests.waiting import PATIENCE_S


def test_a_condition_that_holds_is_asked_once():
    asked = []

    assert wait_until(lambda: not asked.append(1), timeout_s=0)
    assert len(asked) == 1


def test_waiting_ends_with_its_time():
    clock = ManualClock()

    def moving() -> bool:
        clock.advance(600)
        return False

    assert not wait_until(moving, timeout_s=1, clock=clock)
    assert clock.now_ms() == 1_200


def test_only_the_end_of_a_long_log_is_read_for_its_last_lines(tmp_path):
    log = tmp_path / "log"
    log.write_text("former\n" * 2**22 + "why\n\tat Main.java\n\n")
    tracemalloc.start()
    try:
        lines = last_lines(log)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert lines[-2:] == ["former", "why"]
    assert peak_bytes < 2**22
    assert last_lines(tmp_path / "missing") == []


def test_a_lock_has_one_holder(tmp_path):
    path = tmp_path / "folder" / "lock"

    with hold_lock(path, timeout_s=0), pytest.raises(TimeoutError), hold_lock(path, timeout_s=0):
        pass
    with hold_lock(path, timeout_s=0):
        assert path.is_file()


def test_a_process_that_is_started_under_a_lock_does_not_keep_it(tmp_path):
    path = tmp_path / "lock"
    words = [sys.executable, "-c", "print('up', flush=True); input()"]
    with hold_lock(path, timeout_s=0):
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
        )
    with child:
        assert child.stdout.readline() == b"up\n"
        with hold_lock(path, timeout_s=0):
            assert child.poll() is None
        child.communicate(b"\n", timeout=PATIENCE_S)
