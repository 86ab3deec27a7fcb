"""Timers of keyed functions, on the harness and on Spark alike."""

import asyncio

import pytest

from bicycle_runtime.operators.errors import ENDLESS_TIMERS, FunctionFailedError
from bicycle_runtime.testing import END, script_source
from bicycle_sdk import KeyedProcessFunction, ProcessFunction, RichAsyncFunction
from bicycle_sdk.contexts import WATERMARK_MAX
from bicycle_sdk.errors import StateDefinitionError
from bicycle_sdk.failures import dead_letter, skip
from tests.raising import raises


class Alarm(KeyedProcessFunction[str, tuple[str, int], tuple[str, int, int]]):
    """Rings at the times that its records name, and tells how many it has rung for the key."""

    def open(self, ctx):
        self.rung = ctx.get_value_state("rung", int, default=0)

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(value[1])
        return []

    def on_timer(self, timestamp_ms, ctx):
        self.rung.update(self.rung.value() + 1)
        ctx.side_output("rung", timestamp_ms)
        return [(ctx.current_key(), timestamp_ms, self.rung.value())]


class AsyncAlarm(Alarm):
    async def on_timer(self, timestamp_ms, ctx):
        await asyncio.sleep(0)
        return super().on_timer(timestamp_ms, ctx)


class YieldingAlarm(Alarm):
    def on_timer(self, timestamp_ms, ctx):
        yield from super().on_timer(timestamp_ms, ctx)


def alarms(function, env):
    pairs = env.add_source(script_source()).uid("pairs").key_by(lambda pair: pair[0])
    rung = pairs.process_fn(function).uid("alarm")
    rung.side_output("rung").collect("rung")
    rung.collect("out")


@pytest.mark.core
@pytest.mark.parametrize(
    "function", [Alarm(), AsyncAlarm(), YieldingAlarm()], ids=["plain", "async", "generator"]
)
def test_timers_fire_once_by_time_and_key_and_outlive_a_crash(runner, function):
    with runner.harness(lambda env: alarms(function, env)) as harness:
        harness.push([("b", 10), ("a", 10), ("a", 20), ("a", 10)])
        harness.run_epoch()
        assert harness.results("out") == []
        harness.crash()
        harness.advance_watermark(9)
        assert harness.results("out") == []
        harness.advance_watermark(10)
        assert harness.results("out") == [("a", 10, 1), ("b", 10, 1)]
        harness.fail_at("before_seal")
        harness.advance_watermark(25)
        harness.advance_watermark(30)

        assert harness.results("out")[2:] == [("a", 20, 2)]
        assert harness.results("rung") == [10, 10, 20]
        assert harness.timers("alarm", "a") == []


def test_timers_follow_their_keys_when_the_parallelism_changes(runner):
    keys = [f"k{number}" for number in range(9)]
    with runner.harness(lambda env: alarms(Alarm(), env), parallelism=3) as harness:
        harness.push([(key, 100) for key in keys])
        harness.run_epoch()
        harness.rescale(2)
        harness.advance_watermark(100)

        assert sorted(harness.results("out")) == [(key, 100, 1) for key in keys]


def test_the_end_of_the_input_fires_every_timer_of_event_time(runner):
    with runner.harness(lambda env: alarms(Alarm(), env)) as harness:
        harness.push([("a", 5_000), ("b", 7)])
        harness.end()
        harness.run()

        assert harness.results("out") == [("b", 7, 1), ("a", 5_000, 1)]


class Reminder(KeyedProcessFunction[str, str, tuple[str, str]]):
    def process_element(self, value, ctx):
        ctx.timer_service.register_processing_time_timer(ctx.now() + 1_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), ctx.time_domain)]


@pytest.mark.core
def test_timers_of_processing_time_fire_on_quiet_input(runner):
    def reminders(env):
        env.add_source(script_source(str)).key_by(lambda w: w).process_fn(Reminder()).collect("out")

    with runner.harness(reminders) as harness:
        harness.push(["a", "b"])
        harness.run_epoch()
        harness.advance_time(999)
        assert harness.published == []
        harness.advance_time(1)

        assert sorted(harness.published) == [("a", "processing"), ("b", "processing")]


