"""Draining, seen from outside: the job is asked, and its end is waited for."""

import contextlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.control.ending import drain_job
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import SystemClock
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job, request_of
from tests.waiting import PATIENCE_S

# A driver that meets requests until it was asked to drain, and then ends with a status; one that
# drains forever, one that dies of it, and one that never meets a request.
DRIVER = """
import signal, sys, time
from pathlib import Path
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.control.requests import Inbox
from bicycle_runtime.jobs.status import JobState, write_status

folder, how = JobFolder(Path(sys.argv[1])), sys.argv[2]
inbox = Inbox(folder.path)
inbox.open(is_again=how == "again")
print("up", flush=True)
if how == "hangs":
    signal.pause()
if how == "slow":
    time.sleep(7)  # Of the ten seconds that the test gives it.
asked = []
while not asked:
    inbox.serve({"drain": lambda facts: asked.append(facts) or {}})
if how in ("drains", "slow"):
    signal.pause()
if how == "dies":
    sys.exit()
status = folder.status()
status.state = JobState.FINISHED
write_status(folder.status_path, status)
"""


@contextlib.contextmanager
def driver(home, word, **fields):
    folder = put_job(home, **fields)
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder.path), word],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.stdout.readline()
        put_job(home, pid=process.pid, pid_started=start_ticks(process.pid), **fields)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_job_that_drains_is_waited_for(home):
    with driver(home, "ends") as process:
        assert drain_job(home, "job", clock=SystemClock()).state is JobState.FINISHED
        assert process.wait(PATIENCE_S) == 0


def test_a_job_whose_driver_dies_after_its_answer_is_asked_again(home):
    supervisor = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    pid = supervisor.pid
    fields = {"supervisor_pid": pid, "supervisor_started": start_ticks(pid)}
    try:
        with driver(home, "dies", **fields) as first, ThreadPoolExecutor(1) as pool:
            patience_ms = round(PATIENCE_S * 1_000)
            home.folder("job").write_request(request_of(stop_timeout_ms=patience_ms))
            draining = pool.submit(drain_job, home, "job", clock=SystemClock())
            first.wait(PATIENCE_S)
            with driver(home, "again", **fields):
                assert draining.result().state is JobState.FINISHED
    finally:
        supervisor.kill()
        supervisor.wait()


@pytest.mark.parametrize("word", ["drains", "hangs"])
def test_a_job_that_does_not_drain_in_time_is_stopped_by_force(home, word):
    with driver(home, word) as process:
        status = drain_job(home, "job", clock=SystemClock())

        assert status.state is JobState.STOPPED
        assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_job_has_one_time_limit_for_its_epoch_and_for_its_drain(home):
    clock = SystemClock()
    with driver(home, "slow") as process:
        began_s = clock.monotonic()
        status = drain_job(home, "job", clock=clock)

        assert clock.monotonic() - began_s < 16  # With a limit each, it takes more than 17 s.
        assert status.state is JobState.STOPPED
        assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_job_that_has_ended_is_left_alone_and_an_unknown_one_is_an_error(home):
    put_job(home, state=JobState.FAILED)

    assert drain_job(home, "job", clock=SystemClock()).state is JobState.FAILED
    with raises(JOB_NOT_FOUND):
        drain_job(home, "nobody", clock=SystemClock())
