"""Time that jumps: half a century between two records costs no more than a minute would."""

from datetime import timedelta

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import ContinuousEventTimeTrigger

NOW_MS = 1_800_000_000_000
DAY = timedelta(days=1)
KINDS = {
    "tumbling": lambda keyed: keyed.tumbling_window(1_000),
    "sliding": lambda keyed: keyed.sliding_window(1_500, 500),
    "session": lambda keyed: keyed.session_window(1_000),
    "cut session": lambda keyed: keyed.session_window(1_000, max_duration=3_000),
    "triggered": lambda keyed: keyed.tumbling_window(DAY).trigger(ContinuousEventTimeTrigger(1)),
    "late for long": lambda keyed: keyed.tumbling_window(1_000).allowed_lateness(20_000 * DAY),
}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_on_both_sides_of_a_long_gap_fire_once_and_quickly(kind):
    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        times = env.add_source(script_source()).assign_timestamps(strategy)
        window = KINDS[kind](times.key_by(lambda record: record[0]))
        window.process(lambda records, ctx: [(len(records), ctx.window.start)]).collect("out")

    with Harness(job) as harness:
        for time in (0, 5, NOW_MS, NOW_MS + 500):
            harness.push([("key", time)])
            harness.run_epoch()
        harness.end()
        harness.run()
        found = harness.results("out")

    old = [count for count, start in found if start < NOW_MS // 2]
    new = [count for count, start in found if start > NOW_MS // 2]
    assert max(old) == max(new) == 2
    assert len(found) <= 12
