"""The size of epochs: how much one takes, whatever the speed of functions and of epochs."""

import random
import statistics

import pytest

from bicycle_runtime.engine.loop.intake import Pacer
from bicycle_runtime.engine.options import EngineOptions


def test_epochs_grow_under_backlog_up_to_the_limit_and_not_when_idle():
    pacer = Pacer(EngineOptions(max_records_per_epoch=200_000))
    first = pacer.record_count
    pacer.learn(duration_ms=1, record_count=first, has_backlog=False)
    assert pacer.record_count == first
    for _ in range(20):
        before = pacer.record_count
        pacer.learn(duration_ms=100, record_count=before, has_backlog=True)
        assert before <= pacer.record_count <= 200_000
    assert pacer.record_count == 200_000


def test_in_batch_mode_an_epoch_takes_all_that_the_limits_allow():
    pacer = Pacer(EngineOptions(mode="batch", max_records_per_epoch=700, max_bytes_per_epoch=9))
    pacer.learn(duration_ms=600_000, record_count=700, has_backlog=True)

    assert (pacer.record_count, pacer.byte_count) == (700, 9)


@pytest.mark.parametrize(("mode", "first"), [("streaming", 10), ("batch", 300)])
def test_the_first_epoch_takes_what_a_limited_rate_lets_through(mode, first):
    options = EngineOptions(mode=mode, epoch_target_ms=2_000)

    assert Pacer(options, per_second=5).record_count == first
    assert Pacer(options, per_second=0.001).record_count == 1
    assert Pacer(options, per_second=1e9).record_count == Pacer(options).record_count


@pytest.mark.parametrize("call_ms", [0.001, 1, 100, 5_000])
def test_epochs_come_to_take_the_time_they_should_however_slow_functions_are(call_ms):
    options = EngineOptions()
    pacer = Pacer(options)
    durations_ms = []
    for _ in range(8):
        durations_ms.append(20 + pacer.record_count * call_ms)
        pacer.learn(duration_ms=durations_ms[-1], record_count=pacer.record_count, has_backlog=True)

    target_ms = max(options.epoch_target_ms, call_ms)
    is_at_limit = pacer.record_count == options.max_records_per_epoch
    assert is_at_limit or target_ms / 2 <= durations_ms[-1] <= 2 * target_ms


@pytest.mark.parametrize("own_ms", [1_900, 5_000, 60_000])
def test_epochs_that_are_slow_by_themselves_do_not_shrink_until_they_make_no_progress(own_ms):
    pacer = Pacer(EngineOptions(epoch_target_ms=2_000))
    for _ in range(30):
        taken_ms = pacer.record_count / 10
        pacer.learn(
            duration_ms=own_ms + taken_ms, record_count=pacer.record_count, has_backlog=True
        )

    assert own_ms / 2 <= taken_ms <= 2 * own_ms


def test_epochs_that_become_slow_by_themselves_make_progress_all_the_same():
    pacer = Pacer(EngineOptions(epoch_target_ms=2_000))
    for own_ms in [100] * 50 + [10_000] * 150:
        taken_ms = pacer.record_count / 10
        pacer.learn(
            duration_ms=own_ms + taken_ms, record_count=pacer.record_count, has_backlog=True
        )

    assert 5_000 <= taken_ms <= 20_000


@pytest.mark.parametrize("seed", range(5))
def test_epochs_that_are_slow_by_themselves_make_progress_whatever_the_noise(seed):
    chance = random.Random(seed)
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    counts = []
    for _ in range(200):
        counts.append(pacer.record_count)
        duration_ms = (1_500 + counts[-1] / 10) * chance.uniform(0.8, 1.2)
        pacer.learn(duration_ms=duration_ms, record_count=counts[-1], has_backlog=True)

    assert statistics.median(counts) >= 3_000


def test_a_slow_epoch_of_few_records_says_that_few_are_enough():
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    pacer.learn(duration_ms=10_000, record_count=50, has_backlog=False)

    assert pacer.record_count == 5


@pytest.mark.parametrize(("limit", "is_about"), [(50_000, False), (1_000_000, True)])
def test_the_number_of_records_is_a_guess_until_it_is_a_limit_that_is_worth_counting(
    limit, is_about
):
    pacer = Pacer(EngineOptions(max_records_per_epoch=limit))
    guessed = pacer.is_approximate
    for _ in range(2):
        pacer.learn(duration_ms=1, record_count=pacer.record_count, has_backlog=True)

    assert guessed
    assert pacer.record_count == limit
    assert pacer.is_approximate is is_about


def test_in_batch_mode_a_low_limit_is_counted():
    options = EngineOptions(mode="batch", max_records_per_epoch=999_999)

    assert not Pacer(options).is_approximate
    assert Pacer(EngineOptions(mode="batch")).is_approximate


def test_an_epoch_without_input_teaches_nothing():
    pacer = Pacer(EngineOptions())
    first = pacer.record_count
    pacer.learn(duration_ms=60_000, record_count=0, has_backlog=True)

    assert pacer.record_count == first


@pytest.mark.parametrize("limit", [1, 10, 49_999])
def test_an_epoch_never_takes_more_than_the_limit(limit):
    pacer = Pacer(EngineOptions(max_records_per_epoch=limit, max_bytes_per_epoch=limit))
    for duration_ms in (1, 10_000, 1, 1, 1, 1):
        assert 1 <= pacer.record_count <= limit
        assert 1 <= pacer.byte_count <= limit
        pacer.learn(duration_ms=duration_ms, record_count=pacer.record_count, has_backlog=True)
    assert pacer.record_count == pacer.byte_count == limit
