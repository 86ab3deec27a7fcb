"""Joins by event time, on the harness and on Spark alike."""

import asyncio
import contextlib

import pytest

from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.testing import script_source
from bicycle_runtime.testing.errors import HarnessError
from bicycle_sdk import CoGroupFunction, JoinFunction
from bicycle_sdk.failures import skip
from bicycle_sdk.windows import Window, tumbling_windows
from tests.raising import raises


def key_of(row):
    return row[0]


def sides(env):
    return [env.add_source(script_source()).uid(uid).key_by(key_of) for uid in ("left", "right")]


def pair(left, right):
    return (left, right)


def push(harness, left=(), right=()):
    """Push rows ``(key, time)`` with their times."""
    for source, rows in (("left", left), ("right", right)):
        harness.push(rows, source=source, timestamp=[row[1] for row in rows])


class Slow(JoinFunction):
    async def join(self, left, right):
        await asyncio.sleep(0)
        return (left, right)


def within_five_seconds(how, function=pair):
    """The temporal joiner: the same key, and times at most five seconds apart."""

    def job(env):
        left, right = sides(env)
        rows = left.interval_join(right, -5_000, 5_000, function, how=how, late_to="late")
        rows.uid("join").collect("out")
        rows.side_output("late").collect("late")

    return job


@pytest.mark.parametrize("function", [pair, Slow()], ids=["plain", "async"])
def test_rows_within_the_tolerance_meet_and_the_others_come_out_alone(runner, function):
    with runner.harness(within_five_seconds("full", function), parallelism=2) as harness:
        push(harness, [("a", 10_000), ("b", 10_000)], [("a", 15_000), ("a", 15_001)])
        harness.run_epoch()
        assert harness.results("out") == [(("a", 10_000), ("a", 15_000))]
        harness.fail_at("before_seal")
        harness.advance_watermark(14_999)
        assert len(harness.results("out")) == 1
        harness.rescale(3)
        harness.advance_watermark(15_000)
        assert harness.results("out")[1:] == [(("b", 10_000), None)]
        push(harness, [("a", 15_000)], [("b", 15_002)])
        harness.run_epoch()
        assert harness.results("late")[0].value == ("a", 15_000)
        assert harness.results("late")[0].lateness_ms == 0
        assert harness.epochs[-1].counts["join"].late == 1
        harness.advance_watermark(30_000)

        lone = [(None, ("a", 15_001)), (None, ("b", 15_002))]
        assert sorted(harness.results("out")[2:], key=repr) == lone


def evicted(harness):
    """How many rows each epoch evicted."""
    counters = (epoch.counts["join"].metrics.get("counters", {}) for epoch in harness.epochs)
    return [found.get("evicted_rows", 0) for found in counters]


def test_a_full_buffer_evicts_the_oldest_rows_of_its_key_and_counts_them(runner):
    def job(env):
        left, right = sides(env)
        rows = left.interval_join(right, 0, 1_000, pair, how="left", max_buffered=2)
        rows.uid("join").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 10), ("a", 30), ("b", 5)])
        harness.run_epoch()
        push(harness, [("a", 20)])
        harness.fail_at("before_seal")
        harness.run()
        assert evicted(harness)[-1] == 1
        harness.rescale(3)
        push(harness, [("a", 7), ("a", 30)], [("b", 6)])  # The first of them is the oldest itself.
        harness.run_epoch()
        harness.crash()
        push(harness, [], [("a", 40)])
        harness.run_epoch()
        harness.advance_watermark(5_000)

        found = [(("a", 30), ("a", 40)), (("a", 30), ("a", 40)), (("b", 5), ("b", 6))]
        assert sorted(harness.results("out")) == found
        assert sum(evicted(harness)) == 3, "one of the failed attempt would count twice"
        for key in "ab":
            with contextlib.suppress(HarnessError):
                assert not any(harness.state("join", key).values())


def test_windows_and_joins_as_of_a_time_have_limits_too(runner):
    def job(env):
        left, right = sides(env)
        window = tumbling_windows(100)
        left.window_join(right, window, pair, max_buffered=1).uid("windows").collect("windows")
        grouped = left.co_group(right, window, Sizes(), max_buffered=2).uid("groups")
        grouped.collect("groups")
        left.as_of_join(right, pair, how="left", max_buffered=1).uid("as_of").collect("as_of")
        applied = left.join(right).window(100).apply(pair, max_buffered=2).uid("applied")
        applied.collect("applied")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 50)], [("a", 10), ("a", 20), ("a", 30)])
        harness.run_epoch()
        harness.crash()
        push(harness, [("a", 60), ("a", 70)], [("a", 55)])
        harness.run_epoch()
        harness.advance_watermark(100)

        assert harness.results("windows") == [(("a", 70), ("a", 55))]
        assert harness.results("groups") == [(2, 2)]
        assert harness.results("as_of") == [(("a", 70), ("a", 55))]
        assert len(harness.results("applied")) == 4


def picky(left, right):
    if right[1] == 13:
        raise ValueError("unlucky")
    return (left[1], right[1])


@pytest.mark.core
def test_a_pair_that_fails_leaves_its_row_out_and_all_others_in(runner):
    def job(env):
        left, right = sides(env)
        left.interval_join(right, 0, 100, picky).on_error(skip()).uid("join").collect("out")

    with runner.harness(job) as harness:
        push(harness, [("a", 1)])
        harness.run_epoch()
        push(harness, [], [("a", 12), ("a", 13), ("a", 14)])
        harness.run_epoch()
        push(harness, [("a", 2)])
        harness.run_epoch()

        assert harness.results("out") == [(1, 12), (1, 14), (2, 12), (2, 14)]


