"""Session windows, on the harness and on Spark alike.

Times are in seconds in the drawings and in milliseconds in the code.
"""

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH
from bicycle_sdk.windows import EventTimeTrigger
from tests.conformance.test_windows import S, keyed, rows, value


@pytest.mark.parametrize("parts", [[4], [1, 1, 1, 1], [2, 2]])
def test_sessions_merge_backwards_whatever_the_order_and_the_epochs(runner, parts):
    #  0 ─── 25            gap 30: 10 and 45 lie within it, all are one session
    #      10      45 ┄┄┄ 75
    records = [("a", time * S, 1) for time in (0, 25, 10, 45)]
    script = []
    for size in parts:
        script += [*records[:size], EPOCH]
        records = records[size:]
    job = runner(lambda s: keyed(s, delay=60 * S).session_window(30 * S).count(), [*script, END])

    assert rows(job) == [("a", 0, 75, 4)]


def test_a_distance_of_one_gap_joins_and_one_more_does_not(runner):
    records = [("a", 0, 1), ("a", 30 * S, 1), ("a", 60 * S + 1, 1)]
    job = runner(lambda s: keyed(s).session_window(30 * S).count(), [*records, END])

    assert [(r.start, r.end, r.value) for r in job.published] == [
        (0, 60 * S, 2),
        (60 * S + 1, 90 * S + 1, 1),
    ]


def test_sessions_with_too_few_records_give_nothing(runner):
    records = [("a", 0, 1), ("a", 10 * S, 1), ("b", 0, 1)]
    job = runner(
        lambda s: keyed(s).session_window(30 * S, min_records=2).sum(value), [*records, END]
    )

    assert rows(job) == [("a", 0, 40, 2)]


@pytest.mark.parametrize("parts", [[6], [1, 1, 1, 1, 1, 1], [3, 3]])
def test_a_session_that_lasts_too_long_is_cut_from_its_first_record_on(runner, parts):
    #  0 ── 10 ── 20 ── | 30 ── 40 ┄ 50  |  70 ┄ 80      gap 10, at most 30
    records = [("a", time * S, 1) for time in (0, 10, 20, 30, 40, 70)]
    script = []
    for size in parts:
        script += [*records[:size], EPOCH]
        records = records[size:]
    script[-1:] = [CRASH, END]
    job = runner(
        lambda s: keyed(s, delay=0).session_window(10 * S, max_duration=30 * S).count(), script
    )

    assert rows(job) == [("a", 0, 30, 3), ("a", 30, 50, 2), ("a", 70, 80, 1)]


