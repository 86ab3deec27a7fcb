"""The supervisor of a driver: when it starts it again, when not, and what the status says."""

import errno
import math
import os
import random
import signal
import subprocess
import sys

import msgspec
import pytest

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.control.ending import cancel_job, stop_job
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, RestartPlan, write_status
from bicycle_runtime.jobs.supervision import supervisor
from bicycle_runtime.jobs.supervision.restarts import HISTORY_MAX
from bicycle_runtime.jobs.supervision.supervisor import Supervisor
from bicycle_sdk.clock import ManualClock
from tests.unit.jobs.job_samples import request_of, status_of
from tests.waiting import PATIENCE_S

PID_OF_NOBODY = 2**22 + 1  # The kernel gives none above 2**22.
KILLED, DONE, FAILED = -9, 0, 1
FIXED = RestartPlan(kind="FixedDelay", max_attempts=2, delay_ms=50, delay_max_ms=1_000)


class Stub:
    """A driver whose life is a list of what it does until it ends."""

    def __init__(self, pid, acts):
        self.pid, self.acts, self.told = pid, list(acts), []

    def poll(self):
        act = self.acts.pop(0)
        return act() if callable(act) else act

    def send_signal(self, number):
        self.told.append(number)


class Site:
    """A supervisor in this process, with drivers, signals and a clock of the test."""

    def __init__(self, folder):
        self.home = Home(folder)
        self.home.prepare()
        self.folder = self.home.folder("job")
        self.folder.path.mkdir(parents=True)
        self.clock = ManualClock(1_000)
        self.lives, self.drivers, self.signals, self.waits = [], [], [], []

    def life(self, *, ends, plan=FIXED, **fields):
        """Plan a driver that writes a status and then ends with a code."""

        def begin(pid):
            before = self.folder.status()
            history = before.restarts if before is not None else []
            facts = {
                "pid_started": start_ticks(pid),
                "running_ms": 1,
                "restart_plan": plan,
                **fields,
            }
            status = status_of("job", pid=pid, **facts)
            status.restarts = history
            write_status(self.folder.status_path, status)

        self.lives.append((begin, ends))

    def start(self, number):
        begin, ends = self.lives[number]
        begin(number + 1)
        acts = ends if isinstance(ends, list) else [ends]
        self.drivers.append(Stub(number + 1, acts))
        return self.drivers[-1]

    def wait(self, timeout_s):
        self.waits.append(timeout_s)
        if self.signals:
            return self.signals.pop(0)
        self.clock.advance(math.ceil((timeout_s or 0) * 1_000))
        return None

    def run(self):
        supervisor = Supervisor(
            self.folder, start=self.start, clock=self.clock, source=random.Random(1), wait=self.wait
        )
        return supervisor.run()

    @property
    def status(self):
        return self.folder.status()


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_killed_driver_is_started_again_until_it_ends_well(site):
    site.life(ends=KILLED, epoch=3)
    site.life(ends=DONE, epoch=4, state=JobState.FINISHED)

    assert site.run() == 0
    assert site.status.state is JobState.FINISHED
    (note,) = site.status.restarts
    assert (note.code, note.epoch, note.attempt, note.delay_ms) == ("BIC-1973", 3, 1, 0)


def test_a_driver_that_is_killed_before_it_writes_its_status_is_started_again_too(site):
    site.life(ends=KILLED, epoch=3)
    site.lives.append((lambda pid: None, KILLED))
    site.life(ends=DONE, epoch=4, state=JobState.FINISHED)

    assert site.run() == 0
    assert site.status.state is JobState.FINISHED
    assert [note.attempt for note in site.status.restarts] == [1, 2]
    assert site.status.restarts[1].message.find("(process 2)") > 0


@pytest.mark.parametrize("failure_count", [1, 9], ids=["for a while", "for ever"])
def test_a_full_disk_of_the_home_does_not_end_the_supervisor(
    site, monkeypatch, caplog, failure_count
):
    failures = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))] * failure_count

    def write(path, status):
        if failures:
            raise failures.pop()
        write_status(path, status)

    monkeypatch.setattr(supervisor, "write_status", write)
    site.life(ends=KILLED, epoch=3)
    site.lives += [(lambda pid: None, KILLED)] * 2

    assert site.run() == 137
    assert len(site.drivers) == 3  # The attempts are counted all the same.
    logged = [each for each in caplog.records if each.message == "status_not_written"]
    if failure_count == 1:
        assert len(logged) == 1
        assert [note.attempt for note in site.status.restarts] == [1, 2, 2]
        assert site.status.state is JobState.FAILED
    else:
        assert len(logged) == 3
        assert {each.bicycle_fields["reason"] for each in logged} == {"No space left on device"}


def test_while_it_waits_the_job_is_restarting(site):
    seen = []
    site.life(ends=KILLED, epoch=3)
    site.life(ends=DONE, state=JobState.FINISHED)
    start = site.start
    site.start = lambda number: (number and seen.append(site.status.state), start(number))[1]

    site.run()
    assert seen == [JobState.RESTARTING]
    assert sum(wait for wait in site.waits if wait) == 0


def test_without_progress_the_attempts_are_used_up_and_the_history_tells(site):
    for _ in range(3):
        site.life(ends=KILLED, epoch=3)

    assert site.run() == 137
    status = site.status
    assert status.state is JobState.FAILED
    assert status.error["facts"]["how"] == "signal 9 (SIGKILL)"
    assert [(note.attempt, note.delay_ms) for note in status.restarts] == [
        (1, 0),
        (2, 50),
        (2, None),
    ]


