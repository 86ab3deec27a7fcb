"""Draining, seen from outside: the job is asked, and its end is waited for."""

import contextlib
import subprocess
import sys

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.control.ending import drain_job
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND, STOP_TIMED_OUT
from bicycle_runtime.jobs.status import JobState
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S

# A driver that meets requests until it was asked to drain, and then ends with a status, or not.
DRIVER = """
import signal, sys
from pathlib import Path
from bicycle_runtime.jobs.home import JobFolder
from bicycle_runtime.jobs.control.requests import Inbox
from bicycle_runtime.jobs.status import JobState, write_status

folder, ends = JobFolder(Path(sys.argv[1])), sys.argv[2] == "ends"
inbox = Inbox(folder.path)
inbox.open()
print("up", flush=True)
asked = []
while not asked:
    inbox.serve({"drain": lambda facts: asked.append(facts) or {}})
if not ends:
    signal.pause()
status = folder.status()
status.state = JobState.FINISHED
write_status(folder.status_path, status)
"""


@contextlib.contextmanager
def driver(home, word):
    folder = put_job(home)
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder.path), word],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.stdout.readline()
        put_job(home, pid=process.pid, pid_started=start_ticks(process.pid))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_job_that_drains_is_waited_for(home):
    with driver(home, "ends") as process:
        assert drain_job(home, "job", clock=SystemClock()).state is JobState.FINISHED
        assert process.wait(PATIENCE_S) == 0


def test_a_job_that_drains_for_too_long_goes_on_with_it(home):
    with driver(home, "hangs") as process, raises(STOP_TIMED_OUT) as caught:
        drain_job(home, "job", clock=SystemClock(), reserve_ms=0)
    assert caught.value.facts["pid"] == process.pid


def test_a_job_that_has_ended_is_left_alone_and_an_unknown_one_is_an_error(home):
    put_job(home, state=JobState.FAILED)

    assert drain_job(home, "job", clock=SystemClock()).state is JobState.FAILED
    with raises(JOB_NOT_FOUND):
        drain_job(home, "nobody", clock=SystemClock())
