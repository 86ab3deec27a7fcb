"""Timers at the edges: bad results, retries, named values, and where there is no key."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.errors import RUNAWAY_TIMERS, ErrorRateError
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import Advance
from bicycle_runtime.operators.functions.timers import TimerRound
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction
from bicycle_sdk.contexts import TaskInfo
from bicycle_sdk.errors import FunctionResultError, StateDefinitionError
from bicycle_sdk.failures import retry, skip
from tests.raising import raises


class Alarm(KeyedProcessFunction[str, int, tuple]):
    """Sets a timer at each number."""

    def process_element(self, value, ctx):
        ctx.save_state("seen", ctx.get_state("seen", 0) + 1)
        ctx.timer_service.register_event_time_timer(value)
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(timestamp_ms, ctx.get_state("seen"))]


def alarms(function, change=lambda stream: stream):
    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").key_by(lambda n: n % 2)
        change(numbers.process_fn(function).uid("alarm")).collect("out")

    return job


def rung(job, numbers, watermark=100):
    with Harness(job) as harness:
        harness.push(numbers)
        harness.advance_watermark(watermark)
        return harness.published


def test_named_values_are_those_of_the_key_of_the_timer():
    assert rung(alarms(Alarm()), [1, 3, 4]) == [(1, 2), (3, 2), (4, 1)]


class Silent(Alarm):
    def on_timer(self, timestamp_ms, ctx):
        return None


class SilentAsync(Alarm):
    async def on_timer(self, timestamp_ms, ctx):
        return None


@pytest.mark.parametrize("function", [Silent(), SilentAsync()], ids=["plain", "async"])
def test_a_timer_must_give_an_iterable_of_records(function):
    with pytest.raises(FunctionResultError):
        rung(alarms(function), [1])


class SetAgain(Alarm):
    def on_timer(self, timestamp_ms, ctx):
        return {timestamp_ms: 1}.keys()


def test_any_iterable_of_records_will_do():
    assert rung(alarms(SetAgain()), [1, 2]) == [1, 2]


class FailsOnce(Alarm):
    def __init__(self):
        self.failures = []

    def on_timer(self, timestamp_ms, ctx):
        if timestamp_ms not in self.failures:
            self.failures.append(timestamp_ms)
            raise ValueError(timestamp_ms)
        return [timestamp_ms]


def test_a_timer_that_failed_is_tried_again():
    job = alarms(FailsOnce(), lambda stream: stream.on_error(retry(1)))

    assert rung(job, [1, 2, 3]) == [1, 2, 3]


class Planned(Alarm):
    """Does for each timer what a plan says: sets and deletes others, before and behind it."""

    def __init__(self, plan, failing):
        self.plan, self.failing = plan, failing

    def on_timer(self, timestamp_ms, ctx):
        count = ctx.get_value_state("count", int, default=0)
        count.update(count.value() + 1)
        for is_set, step in self.plan[count.value() % len(self.plan)] if count.value() < 30 else ():
            change = (
                ctx.timer_service.register_event_time_timer
                if is_set
                else ctx.timer_service.delete_event_time_timer
            )
            change(timestamp_ms + step)
        if timestamp_ms in self.failing:
            raise ValueError(timestamp_ms)
        return [(ctx.current_key(), timestamp_ms, count.value())]


class PlannedAsync(Planned):
    async def on_timer(self, timestamp_ms, ctx):
        return super().on_timer(timestamp_ms, ctx)


STEPS = st.lists(st.tuples(st.booleans(), st.integers(-6, 20)), max_size=3)


@given(
    numbers=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    plan=st.lists(STEPS, min_size=1, max_size=4),
    failing=st.sets(st.integers(0, 60), max_size=3),
)
@settings(max_examples=20, deadline=None)
def test_timers_fire_in_order_whatever_others_are_set_and_deleted_meanwhile(numbers, plan, failing):
    """All that are due in one run, or one by one in an event loop."""

    def fired(function):
        job = alarms(function(plan, failing), lambda stream: stream.on_error(skip()))
        with Harness(job) as harness:
            for watermark in (20, 90):
                harness.push(numbers)
                harness.advance_watermark(watermark)
            return harness.published

    assert fired(Planned) == fired(PlannedAsync)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("function", [Planned, PlannedAsync])
def test_a_timer_that_is_left_out_leaves_nothing_in_state(function, backend):
    job = alarms(function([[(True, 5)]], {2}), lambda stream: stream.on_error(skip()))
    with Harness(job, engine=EngineOptions(state_backend=backend)) as harness:
        harness.push([2, 4, 9])
        harness.advance_watermark(13)

        assert harness.published == [(0, 4, 1), (0, 9, 2), (1, 9, 1)]


class Rings(KeyedProcessFunction[str, int, tuple]):
    """Sends the kind of each timer to a side output."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(value)
        ctx.timer_service.register_processing_time_timer(0)
        return []

    def on_timer(self, timestamp_ms, ctx):
        ctx.side_output("rung", ctx.time_domain)
        return []