def test_progress_refills_the_attempts(site):
    for epoch in (3, 3, 4, 4):
        site.life(ends=KILLED, epoch=epoch)
    site.life(ends=DONE, epoch=4, state=JobState.FINISHED)

    assert site.run() == 0
    assert [note.attempt for note in site.status.restarts] == [1, 2, 1, 2]


def test_a_driver_with_a_last_word_is_left_alone(site):
    site.life(ends=FAILED, state=JobState.FAILED)

    assert site.run() == 1
    assert len(site.drivers) == 1
    assert site.status.restarts == []


@pytest.mark.parametrize(
    ("is_stopping", "state"), [(False, JobState.CREATED), (True, JobState.STOPPED)]
)
def test_a_driver_that_never_ran_is_not_started_again(site, is_stopping, state):
    site.signals = [signal.SIGTERM] if is_stopping else []
    ends = [None, KILLED] if is_stopping else KILLED
    site.life(ends=ends, state=JobState.CREATED, plan=None, running_ms=None)

    assert site.run() == 137
    assert len(site.drivers) == 1
    assert site.status.state is state


def test_a_job_that_somebody_else_runs_by_now_is_left_to_them(site):
    site.life(ends=KILLED)
    begin, ends = site.lives[0]
    site.lives[0] = (lambda _: begin(77), ends)

    site.run()
    assert (site.status.pid, site.status.state) == (77, JobState.RUNNING)


def test_a_job_whose_driver_by_now_has_the_id_of_a_former_one_is_left_alone(site):
    site.life(ends=KILLED, pid_started=start_ticks(os.getpid()) + 1)

    site.run()
    assert (site.status.pid, site.status.state) == (1, JobState.RUNNING)
    assert len(site.drivers) == 1


def test_strategy_none_fails_at_the_first_death(site):
    plan = RestartPlan(kind="None", max_attempts=0, delay_ms=0, delay_max_ms=0)
    site.life(ends=KILLED, plan=plan)

    site.run()
    assert site.status.state is JobState.FAILED


def test_a_stop_is_handed_to_the_driver_which_is_not_started_again(site):
    site.signals = [signal.SIGTERM]
    site.life(ends=[None, KILLED])

    site.run()
    assert site.drivers[0].told == [signal.SIGTERM]
    assert len(site.drivers) == 1


@pytest.mark.parametrize(
    ("attempts", "state", "code"), [(2, JobState.STOPPED, None), (0, JobState.FAILED, "BIC-1974")]
)
def test_a_driver_that_stalls_while_it_stops_ends_a_job_that_may_start_again_as_stopped(
    site, attempts, state, code
):
    stalled = StalledError(job="job", phase="epoch", target="epoch 4", waited_ms=5_000)
    site.signals = [signal.SIGTERM]
    plan = msgspec.structs.replace(FIXED, max_attempts=attempts)
    site.life(ends=[None, FAILED], epoch=3, plan=plan, error=stalled.to_json())

    site.run()
    status = site.status
    assert (status.state, status.error and status.error["code"]) == (state, code)
    assert [(note.code, note.delay_ms) for note in status.restarts] == [(stalled.code, None)]


def test_a_stop_between_two_drivers_ends_the_job(site):
    site.life(ends=KILLED, epoch=3)
    site.life(ends=KILLED, epoch=3)
    site.signals = [signal.SIGTERM]

    site.run()
    assert site.status.state is JobState.STOPPED


def test_the_history_is_bounded(site):
    for epoch in range(HISTORY_MAX + 5):
        site.life(ends=KILLED, epoch=epoch)
    site.life(ends=DONE, state=JobState.FINISHED)

    site.run()
    assert len(site.status.restarts) == HISTORY_MAX


def test_a_dead_driver_under_a_living_supervisor_is_restarting_and_can_be_stopped(site):
    code = "import signal; print('up', flush=True); signal.pause()"
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        supervisor.stdout.readline()
        site.folder.write_request(request_of(stop_timeout_ms=1_000))
        write_status(
            site.folder.status_path,
            status_of("job", pid=PID_OF_NOBODY, supervisor_pid=supervisor.pid),
        )
        assert job_status(site.home, "job").state is JobState.RESTARTING
        canceled = cancel_job(site.home, "job", clock=site.clock)
        assert supervisor.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        supervisor.kill()
        supervisor.communicate()
    assert canceled.state is JobState.CANCELED
    assert stop_job(site.home, "job").state is JobState.CANCELED


@pytest.mark.parametrize(("ends", "driver_count"), [([None, KILLED], 1), ([KILLED], 2)])
def test_a_job_whose_driver_dies_while_it_pauses_is_paused(site, ends, driver_count):
    """The request comes while the driver runs, or between two drivers."""

    def ask():
        site.folder.pause(site.status)
        return ends[0]

    site.life(ends=[ask, *ends[1:]], epoch=3, started_ms=8)
    site.life(ends=KILLED, epoch=3, started_ms=8)
    site.signals = [signal.SIGTERM]

    site.run()
    assert len(site.drivers) == len(site.status.restarts) == driver_count
    assert (site.status.state, site.status.error) == (JobState.PAUSED, None)
