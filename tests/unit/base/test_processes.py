import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import (
    descendants,
    hang_up,
    is_alive,
    kill_all,
    last_log_lines,
    stand_back,
    start_detached,
    start_ticks,
    wait_for_end,
)
from bicycle_runtime.base.storage import StorageError
from bicycle_runtime.jobs.errors import JobRunningError
from bicycle_runtime.jobs.locks import FileLock
from tests.waiting import PATIENCE_S

WAITING = "import sys; print('up', flush=True); sys.stdin.read()"
ECHOING = "import sys; print(sys.stdin.readline(), flush=True); __import__('time').sleep(3_600)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {WAITING!r}],
    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
)
print(child.pid, flush=True)
sys.stdin.read()
"""

# The person who runs the tests may have told them to ignore SIGHUP.
REPLACING = f"""
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
while True:
    child = subprocess.Popen(
        [sys.executable, "-c", {WAITING!r}], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    print(child.pid, flush=True)
    child.wait()
"""

# The first thread ends as a thread does when a process is killed; another one stays.
FIRST_THREAD_GONE = """
import ctypes, platform, sys, threading
stay = threading.Thread(target=sys.stdin.read)
stay.start()
print("up", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


@contextlib.contextmanager
def running(code):
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_hanging_up_lets_the_last_of_a_family_end_and_nobody_takes_its_place(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", REPLACING], stdout=subprocess.PIPE)
    try:
        child = int(process.stdout.readline())
        hang_up(process.pid, timeout_s=PATIENCE_S)

        assert not is_alive(child, 0)
        assert descendants(process.pid) in ([], [child])  # as a zombie, since nobody waits for it
        assert is_alive(process.pid, 0)
    finally:
        kill_all(process.pid)
        process.wait()
        process.stdout.close()


# A worker that ends in order, and needs its child for that; the child outlives it.
WORKER = f"""
import signal, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {ECHOING!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
def close(*_):
    print("bye", file=child.stdin, flush=True)
    print(child.stdout.readline().strip(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGHUP, close)
print(child.pid, flush=True)
signal.pause()
"""


def test_hanging_up_lets_a_worker_close_with_its_child_and_leaves_no_child_behind():
    daemon = f"""
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {WORKER!r}])
signal.pause()
"""
    java = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {daemon!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", java], stdout=subprocess.PIPE, text=True)
    try:
        child = int(process.stdout.readline())
        started = start_ticks(child)
        hang_up(process.pid, timeout_s=PATIENCE_S)

        assert process.stdout.readline() == "bye\n"
        assert wait_for_end(child, started, timeout_s=10)
    finally:
        kill_all(process.pid)
        process.wait()
        process.stdout.close()


def test_a_process_is_alive_under_its_own_start_time_only():
    pid = os.getpid()

    assert is_alive(pid, start_ticks(pid))
    assert not is_alive(pid, start_ticks(pid) + 1)
    assert not is_alive(0, 0)


def test_a_process_that_has_ended_but_was_not_waited_for_is_not_alive():
    with running(WAITING) as (process, _):
        started = start_ticks(process.pid)
        process.kill()
        assert wait_for_end(process.pid, started, timeout_s=10)
        assert not is_alive(process.pid, started)


def test_waiting_for_a_process_that_goes_on_ends_after_the_time():
    with running(WAITING) as (process, _):
        assert not wait_for_end(process.pid, start_ticks(process.pid), timeout_s=0.05)


def test_a_process_has_not_ended_before_its_last_thread():
    with running(FIRST_THREAD_GONE) as (process, _):
        started = start_ticks(process.pid)
        while is_alive(process.pid, started):  # until the first thread is gone
            os.sched_yield()

        assert not wait_for_end(process.pid, started, timeout_s=0.05)
        process.kill()
        assert wait_for_end(process.pid, started, timeout_s=10)


def test_what_a_thread_starts_that_stands_back_stands_back_with_its_session(tmp_path):
    module = tmp_path / "waiting.py"
    module.write_text("import sys\nsys.stdin.read()\nimport time\ntime.sleep(3600)\n")
    found = {}

    def start():
        stand_back()
        stand_back()  # Again does nothing.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tmp_path))
            process = start_detached("waiting", log_path=tmp_path / "log")
        try:
            found["niceness"] = os.getpriority(os.PRIO_PROCESS, process.pid)
            session = Path(f"/proc/{process.pid}/autogroup")
            found["session"] = session.read_text() if session.exists() else ""
        finally:
            process.kill()
            process.wait()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert found["niceness"] == max(before, 5)
    assert not found["session"] or found["session"].endswith(f"nice {max(before, 5)}\n")
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_killing_a_process_ends_what_it_started_in_other_sessions_too():
    with running(PARENT) as (process, child_text):
        child = int(child_text)
        started = start_ticks(child)
        assert descendants(process.pid) == [child]

        assert sorted(kill_all(process.pid)) == sorted([process.pid, child])

        assert process.wait(10) == -signal.SIGKILL
        assert wait_for_end(child, started, timeout_s=10)
    assert not is_alive(child, started)


def test_a_lock_is_held_once_and_names_its_holder(tmp_path):
    path = tmp_path / "deep/lock"
    with FileLock(path, job="j", location="here"):
        with pytest.raises(JobRunningError) as caught, FileLock(path, job="j", location="here"):
            pass
        assert caught.value.facts == {"job": "j", "pid": str(os.getpid()), "location": "here"}

    with FileLock(path, job="j", location="here"):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_lock_on_a_full_disk_is_held_and_free_again(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "lock"
    with monkeypatch.context() as patches:
        patches.setattr(os, "write", refuse)
        with (
            FileLock(path, job="j", location="here"),
            pytest.raises(JobRunningError),
            FileLock(path, job="j", location="here"),
        ):
            pass
    with FileLock(path, job="j", location="here"):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_lock_that_cannot_be_made_is_an_error_of_the_storage(tmp_path):
    (tmp_path / "file").write_text("")
    lock = FileLock(tmp_path / "file/lock", job="j", location="here")

    with pytest.raises(StorageError) as caught, lock:
        pass
    assert caught.value.facts["url"] == "here"


def test_a_child_does_not_inherit_a_lock(tmp_path):
    path = tmp_path / "lock"
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(FileLock(path, job="j", location="here"))
        stack.enter_context(running(WAITING))
        lock.__exit__(None, None, None)
        with FileLock(path, job="j", location="here"):
            assert path.exists()


def test_a_killed_holder_leaves_the_lock_free(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from bicycle_runtime.jobs.locks import FileLock\n"
        f"with FileLock(Path({str(path)!r}), job='j', location='p'):\n"
        "    print('up', flush=True); sys.stdin.read()"
    )
    with running(f"import sys; sys.path[:] = {sys.path!r}\n{code}") as (process, _):
        with pytest.raises(JobRunningError) as caught, FileLock(path, job="j", location="p"):
            pass
        process.kill()
        process.wait(10)
        with FileLock(path, job="j", location="p"):
            assert caught.value.facts["pid"] == str(process.pid)


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n" * 2**20 + "last \u00fc".encode())

    lines = last_log_lines(log)

    assert lines[-1] == "last \u00fc"
    assert 20 < len(lines) < 2**15
