"""Clocks: real and moved by hand."""

import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk.clock import Clock, ManualClock, SystemClock


def test_system_clock_lies_between_two_readings_of_the_machine():
    clock: Clock = SystemClock()

    before = time.time_ns() // 1_000_000
    reading = clock.now_ms()

    assert before <= reading <= time.time_ns() // 1_000_000


def test_system_clock_travels_to_workers():
    copy = pickle.loads(pickle.dumps(SystemClock()))

    assert copy.monotonic() <= copy.monotonic()


@given(st.integers(0, 10**13), st.lists(st.integers(0, 10**9)))
def test_manual_clock_moves_by_what_it_is_told(start_ms, durations_ms):
    clock: Clock = ManualClock(start_ms)

    for duration_ms in durations_ms:
        clock.advance(duration_ms)

    assert clock.now_ms() == start_ms + sum(durations_ms)
    assert clock.monotonic() == sum(durations_ms) / 1_000


def test_no_time_passes_when_the_wall_clock_is_set():
    clock = ManualClock(5_000)
    clock.advance(100)
    clock.set_wall(1_000)
    clock.advance(100)

    assert (clock.now_ms(), clock.monotonic()) == (1_100, 0.2)


def test_manual_clock_does_not_go_back():
    clock = ManualClock(1_000)

    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)

    assert clock.now_ms() == 1_000
