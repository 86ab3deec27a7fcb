import contextlib
import os
import signal
import subprocess
import sys

import pytest

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.base.processes import descendants, is_frozen, start_ticks
from bicycle_runtime.jobs.control.ending import cancel_job, stop_job
from bicycle_runtime.jobs.control.job_queries import job_status, list_jobs
from bicycle_runtime.jobs.errors import JOB_NOT_FOUND, StatusFormatError
from bicycle_runtime.jobs.savepoints.trust import provenance
from bicycle_runtime.jobs.status import JobState
from bicycle_sdk.clock import ManualClock
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.waiting import PATIENCE_S, until

OBEDIENT = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT.partition(
    "; "
)[2].replace("signal.pause()", "[signal.pause() for _ in range(9)]")

PARENT = (
    "import subprocess, sys, signal; "
    "worker = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE); "
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
    "print('up', flush=True); signal.sigwait({signal.SIGTERM}); worker.communicate(b'\\n', 60)"
)


@contextlib.contextmanager
def driver(home, name, code, **status):
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        process.stdout.readline()
        put_job(home, name, pid=process.pid, pid_started=start_ticks(process.pid), **status)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_jobs_are_listed_with_the_newest_first(home):
    put_job(home, "old", started_ms=1, state=JobState.FINISHED)
    put_job(home, "new", started_ms=2, state=JobState.FAILED)

    assert [status.id for status in list_jobs(home)] == ["new", "old"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"id": 7}', StatusFormatError),
        ('{"format_version": 2}', STORED_NEWER),
        (None, StatusFormatError),  # A folder, which cannot be read as a file.
    ],
)
def test_a_status_that_cannot_be_read_is_told_and_hides_no_other_job(home, content, error):
    put_job(home, "good", started_ms=1, state=JobState.FINISHED)
    path = put_job(home, "odd").status_path
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_text(content)

    good, odd = list_jobs(home)

    assert (good.id, odd.id, odd.state) == ("good", "odd", JobState.FAILED)
    assert odd.error["code"] == error.code
    assert provenance(str(home.path / "saved"), home, None) == "foreign"
    with raises(error):
        job_status(home, "odd")


def test_a_job_whose_process_is_gone_without_a_last_word_has_failed(home):
    with driver(home, "lost", OBEDIENT) as process:
        assert job_status(home, "lost").state is JobState.RUNNING
        process.kill()
        process.wait()
        status = job_status(home, "lost")

    assert status.state is JobState.FAILED
    assert status.error["code"] == "BIC-1906"
    assert status.error["facts"]["pid"] == process.pid


def test_stopping_waits_for_the_end(home):
    with driver(home, "job", OBEDIENT) as process:
        status = stop_job(home, "job")
        assert process.wait(PATIENCE_S) == -15
    assert status.state is JobState.FAILED  # This driver dies of the signal, without a word.


def test_a_job_whose_process_was_stopped_is_told_and_woken_to_stop(home):
    with driver(home, "job", OBEDIENT) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        [frozen] = list_jobs(home)
        stop_job(home, "job")
        assert process.wait(PATIENCE_S) == -15
    assert (frozen.state, frozen.is_frozen) == (JobState.RUNNING, True)
    assert not job_status(home, "job").is_frozen


def test_a_job_that_does_not_stop_in_time_is_ended_by_force(home):
    with driver(home, "job", STUBBORN) as process:
        status = stop_job(home, "job", clock=ManualClock(77))
        assert process.wait(PATIENCE_S) == -9
    assert (status.state, status.ended_ms) == (JobState.STOPPED, 77)
    assert job_status(home, "job").state is JobState.STOPPED


def test_a_worker_that_was_stopped_by_a_signal_is_woken_to_stop(home):
    with driver(home, "job", PARENT) as process:
        [worker] = descendants(process.pid)
        os.kill(worker, signal.SIGSTOP)
        until(lambda: is_frozen(worker), "SIGSTOP")
        stop_job(home, "job")
        assert process.wait(PATIENCE_S) == 0  # It has waited for its worker.


STUCK = """
import signal, sys, threading
from pathlib import Path
from bicycle_runtime.base.stacks import offer_stacks

def hang():
    print("up", flush=True)
    threading.Event().wait()

offer_stacks(Path(sys.argv[1]))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hang()
"""


def test_a_canceled_job_names_what_its_driver_hung_at_in_a_long_epoch(home):
    stacks = str(home.folder("job").stacks_path)
    with driver(home, "job", STUCK.replace("sys.argv[1]", repr(stacks)), epoch_began_ms=1_000):
        status = cancel_job(home, "job", clock=ManualClock(6_000))
    [stuck] = status.stuck
    assert stuck.role == "driver"
    assert any(call.endswith(" in hang") for call in stuck.stack)
    assert job_status(home, "job").stuck == [stuck]


def test_canceling_kills_and_leaves_the_word_canceled(home):
    with driver(home, "job", STUBBORN) as process:
        status = cancel_job(home, "job", clock=ManualClock(77))
        assert process.wait(PATIENCE_S) == -9
    assert (status.state, status.ended_ms) == (JobState.CANCELED, 77)
    assert job_status(home, "job").state is JobState.CANCELED


@pytest.mark.parametrize(
    "state", [each for each in JobState if each.is_final and each is not JobState.PAUSED]
)
def test_a_job_that_has_ended_is_left_alone(home, state):
    put_job(home, "job", state=state)

    assert stop_job(home, "job").state is state
    assert cancel_job(home, "job", clock=ManualClock()).state is state


def test_an_unknown_job_is_an_error(home):
    for act in (job_status, stop_job):
        with raises(JOB_NOT_FOUND):
            act(home, "nobody")
