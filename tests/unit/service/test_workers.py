"""The processes of jobs: found by id and start, with all that they have started."""

import os
import subprocess
import sys

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.status import OperatorStatus
from bicycle_runtime.service.watching.states import State
from bicycle_runtime.service.watching.workers import (
    processes,
    worker_rows,
    workers_now,
    workers_of,
)
from tests.unit.service.fleets import known
from tests.waiting import until

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


def test_a_busy_process_counts_as_a_core_and_one_that_waits_as_none():
    words = [sys.executable, "-c", "import sys; sys.stdin.readline()\nwhile True: pass"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        job = known("a", pid=process.pid, pid_started=start_ticks(process.pid))
        until(lambda: workers_now([job])[0].cpu_usage == 0.0, "it waits")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        until(lambda: 0.0 < workers_now([job])[0].cpu_usage < 2.0, "it is busy")
        process.kill()


def test_a_job_uses_the_slots_that_it_holds_once_its_tasks_run():
    operators = {"in": OperatorStatus(parallelism=2), "count": OperatorStatus(parallelism=4)}
    starting = known("a", state=State.CREATED, operators=operators, **OWN)
    running = known("b", operators=operators, has_begun=True, **OWN)

    found = {each.job: (each.slots, each.slots_used) for each in workers_now([starting, running])}

    assert found == {"a": (4, 0), "b": (4, 4)}


def test_rows_for_programs_have_the_names_of_the_shared_job_api():
    [row] = worker_rows([known("a", **OWN)])

    assert row["memory_used_mb"] == round(row["memory_bytes"] / 1e6, 1) > 1
    assert row["hostname"]


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
