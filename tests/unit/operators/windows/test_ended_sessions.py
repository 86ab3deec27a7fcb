"""The trace of an ended session: kept while a record may touch it, and no longer."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import EventTimeTrigger

WAYS = {
    "folded": lambda keyed: keyed.session_window(5),
    "cut": lambda keyed: keyed.session_window(5, max_duration=50),
    "triggered": lambda keyed: keyed.session_window(5).trigger(EventTimeTrigger()),
}


@pytest.mark.parametrize("way", ["folded", "triggered"])
def test_an_ended_session_is_forgotten_once_no_record_may_touch_it(way):
    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        timed = env.add_source(script_source()).assign_timestamps(strategy)
        WAYS[way](timed.key_by(lambda record: record[0])).count().uid("window").collect("out")

    with Harness(job) as harness:
        counts = []
        # [0, 5) fires at the watermark 5 and is remembered for two gaps, until 15.
        for key, time in [("a", 0), ("z", 7), ("z", 11), ("z", 15), ("z", 16)]:
            harness.push([(key, time)])
            counts.append(harness.run_epoch().operator_keys["window"])
            harness.crash()

        # The watermark is 1 less than the newest time: -1, 6, 10, 14 and 15.
        assert counts == [1, 2, 2, 2, 1]
        assert harness.results("out") == [("a", 0, 5, 1)]


@pytest.mark.parametrize("way", WAYS)
def test_an_ended_session_is_remembered_while_a_record_may_join_it_to_an_open_one(way):
    #  [0, 5) has ended; 9, 13 and 17 keep [9, 22) open, so that 4 would reach from one to the other
    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        timed = env.add_source(script_source()).assign_timestamps(strategy)
        window = WAYS[way](timed.key_by(lambda record: record[0])).late_to("late")
        results = window.count().uid("window")
        results.collect("out")
        results.side_output("late").map(lambda record: record.timestamp).collect("late")

    with Harness(job) as harness:
        for time in (0, 9, 13, 17, 4):
            harness.push([("a", time)])
            harness.run_epoch()
        harness.end()
        harness.run()

        assert harness.results("out") == [("a", 0, 5, 1), ("a", 9, 22, 3)]
        assert harness.results("late") == [4]
