"""Child processes: they answer whatever they print, and end with all that they started."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from bicycle_runtime.base.children import Child, NoAnswerError, ask_child
from bicycle_runtime.base.processes import is_alive, start_ticks
from tests.waiting import PATIENCE_S, until

HEAD = """
import os, subprocess, sys, time
from bicycle_runtime.base.pipes import answer_once

def answer(question, blobs):
"""
TAIL = """
sys.exit(answer_once(sys.argv[1], answer))
"""


# In an interpreter of its own: threads of other tests open and close descriptors at any time.
DESCRIPTORS = """
import sys
from pathlib import Path
from bicycle_runtime.base.children import Child, ask_child

def open_descriptors():
    found = ((path.name, str(path.readlink())) for path in list(Path("/proc/self/fd").iterdir())
             if path.is_symlink())
    return {each for each in found if not each[1].startswith("/proc/")}

def ask():
    ask_child(sys.argv[1], question={}, timeout_s=600)

def fail():
    try:
        Child("module", python="/no/python")
    except FileNotFoundError:
        return
    raise AssertionError("it was started")

for call in (ask, fail):
    call()
    before = open_descriptors()
    call()
    assert open_descriptors() == before, open_descriptors() ^ before
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that makes a child's module from the body of its answer."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(*lines):
        text = HEAD + "".join(f"    {line}\n" for line in lines) + TAIL
        (tmp_path / "child_of_a_test.py").write_text(text)
        return "child_of_a_test"

    return make


def test_output_of_any_kind_is_no_answer(program):
    module = program(
        "print('{}')", "os.write(1, b'BXF1' * 9)", "os.system('echo BXF1')", "return question"
    )

    with Child(module) as child:
        header, blobs = child.answer_to({"number": 7}, [bytes(1 << 20)], timeout_s=PATIENCE_S)

    assert (header, blobs) == ({"number": 7}, [])
    assert child.stdout.lines(9)[0] == "{}"


def test_a_child_that_ends_is_described_by_its_last_error(program):
    with pytest.raises(NoAnswerError, match="exit code 1: ValueError: no such thing"):
        ask_child(program("raise ValueError('no such thing')"), question={}, timeout_s=PATIENCE_S)


def test_a_module_that_does_not_exist_is_described(program):
    with pytest.raises(NoAnswerError, match="No module named"):
        ask_child(
            "bicycle_runtime.nothing", question={}, blobs=[bytes(1 << 20)], timeout_s=PATIENCE_S
        )


def test_a_child_ends_with_its_descendants_and_daemons(program, tmp_path):
    started = tmp_path / "started"
    module = program(
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']",
        "own = subprocess.Popen(sleep)",
        "daemon = subprocess.Popen(sleep, start_new_session=True)",
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{own.pid}} {{daemon.pid}}')",
        f"os.rename({str(tmp_path / 'pids')!r}, {str(started)!r})",
        "time.sleep(600)",
    )
    child = Child(module)
    asking = threading.Thread(target=child.ask, args=({},), kwargs={"timeout_s": None}, daemon=True)
    asking.start()
    until(started.exists, "the descendants")
    pids = [child.process.pid, *map(int, started.read_text().split())]
    ticks = [start_ticks(pid) for pid in pids]

    assert child.end() == "signal 9 (SIGKILL)"
    asking.join()
    until(
        lambda: not any(is_alive(pid, tick) for pid, tick in zip(pids, ticks, strict=True)),
        "the end of all processes",
    )


def test_a_late_child_is_described_as_late(program):
    with Child(program("time.sleep(600)")) as child, pytest.raises(NoAnswerError) as late:
        child.answer_to({}, timeout_s=0.05)
    assert (late.value.is_late, str(late.value)) == (True, "no result after 0.05 s")


def test_a_child_that_dies_between_questions_is_noticed(program):
    with Child(program("return {}")) as child:
        assert child.answer_to({}, timeout_s=PATIENCE_S) == ({}, [])
        assert child.wait(PATIENCE_S)
        with pytest.raises(NoAnswerError, match="exit code 0: no output"):
            child.answer_to({}, timeout_s=PATIENCE_S)
    with pytest.raises(NoAnswerError):
        child.answer_to({}, timeout_s=PATIENCE_S)


def test_an_answer_over_the_limit_is_refused(program):
    child = Child(program("return {'text': 'a' * 5000}"), answer_bytes=1_000)
    with child, pytest.raises(NoAnswerError, match="a frame of 5"):
        child.answer_to({}, timeout_s=PATIENCE_S)


def test_children_and_interpreters_that_cannot_be_started_leave_no_descriptors(program, tmp_path):
    module = program("return {}")
    found = subprocess.run(
        [sys.executable, "-c", DESCRIPTORS, module], check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


def test_a_shown_child_has_our_output(program, capfd):
    with Child(program("print('seen')", "return {}"), output="shown") as child:
        assert child.answer_to({}, timeout_s=None) == ({}, [])
        assert child.wait(PATIENCE_S)
    assert capfd.readouterr().out == "seen\n"


def test_a_killed_child_is_described(program):
    module = program(f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    with pytest.raises(NoAnswerError, match="SIGKILL"):
        ask_child(module, question={}, timeout_s=PATIENCE_S)
