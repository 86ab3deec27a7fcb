import os
import signal
import threading

import pytest

from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.supervision import stopping
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_sdk.clock import ManualClock
from tests.waiting import PATIENCE_S


class Ends:
    """Takes the place of ending the process."""

    def __init__(self):
        self.codes = []
        self.event = threading.Event()

    def __call__(self, code):
        self.codes.append(code)
        self.event.set()


@pytest.fixture
def ends():
    return Ends()


def arm(stop, *, timeout_s=PATIENCE_S, on_request=lambda: None, abort=lambda: None):
    stop.arm(timeout_s=timeout_s, on_request=on_request, abort=abort)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_stop_and_the_second_ends_at_once(number, ends):
    requested = threading.Event()
    with StopRequest(end=ends).on_signals() as stop:
        arm(stop, on_request=requested.set)
        assert not stop.wait(0)

        os.kill(os.getpid(), number)
        assert stop.wait(PATIENCE_S * 1_000)
        assert requested.wait(PATIENCE_S)
        assert ends.codes == []

        os.kill(os.getpid(), number)
        assert ends.event.wait(PATIENCE_S)
    assert ends.codes == [128 + number]


def test_a_request_that_was_made_before_is_passed_on_when_the_job_is_known(ends):
    requested = threading.Event()
    with StopRequest(end=ends).on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(PATIENCE_S * 1_000)
        arm(stop, on_request=requested.set)
        assert requested.is_set()


def test_a_pause_ends_when_it_is_woken_or_a_stop_is_requested():
    stop = StopRequest()
    stop.wake()  # Before the pause: it counts for the next one.
    stop.pause(PATIENCE_S * 1_000)
    stop.pause(0)

    threading.Timer(0.05, stop.wake).start()
    stop.pause(PATIENCE_S * 1_000)
    assert not stop.is_set

    threading.Timer(0.05, stop.set).start()
    stop.pause(PATIENCE_S * 1_000)
    assert stop.is_set


def test_an_epoch_that_takes_too_long_is_aborted_and_then_the_process_is_ended(ends):
    aborted = threading.Event()
    with StopRequest(end=ends).on_signals() as stop:
        arm(stop, timeout_s=0.1, abort=aborted.set)
        os.kill(os.getpid(), signal.SIGTERM)
        assert aborted.wait(PATIENCE_S)
        assert stop.was_aborted
        assert ends.event.wait(PATIENCE_S)
    assert ends.codes == [1]


def test_by_default_a_process_that_hangs_is_ended_before_thirty_seconds_are_over(ends, monkeypatch):
    clock, aborted_s, ended_s = ManualClock(), [], []

    def pass_time(_reader, left_s):
        if left_s is not None:
            clock.advance(left_s * 1_000)
        return left_s is None

    def end(code):
        ended_s.append(clock.monotonic())
        ends(code)

    monkeypatch.setattr(stopping, "is_readable", pass_time)
    limit_s = JobOptions(plugin="p").stop_timeout_ms / 1_000
    with StopRequest(end=end, clock=clock).on_signals() as stop:
        arm(stop, timeout_s=limit_s, abort=lambda: aborted_s.append(clock.monotonic()))
        os.kill(os.getpid(), signal.SIGTERM)
        assert ends.event.wait(PATIENCE_S)
    assert (limit_s, aborted_s, ended_s) == (30, [18], [27])


@pytest.mark.parametrize("is_stopping", [False, True])
def test_an_abort_does_not_wait_for_the_epoch(ends, is_stopping):
    aborted, requested = threading.Event(), threading.Event()
    with StopRequest(end=ends).on_signals() as stop:
        arm(stop, on_request=requested.set, abort=aborted.set)
        if is_stopping:
            os.kill(os.getpid(), signal.SIGTERM)
            assert requested.wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGQUIT)
        assert aborted.wait(PATIENCE_S / 2)
        assert requested.wait(PATIENCE_S)
        assert stop.was_aborted
    assert ends.codes == []


@pytest.mark.parametrize("hangs", [False, True])
def test_the_last_word_of_a_process_is_awaited_for_a_moment(ends, hangs):
    told, never = threading.Event(), threading.Event()

    def late():
        told.set()
        if hangs:
            never.wait()

    with StopRequest(end=ends).on_signals() as stop:
        stop.arm(timeout_s=0.1, on_request=lambda: None, abort=lambda: None, late=late)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ends.event.wait(PATIENCE_S)
    assert told.is_set()
    assert ends.codes == [1]
    never.set()


def test_a_job_that_ends_in_time_is_neither_aborted_nor_ended(ends):
    with StopRequest(end=ends).on_signals() as stop:
        arm(stop)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(PATIENCE_S * 1_000)
    assert not stop.was_aborted
    assert ends.codes == []


def test_afterwards_signals_are_what_they_were():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest().on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
