"""What is told of a window whose function failed."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction


def refuses(records, ctx):
    raise ValueError("not today")


class Refuses(KeyedProcessFunction[str, tuple, tuple]):
    """Fails when a timer fires."""

    def process_element(self, value, ctx):
        ctx.timer_service.register_event_time_timer(9)
        ctx.timer_service.register_processing_time_timer(ctx.now())
        return []

    def on_timer(self, timestamp_ms, ctx):
        raise ValueError("not today")


CUTS = {
    "tumbling": lambda keyed: keyed.tumbling_window(10).process(refuses),
    "session": lambda keyed: keyed.session_window(8).process(refuses),
    "count": lambda keyed: keyed.count_window(1).process(refuses),
    "timers": lambda keyed: keyed.process_fn(Refuses()),
}


@pytest.mark.parametrize(
    ("kind", "times"),
    [("tumbling", [9]), ("session", [9]), ("count", [None]), ("timers", [9, None])],
)
def test_a_dead_letter_has_the_event_time_that_the_result_would_have_had(kind, times):
    def job(env):
        timed = env.add_source(script_source()).assign_timestamps(lambda record: record[1])
        failing = CUTS[kind](timed.key_by(lambda record: record[0]))
        failing.on_error("dead_letter").uid("failing").collect("out")

    with Harness(job) as harness:
        harness.push([("ada", 2)])
        harness.advance_watermark(10)

        assert [letter["event_time_ms"] for letter in harness.dead_letters] == times
        assert {letter["key"] for letter in harness.dead_letters} == {"'ada'"}


def test_a_record_behind_the_watermark_that_a_sum_refuses_becomes_a_letter_with_its_time():
    def job(env):
        timed = env.add_source(script_source()).assign_timestamps(lambda record: record[1])
        sessions = timed.key_by(lambda record: record[0]).session_window(60_000)
        sums = sessions.sum(lambda record: record[2] + 0)
        sums.on_error("dead_letter").uid("sums").collect("out")

    with Harness(job) as harness:
        harness.push([("ada", 100_000, 1)])
        harness.run()
        harness.push([("ada", 90_000, 5), ("ada", 90_001, "bad")])
        harness.run()
        harness.advance_watermark(500_000)

        assert [(each.start, each.value) for each in harness.results("out")] == [(90_000, 6)]
        assert [letter["event_time_ms"] for letter in harness.dead_letters] == [90_001]
