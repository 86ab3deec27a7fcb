"""Windows with the numbers of worked examples, on the harness and on Spark alike.

Times are in seconds in the drawings and in milliseconds in the code.
"""

from datetime import timedelta

import pytest

from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.metrics import OperatorCounts
from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_runtime.testing.runner import play
from bicycle_sdk import StateTtl, ValueStateDescriptor, WatermarkStrategy
from bicycle_sdk.windows import (
    Count,
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    Sum,
    TimeEvictor,
    Window,
    WindowFunction,
)
from tests.raising import raises

S = 1_000
#  a@0  a@20  b@40, 10 s of disorder
VISITS = [("a", 0, 1), ("a", 20 * S, 2), ("b", 40 * S, 3)]


def keyed(stream, *, delay=10 * S):
    strategy = WatermarkStrategy.bounded_out_of_orderness(delay)
    stamped = strategy.with_timestamps(lambda record: record[1])
    return stream.assign_timestamps(stamped).key_by(lambda record: record[0])


def rows(job):
    return sorted((r.key, r.start // S, r.end // S, r.value) for r in job.published)


def value(record):
    return record[2]


@pytest.mark.core
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (lambda k: k.tumbling_window(60 * S), [("a", 0, 60, 2), ("b", 0, 60, 1)]),
        (lambda k: k.session_window(30 * S), [("a", 0, 50, 2), ("b", 40, 70, 1)]),
        (
            lambda k: k.sliding_window(60 * S, 15 * S),
            [
                ("a", -45, 15, 1),
                ("a", -30, 30, 2),
                ("a", -15, 45, 2),
                ("a", 0, 60, 2),
                ("a", 15, 75, 1),
                ("b", -15, 45, 1),
                ("b", 0, 60, 1),
                ("b", 15, 75, 1),
                ("b", 30, 90, 1),
            ],
        ),
    ],
    ids=["tumbling", "session", "sliding"],
)
def test_counts_of_the_three_kinds_of_windows(runner, cut, expected, parallelism):
    job = runner(lambda s: cut(keyed(s)).count(), [*VISITS, END], parallelism=parallelism)

    assert rows(job) == expected


def test_sum_average_extremes_and_distinct_values_of_a_window(runner):
    def job(s):
        window = keyed(s).tumbling_window(60 * S)
        return window.sum(value).union(
            window.min(value), window.max(value), window.avg(value), window.distinct(lambda r: r[0])
        )

    job = runner(job, [*VISITS, END])

    assert [row for row in rows(job) if row[0] == "a"] == [
        ("a", 0, 60, 1),  # distinct users, least value
        ("a", 0, 60, 1),
        ("a", 0, 60, 1.5),
        ("a", 0, 60, 2),
        ("a", 0, 60, 3),
    ]


def test_a_sliding_window_finds_all_windows_of_a_time(runner):
    job = runner(
        lambda s: keyed(s).sliding_window(60 * S, 25 * S).count(), [("a", 100 * S, 1), END]
    )

    assert rows(job) == [("a", 50, 110, 1), ("a", 75, 135, 1), ("a", 100, 160, 1)]


def test_records_in_the_gaps_of_sliding_windows_count_nowhere(runner):
    #  [0 10)    [25 35)    [50 60)       5 and 30 are inside, 15 and 40 are not
    records = [("a", time * S, 1) for time in (5, 15, 30, 40)]
    job = runner(lambda s: keyed(s).sliding_window(10 * S, 25 * S).count(), [*records, END])

    assert rows(job) == [("a", 0, 10, 1), ("a", 25, 35, 1)]


def test_a_time_before_1970_lies_in_the_window_before_zero(runner):
    job = runner(lambda s: keyed(s).tumbling_window(60 * S).count(), [("a", -1 * S, 1), END])

    assert rows(job) == [("a", -60, 0, 1)]


def test_results_carry_the_last_time_of_their_window(runner):
    def job(s):
        firsts = keyed(s).tumbling_window(10 * S).count()
        return firsts.key_by(lambda result: 0).tumbling_window(60 * S).sum(lambda r: r.value)

    records = [("a", time * S, 1) for time in (0, 59, 60, 61)]
    job = runner(job, [*records, END])

    assert rows(job) == [(0, 0, 60, 2), (0, 60, 120, 2)]


