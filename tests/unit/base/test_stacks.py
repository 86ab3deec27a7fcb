"""Stacks of processes that hang in any way, read by another process."""

import os
import signal
import subprocess
import sys

import pytest

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
    offer.touch()
    former = signal.signal(signal.SIGUSR1, lambda *_: offer.unlink())
    try:
        assert read_stacks(tmp_path, timeout_s=PATIENCE_S) == []
    finally:
        signal.signal(signal.SIGUSR1, former)


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
