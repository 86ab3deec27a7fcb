"""The processes of jobs: found by id and start, with all that they have started."""

import os
import subprocess
import sys

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.workers import processes, workers_of
from tests.unit.service.fleets import known

OWN = {"pid": os.getpid(), "pid_started": start_ticks(os.getpid())}


@pytest.fixture
def child():
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


def test_a_driver_is_told_with_what_it_has_started_and_what_both_use(child):
    [found] = workers_of([known("a", **OWN)], processes())

    by_pid = {process.pid: process for process in found.processes}
    assert by_pid[os.getpid()].role == "driver"
    assert by_pid[child.pid].role == "python"
    assert by_pid[os.getpid()].resident_bytes > 1 << 20
    assert found.resident_bytes >= sum(p.resident_bytes for p in by_pid.values())
    assert found.count("driver") == 1


def test_a_process_that_has_got_the_id_of_another_is_not_shown():
    job = known("a", pid=os.getpid(), pid_started=OWN["pid_started"] + 1)

    [found] = workers_of([job], processes())

    assert found.processes == ()


def test_jobs_that_have_ended_have_no_processes_to_show():
    over = known("b", state=State.FAILED, **OWN)

    assert workers_of([over], processes()) == []


def test_the_job_with_most_memory_comes_first():
    found = workers_of([known("idle"), known("a", **OWN)], processes())

    assert [workers.job for workers in found] == ["a", "idle"]


def test_a_machine_without_a_folder_of_processes_shows_none(tmp_path):
    assert processes(tmp_path / "proc") == {}


def test_a_process_that_ends_while_it_is_read_hides_no_other(tmp_path):
    (tmp_path / "17").mkdir()
    alive = tmp_path / "18"
    alive.mkdir()
    fields = " ".join(["S", "1", *["0"] * 9, "150", "50", *["0"] * 6, "99"])
    (alive / "stat").write_text(f"18 (a) name (x)) {fields}")
    (alive / "statm").write_text("9 2 1")

    assert list(processes(tmp_path)) == [18]