@pytest.mark.core
def test_a_crash_does_not_change_a_window(runner):
    #  epoch 1: a a | epoch 2: a ✗      restart → epoch 2: a b |
    script = [*VISITS[:2], EPOCH, ("a", 30 * S, 5), CRASH, VISITS[2], END]
    job = runner(lambda s: keyed(s).tumbling_window(60 * S).sum(value), script, parallelism=2)

    assert rows(job) == [("a", 0, 60, 8), ("b", 0, 60, 3)]
    assert job.crash_count == 1


# --- late records --------------------------------------------------------------------------------

#  a@0 a@65: the watermark is 65, [0 60) has fired | a@5 comes late | a@100 moves on | a@6 too late
LATE = [("a", 0, 1), ("a", 65 * S, 1), EPOCH, ("a", 5 * S, 1), EPOCH, ("a", 100 * S, 1), EPOCH,
        ("a", 6 * S, 1), END]  # fmt: skip


@pytest.mark.core
def test_late_records_update_a_window_while_that_is_allowed_and_go_aside_after(runner):
    def build(s):
        window = keyed(s, delay=0).tumbling_window(60 * S)
        results = window.allowed_lateness(30 * S).late_to("late").count()
        late = results.side_output("late").map(lambda r: ("late", *r))
        return results.map(tuple).union(late)

    job = runner(build, LATE)

    assert [row for row in job.published if row[1] == 0] == [
        ("a", 0, 60 * S, 1),
        ("a", 0, 60 * S, 2),
    ]
    assert [row for row in job.published if row[0] == "late"] == [
        ("late", ("a", 6 * S, 1), 6 * S, Window(0, 60 * S), 100 * S - 1, 94 * S - 1)
    ]


@pytest.mark.parametrize(
    ("tag", "unread"), [("late", {"late": 2}), (None, {})], ids=["unread", "untaken"]
)
def test_late_records_that_nobody_reads_are_told_of(runner, tag, unread):
    def job(env):
        window = keyed(env.add_source(script_source()), delay=0).tumbling_window(60 * S)
        (window.late_to(tag) if tag else window).count().uid("count").collect("counts")

    totals = OperatorCounts()
    with runner.harness(job) as harness:
        play(harness, LATE)
        for epoch in harness.epochs:
            totals.add(epoch.counts.get("count", OperatorCounts()))

        assert (totals.late, totals.unread) == (2, unread)
        assert sum(epoch.late_dropped_count for epoch in harness.epochs) == 2


def test_allowed_lateness_does_not_put_off_the_first_result(runner):
    script = [("a", 0, 1), ("a", 70 * S, 1), EPOCH, ("a", 71 * S, 1), END]
    job = runner(
        lambda s: keyed(s, delay=0).tumbling_window(60 * S).allowed_lateness(30 * S).count(), script
    )

    assert rows(job) == [("a", 0, 60, 1), ("a", 60, 120, 2)]


# --- triggers, evictors, windows without time ----------------------------------------------------


def test_a_count_window_holds_its_records_and_no_others(runner):
    records = [("a", time * S, time) for time in range(7)]
    job = runner(
        lambda s: keyed(s).count_window(3).sum(value), [*records[:4], EPOCH, *records[4:], END]
    )

    assert [r.value for r in job.published] == [0 + 1 + 2, 3 + 4 + 5]


def test_a_sliding_count_window_gives_the_last_records(runner):
    records = [("a", time * S, time) for time in range(6)]
    job = runner(lambda s: keyed(s).count_window(3, 2).sum(value), [*records, END])

    assert [r.value for r in job.published] == [0 + 1, 1 + 2 + 3, 3 + 4 + 5]


def test_a_count_window_needs_no_event_time(runner):
    job = runner(
        lambda s: s.key_by(lambda n: n % 2).count_window(2).sum(lambda n: n), [1, 2, 3, 4, 5, END]
    )

    assert sorted((r.key, r.value) for r in job.published) == [(0, 6), (1, 4)]


