"""How long a job that keeps up rests between epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.jobs.running.epochs import pause_ms

TARGETS = st.integers(1, 30_000)
DURATIONS = st.floats(0, 60_000)


@given(TARGETS, DURATIONS)
def test_results_come_in_time_where_epochs_are_fast_enough(target_ms, duration_ms):
    rest = pause_ms(target_ms, duration_ms)
    if 3 * duration_ms <= target_ms:
        assert rest + 2 * duration_ms == pytest.approx(target_ms, abs=0.5)


@given(TARGETS, DURATIONS)
def test_slow_epochs_take_half_of_the_time_and_no_rest_is_longer_than_asked(target_ms, duration_ms):
    rest = pause_ms(target_ms, duration_ms)
    assert min(duration_ms, target_ms) - 0.5 <= rest <= target_ms


@given(DURATIONS)
def test_without_a_target_there_is_no_rest(duration_ms):
    assert pause_ms(0, duration_ms) == 0
