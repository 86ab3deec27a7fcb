"""Joins hold the rows of an epoch, and store only the rows that later epochs need."""

from operator import itemgetter

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import JoinFunction
from bicycle_sdk.connected import InputRecords
from bicycle_sdk.contexts import TaskInfo
from bicycle_sdk.joins import AsOfJoin, IntervalJoin, JoinOptions, RowJoin, WindowJoin
from bicycle_sdk.windows import sliding_windows, tumbling_windows

OPTIONS = JoinOptions(function=lambda left, right: (left, right))
# Left rows at 5 and 30, right rows at 4 and 31; then the watermark is 20.
KEPT = {
    "as-of": (AsOfJoin(OPTIONS, tolerance_ms=None), [30], [4, 31], [31, 32]),
    "window": (WindowJoin(OPTIONS, tumbling_windows(10)), [30], [31], [40]),
    "interval": (IntervalJoin(OPTIONS, lower_ms=-2, upper_ms=2), [30], [31], [33, 34]),
}
JOINS = {
    "interval": lambda left, right: left.interval_join(right, -4, 6, pair),
    "left interval": lambda left, right: left.interval_join(right, -4, 6, pair, how="left"),
    "as-of": lambda left, right: left.as_of_join(right, pair, how="left", tolerance=9),
    "tumbling": lambda left, right: left.window_join(right, tumbling_windows(10), pair),
    "full sliding": lambda left, right: left.window_join(
        right, sliding_windows(10, 4), pair, how="full"
    ),
    "gaps": lambda left, right: left.window_join(right, sliding_windows(4, 10), pair, how="full"),
    "co-group": lambda left, right: left.co_group(
        right, tumbling_windows(10), lambda left, right: [(tuple(left), tuple(right))]
    ),
}


def pair(left, right):
    return (left, right)


def key_of(row):
    return row[0]


def job_of(join):
    def job(env):
        sides = [env.add_source(script_source()).uid(uid).key_by(key_of) for uid in ("l", "r")]
        join(*sides).uid("join").collect("out")

    return job


def results_of(join, backend="memory"):
    """Return the results of rows in disorder, of two keys, in three epochs."""
    with Harness(job_of(join), engine=EngineOptions(state_backend=backend)) as harness:
        for first in (0, 20, 40):
            for source, step in (("l", 3), ("r", 5)):
                times = [first + 7 * n * step % 31 for n in range(12)]
                rows = [("ba"[n % 2], time, source) for n, time in enumerate(times)]
                harness.push(rows, source=source, timestamp=times)
            harness.run_epoch()
            harness.advance_watermark(first + 12)
        harness.advance_watermark(200)
        return harness.results("out")


@pytest.mark.parametrize("how", KEPT)
def test_only_rows_that_later_epochs_need_reach_state_and_timers(how):
    join, *kept = KEPT[how]
    context = KeyedContext(
        TaskInfo(job_id="job", operator_name="join"), processing_time=0, group_count=4,
        key_selector=itemgetter(0),
    )  # fmt: skip
    context.has_timers = True
    join.open(context)
    join.begin_epoch()

    for ordinal, times in ((0, [30, 5]), (1, [4, 31])):
        records = InputRecords(ordinal, [("k", time) for time in times], ["k"] * 2, times)
        join.process_each(records, [], context)
    stored = [side.between("k", None, 99) for side in (join.left, join.right)]
    assert (stored, context.timers.event.times_of("k"), join.is_complete) == ([[], []], [], False)

    context.watermark = 20
    join.complete_each([], 21)
    stored = [
        [time for (time, _), _ in side.between("k", None, 99)] for side in (join.left, join.right)
    ]
    assert [*stored, context.timers.event.times_of("k")] == kept
    assert join.is_complete


@pytest.mark.parametrize("how", JOINS)
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_rows_that_are_stored_before_their_epoch_ends_have_the_same_results(
    monkeypatch, how, backend
):
    held = results_of(JOINS[how], backend)
    monkeypatch.setattr(RowJoin, "arrived_max", 0)

    assert results_of(JOINS[how], backend) == held
    assert len(held) > 5


def test_results_of_one_watermark_come_by_time_and_then_by_key():
    with Harness(job_of(JOINS["as-of"])) as harness:
        rows = [("b", 2), ("b", 1), ("a", 2), ("c", 1)]
        harness.push(rows, source="l", timestamp=[time for _, time in rows])
        harness.push([("x", 9)], source="r", timestamp=9)
        harness.run_epoch()
        harness.advance_watermark(5)

        found = [left for left, _ in harness.results("out")]
    assert found == [("b", 1), ("c", 1), ("a", 2), ("b", 2)]


class Named(JoinFunction):
    """A pair with the key that its context shows."""

    def open(self, ctx):
        self.ctx = ctx

    def join(self, left, right):
        return self.ctx.current_key(), left, right


def test_a_function_with_a_context_sees_the_key_of_each_result():
    found = results_of(lambda left, right: left.as_of_join(right, Named()))

    assert found
    assert all(key == left[0] == right[0] for key, left, right in found)
