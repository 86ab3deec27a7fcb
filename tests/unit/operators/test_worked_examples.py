"""Windows, watermarks and joins with the numbers of worked examples, in one process.

Times are in seconds in the tables and in milliseconds in the jobs.
"""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import CountTrigger, Window
from tests.event_time import first

S = 1_000
NOVEMBER = 1_700_000_000  # Lies 20 s behind the begin of a minute.


def third(record):
    return record[2]


def on_records(make, *, delay=0):
    """Return a job over records ``(key, time in s, value)`` that are at most ``delay`` s late."""

    def job(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(delay * S).with_timestamps(
            lambda record: record[1] * S
        )
        timed = env.add_source(script_source()).assign_timestamps(strategy).uid("times")
        make(timed.key_by(first)).uid("window").collect("out")

    return job


def rows(harness):
    return [(row.start // S, row.end // S, row.value) for row in harness.results("out")]


def counts(cut, times):
    """Return the windows of records of one key, with their counts."""
    with Harness(on_records(lambda keyed: cut(keyed).count())) as harness:
        harness.push([("a", time, 1) for time in times])
        harness.end()
        harness.run()
        return sorted(rows(harness))


@pytest.mark.parametrize(
    ("size", "slide", "offset", "time", "expected"),
    [
        (5, 5, 0, 3, [(0, 5)]),
        (5, 5, 0, 7, [(5, 10)]),
        (10, 5, 0, 7, [(0, 10), (5, 15)]),
        (60, 60, 0, 1_000, [(960, 1_020)]),
        (60, 60, 0, 1_070, [(1_020, 1_080)]),
        (60, 60, 15, 1_000, [(975, 1_035)]),
        (60, 30, 0, 1_000, [(960, 1_020), (990, 1_050)]),
        (60, 20, 0, 1_000, [(960, 1_020), (980, 1_040), (1_000, 1_060)]),
        (60, 30, 15, 1_000, [(945, 1_005), (975, 1_035)]),
        (60, 15, 0, NOVEMBER + 30, [
            (NOVEMBER - 20 + start, NOVEMBER + 40 + start) for start in (0, 15, 30, 45)
        ]),
    ],
)  # fmt: skip
def test_a_record_counts_in_the_windows_that_hold_it(size, slide, offset, time, expected):
    def cut(keyed):
        if size == slide:
            return keyed.tumbling_window(size * S, offset=offset * S)
        return keyed.sliding_window(size * S, slide * S, offset=offset * S)

    assert counts(cut, [time]) == [(*bounds, 1) for bounds in expected]


@pytest.mark.parametrize(
    ("times", "gap", "limits", "expected"),
    [
        ([0, 10, 20], 60, {}, [(0, 80, 3)]),
        ([0, 60], 30, {}, [(0, 30, 1), (60, 90, 1)]),
        ([0, 1], 5, {"min_records": 3}, []),
        ([0, 60], 100, {"max_duration": 50 * S}, [(0, 50, 1), (60, 110, 1)]),
        ([0, 5, 35, 40, 100], 10, {}, [(0, 15, 2), (35, 50, 2), (100, 110, 1)]),
        ([0, 20], 5, {}, [(0, 5, 1), (20, 25, 1)]),
        ([100, 110], 30, {}, [(100, 140, 2)]),
        (range(0, 50, 5), 60, {}, [(0, 105, 10)]),
        ([1_000, 1_030], 60, {}, [(1_000, 1_090, 2)]),
        ([1_000, 1_120], 60, {}, [(1_000, 1_060, 1), (1_120, 1_180, 1)]),
        ([1_000, 1_200], 10, {"max_duration": 100 * S}, [(1_000, 1_010, 1), (1_200, 1_210, 1)]),
    ],
    ids=[
        "one session", "a gap ends it", "too few records", "too long", "three sessions",
        "alone and alone", "one gap behind the last", "one after another", "merged", "apart",
        "short enough",
    ],
)  # fmt: skip
def test_sessions_hold_what_lies_within_the_gap(times, gap, limits, expected):
    assert counts(lambda keyed: keyed.session_window(gap * S, **limits), times) == expected


def test_a_session_leaves_when_the_watermark_is_one_gap_behind_its_last_record():
    with Harness(on_records(lambda keyed: keyed.session_window(60 * S).count())) as harness:
        harness.push([("a", 1_000, 1)])
        harness.push([("a", 1_200, 1)])
        harness.run_epoch()
        assert rows(harness) == [(1_000, 1_060, 1)]
        harness.advance_watermark(1_260 * S - 1)
        assert len(rows(harness)) == 1
        harness.advance_watermark(1_260 * S)

        assert rows(harness)[1:] == [(1_200, 1_260, 1)]


def test_a_window_that_was_restored_fires_at_its_end_and_the_next_at_its_own():
    minute = NOVEMBER - 20
    job = on_records(lambda keyed: keyed.tumbling_window(60 * S).sum(third))
    with Harness(job) as harness:
        harness.push([("a", NOVEMBER, 1), ("a", NOVEMBER + 10, 2)])
        harness.run_epoch()
        harness.crash()
        harness.advance_watermark((NOVEMBER + 60) * S)
        assert rows(harness) == [(minute, minute + 60, 3)]
        harness.push([("a", NOVEMBER + 70, 5)])
        harness.advance_watermark((NOVEMBER + 130) * S)

        assert rows(harness)[1:] == [(minute + 60, minute + 120, 5)]


def test_a_record_out_of_order_waits_with_its_window_for_the_watermark():
    job = on_records(lambda keyed: keyed.tumbling_window(60 * S).sum(third), delay=600)
    end = NOVEMBER + 40
    with Harness(job) as harness:
        harness.push([("a", NOVEMBER + 75, 7)])
        harness.run_epoch()
        harness.push([("a", NOVEMBER + 10, 3)])
        harness.advance_watermark((end - 1) * S)
        assert rows(harness) == []
        harness.advance_watermark(end * S)

        assert rows(harness) == [(end - 60, end, 3)]


def test_thirty_seconds_of_disorder_put_the_first_minute_off_to_ninety():
    job = on_records(lambda keyed: keyed.tumbling_window(60 * S).count(), delay=30)
    with Harness(job) as harness:
        harness.push([("a", 1, 1), ("a", 1.01, 1), ("a", 60, 1), ("a", 89.999, 1)])
        harness.run_epoch()
        assert rows(harness) == []
        harness.push([("a", 90, 1)])
        harness.run_epoch()

        assert rows(harness) == [(0, 60, 2)]


def test_a_watermark_follows_the_newest_record_and_never_goes_back():
    with Harness(on_records(lambda keyed: keyed.tumbling_window(S).count(), delay=10)) as harness:
        marks = []
        for time in (NOVEMBER, NOVEMBER + 30, NOVEMBER - 100):
            harness.push([("a", time, 1)])
            harness.run_epoch()
            marks.append((harness.watermark("window") + 1) // S - NOVEMBER)

        assert marks == [-10, 20, 20]


def test_a_trigger_at_each_record_gives_running_counts():
    with Harness(
        on_records(lambda keyed: keyed.tumbling_window(60 * S).trigger(CountTrigger(1)).count())
    ) as harness:
        harness.push([("hello", 1, 1), ("hello", 2, 1)])
        harness.run_epoch()

        assert rows(harness) == [(0, 60, 1), (0, 60, 2)]


@pytest.mark.parametrize(
    ("compute", "values", "expected"),
    [
        (lambda window: window.avg(third), [1, 3], 2.0),
        (lambda window: window.distinct(third), ["a", "a", "b"], 2),
    ],
    ids=["average", "distinct"],
)
def test_averages_and_distinct_values_of_a_minute(compute, values, expected):
    with Harness(on_records(lambda keyed: compute(keyed.tumbling_window(60 * S)))) as harness:
        harness.push([("k", 1, value) for value in values])
        harness.end()
        harness.run()

        assert rows(harness) == [(0, 60, expected)]


def test_windows_sort_by_start_and_then_by_end():
    windows = [Window(5, 10), Window(0, 20), Window(0, 10)]

    assert sorted(windows) == [Window(0, 10), Window(0, 20), Window(5, 10)]


TOLERANCE = (-5, 5)
AHEAD = (-8, -2)  # The left row is 2 to 8 s behind the right one.


@pytest.mark.parametrize("is_left_first", [True, False], ids=["left first", "right first"])
@pytest.mark.parametrize(
    ("bounds", "how", "left", "right", "expected"),
    [
        (TOLERANCE, "inner", [("k1", 100)], [("k1", 102)], [(100, 102)]),
        (TOLERANCE, "inner", [("k1", 100)], [("k1", 110)], []),
        (TOLERANCE, "inner", [("k1", 100)], [("k2", 100)], []),
        (TOLERANCE, "inner", [("k1", 1_000)], [("k1", 1_003)], [(1_000, 1_003)]),
        (TOLERANCE, "left", [("k1", 100)], [("k1", 103)], [(100, 103)]),
        (TOLERANCE, "left", [("k1", 100)], [("k1", 110)], [(100, None)]),
        (TOLERANCE, "inner", [("k", 102)], [("k", 100), ("k", 101)], [(102, 100), (102, 101)]),
        (
            TOLERANCE, "inner", [("alpha", 100), ("beta", 100)], [("alpha", 101)], [(100, 101)]
        ),
        (
            TOLERANCE, "inner", [("k1", 100), ("k2", 200)], [("k1", 101), ("k2", 201)],
            [(100, 101), (200, 201)],
        ),
        (AHEAD, "inner", [("k1", 101)], [("k1", 100)], []),
        (AHEAD, "inner", [("k1", 102)], [("k1", 100)], [(102, 100)]),
        (AHEAD, "inner", [("k1", 105)], [("k1", 100)], [(105, 100)]),
        (AHEAD, "inner", [("k1", 108)], [("k1", 100)], [(108, 100)]),
        (AHEAD, "inner", [("k1", 110)], [("k1", 100)], []),
    ],
    ids=[
        "within the tolerance", "too far apart", "another key", "three seconds", "left and right",
        "left alone", "two for one", "keys apart", "two pairs", "below the interval",
        "at its lower bound", "inside", "at its upper bound", "above",
    ],
)  # fmt: skip
def test_rows_of_a_key_meet_within_bounds_of_time(
    bounds, how, left, right, expected, is_left_first
):
    lower, upper = (bound * S for bound in bounds)

    def job(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(100 * S).with_timestamps(
            lambda row: row[1] * S
        )
        sides = [
            env.add_source(script_source()).uid(uid).assign_timestamps(strategy).key_by(first)
            for uid in ("left", "right")
        ]
        pairs = sides[0].interval_join(
            sides[1], lower, upper, lambda a, b: (a[1], b and b[1]), how=how
        )
        pairs.collect("out")

    with Harness(job) as harness:
        for source, some in [("left", left), ("right", right)][:: 1 if is_left_first else -1]:
            harness.push(some, source=source)
            harness.run_epoch()
        harness.end()
        harness.run()

        assert sorted(harness.results("out")) == expected
