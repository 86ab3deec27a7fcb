"""The restart strategy: how often, and how long apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.jobs.status import RestartNote
from bicycle_runtime.jobs.supervision.restarts import Restarts
from bicycle_sdk.graph import RestartKind, RestartStrategy


def strategy(kind: RestartKind) -> RestartStrategy:
    return RestartStrategy(kind=kind, max_attempts=3, delay_ms=100)


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        (RestartKind.NONE, [None]),
        (RestartKind.FIXED_DELAY, [100, 100, 100, None]),
        (RestartKind.EXPONENTIAL_BACKOFF, [100, 200, 400, None]),
    ],
)
def test_a_job_without_progress_is_restarted_as_often_as_its_strategy_says(kind, delays):
    restarts = Restarts(strategy(kind))

    assert delays == [restarts.delay_ms(epoch=7) for _ in delays]


def test_the_number_of_attempts_can_be_given_for_a_run():
    restarts = Restarts(strategy(RestartKind.FIXED_DELAY), 1)

    assert [restarts.delay_ms(epoch=0) for _ in range(2)] == [100, None]


def test_a_sealed_epoch_refills_the_attempts():
    restarts = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF))
    before = [restarts.delay_ms(epoch=1) for _ in range(4)]

    assert before == [100, 200, 400, None]
    assert restarts.delay_ms(epoch=2) == 100


def test_growing_delays_have_a_maximum_and_large_numbers_of_attempts_cost_nothing():
    restarts = Restarts(
        RestartStrategy(kind=RestartKind.EXPONENTIAL_BACKOFF, max_attempts=1_000_000, delay_ms=100),
        delay_max_ms=1_000,
    )
    delays = [restarts.delay_ms(epoch=1) for _ in range(6)]
    restarts.resume([note(attempt=999_998)])

    assert delays == [100, 200, 400, 800, 1_000, 1_000]
    assert restarts.delay_ms(epoch=1) == 1_000


def test_the_maximum_is_never_below_the_first_delay():
    restarts = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), delay_max_ms=1)

    assert [restarts.delay_ms(epoch=1) for _ in range(2)] == [100, 100]


@given(st.integers(), st.integers(1, 20))
def test_chance_makes_a_growing_delay_shorter_by_a_tenth_at_most(seed, count):
    plain = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), count)
    spread = Restarts(strategy(RestartKind.EXPONENTIAL_BACKOFF), count, source=random.Random(seed))
    for _ in range(count):
        most, delay_ms = plain.delay_ms(epoch=1), spread.delay_ms(epoch=1)
        assert most * 0.9 - 1 <= delay_ms <= most


def test_another_process_goes_on_counting_where_the_history_ends():
    first = Restarts(strategy(RestartKind.FIXED_DELAY))
    first.delay_ms(epoch=7)
    second = Restarts.planned(first.plan())
    second.resume([note(attempt=first.used_count)])

    assert [second.delay_ms(epoch=7) for _ in range(3)] == [100, 100, None]
    assert second.delay_ms(epoch=8) == 100


def note(*, attempt):
    return RestartNote(time_ms=1, code="BIC-1803", message="lost", epoch=7, attempt=attempt)
