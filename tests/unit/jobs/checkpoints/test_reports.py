"""What a checkpoint directory says of its epochs is what the job said of them."""

from bicycle_runtime.jobs.checkpoints.epoch_reports import report_checkpoints
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction

OUT_OF_ORDERNESS_MS = 5_000


class Nothing(KeyedProcessFunction):
    """May wait for time, as far as anybody can tell."""

    def process_element(self, value, ctx):
        return []


def two_inputs(env):
    for name in ("left", "right"):
        values = env.add_source(script_source(str)).uid(name)
        values.key_by(str).process_fn(Nothing()).uid(f"{name}-times").collect(f"{name}-out")


def test_the_watermark_is_the_least_of_all_operators_and_unknown_while_one_has_none():
    with Harness(two_inputs) as harness:
        harness.push(["ada"], source="left", timestamp=90_000)
        told = [harness.run_epoch().watermark_ms]
        harness.push(["bob"], source="right", timestamp=60_000)
        told.append(harness.run_epoch().watermark_ms)
        found = report_checkpoints(harness.storage, now_ms=0)

    assert [report.watermark_ms for report in reversed(found)] == told
    assert told == [None, 60_000 - OUT_OF_ORDERNESS_MS - 1]
