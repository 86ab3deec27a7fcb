"""The limits of phases: what is waited for on purpose has one of its own, and comes on top."""

import contextlib
from types import SimpleNamespace

import pytest

from bicycle_runtime.base.faults import InjectedFault, arm_fault
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.loop.epoch_loop import EpochLoop
from bicycle_runtime.jobs.control.requests import Inbox
from bicycle_runtime.jobs.running.phases import Phases
from bicycle_runtime.jobs.supervision.watchdog import Watchdog
from tests.unit.jobs.job_samples import request_of
from tests.unit.jobs.running.light_jobs import LETTERS, LightJob


class Dog:
    """Takes the place of a watchdog, and tells how long phases may be."""

    def phase(self, name, target, *, timeout_ms):
        self.timeout_ms = timeout_ms
        return contextlib.nullcontext()

    def beat(self, *, timeout_ms):
        self.timeout_ms = timeout_ms


@pytest.mark.parametrize("limit_ms", [0, 5_000])
@pytest.mark.parametrize(
    ("master", "wait_ms"),
    [(None, 0), ("local[2]", 0), ("spark://host:7077", 3_600_000)],
)
def test_waiting_for_executors_or_a_lease_does_not_end_an_attempt(
    tmp_path, master, wait_ms, limit_ms
):
    options = request_of(
        master=master, cluster_timeout_ms=3_600_000, watchdog_timeout_ms=limit_ms,
        epoch_stall_timeout_ms=2 * limit_ms, lease_beat_ms=60_000,
    ).options  # fmt: skip
    shown = SimpleNamespace(
        phase=lambda *_: contextlib.nullcontext(), advance=lambda *_, **__: None,
        take_publishing=lambda *_: None,
    )  # fmt: skip
    dog = Dog()
    place = SimpleNamespace(job="job", storage=LocalStorage(str(tmp_path)))
    phases = Phases(dog, shown, options, place)

    def limit(enter):
        with enter:
            return dog.timeout_ms

    def expected(limit_ms, wait_ms):
        return limit_ms + wait_ms if limit_ms else 0

    assert limit(phases.work("starting or ending")) == limit_ms
    assert limit(phases.step_of_start("recovering", "here")) == expected(limit_ms, wait_ms)
    assert limit(phases.epoch(7)) == expected(2 * limit_ms, wait_ms)
    assert limit(phases.taking_over()) == expected(limit_ms, 240_000)
    assert limit(phases.waiting()) == 0
    phases.take_loaded(1, 2, is_running=True)
    assert dog.timeout_ms == expected(limit_ms, wait_ms)
    phases.take_loaded(2, 2, is_running=True)
    assert dog.timeout_ms == expected(2 * limit_ms, wait_ms)
    phases.take_publishing(3, None, is_running=False)
    assert dog.timeout_ms == expected(limit_ms, wait_ms)
    phases.take_publishing(3, "out", is_running=True)
    assert dog.timeout_ms == expected(limit_ms, wait_ms)
    phases.take_publishing(3, "out", is_running=False)
    assert dog.timeout_ms == expected(2 * limit_ms, wait_ms)


def test_a_start_that_publishes_the_waiting_epoch_has_the_limit_of_an_epoch(tmp_path, monkeypatch):
    beats, seen = [], []
    monkeypatch.setattr(Watchdog, "beat", lambda _, *, timeout_ms=None: beats.append(timeout_ms))
    plugin = tmp_path / "letters.py"
    plugin.write_text(LETTERS)
    options = {"watchdog_timeout_ms": 60_000, "epoch_stall_timeout_ms": 120_000}
    job = LightJob(tmp_path, str(plugin), options=options)
    arm_fault("before_publish")
    with pytest.raises(InjectedFault):
        job.run()
    arm_fault("half_published", act=lambda: seen.append(beats[-1]))
    job.run()

    assert seen == [120_000]
    assert beats[-1] == 60_000


def test_requests_and_the_last_epoch_have_the_limit_of_an_epoch(tmp_path, monkeypatch):
    """A rescale and a replay of letters are requests that run an epoch."""
    limits, seen = [], []

    @contextlib.contextmanager
    def phase(self, name, target, *, timeout_ms):
        limits.append(timeout_ms)
        yield
        limits.pop()

    def note(owner, name):
        method = getattr(owner, name)

        def noted(self, *args, **options):
            seen.append((name, limits[-1]))
            return method(self, *args, **options)

        monkeypatch.setattr(owner, name, noted)

    monkeypatch.setattr(Watchdog, "phase", phase)
    for owner, name in ((Inbox, "serve"), (EpochLoop, "step"), (EpochLoop, "finish")):
        note(owner, name)
    plugin = tmp_path / "letters.py"
    plugin.write_text(LETTERS)
    options = {"watchdog_timeout_ms": 60_000, "epoch_stall_timeout_ms": 120_000}
    LightJob(tmp_path, str(plugin), options=options).run()

    assert set(seen) == {("serve", 120_000), ("step", 120_000), ("finish", 120_000)}