def test_what_is_left_of_a_cut_session_finds_its_records_and_refuses_those_before_the_cut(runner):
    #  0 waits 100 s and is cut at 30 | 20 is too late, its window has fired | 90 finds the rest
    def build(s):
        window = keyed(s, delay=0).session_window(lambda r: r[2] * S, max_duration=30 * S)
        results = window.late_to("late").count()
        late = results.side_output("late").map(lambda r: ("late", r.timestamp // S))
        return results.map(lambda r: (r.start // S, r.end // S, r.value)).union(late)

    script = [("a", 0, 100), ("b", 35 * S, 1), EPOCH, ("a", 20 * S, 40), EPOCH, ("a", 90 * S, 1),
              EPOCH, CRASH, END]  # fmt: skip
    job = runner(build, script)

    assert sorted(map(str, job.published)) == sorted(
        map(str, [(0, 30, 1), (35, 36, 1), ("late", 20), (90, 100, 1)])
    )


SESSIONS = {
    "folded before": lambda k: k.session_window(5),
    "folded": lambda k: k.session_window(5).pre_combine(False),
    "gap by function": lambda k: k.session_window(lambda r: 5),
    "cut": lambda k: k.session_window(5, max_duration=20),
    "triggered": lambda k: k.session_window(5).trigger(EventTimeTrigger()),
    "kept": lambda k: k.session_window(5),
}


def with_late(results):
    """Return the results of windows, and the times of records that came too late for them."""
    late = results.side_output("late").map(lambda r: ("late", r.timestamp))
    return results.map(tuple).union(late)


@pytest.mark.parametrize("crash", [[], [CRASH]], ids=["", "crash"])
@pytest.mark.parametrize("way", SESSIONS)
def test_a_record_that_touches_an_ended_session_is_late(runner, way, crash):
    #  [0, 5) has ended, the watermark is 6:  3 and 5 touch it, 1 is over; b@3 opens [3, 8)
    #  [12, 17) has ended, the watermark is 18:  16 touches it, 19 does not
    def build(s):
        window = SESSIONS[way](keyed(s, delay=0)).late_to("late")
        if way == "kept":
            results = window.process(
                lambda records, ctx: [
                    (ctx.current_key(), ctx.window.start, ctx.window.end, len(records))
                ]
            )
        else:
            results = window.count()
        return with_late(results)

    script = [("a", 0, 1), ("z", 7, 1), EPOCH, *crash, ("a", 3, 1), ("a", 5, 1), ("a", 1, 1),
              ("b", 3, 1), ("a", 12, 1), EPOCH, ("a", 4, 1), ("z", 19, 1), EPOCH, *crash,
              ("a", 16, 1), ("a", 19, 1), END]  # fmt: skip
    job = runner(build, script)

    counted = [row for row in job.published if row[0] in ("a", "b")]
    assert sorted(counted) == [("a", 0, 5, 1), ("a", 12, 17, 1), ("a", 19, 24, 1), ("b", 3, 8, 1)]
    assert sorted(row for row in job.published if row[0] == "late") == [
        ("late", time) for time in (1, 3, 4, 5, 16)
    ]


def test_with_allowed_lateness_a_record_that_touches_a_fired_session_updates_it(runner):
    #  [0, 5) fires at 5 and ends at 9:  3 makes it [0, 8) again, 2 comes when that has ended
    def build(s):
        window = keyed(s, delay=0).session_window(5).allowed_lateness(4).late_to("late")
        return with_late(window.count())

    script = [("a", 0, 1), ("z", 7, 1), EPOCH, ("a", 3, 1), EPOCH, ("z", 13, 1), EPOCH,
              ("a", 8, 1), ("a", 9, 1), END]  # fmt: skip
    job = runner(build, script)

    assert [row for row in job.published if row[0] in ("a", "late")] == [
        ("a", 0, 5, 1), ("a", 0, 8, 2), ("late", 8), ("a", 9, 14, 1)
    ]  # fmt: skip


def test_a_session_that_fires_when_another_one_ends_takes_no_records_after_its_lateness(runner):
    #  [0, 10) ends at 30, when [25, 30) fires, which ends at 50: 27 comes at a watermark of 65
    def build(s):
        window = keyed(s, delay=0).session_window(5).allowed_lateness(20).late_to("late")
        return with_late(window.count())

    script = [("a", 0, 1), ("a", 5, 1), ("a", 25, 1), EPOCH, ("z", 35, 1), EPOCH,
              ("z", 66, 1), EPOCH, ("a", 27, 1), END]  # fmt: skip
    job = runner(build, script)

    assert [row for row in job.published if row[0] in ("a", "late")] == [
        ("a", 0, 10, 2), ("a", 25, 30, 1), ("late", 27)
    ]  # fmt: skip


def test_the_gap_of_a_session_may_come_from_the_record(runner):
    #  a@0 waits 5 s, a@4 waits 100 s
    records = [("a", 0, 5), ("a", 4 * S, 100), ("a", 90 * S, 1), ("a", 110 * S, 1)]
    job = runner(lambda s: keyed(s).session_window(lambda r: r[2] * S).count(), [*records, END])

    assert rows(job) == [("a", 0, 104, 3), ("a", 110, 111, 1)]
