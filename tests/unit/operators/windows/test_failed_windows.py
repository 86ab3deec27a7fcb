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
