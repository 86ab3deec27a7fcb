"""Timers of whole jobs against a model: random settings, epochs, crashes, rescales."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction
from bicycle_sdk.state.timers import TimerQueue
from tests.examples import examples
from tests.property.mishaps import ENGINES

KEYS = ["a", "b", "c", "d"]
DOMAINS = ["event", "processing"]
START_MS = 1_000
# What on_timer does, by the time of the timer modulo 6: it sets and deletes times further on.
REACTIONS = {0: [("set", 2)], 2: [("drop", 4), ("set", 1)], 4: [("drop", 2)]}


class Programmed(KeyedProcessFunction[str, tuple, tuple]):
    """Sets and deletes timers as its records say."""

    def process_element(self, value, ctx):
        for action, domain, time_ms in value[1]:
            change(ctx.timer_service, action, domain, time_ms)
        return []

    def on_timer(self, timestamp_ms, ctx):
        fired = ctx.get_list_state("fired", int)
        fired.add(timestamp_ms)
        for action, distance in REACTIONS.get(timestamp_ms % 6, ()):
            change(ctx.timer_service, action, ctx.time_domain, timestamp_ms + distance)
        return [(ctx.time_domain, timestamp_ms, ctx.current_key(), len(fired.get()))]


def change(timers, action, domain, time_ms):
    verb = "register" if action == "set" else "delete"
    getattr(timers, f"{verb}_{domain}_time_timer")(time_ms)


class Model:
    """Timers as sets; it fires the least one that is due, over and over."""

    def __init__(self):
        self.timers = {domain: set() for domain in DOMAINS}
        self.fired = []
        self.counts = defaultdict(int)

    def change(self, key, action, domain, time_ms):
        if action == "set":
            self.timers[domain].add((time_ms, key))
        else:
            self.timers[domain].discard((time_ms, key))

    def settle(self, reached):
        while True:
            due = next(
                (
                    (domain, min(found))
                    for domain in DOMAINS
                    if (found := [t for t in self.timers[domain] if t[0] <= reached[domain]])
                ),
                None,
            )
            if due is None:
                return
            domain, (time_ms, key) = due
            self.timers[domain].remove((time_ms, key))
            self.counts[key] += 1
            self.fired.append((domain, time_ms, key, self.counts[key]))
            for action, distance in REACTIONS.get(time_ms % 6, ()):
                self.change(key, action, domain, time_ms + distance)


TIMES = {"event": st.integers(0, 60), "processing": st.integers(START_MS, START_MS + 60)}
CHANGES = st.sampled_from(DOMAINS).flatmap(
    lambda domain: st.tuples(
        st.sampled_from(["set", "set", "set", "drop"]), st.just(domain), TIMES[domain]
    )
)
RECORDS = st.tuples(st.sampled_from(KEYS), st.lists(CHANGES, min_size=1, max_size=5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(RECORDS, min_size=1, max_size=5)),
        st.tuples(st.just("push"), st.lists(RECORDS, min_size=1, max_size=5)),
        st.tuples(st.just("watermark"), st.integers(1, 20)),
        st.tuples(st.just("clock"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["crash", "lose", "fail", "fail"]), st.integers(0, 50)),
        st.tuples(st.sampled_from(["rescale", "rescale_live"]), st.integers(1, 3)),
    ),
    min_size=3,
    max_size=14,
)


def job(env):
    records = env.add_source(script_source()).uid("records")
    records.key_by(lambda record: record[0]).process_fn(Programmed()).uid("timers").collect("out")


@pytest.mark.parametrize("is_one_subtask", [True, False], ids=["in-order", "rescaled"])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, engine=ENGINES)
def test_timers_fire_as_the_model_says(is_one_subtask, steps, engine):
    model = Model()
    reached = {"event": -1, "processing": START_MS}
    parallelism = 1 if is_one_subtask else 2
    with Harness(job, parallelism=parallelism, start_ms=START_MS, engine=engine) as harness:
        for word, number in steps:
            match word:
                case "push":
                    harness.push(number)
                    for key, changes in number:
                        for action, domain, time_ms in changes:
                            model.change(key, action, domain, time_ms)
                case "watermark":
                    reached["event"] += number
                    harness.advance_watermark(reached["event"])
                case "clock":
                    reached["processing"] += number
                    harness.clock.advance(number)
                case "fail":
                    harness.fail_at(FAULT_POINTS[number % len(FAULT_POINTS)])
                    harness.push([("a", [])])
                case "rescale" | "rescale_live" if not is_one_subtask:
                    getattr(harness, word)(number)
                case "crash":
                    harness.crash()
                case _:
                    harness.lose_workers()
            harness.run()
            model.settle(reached)

        if is_one_subtask:
            assert harness.published == model.fired
        assert by_key(harness.published) == by_key(model.fired)
        for key in KEYS:
            waiting = {(timer.domain, timer.time_ms) for timer in harness.timers("timers", key)}
            assert waiting == {
                (domain, time_ms)
                for domain in DOMAINS
                for time_ms, owner in model.timers[domain]
                if owner == key
            }


def by_key(fired):
    found = defaultdict(list)
    for timer in fired:
        found[timer[2]].append(timer)
    return found


ENTRY_KEYS = st.tuples(st.sampled_from(KEYS), st.integers(0, 20))
QUEUE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.lists(ENTRY_KEYS, max_size=12, unique=True)),
        st.tuples(st.sampled_from(["set", "delete", "unload"]), ENTRY_KEYS),
        st.tuples(st.just("pop"), st.integers(0, 20)),
    ),
    max_size=30,
)


@given(QUEUE_STEPS)
def test_timers_that_are_loaded_at_once_fire_as_those_loaded_one_by_one(steps):
    many, single = TimerQueue("event"), TimerQueue("event")
    for word, what in steps:
        match word:
            case "load":
                many.load_all(what)
                for entry_key in what:
                    single.load_all([entry_key])
            case "pop":
                assert many.pop_due(what) == single.pop_due(what)
            case _:
                for queue in (many, single):
                    getattr(queue, word)(*what)
        assert many.next_time_ms() == single.next_time_ms()
        assert many.waiting == single.waiting
    assert many.touched == single.touched