def test_rows_without_event_time_are_an_error_that_says_so(runner):
    with runner.harness(within_five_seconds("inner")) as harness:
        harness.push([("a", 1)], source="left")
        with raises(NO_EVENT_TIME) as caught:
            harness.run_epoch()
        assert caught.value.facts["operator"] == "join"


@pytest.mark.core
def test_rows_of_one_window_meet_when_it_closes_and_late_ones_are_told(runner):
    def job(env):
        left, right = sides(env)
        rows = left.window_join(right, tumbling_windows(10), pair, how="left", late_to="late")
        rows.uid("join").collect("out")
        rows.side_output("late").collect("late")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 1), ("b", 2), ("a", 11)], [("a", 9), ("a", 10), ("c", 1)])
        harness.run_epoch()
        assert harness.results("out") == []
        harness.advance_watermark(10)
        found = [(("a", 1), ("a", 9)), (("b", 2), None)]
        assert sorted(harness.results("out"), key=repr) == found
        harness.rescale(1)
        push(harness, [("a", 9)])
        harness.run_epoch()
        harness.advance_watermark(20)

        assert harness.results("out")[2:] == [(("a", 11), ("a", 10))]
        (late,) = harness.results("late")
        assert (late.value, late.window) == (("a", 9), Window(0, 10))


class Sizes(CoGroupFunction):
    async def co_group(self, left, right):
        await asyncio.sleep(0)
        return [(len(left), len(right))]


def test_a_join_a_window_and_a_co_group_in_one_job_each_see_the_watermark(runner):
    def job(env):
        left, right = sides(env)
        joined = left.join(right).window(10).apply(Slow()).uid("join").key_by(lambda p: p[0][0])
        counts = joined.tumbling_window(10).count().uid("count").key_by(lambda r: r.key)
        counts.co_group(left, tumbling_windows(10), Sizes()).uid("group").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 1), ("a", 2)], [("a", 3), ("a", 4), ("a", 5)])
        harness.advance_watermark(10)

        assert harness.results("out") == [(1, 2)]


@pytest.mark.core
def test_a_row_meets_the_rate_that_held_at_its_time_however_late_it_came(runner):
    def job(env):
        left, right = sides(env)
        rows = left.as_of_join(right, pair, how="left", deleted_when=lambda r: r[1] == 30)
        rows.uid("join").collect("out")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 15), ("a", 5), ("a", 35)], [("a", 20), ("a", 30)])
        harness.run_epoch()
        push(harness, [], [("a", 10)])
        harness.fail_at("before_seal")
        harness.advance_watermark(16)
        harness.rescale(1)
        harness.advance_watermark(40)

        assert harness.results("out") == [
            (("a", 5), None),
            (("a", 15), ("a", 10)),
            (("a", 35), None),
        ]
        assert list(harness.state("join", "a")["right"].values()) == [("a", 30)]


def test_a_late_rate_is_told_and_holds_for_the_rows_to_come(runner):
    def job(env):
        left, right = sides(env)
        rows = left.as_of_join(right, pair, how="left", tolerance=100, late_to="late").uid("join")
        rows.collect("out")
        rows.side_output("late").collect("late")

    with runner.harness(job, parallelism=2) as harness:
        push(harness, [("a", 15)], [("a", 10), ("b", 10)])
        harness.advance_watermark(50)
        push(harness, [("a", 40)], [("a", 30), ("a", 20), ("b", 5)])
        harness.run_epoch()
        harness.crash()
        push(harness, [("a", 60), ("b", 60), ("a", 131)], [])
        harness.advance_watermark(150)

        assert sorted(harness.results("out")) == [
            (("a", 15), ("a", 10)),
            (("a", 60), ("a", 30)),
            (("a", 131), None),
            (("b", 60), ("b", 10)),
        ]
        late = sorted(record.value for record in harness.results("late"))
        assert late == [("a", 20), ("a", 30), ("a", 40), ("b", 5)]
        assert harness.state("join") == {}


@pytest.mark.parametrize("function", [pair, Slow()], ids=["plain", "async"])
def test_a_table_gives_what_it_has_when_a_row_arrives(runner, function):
    def job(env):
        left, right = sides(env)
        rows = left.table_join(right, function, how="left", deleted_when=lambda r: r[1] is None)
        rows.uid("join").collect("out")

    with runner.harness(job) as harness:
        for source, row in (
            ("left", ("a", 1)), ("right", ("a", 2)), ("left", ("a", 3)),
            ("right", ("a", None)), ("left", ("a", 4)),
        ):  # fmt: skip
            harness.push([row], source=source)
            harness.run_epoch()
            harness.crash()

        assert harness.results("out") == [
            (("a", 1), None),
            (("a", 3), ("a", 2)),
            (("a", 4), None),
        ]


def test_in_a_diamond_each_record_goes_once_down_each_path(runner):
    def job(env):
        rows = env.add_source(script_source()).uid("rows")
        upper, lower = rows.map(lambda row: ("up", *row)), rows.filter(lambda row: row[1] < 20)
        sides = upper.key_by(lambda row: row[1]), lower.key_by(key_of)
        sides[0].interval_join(sides[1], 0, 0, pair).uid("join").collect("out")
        upper.union(lower.map(lambda row: ("low", *row))).collect("all")

    rows = [("a", 5), ("b", 6), ("a", 30)]
    with runner.harness(job, parallelism=2) as harness:
        harness.push(rows, timestamp=[5, 6, 30])
        harness.end()
        harness.run()

        assert sorted(harness.results("out")) == [
            (("up", "a", 5), ("a", 5)),
            (("up", "b", 6), ("b", 6)),
        ]
        assert sorted(harness.results("all")) == sorted(
            [("up", *row) for row in rows] + [("low", *row) for row in rows[:2]]
        )