def test_a_global_window_fires_when_its_trigger_says_so(runner):
    records = [("a", time * S, 1) for time in range(5)]
    job = runner(
        lambda s: keyed(s).global_window().trigger(CountTrigger(2)).count(), [*records, END]
    )

    assert [r.value for r in job.published] == [2, 4]


def test_an_early_trigger_gives_results_before_the_end(runner):
    records = [("a", time * S, 1) for time in range(5)]
    job = runner(
        lambda s: (
            keyed(s).tumbling_window(60 * S).trigger(EventTimeTrigger().early(count=2)).count()
        ),
        [*records, END],
    )

    assert [r.value for r in job.published] == [2, 4, 5]


def test_evictors_decide_which_records_count(runner):
    records = [("a", time * S, time) for time in (1, 2, 30, 40)]

    def build(s):
        window = keyed(s).tumbling_window(60 * S)
        last = window.evictor(CountEvictor(2)).sum(value)
        return last.union(window.evictor(TimeEvictor(20 * S)).count())

    job = runner(build, [*records, END])

    assert rows(job) == [("a", 0, 60, 2), ("a", 0, 60, 70)]


# --- functions -----------------------------------------------------------------------------------


class Spread(WindowFunction[str, tuple, tuple]):
    """The records by time, and how often the window has fired."""

    async def process(self, elements, ctx):
        times = ctx.get_state("times", 0) + 1
        ctx.save_state("times", times)
        ctx.side_output("sizes", len(elements))
        return [(ctx.current_key(), ctx.window.start, times, [r[1] // S for r in elements])]


def test_a_window_function_sees_all_records_by_time_and_keeps_values_of_the_window(runner):
    def build(s):
        window = keyed(s, delay=0).tumbling_window(60 * S).allowed_lateness(60 * S)
        results = window.process(Spread())
        return results.union(results.side_output("sizes"))

    script = [("a", 9 * S, 1), ("a", 3 * S, 1), ("a", 70 * S, 1), EPOCH, ("a", 5 * S, 1), END]
    job = runner(build, script)

    assert [row for row in job.published if type(row) is tuple and row[1] == 0] == [
        ("a", 0, 1, [3, 9]),
        ("a", 0, 2, [3, 5, 9]),
    ]
    assert sorted(row for row in job.published if type(row) is int) == [1, 2, 3]


class Rising(WindowFunction[str, tuple, tuple]):
    """How much more a key counts than in its window before, and the most that it ever counted."""

    before = ValueStateDescriptor("before", int, default=0)

    def open(self, ctx):
        self.most = ctx.get_reducing_state("most", int, max)

    def process(self, elements, ctx):
        before = ctx.get_value_state(self.before)
        rise = len(elements) - before.value()
        before.update(len(elements))
        self.most.add(len(elements))
        yield ctx.current_key(), ctx.window.start // S, rise, self.most.get()


@pytest.mark.parametrize("cut", [
    lambda k: k.tumbling_window(10 * S),
    lambda k: k.session_window(4 * S),
    lambda k: k.tumbling_window(10 * S).trigger(EventTimeTrigger()),
], ids=["tumbling", "session", "triggered"])  # fmt: skip
def test_the_windows_of_a_key_share_its_state_over_restarts(runner, cut):
    #  a: 2 records, then 3, then 1;  b: 1, then 1
    script = [
        ("a", 0, 1), ("b", 1 * S, 1), ("a", 2 * S, 1), ("a", 11 * S, 1), EPOCH,
        ("a", 12 * S, 1), ("b", 13 * S, 1), ("a", 14 * S, 1), EPOCH,
        ("a", 25 * S, 1), EPOCH, CRASH, END,
    ]  # fmt: skip
    job = runner(lambda s: cut(keyed(s, delay=0)).process(Rising()), script, parallelism=2)

    assert [row[2:] for row in sorted(job.published) if row[0] == "a"] == [(2, 2), (1, 3), (-2, 3)]
    assert [row[2:] for row in sorted(job.published) if row[0] == "b"] == [(1, 1), (0, 1)]


class Returning(WindowFunction[str, tuple, tuple]):
    """Whether the key had a window less than 30 s of event time ago."""

    seen = ValueStateDescriptor("seen", bool, ttl=StateTtl(timedelta(seconds=30), time="event"))

    def process(self, elements, ctx):
        seen = ctx.get_value_state(self.seen)
        known = seen.value() is not None
        seen.update(True)
        return [(ctx.window.start // S, known)]


@pytest.mark.parametrize("parts", [[4], [1, 1, 1, 1], [2, 2]])
def test_state_of_a_key_expires_by_the_time_of_windows_whatever_the_epochs(runner, parts):
    #  windows at 0, 20 and 60: 20 s lie between the first two, 40 s before the last
    records = [("a", time * S, 1) for time in (0, 20, 60, 61)]
    script = []
    for size in parts:
        script += [*records[:size], EPOCH]
        records = records[size:]
    job = runner(
        lambda s: keyed(s, delay=0).tumbling_window(10 * S).process(Returning()), [*script, END]
    )

    assert job.published == [(0, False), (20, True), (60, False)]


@pytest.mark.core
def test_several_aggregates_come_in_one_result(runner):
    job = runner(
        lambda s: keyed(s).tumbling_window(60 * S).aggregate(Count(), Sum(value)), [*VISITS, END]
    )

    assert rows(job) == [("a", 0, 60, (2, 3)), ("b", 0, 60, (1, 3))]


def test_an_approximate_count_of_distinct_values_is_close(runner):
    records = [("a", n, n % 10_000) for n in range(20_000)]
    job = runner(
        lambda s: keyed(s).tumbling_window(60 * S).distinct(value, approximate=True),
        [*records, END],
        parallelism=2,
    )

    assert [r.value for r in job.published] == [pytest.approx(10_000, rel=0.05)]


def test_a_record_that_an_aggregate_refuses_is_left_out_of_all_of_them(runner):
    def build(s):
        window = keyed(s).tumbling_window(60 * S)
        return window.aggregate(Count(), Sum(value)).on_error("dead_letter")

    job = runner(build, [*VISITS, ("a", 30 * S, "three"), ("c", 30 * S, None), END])

    assert rows(job) == [("a", 0, 60, (2, 3)), ("b", 0, 60, (1, 3))]
    assert len(job.dead_letters) == 2


@pytest.mark.parametrize("combines", [True, False])
def test_a_window_of_records_without_event_time_is_an_error_that_names_it(runner, combines):
    def job(stream):
        windows = stream.key_by(lambda value: value).tumbling_window(10)
        return windows.pre_combine(combines).count().uid("counts")

    with raises(NO_EVENT_TIME) as caught:
        runner(job, ["a", END])

    assert caught.value.facts["operator"] == "counts"


#  a@0  b@10  a@10, gap 10 s: nobody is out of order, and the watermark comes to the end of a@0
TOUCHING = [("a", 0, 1), ("b", 10 * S, 1), ("a", 10 * S, 1)]


@pytest.mark.parametrize("ends", [[], [EPOCH], [CRASH, EPOCH]], ids=["one", "each", "crashes"])
@pytest.mark.parametrize("way", ["folded", "triggered", "of windows"])
def test_a_session_waits_for_a_record_that_touches_it(runner, way, ends):
    def job(s):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda r: r[1])
        keyed_by_name = s.assign_timestamps(strategy).key_by(lambda r: r[0])
        if way == "of windows":
            sessions = keyed_by_name.session_window(10 * S).sum(value)
            behind = sessions.key_by(lambda r: r.key).tumbling_window(10 * S)
            return behind.sum(lambda r: r.value)
        windows = keyed_by_name.session_window(10 * S)
        return (windows.trigger(EventTimeTrigger()) if way == "triggered" else windows).sum(value)

    script = [step for record in TOUCHING for step in (record, *ends)]
    job = runner(job, [*script, ("c", 100 * S, 1), *ends, END])

    found = [row for row in rows(job) if row[0] != "c"]
    expected = {"a": (10, 20, 2), "b": (10, 20, 1)} if way == "of windows" else {
        "a": (0, 20, 2), "b": (10, 20, 1),
    }  # fmt: skip
    assert found == [(key, *window) for key, window in expected.items()]
