"""The restart strategy: how often, and how long apart."""

from __future__ import annotations

import pytest

from bicycle_runtime.jobs.restarts import Restarts
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
