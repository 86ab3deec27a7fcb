"""``rate_limit``: records wait, and none is lost, on the harness and on Spark alike."""

import asyncio
from datetime import timedelta

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH, Harness, script_source
from bicycle_sdk import AsyncFunction


class Next(AsyncFunction[int, int]):
    def process(self, value, ctx):
        return [value + 1]


class Overlapping(AsyncFunction[int, int]):
    """Returns how many calls are in flight at the end of each call."""

    def open(self, ctx):
        self.count = 0

    async def process(self, value, ctx):
        self.count += 1
        await asyncio.sleep(0.2)
        found, self.count = self.count, self.count - 1
        return [found]


def itself(value):
    return value


def sizes(batch):
    return [len(batch)]


def limited(numbers):
    return numbers.rate_limit(400, burst=20).uid("limit").process(Next()).uid("next")


@pytest.mark.core
def test_all_records_pass_in_their_order_over_epochs_and_crashes(runner):
    #  epoch 1: 0..29 | epoch 2: 30..49 ✗      restart → epoch 2: 30..59 |
    first, second, third = list(range(30)), list(range(30, 50)), list(range(50, 60))

    done = runner(limited, [*first, EPOCH, *second, CRASH, *third, END])

    assert done.published == list(range(1, 61))
    assert done.crash_count == 1


@pytest.mark.parametrize("between", [False, True])
def test_slow_calls_are_in_flight_while_others_wait(runner, between):
    def job(numbers):
        passed = numbers.rate_limit(100, burst=1).uid("limit")
        if between:
            passed = passed.map(itself).uid("map")
        return passed.process_ordered(Overlapping(), timeout=timedelta(minutes=1)).uid("slow")

    done = runner(job, [*range(40), END])

    assert len(done.published) == 40
    assert max(done.published) > 3  # One, if each call ended before the next record passed.


def test_event_times_go_along(runner):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").assign_timestamps(itself)
        passed = numbers.rate_limit(500, burst=2)
        passed.key_by(lambda value: value % 2).tumbling_window(10).count().collect("out")

    done = runner(job, {"numbers": [1, 2, 3, 11, 25]})

    counted = sorted((one.key, one.start, one.value) for one in done.results["out"])
    assert counted == [(0, 0, 1), (1, 0, 2), (1, 10, 1), (1, 20, 1)]


def test_what_follows_gets_no_more_at_once_than_the_burst():
    def job(env):
        env.add_source(script_source(int)).rate_limit(10, burst=4).map_batches(sizes).collect("out")

    with Harness(job) as harness:
        harness.push(range(30))
        began_ms = harness.clock.now_ms()
        harness.end()
        harness.run()

        # Four pass at once, then one each 100 ms; waiting moves the clock.
        assert harness.published == [4, *[1] * 26]
        assert 2_600 <= harness.clock.now_ms() - began_ms <= 2_610


def test_after_a_pause_a_burst_may_pass_again():
    def job(env):
        env.add_source(script_source(int)).rate_limit(10, burst=4).map_batches(sizes).collect("out")

    with Harness(job) as harness:
        harness.push(range(6))
        harness.run_epoch()
        harness.clock.advance(60_000)
        harness.push(range(5))
        harness.run_epoch()

        assert harness.published == [4, 1, 1, 4, 1]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_subtasks_share_the_rate_and_another_parallelism_shares_it_again(parallelism):
    def job(env):
        numbers = env.add_source(script_source(int))
        numbers.rate_limit(10, burst=10).map_batches(sizes).collect("out")

    with Harness(job, parallelism=3) as harness:
        harness.rescale(parallelism)
        harness.push(range(20))
        harness.end()
        harness.run()

        # Each subtask begins with its share of the burst.
        assert max(harness.published) == 10 // parallelism
        assert sum(harness.published) == 20


def test_a_slow_rate_makes_epochs_small():
    def job(env):
        env.add_source(script_source(int)).rate_limit(3).collect("out")

    with Harness(job) as harness:
        harness.push(range(100))
        stats = harness.run_epoch()

        assert stats is not None
        assert stats.record_count == 6  # of the two seconds that an epoch is to take
