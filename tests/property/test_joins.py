"""Joins of event time against brute force: any order, epochs, crashes and parallelisms."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import fail, skip
from bicycle_sdk.windows import session_windows, sliding_windows
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.join_jobs import ACTIONS, Run, disordered, run, sides, states_of

MANY = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow]
)
# Where calls that fail are left out, rows are joined one by one, and else many in one call.
RUNS = st.builds(
    Run,
    budget=st.sampled_from([1, 4, 10]),
    backend=st.sampled_from(["memory", "rocksdb"]),
    policy=st.sampled_from([fail(), skip()]),
)


def pair(left, right):
    return (left, right)


def with_times(build, policy):
    """Return a job that collects the results of a join with their event times."""

    def job(env):
        joined = build(*sides(env)).on_error(policy).uid("join")
        joined.process_fn(Stamps()).collect("out")

    return job


def outer(pairs, left, right, how):
    """Add the rows that have no pair, as the kind of join asks."""
    lone_left = [(row, None) for row in left if row not in {a for a, _ in pairs}]
    lone_right = [(None, row) for row in right if row not in {b for _, b in pairs}]
    return (
        pairs
        + (lone_left if how in ("left", "full") else [])
        + (lone_right if how in ("right", "full") else [])
    )


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@MANY
@given(
    disordered("l"), disordered("r"), ACTIONS, RUNS,
    st.tuples(st.integers(-80, 80), st.integers(0, 80)), st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_an_interval_join_gives_the_pairs_of_brute_force(
    how, left, right, actions, way, span, inclusive
):
    # The bounds as they are told; those that still match differ by 1 ms where they are excluded.
    lower, upper = span[0], span[0] + span[1]
    told = (lower - (not inclusive[0]), upper + (not inclusive[1]))
    ends = {"lower_inclusive": inclusive[0], "upper_inclusive": inclusive[1]}
    pairs = [(a, b) for a in left for b in right if a[0] == b[0] and lower <= b[1] - a[1] <= upper]
    job = with_times(lambda a, b: a.interval_join(b, *told, pair, how=how, **ends), way.policy)

    results, states = run(job, {"left": left, "right": right}, actions, way)

    found = [value for value, _ in results["out"]]
    assert sorted(found, key=repr) == sorted(outer(pairs, left, right, how), key=repr)
    for (a, b), time in results["out"]:
        if a and b:
            assert time == max(a[1], b[1])
        else:
            assert time == (max(a[1] + upper, a[1]) if a else max(b[1] - lower, b[1]))
    assert states == []


def windows_of(row, size, slide):
    """Return the starts of the windows that hold a row, one candidate after the other."""
    first = (row[1] - size) // slide * slide
    return [s for s in range(first, row[1] + 1, slide) if s <= row[1] < s + size]


def shared(rows, size, slide):
    """Return rows by key and window."""
    found = {}
    for row in rows:
        for start in windows_of(row, size, slide):
            found.setdefault((row[0], start), []).append(row)
    return found


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@MANY
@given(
    disordered("l"), disordered("r"), ACTIONS, RUNS,
    st.sampled_from([(100, 100), (90, 30), (40, 70)]),
)  # fmt: skip
def test_a_window_join_gives_the_pairs_of_brute_force(how, left, right, actions, way, lengths):
    size, slide = lengths
    lefts, rights = shared(left, size, slide), shared(right, size, slide)
    expected = []
    for place in lefts.keys() | rights.keys():
        mine, theirs = lefts.get(place, []), rights.get(place, [])
        pairs = outer([(a, b) for a in mine for b in theirs], mine, theirs, how)
        expected += [(found, place[1] + size - 1) for found in pairs]
    windows = sliding_windows(size, slide)
    job = with_times(lambda a, b: a.window_join(b, windows, pair, how=how), way.policy)

    results, states = run(job, {"left": left, "right": right}, actions, way)

    assert sorted(results["out"], key=repr) == sorted(expected, key=repr)
    assert states == []


def sessions_of(rows, gap):
    """Return runs of rows of one key whose times are at most a gap apart."""
    found = []
    for row in sorted(rows, key=lambda row: row[1]):
        if found and row[1] - found[-1][-1][1] <= gap:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def of_side(checkpoint_id, rows):
    return sorted(row for row in rows if row[2].startswith(checkpoint_id))


def grouped(left, right):
    return [(sorted(left), sorted(right))]


@MANY
@given(disordered("l"), disordered("r"), ACTIONS, RUNS, st.sampled_from([1, 30, 60]))
def test_sessions_of_both_sides_are_those_of_brute_force(left, right, actions, way, gap):
    expected = [
        (
            (of_side("l", session), of_side("r", session)),
            session[-1][1] + gap,
        )
        for key in "xy"
        for session in sessions_of([row for row in left + right if row[0] == key], gap)
    ]
    job = with_times(lambda a, b: a.co_group(b, session_windows(gap), grouped), way.policy)

    results, states = run(job, {"left": left, "right": right}, actions, way)

    assert sorted(results["out"]) == sorted(expected)
    assert states == []


def is_third(row):
    return int(row[2][1:]) % 3 == 2


@pytest.mark.parametrize("how", ["inner", "left"])
@MANY
@given(
    disordered("l"), disordered("r"), ACTIONS, RUNS,
    st.tuples(st.sampled_from([None, 0, 40]), st.sampled_from([None, is_third])),
)  # fmt: skip
def test_an_as_of_join_finds_the_last_row_before(how, left, right, actions, way, settings):
    tolerance, is_deleted = settings
    expected = []
    for row in left:
        known = [
            (other[1], place, other)
            for place, other in enumerate(right)
            if other[0] == row[0]
            and other[1] <= row[1]
            and (tolerance is None or row[1] - other[1] <= tolerance)
        ]
        match = max(known)[2] if known else None
        if match and is_deleted and is_deleted(match):
            match = None
        if match or how == "left":
            expected.append(((row, match), row[1]))
    job = with_times(
        lambda a, b: a.as_of_join(b, pair, how=how, tolerance=tolerance, deleted_when=is_deleted),
        way.policy,
    )

    results, states = run(job, {"left": left, "right": right}, actions, way)

    assert sorted(results["out"], key=repr) == sorted(expected, key=repr)
    if tolerance is not None:
        assert states == []


JOINS = {
    "interval": lambda a, b: a.interval_join(b, -30, 40, pair, late_to="late"),
    "interval, left": lambda a, b: a.interval_join(b, 10, 40, pair, how="left", late_to="late"),
    "interval, full": lambda a, b: a.interval_join(b, -60, -5, pair, how="full", late_to="late"),
    "as of": lambda a, b: a.as_of_join(b, pair, how="left", tolerance=60, late_to="late"),
    "window": lambda a, b: a.window_join(b, sliding_windows(90, 30), pair, late_to="late"),
    "windows with gaps": lambda a, b: a.window_join(b, sliding_windows(40, 70), pair, how="full"),
}
# Times come again, and some fall behind the bound: such rows may be late.
ROWS = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 400)), max_size=40)
EPOCHS = st.lists(
    st.tuples(ROWS, ROWS, st.sampled_from([None, "operator", "delta_written", "after_seal"])),
    min_size=2, max_size=4,
)  # fmt: skip


def numbered(epoch, side, rows):
    """Return rows with later times in later epochs, each different."""
    return [
        (key, time + 150 * epoch, f"{side}{epoch}-{number}")
        for number, (key, time) in enumerate(rows)
    ]


def told_of(join, epochs, faults, *, policy, backend):
    """Return what a join gives epoch by epoch, its late rows, and what it keeps at the end."""

    def job(env):
        joined = join(*sides(env)).on_error(policy).uid("join")
        joined.process_fn(Stamps()).collect("out")
        joined.side_output("late").collect("late")

    with Harness(job, engine=EngineOptions(state_backend=backend)) as harness:
        for rows, fault in zip(epochs, faults, strict=True):
            for side, source in zip(rows, ("left", "right"), strict=True):
                harness.push(side, source=source)
            if fault is not None:
                harness.fail_at(fault, passage=1)
            while harness.run_epoch() is not None:
                pass
        kept = states_of(harness)
        return harness.results("out"), harness.results("late"), kept


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
@MANY
@given(EPOCHS, st.sampled_from(["memory", "rocksdb"]))
def test_rows_joined_many_in_a_call_give_what_one_by_one_gives(join, epochs, backend):
    rows = [
        (numbered(epoch, "l", left), numbered(epoch, "r", right))
        for epoch, (left, right, _) in enumerate(epochs)
    ]
    faults = [fault for *_, fault in epochs]
    many = told_of(join, rows, faults, policy=fail(), backend=backend)
    # Where failed calls are left out, each row and each timer is a call of its own.
    one_by_one = told_of(join, rows, faults, policy=skip(), backend="memory")
    assert many == one_by_one


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("policy", [fail(), skip()], ids=["all at once", "one by one"])
def test_rows_that_nobody_wants_alone_go_with_one_timer_for_a_key(backend, policy):
    """Rows match within 400 ms, so they go at the latest 100 ms after they can match no more."""

    def job(env):
        left, right = sides(env)
        joined = left.interval_join(right, -400, 400, pair, how="left").on_error(policy)
        joined.uid("join").collect("out")

    def push(harness, first, end):
        for source, key in (("left", "x"), ("right", "x"), ("right", "y")):
            rows = [(key, time, f"{source} {time}") for time in range(first, end, 25)]
            harness.push(rows, source=source)
        harness.run()

    with Harness(job, engine=EngineOptions(state_backend=backend)) as harness:
        for first, end in ((0, 2_000), (2_000, 2_100), (2_100, 9_000)):
            push(harness, first, end)
            harness.crash()
            watermark = harness.watermark("join")
            for key in "xy":
                times = [time for time, _ in harness.state("join", key)["right"]]
                assert min(times) > watermark - 400 - 101
                assert {time for time in range(first, end, 25) if time > watermark - 400} <= {
                    *times
                }
        assert policy != fail() or len(harness.timers("join", "y")) <= 3
        harness.end()
        harness.run()

        assert states_of(harness) == []
        assert len(set(harness.results("out"))) == len(harness.results("out")) > 9_000 / 25
