"""The watchdog: what hangs is ended step by step, and told as one error with the phase."""

import contextlib
import os
import threading

import pytest

from bicycle_runtime.jobs.errors import StalledError
from bicycle_runtime.jobs.supervision.watchdog import Watchdog, WatchdogSteps
from bicycle_sdk.clock import ManualClock, SystemClock
from tests.waiting import PATIENCE_S

SHORT_MS = 50


class Hanger:
    """Something that hangs until it is let go of."""

    def __init__(self):
        self.is_free = threading.Event()
        self.ended = []

    def watchdog(self, *, lets_go=True, patience_s=PATIENCE_S, clock=None):
        steps = WatchdogSteps(
            let_go=self.is_free.set if lets_go else lambda: None, end=self.ended.append
        )
        clock = clock or SystemClock()
        return Watchdog(steps, clock=clock, job="job", patience_s=patience_s)


@pytest.fixture
def hanger():
    return Hanger()


def test_what_ends_in_time_is_left_alone(hanger):
    with hanger.watchdog() as watchdog, watchdog.phase("starts", "job", timeout_ms=60_000):
        assert not hanger.is_free.is_set()
    assert watchdog.take() is None


def test_what_waits_on_purpose_has_so_much_more_time(hanger):
    clock = ManualClock()
    with (
        hanger.watchdog(clock=clock) as watchdog,
        watchdog.phase("runs", "epoch 1", timeout_ms=100),
    ):
        watchdog.allow(10_000)
        clock.advance(10_050)
        assert not hanger.is_free.wait(0.3)  # Its thread has looked by now.


def test_what_hangs_is_let_go_of_and_told_with_phase_and_target(hanger):
    with hanger.watchdog() as watchdog:
        with (
            pytest.raises(StalledError) as caught,
            watchdog.phase("reads", "s3://b", timeout_ms=SHORT_MS),
        ):
            assert hanger.is_free.wait(PATIENCE_S)
            raise ConnectionError("that is how it shows")
        facts = caught.value.facts
        assert (facts["phase"], facts["target"], facts["waited_ms"]) == ("reads", "s3://b", 50)
        with watchdog.phase("goes on", "job", timeout_ms=60_000):
            pass


def test_what_ends_well_after_it_was_let_go_of_is_told_too_and_the_process_lives(hanger):
    with hanger.watchdog(patience_s=PATIENCE_S) as watchdog:
        with (
            pytest.raises(StalledError),
            watchdog.phase("extracts", "plugin", timeout_ms=SHORT_MS),
        ):
            assert hanger.is_free.wait(PATIENCE_S)
        assert watchdog.take() is None
    assert hanger.ended == []


def test_the_main_thread_is_called_back_from_a_pipe_that_nobody_writes_to(hanger, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        hanger.watchdog(lets_go=False, patience_s=0.05) as watchdog,
        pytest.raises(StalledError) as caught,
        watchdog.phase("reads", str(pipe), timeout_ms=SHORT_MS),
    ):
        pipe.read_bytes()
    # How the process goes on is not told here: on a busy machine patience may be over by now.
    assert caught.value.facts["target"] == str(pipe)


def test_what_cannot_be_called_back_ends_the_process(hanger):
    ended = threading.Event()

    def end(error):
        hanger.ended.append(error)
        ended.set()

    steps = WatchdogSteps(let_go=lambda: None, end=end)

    def hang():
        watchdog = Watchdog(steps, clock=SystemClock(), job="job", patience_s=0.02)
        with (
            watchdog,
            contextlib.suppress(StalledError),
            watchdog.phase("publishes", "epoch 7", timeout_ms=SHORT_MS),
        ):
            assert ended.wait(PATIENCE_S)

    # Not the main thread: no signal reaches it.
    thread = threading.Thread(target=hang)
    thread.start()
    thread.join(PATIENCE_S)
    assert [error.facts["target"] for error in hanger.ended] == ["epoch 7"]


def test_progress_starts_the_time_anew(hanger):
    clock = ManualClock()
    dog = hanger.watchdog(clock=clock)
    with dog as watchdog, watchdog.phase("loads", "state", timeout_ms=400):
        for _ in range(8):
            clock.advance(300)
            watchdog.beat()
    assert not hanger.is_free.is_set()


def test_without_a_limit_nothing_is_ended(hanger):
    with hanger.watchdog() as watchdog, watchdog.phase("runs", "epoch 1", timeout_ms=0):
        assert not hanger.is_free.wait(0.1)


def test_an_error_of_the_phase_itself_passes(hanger):
    with (
        hanger.watchdog() as watchdog,
        pytest.raises(ValueError, match="mine"),
        watchdog.phase("runs", "epoch 1", timeout_ms=60_000),
    ):
        raise ValueError("mine")