def test_side_outputs_of_timers_of_both_kinds_in_one_round_have_event_times():
    def job(env):
        numbers = env.add_source(script_source(int)).key_by(lambda n: n % 2)
        sides = numbers.process_fn(Rings()).uid("rings").side_output("rung")
        sides.key_by(lambda kind: kind).tumbling_window(100).count().collect("out")

    found = rung(job, [1, 10_000], watermark=20_000)

    assert {(each.key, each.start, each.value) for each in found} == {
        ("event", 0, 1), ("processing", 0, 2), ("event", 10_000, 1),
    }  # fmt: skip


class Broken(Alarm):
    def on_timer(self, timestamp_ms, ctx):
        raise ValueError(timestamp_ms)


def test_timers_count_for_the_rate_of_errors():
    job = alarms(Broken(), lambda stream: stream.on_error(skip(), max_error_rate=0.4))
    with pytest.raises(ErrorRateError) as caught:
        rung(job, [1, 2, 3])
    assert (caught.value.facts["failed"], caught.value.facts["total"]) == (3, 6)


class Early(Alarm):
    def open(self, ctx):
        ctx.get_value_state("n", int).update(1)


def test_state_without_a_record_or_timer_at_hand_is_refused():
    with pytest.raises(StateDefinitionError):
        rung(alarms(Early()), [1])


class Restless(Alarm):
    """Sets a timer for the very moment that has come, five times."""

    def on_timer(self, timestamp_ms, ctx):
        count = ctx.get_value_state("count", int, default=0)
        count.update(count.value() + 1)
        if count.value() < 5:
            ctx.timer_service.register_event_time_timer(timestamp_ms)
        return [count.value()]


def test_a_timer_set_again_while_it_fires_fires_again():
    assert rung(alarms(Restless()), [7]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("domain", ["event", "processing"])
def test_timers_that_are_set_for_times_that_have_come_do_not_go_on_for_ever(domain):
    context = KeyedContext(
        TaskInfo(job_id="job", operator_name="alarm"), processing_time=0, group_count=4,
        key_selector=lambda n: n,
    )  # fmt: skip
    context.has_timers = True
    queue = context.timers.event if domain == "event" else context.timers.processing

    def on_timer(timestamp_ms, ctx):
        queue.set(ctx.current_key(), timestamp_ms - 1)
        return [timestamp_ms]

    queue.set("other", 4)
    queue.set("key", 5)
    queue.delete("other", 4)
    timer_round = TimerRound(
        context, on_timer, function="Alarm", policy=SimpleNamespace(total=0),
        advance=Advance(watermark=9, previous=0, now_ms=8), due_ms=9,
        firings_max=200,
    )  # fmt: skip
    with raises(RUNAWAY_TIMERS) as caught:
        timer_round.fire()

    facts = caught.value.facts
    assert (facts["key"], facts["domain"], facts["count"]) == ("'key'", domain, 200)
    assert facts["reached_ms"] == (9 if domain == "event" else 8)
