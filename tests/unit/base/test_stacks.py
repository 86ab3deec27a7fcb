"""Stacks of processes that hang in any way, read by another process."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from bicycle_runtime.base import stacks
from bicycle_runtime.base.processes import is_frozen, start_ticks
from bicycle_runtime.base.stacks import read_stacks
from tests.hanging import HANGING, WAYS
from tests.waiting import PATIENCE_S, until

PROGRAM = f"""{HANGING}
import sys
from pathlib import Path
from bicycle_runtime.base.stacks import offer_stacks

offer_stacks(Path(sys.argv[1]))
print("up", flush=True)
globals()[sys.argv[2]]()
"""


def started(folder, how):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, folder, how], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert process.stdout.readline() == b"up\n"
    if how == "frozen":
        until(lambda: is_frozen(process.pid), "SIGSTOP")
    return process


@pytest.mark.parametrize("how", WAYS)
def test_a_process_that_hangs_in_any_way_tells_where(tmp_path, how):
    process = started(tmp_path, how)
    try:

        def hanging():
            [found] = read_stacks(tmp_path, timeout_s=PATIENCE_S)
            return found if f" in {how}\n" in found.threads[-1] else None

        found = until(hanging, how) if how != "frozen" else hanging()
    finally:
        process.kill()
        process.communicate()

    assert found.pid == process.pid
    assert found.was_frozen == (how == "frozen")
    assert found.threads[-1].splitlines()[-1].endswith("in <module>")


def test_a_process_that_withdraws_its_offer_meanwhile_is_left_out(tmp_path):
    own = os.getpid()
    offer = tmp_path / f"{own}-{start_ticks(own)}"
    offer.mkdir()
    (offer / "stacks").touch()
    former = signal.signal(signal.SIGUSR1, lambda *_: shutil.rmtree(offer))
    try:
        assert read_stacks(tmp_path, timeout_s=PATIENCE_S) == []
    finally:
        signal.signal(signal.SIGUSR1, former)


DEEP = """
import sys, threading
from pathlib import Path
from bicycle_runtime.base.stacks import offer_stacks

def deep(left):
    return left and deep(left - 1)

def busy():
    while True:
        deep(400)

for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
withdraw = offer_stacks(Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.readline()
withdraw()
"""


def test_requests_do_not_crash_a_process_whose_stacks_change(tmp_path, monkeypatch):
    # On a loaded machine a signal after a short wait would come while a stack changes.
    monkeypatch.setattr(stacks, "_THREAD_ANSWERS_S", PATIENCE_S)
    with subprocess.Popen(
        [sys.executable, "-c", DEEP, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        for _ in range(30):
            [found] = read_stacks(tmp_path, timeout_s=PATIENCE_S)
            assert len(found.threads) == 5  # With the main one and the one that answers.
        process.communicate(b"\n")
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_nobody_but_the_processes_of_a_folder_gets_the_signal(tmp_path):
    process = started(tmp_path, "lock")
    [path] = tmp_path.iterdir()
    process.kill()
    process.communicate()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path.rename(tmp_path / f"{stranger.pid}-1")

    assert read_stacks(tmp_path) == []
    assert stranger.poll() is None
    assert list(tmp_path.iterdir()) == []
    stranger.communicate(b"\n")
    assert stranger.returncode == 0
    assert read_stacks(tmp_path / "none") == []
