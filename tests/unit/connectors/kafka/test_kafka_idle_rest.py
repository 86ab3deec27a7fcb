"""A client rests after a time without use, never in the middle of a use."""

import threading

from bicycle_runtime.connectors.kafka.idle_rest import IdleRest
from bicycle_sdk.clock import SystemClock
from tests.waiting import PATIENCE_S


def test_it_rests_once_after_the_last_use_and_again_after_the_next():
    rested = threading.Semaphore(0)
    idle = IdleRest(rested.release, after_s=0.01, clock=SystemClock())

    for _ in range(3):
        with idle:
            assert not rested.acquire(blocking=False)
        assert rested.acquire(timeout=PATIENCE_S)
    assert not rested.acquire(timeout=0.05)


def test_it_does_not_rest_while_it_is_used():
    rested = threading.Event()
    idle = IdleRest(rested.set, after_s=0.01, clock=SystemClock())

    with idle:
        with idle:
            pass
        assert not rested.wait(0.1)
    assert rested.wait(PATIENCE_S)


def test_a_use_waits_until_a_rest_has_ended():
    is_resting, may_end = threading.Event(), threading.Event()
    order = []

    def rest():
        is_resting.set()
        assert may_end.wait(PATIENCE_S)
        order.append("rested")

    idle = IdleRest(rest, after_s=0, clock=SystemClock())
    with idle:
        pass
    assert is_resting.wait(PATIENCE_S)
    threading.Timer(0.05, may_end.set).start()
    with idle:
        order.append("used")

    assert order == ["rested", "used"]