class Stamped(ProcessFunction[tuple, tuple]):
    def process_element(self, value, ctx):
        return [(value[0], ctx.timestamp)]


def test_what_a_timer_emits_has_the_time_of_the_timer(runner):
    def stamped(env):
        pairs = env.add_source(script_source()).uid("pairs").key_by(lambda pair: pair[0])
        rung = pairs.process_fn(Alarm()).uid("alarm")
        rung.process_fn(Stamped()).collect("near")
        rung.key_by(lambda pair: pair[0]).process_fn(Stamped()).collect("far")
        rung.side_output("rung").map(lambda n: (n, 0)).process_fn(Stamped()).collect("side")

    with runner.harness(stamped) as harness:
        harness.push([("a", 30), ("b", 20)], timestamp=[10, 11])
        harness.advance_watermark(50)

        assert harness.results("near") == [("b", 20), ("a", 30)]
        assert sorted(harness.results("far")) == [("a", 30), ("b", 20)]
        assert harness.results("side") == [(20, 20), (30, 30)]


class Fragile(Alarm):
    def on_timer(self, timestamp_ms, ctx):
        if timestamp_ms == 13:
            raise ValueError("unlucky")
        return super().on_timer(timestamp_ms, ctx)


class AsyncFragile(Fragile):
    async def on_timer(self, timestamp_ms, ctx):
        await asyncio.sleep(0)
        return super().on_timer(timestamp_ms, ctx)


def fragile(function, action, env):
    pairs = env.add_source(script_source()).uid("pairs").key_by(lambda pair: pair[0])
    rung = pairs.process_fn(function).uid("alarm")
    (rung if action is None else rung.on_error(action)).collect("out")


@pytest.mark.parametrize("function", [Fragile(), AsyncFragile()], ids=["plain", "async"])
def test_an_error_of_a_timer_follows_on_error_and_names_key_and_timer(runner, function):
    pairs = [("a", 12), ("a", 13), ("b", 14)]
    with runner.harness(lambda env: fragile(function, None, env)) as harness:
        harness.push(pairs)
        with pytest.raises(FunctionFailedError) as caught:
            harness.advance_watermark(20)
        assert caught.value.facts["key"] == "'a'"
        assert caught.value.facts["position"] == "the event-time timer at 13"
        assert caught.value.facts["exception"] == "ValueError"

    for action, kept in ((skip(), []), (dead_letter(), [("'a'", "unlucky")])):
        with runner.harness(lambda env, do=action: fragile(function, do, env)) as harness:
            harness.push(pairs)
            harness.advance_watermark(20)
            assert harness.results("out") == [("a", 12, 1), ("b", 14, 1)]
            letters = [(letter["key"], letter["message"]) for letter in harness.dead_letters]
            assert letters == kept


class Restless(KeyedProcessFunction[str, str, int]):
    """Sets a timer for each minute, forever, or until the input has ended."""

    def __init__(self, *, stops):
        self.stops = stops

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(60_000)
        return []

    def on_timer(self, timestamp_ms, ctx):
        if not (self.stops and ctx.current_watermark() == WATERMARK_MAX):
            ctx.timer_service.register_event_time_timer(timestamp_ms + 60_000)
        return [timestamp_ms]


def test_timers_without_end_are_an_error_once_all_input_has_ended(runner):
    def restless(stops):
        return lambda s: s.key_by(lambda w: w).process_fn(Restless(stops=stops)).uid("restless")

    assert runner(restless(True), ["a"]).published == []
    with raises(ENDLESS_TIMERS) as caught:
        runner(restless(False), ["a", END])
    assert caught.value.facts["key"] == "'a'"
    assert runner(restless(True), ["a", END]).published == [60_000]


class Timerless(RichAsyncFunction[str, str]):
    def process(self, value, ctx):
        ctx.timer_service.register_event_time_timer(1)
        return [value]


def test_a_function_without_on_timer_can_set_none(runner):
    with pytest.raises(StateDefinitionError):
        runner(lambda s: s.key_by(lambda w: w).process(Timerless()).uid("rich"), ["a", END])
