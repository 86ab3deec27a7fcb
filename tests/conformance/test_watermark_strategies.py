"""Where event times come from and how far they have come, on the harness and on Spark alike."""

from datetime import UTC, datetime, timedelta

import pytest

from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import END, script_source
from bicycle_sdk import ProcessFunction, WatermarkGenerator, WatermarkStrategy
from bicycle_sdk.contexts import WATERMARK_MIN
from tests.event_time import Stamps, second


class Marks(ProcessFunction[object, tuple[object, int]]):
    def process_element(self, value, ctx):
        return [(value, ctx.current_watermark())]


class EveryTen(WatermarkGenerator[tuple[str, int]]):
    """A watermark at the end of each epoch, rounded down to ten."""

    def __init__(self):
        self.newest = WATERMARK_MIN

    def on_event(self, timestamp_ms, record):
        self.newest = max(self.newest, timestamp_ms)

    def on_epoch_end(self):
        return self.newest // 10 * 10


STRATEGIES = {
    "ascending": (WatermarkStrategy.ascending(), 46),
    "bounded": (WatermarkStrategy.bounded_out_of_orderness(timedelta(milliseconds=5)), 41),
    "punctuated": (WatermarkStrategy.punctuated(lambda time, v: v[0] == "mark"), 31),
    "a value": (
        WatermarkStrategy.punctuated(lambda time, v: time - 9 if v[0] == "x" else None),
        38,
    ),
    "custom": (WatermarkStrategy.custom(EveryTen()), 40),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_decides_how_far_event_time_has_come(runner, name):
    strategy, expected = STRATEGIES[name]

    def job(env):
        stream = env.add_source(script_source()).assign_timestamps(strategy.with_timestamps(second))
        stream.process_fn(Marks()).uid("marks").collect("published")

    with runner.harness(job) as harness:
        harness.push([("x", 12), ("mark", 31), ("x", 47), ("x", 40)])
        harness.run()
        assert harness.watermark("marks") == expected

        harness.push([("x", 1), ("y", 2)])
        harness.run()
        assert harness.watermark("marks") == expected
        assert [mark for _, mark in harness.published] == [WATERMARK_MIN] * 4 + [expected] * 2


@pytest.mark.core
def test_an_assigner_overrides_those_above_it(runner):
    def job(env):
        words = env.add_source(script_source()).uid("words")
        timed = words.assign_timestamps(
            WatermarkStrategy.ascending().with_timestamps(second)
        ).rebalance()
        later = timed.assign_timestamps(lambda value: value[1] + 100_000).uid("later")
        later.process_fn(Stamps()).collect("published")
        later.process_fn(Marks()).uid("marks").collect("marks")

    with runner.harness(job) as harness:
        harness.push([("a", 1_000)])
        harness.run()

        assert harness.results("published") == [(("a", 1_000), 101_000)]
        assert harness.watermark("marks") == 95_999


TIMES = {
    "aware": (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000),
    "float": (1_500.75, 1_500),
    "negative": (-5, -5),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_may_be_numbers_or_datetimes_with_a_zone(runner, name):
    given, expected = TIMES[name]
    job = runner(
        lambda s: s.assign_timestamps(lambda value: value).process_fn(Stamps()), [given, END]
    )

    assert job.published == [(given, expected)]


BAD_TIMES = [None, "2026-01-01", float("nan"), float("inf"), True, 2**63, datetime(2026, 1, 1)]  # noqa: DTZ001  # without a zone on purpose


@pytest.mark.parametrize("bad", BAD_TIMES, ids=map(str, BAD_TIMES))
def test_a_bad_time_is_an_error_of_its_record(runner, bad):
    def job(stream):
        timed = stream.assign_timestamps(lambda value: value).on_error("skip")
        return timed.process_fn(Stamps())

    assert runner(job, [3, bad, 5, END]).published == [(3, 3), (5, 5)]
    with pytest.raises(FunctionFailedError) as caught:
        runner(lambda s: s.assign_timestamps(lambda value: value).print(), [3, bad, END])
    assert caught.value.facts["offset"] == 1
