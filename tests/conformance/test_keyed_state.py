"""Typed state by key, on the harness and on Spark alike."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bicycle_runtime.operators.errors import UNKEYED_STATE
from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import (
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessFunction,
    RichAsyncFunction,
    StateTtl,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tests.raising import raises

LONG = timedelta(seconds=30)


class Mean:
    def create_accumulator(self):
        return (0, 0)

    def add(self, accumulator, value):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]


class AllKinds(KeyedProcessFunction[str, tuple[str, int], tuple]):
    """Keeps what it sees in a state of each kind; some are obtained once, some for each record."""

    stock = MapStateDescriptor("stock", str, int)

    def open(self, ctx):
        self.last = ctx.get_value_state("last", int, default=0)
        self.stocked = ctx.get_map_state(self.stock)

    def process_element(self, value, ctx):
        key, number = value
        seen = ctx.get_list_state("seen", int)
        total = ctx.get_reducing_state("total", int, lambda a, b: a + b)
        mean = ctx.get_aggregating_state("mean", Mean(), tuple[int, int])
        before = self.last.value()
        self.last.update(number)
        seen.add(number)
        total.add(number)
        mean.add(number)
        self.stocked.put(f"n{number}", number)
        return [(key, before, seen.get(), total.get(), mean.get(), list(self.stocked.keys()))]


SCRIPT = [("a", 2), ("b", 7), ("a", 1), EPOCH, ("a", 3), CRASH, ("b", 8), EPOCH, ("a", 4), END]


@pytest.mark.core
@pytest.mark.parametrize("parallelism", [1, 3])
def test_states_of_all_kinds_are_kept_per_key_and_survive_a_crash(runner, parallelism):
    job = runner(
        lambda s: s.key_by(lambda pair: pair[0]).process_fn(AllKinds()).uid("kinds"),
        SCRIPT,
        parallelism=parallelism,
    )

    assert sorted(job.published) == [
        ("a", 0, [2], 2, 2.0, ["n2"]),
        ("a", 1, [2, 1, 3], 6, 2.0, ["n1", "n2", "n3"]),
        ("a", 2, [2, 1], 3, 1.5, ["n1", "n2"]),
        ("a", 3, [2, 1, 3, 4], 10, 2.5, ["n1", "n2", "n3", "n4"]),
        ("b", 0, [7], 7, 7.0, ["n7"]),
        ("b", 7, [7, 8], 15, 7.5, ["n7", "n8"]),
    ]


def counting(env):
    words = env.add_source(script_source(str)).uid("words").key_by(lambda word: word)
    words.process_fn(Counting()).uid("count").collect("out")


class Counting(KeyedProcessFunction[str, str, tuple[str, int]]):
    count = ValueStateDescriptor("count", int, default=0)

    def process_element(self, value, ctx):
        state = ctx.get_value_state(self.count)
        state.update(state.value() + 1)
        return [(value, state.value())]


@pytest.mark.core
def test_state_follows_its_keys_when_the_parallelism_changes(runner):
    words = ["w" + str(number % 10) for number in range(40)]
    with runner.harness(counting, parallelism=1) as harness:
        for part, parallelism in enumerate((3, 2, 4)):
            harness.push(words[part * 10 : part * 10 + 10])
            harness.run_epoch()
            harness.rescale(parallelism)
        harness.push(words[30:])
        harness.run_epoch()

        assert sorted(harness.published) == sorted(
            (f"w{number}", count) for number in range(10) for count in range(1, 5)
        )
        assert harness.state("count")["w3"] == {"count": 4}
        assert harness.value("count", key="w3", name="count") == 4


@dataclass
class Mixed(RichAsyncFunction[str, tuple[str, int, int, int]]):
    """State in attributes, in named values and in handles, with many calls in flight."""

    counts: dict[str, int] = field(default_factory=dict)

    def open(self, ctx):
        self.typed = ctx.get_value_state("typed", int, default=0)

    async def process(self, value, ctx):
        before = self.typed.value()
        await asyncio.sleep(0.001)
        self.typed.update(before + 1)
        self.counts[value] = self.counts.get(value, 0) + 1
        ctx.save_state("named", ctx.get_state("named", 0) + 1)
        mine = ctx.get_value_state("typed", int, default=0).value()
        return [(value, self.counts[value], ctx.get_state("named"), mine)]


def test_calls_in_flight_write_under_their_own_keys(runner):
    words = ["a", "b", "c", "d"] * 4
    job = runner(
        lambda s: s.key_by(lambda w: w).process_unordered(Mixed(), timeout=LONG, capacity=9),
        [*words[:8], EPOCH, *words[8:], END],
    )

    assert sorted(job.published) == sorted(
        (word, count, count, count) for word in "abcd" for count in range(1, 5)
    )


class Sessions(KeyedProcessFunction[str, str, tuple[str, int]]):
    clicks = ValueStateDescriptor("clicks", int, default=0, ttl=StateTtl(10_000))

    def process_element(self, value, ctx):
        state = ctx.get_value_state(self.clicks)
        state.update(state.value() + 1)
        return [(value, state.value())]


def sessions(env):
    clicks = env.add_source(script_source(str)).uid("clicks").key_by(lambda user: user)
    clicks.process_fn(Sessions()).uid("sessions").collect("out")


def test_what_expired_is_not_seen_again_and_leaves_the_state(runner):
    with runner.harness(sessions) as harness:
        harness.push(["ada", "ada", "bob"])
        harness.run_epoch()
        harness.clock.advance(9_000)
        harness.push(["ada"])
        harness.run_epoch()
        harness.clock.advance(9_000)
        harness.crash()
        harness.push(["ada", "bob"])
        harness.run_epoch()

        assert sorted(harness.published) == [
            ("ada", 1), ("ada", 2), ("ada", 3), ("ada", 4), ("bob", 1), ("bob", 1)
        ]  # fmt: skip
        harness.advance_time(20_000)
        assert harness.state("sessions") == {}


class Until(KeyedProcessFunction[str, tuple[str, int], tuple[str, int | None]]):
    """Keeps a time for 100 ms of event time, and tells it when the clock has gone on."""

    kept = ValueStateDescriptor("kept", int, ttl=StateTtl(100, time="event"))

    def process_element(self, value, ctx):
        kept = ctx.get_value_state(self.kept)
        before = kept.value()
        kept.update(value[1])
        ctx.timer_service.register_processing_time_timer(ctx.now() + 1_000)
        return [("record", before)]

    def on_timer(self, timestamp_ms, ctx):
        return [("timer", ctx.get_value_state(self.kept).value())]


class AtTimes(Until):
    """Tells the time that was kept 99 and 100 ms behind it."""

    def process_element(self, value, ctx):
        ctx.get_value_state(self.kept).update(value[1])
        for distance in (99, 100):
            ctx.timer_service.register_event_time_timer(value[1] + distance)
        return []


def kept_by(function):
    def job(env):
        records = env.add_source(script_source()).uid("records")
        timed = records.assign_timestamps(
            WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        )
        timed.key_by(lambda record: record[0]).process_fn(function).uid("kept").collect("out")

    return job


class Before(RichAsyncFunction[tuple[str, int], tuple[int, int | None]]):
    """Tells the time of the record before, if it is less than 100 ms ago."""

    kept = ValueStateDescriptor("kept", int, ttl=StateTtl(100, time="event"))

    async def process(self, value, ctx):
        kept = ctx.get_value_state(self.kept)
        before = kept.value()
        kept.update(value[1])
        return [(value[1], before)]


@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize("parts", [[3], [1, 1, 1]])
def test_state_of_a_rich_function_expires_by_the_times_of_records(runner, parts, capacity):
    records = [("ada", 10), ("ada", 120), ("ada", 219)]
    script = []
    for size in parts:
        script += [*records[:size], EPOCH]
        records = records[size:]

    def job(stream):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        keyed = stream.assign_timestamps(strategy).key_by(lambda record: record[0])
        return keyed.process_ordered(Before(), timeout=LONG, capacity=capacity)

    found = runner(job, [*script, END])

    assert found.published == [(10, None), (120, None), (219, 120)]


@pytest.mark.parametrize("watermarks", [[109, 110], [5_000]])
def test_a_timer_of_event_time_finds_what_had_not_expired_by_its_own_time(runner, watermarks):
    with runner.harness(kept_by(AtTimes())) as harness:
        harness.push([("ada", 10)])
        for watermark in watermarks:
            harness.advance_watermark(watermark)

        assert harness.published == [("timer", 10), ("timer", None)]


def test_what_expires_by_event_time_does_not_when_a_timer_of_the_clock_fires(runner):
    job = kept_by(Until())
    with runner.harness(job) as harness:
        harness.push([("ada", 10)])
        harness.run_epoch()
        harness.advance_time(1_000)
        harness.push([("ada", 109), ("ada", 209)])
        harness.run_epoch()

        assert harness.published == [
            ("record", None), ("timer", 10), ("record", 10), ("record", None)
        ]  # fmt: skip


class Lasting(Until):
    """Emits the entries of each kind of state that are left, and adds one."""

    def process_element(self, value, ctx):
        each = ctx.get_list_state("each", int, ttl=self.kept.ttl)
        by_time = ctx.get_map_state("by_time", int, int, ttl=self.kept.ttl)
        found = list(each.get()), list(by_time.keys())
        each.add(value[1])
        by_time.put(value[1], 0)
        return [*super().process_element(value, ctx), found]


def test_state_expires_by_records_and_not_by_the_end_of_their_input(runner):
    job = kept_by(Lasting())
    with runner.harness(job) as former:
        former.push([("ada", 10), ("ada", 50)])
        former.run_epoch()
        former.clock.advance(1_000)
        former.end()
        former.run()
        assert former.published[4:] == [("timer", 50)]
        with runner.harness(job, start_from=str(former.storage.root)) as later:
            later.push([("ada", 10), ("ada", 50), ("ada", 109), ("ada", 150), ("bob", 400)])
            later.run_epoch()
            assert later.published[:4] == [
                ("record", 50), ([10, 50], [10, 50]), ("record", 109), ([109], [109])
            ]  # fmt: skip
            later.push([("bob", 400)])
            later.run_epoch()
            assert list(later.state("kept")) == ["bob"]


class Unkeyed(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        ctx.get_value_state("n", int)
        return [value]


class UnkeyedTimer(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(1)
        return [value]


@pytest.mark.parametrize("function", [Unkeyed(), UnkeyedTimer()], ids=["state", "timer"])
def test_state_and_timers_by_key_need_a_key(runner, function):
    with raises(UNKEYED_STATE):
        runner(lambda s: s.process_fn(function).uid("unkeyed"), ["a", END])
