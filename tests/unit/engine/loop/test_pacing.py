"""The size of epochs: how much one takes, whatever the speed of functions and of epochs."""

import random
import statistics

import pytest

from bicycle_runtime.engine.loop.intake import Pacer
from bicycle_runtime.engine.options import EngineOptions

_PROBE_FACTOR = 2


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


def _rate(pacer, fixed_s, chance, *, epoch_count=150, record_ms=0.5):
    """Return records per second of a job whose epochs cost between two times by themselves."""
    read = taken_ms = 0.0
    for _ in range(epoch_count):
        count = pacer.record_count
        duration_ms = chance.uniform(*fixed_s) * 1_000 + count * record_ms
        read, taken_ms = read + count, taken_ms + duration_ms
        pacer.learn(duration_ms=duration_ms, record_count=count, has_backlog=True)
    return read / taken_ms * 1_000


@pytest.mark.parametrize("fixed_s", [(0.1, 0.2), (0.5, 1), (1, 4), (4, 14)])
def test_epochs_of_any_fixed_cost_have_the_throughput_of_constant_epochs(fixed_s):
    rates = [_rate(Pacer(EngineOptions()), fixed_s, random.Random(seed)) for seed in range(30)]

    constant = 10_000 / (sum(fixed_s) / 2 + 5)
    assert min(rates) >= 0.9 * constant
    assert statistics.median(rates) >= 0.9 * constant


@pytest.mark.parametrize("fixed_ms", [500, 3_000, 20_000])
def test_at_least_half_of_the_time_goes_to_records_and_not_much_more(fixed_ms):
    pacer = Pacer(EngineOptions(epoch_target_ms=2_000))
    for _ in range(30):
        taken_ms = pacer.record_count * 0.5
        pacer.learn(
            duration_ms=fixed_ms + taken_ms, record_count=pacer.record_count, has_backlog=True
        )

    goal_ms = max(2_000, fixed_ms)
    assert goal_ms <= taken_ms <= 2 * _PROBE_FACTOR * goal_ms
    assert pacer.fixed_ms == pytest.approx(fixed_ms, rel=0.1)


def test_the_fixed_part_is_not_known_before_epochs_had_two_sizes():
    pacer = Pacer(EngineOptions())
    pacer.learn(duration_ms=4_000, record_count=pacer.record_count, has_backlog=True)

    assert pacer.fixed_ms is None


def test_a_few_slow_epochs_outside_of_the_job_change_little():
    chance, pacer = random.Random(7), Pacer(EngineOptions())
    sizes = []
    for number in range(200):
        sizes.append(pacer.record_count)
        stall_ms = 60_000 if number % 25 == 24 else 0
        duration_ms = chance.uniform(30, 60) + sizes[-1] * 0.5 + stall_ms
        pacer.learn(duration_ms=duration_ms, record_count=sizes[-1], has_backlog=True)

    assert 3_000 <= statistics.median(sizes[100:]) <= 8_000


@pytest.mark.parametrize("count", [1, 50])
def test_a_slow_epoch_of_few_records_is_no_reason_to_read_few(count):
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    first = pacer.record_count
    for has_backlog in (False, True):
        pacer.learn(duration_ms=10_000, record_count=count, has_backlog=has_backlog)

    assert pacer.record_count == first


def test_records_that_are_surely_slow_make_small_epochs_also_without_backlog():
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    for count in (10, 40, 20, 60, 30, 50):
        pacer.learn(duration_ms=20 + 200 * count, record_count=count, has_backlog=False)

    assert 5 <= pacer.record_count <= 10


def test_no_epoch_is_smaller_than_a_wave_of_calls_in_flight():
    pacer = Pacer(EngineOptions(), wave=1_000)
    sizes = []
    for _ in range(20):
        sizes.append(pacer.record_count)
        waves = -(-sizes[-1] // 1_000)
        pacer.learn(duration_ms=60 + 3_000 * waves, record_count=sizes[-1], has_backlog=True)

    ideal_s = sum(sizes) / 1_000 * 3
    taken_s = sum(0.06 + 3 * -(-size // 1_000) for size in sizes)
    assert min(sizes) == 1_000
    assert all(size % 1_000 == 0 for size in sizes)
    assert ideal_s >= 0.9 * taken_s


def test_bytes_are_enough_for_a_wave():
    pacer = Pacer(EngineOptions(), wave=1_000)
    first = pacer.byte_count
    pacer.learn(duration_ms=12_000, record_count=400, has_backlog=True)

    assert pacer.byte_count >= 2.5 * first


def test_a_wave_holds_to_the_limit_of_an_epoch_and_to_a_limited_rate():
    options = EngineOptions(max_records_per_epoch=300, epoch_target_ms=2_000)

    assert Pacer(options, wave=1_000).record_count == 300
    assert Pacer(EngineOptions(), wave=1_000, per_second=5).record_count == 10


def test_a_wave_changes_with_parallelism():
    pacer = Pacer(EngineOptions(), wave=100)
    pacer.change_wave(30_000)

    assert pacer.record_count == 30_000


@pytest.mark.parametrize("record_ms", [0.001, 0.002, 0.05])
def test_the_second_epoch_has_the_full_size_when_the_first_left_input(record_ms):
    pacer = Pacer(EngineOptions(max_records_per_epoch=5_000_000))
    sizes = []
    for own_ms in (20, 30, 30, 30, 30):
        sizes.append(pacer.record_count)
        duration_ms = own_ms + record_ms * sizes[-1]
        pacer.learn(duration_ms=duration_ms, record_count=sizes[-1], has_backlog=True)

    assert sizes[1] >= 0.5 * sizes[-1]
    assert sizes[2] >= 0.9 * sizes[-1]


def test_epochs_that_are_bounded_by_bytes_grow_in_bytes():
    pacer, sizes = Pacer(EngineOptions()), []
    for _ in range(8):
        sizes.append(min(pacer.byte_count // 10_000, pacer.record_count))
        pacer.learn(duration_ms=20 + sizes[-1] * 0.5, record_count=sizes[-1], has_backlog=True)

    assert sizes[0] == 104
    assert 3_000 <= sizes[-1] <= 8_000


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
