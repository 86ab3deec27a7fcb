"""Windows of whole jobs against brute force: random records, orders, epochs, crashes, rescales."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import (
    AggregateFunction,
    Average,
    Count,
    Distinct,
    EventTimeTrigger,
    LateRecord,
    Maximum,
    Minimum,
    Sum,
)
from tests.examples import examples
from tests.property import window_model
from tests.property.mishaps import ENGINES, FAULTS, LOSSES, RESCALES, fail_in_next_epoch, happen

Record = tuple[str, int, int | float]
KEYS = ["a", "b", "c", ""]
NUMBERS = st.one_of(
    st.integers(-100, 100), st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: x + 0.1)
)
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(-120, 200), NUMBERS), min_size=1, max_size=40
)
FIXED = st.one_of(
    st.builds(
        lambda size, slide, offset: ("aligned", size, slide, offset, False),
        st.integers(1, 60),
        st.integers(1, 60),
        st.integers(-30, 30),
    ).filter(lambda kind: kind[1] <= 20 * kind[2]),
    st.builds(
        lambda step, count, offset: ("aligned", step * count, step, offset, True),
        st.integers(1, 30),
        st.integers(1, 8),
        st.integers(-30, 30),
    ),
)


def gap_of(record):
    return 7 + abs(record[1]) % 5


# An ended session is remembered for one gap, or as long as it lasted where a function returns gaps.
KEPT_SESSIONS = st.sampled_from([("session", 10), ("session", lambda record: 10)])
KINDS = st.one_of(FIXED, KEPT_SESSIONS, st.just(("session", gap_of)))
PATIENT = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


class Chained(AggregateFunction):
    """No ``merge``: the records are kept and folded by time."""

    def create_accumulator(self):
        return 0

    def add(self, accumulator, value):
        return (accumulator * 31 + value[1]) % 1_000_003

    def get_result(self, accumulator):
        return accumulator


def chained(records):
    accumulator = 0
    for record in records:
        accumulator = (accumulator * 31 + record[1]) % 1_000_003
    return accumulator


def number(record):
    return record[2]


def elements(records, ctx):
    return [(ctx.current_key(), ctx.window.start, ctx.window.end, sorted(records, key=str))]


COMPUTED = {
    "count": (lambda w: w.count(), len),
    "sum": (lambda w: w.sum(number), lambda rs: window_model.exact_sum(map(number, rs))),
    "all": (
        lambda w: w.aggregate(
            Count(), Sum(number), Minimum(number), Maximum(number), Distinct(number)
        ),
        lambda rs: (
            len(rs),
            window_model.exact_sum(map(number, rs)),
            min(map(number, rs)),
            max(map(number, rs)),
            len(set(map(number, rs))),
        ),
    ),
    "reduce": (
        lambda w: w.reduce(lambda a, b: max(a, b, key=lambda r: (r[1], r[2]))),
        lambda rs: max(rs, key=lambda r: (r[1], r[2])),
    ),
    "without merge": (lambda w: w.aggregate(Chained()), chained),
    "process": (lambda w: w.process(elements), lambda rs: sorted(rs, key=str)),
}


def windowed(keyed, kind):
    if kind[0] == "session":
        return keyed.session_window(kind[1])
    if kind[0] == "cut session":
        return keyed.session_window(kind[1], max_duration=kind[2])
    _, size, slide, offset, is_cumulative = kind
    if is_cumulative:
        return keyed.cumulative_window(slide, size, offset=offset)
    if size == slide:
        return keyed.tumbling_window(size, offset=offset)
    return keyed.sliding_window(size, slide, offset=offset)


def set_to(window, way):
    """Have a window carried out in one of the ways that must give the same."""
    if way == "triggered":
        return window.trigger(EventTimeTrigger())
    return window.pre_combine(way == "combined")


def job_of(make, *, delay):
    def build(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(delay)
        stamped = strategy.with_timestamps(lambda record: record[1]).with_idle_timeout(None)
        source = env.add_source(script_source(Record)).uid("source")
        stream = source.assign_timestamps(stamped).uid("times")
        make(stream.key_by(lambda record: record[0]))

    return build


@st.composite
def histories(draw):
    """What happens to a job: where epochs end, and what befalls it there."""
    return draw(
        st.lists(
            st.tuples(
                st.integers(1, 15),
                st.one_of(st.just("on"), LOSSES, FAULTS, RESCALES),
            ),
            max_size=6,
        )
    )


def run(harness, records, history):
    """Push records in parts and do what the history says between."""
    left = list(records)
    for size, event in history:
        part, left = left[:size], left[size:]
        harness.push(part)
        fail_in_next_epoch(harness, event)
        harness.run()
        happen(harness, event)
    harness.push(left)
    harness.end()
    harness.run()


@pytest.mark.parametrize("what", COMPUTED)
@PATIENT
@given(
    kind=KINDS,
    records=RECORDS,
    history=histories(),
    parallelism=st.integers(1, 4),
    way=st.sampled_from(["combined", "plain", "triggered"]),
    engine=ENGINES,
)
def test_windows_give_what_brute_force_gives(
    what, kind, records, history, parallelism, way, engine
):
    compute, result = COMPUTED[what]

    def make(keyed):
        compute(set_to(windowed(keyed, kind), way)).uid("window").collect("out")

    records = [(key, time, value) for key, time, value in dict.fromkeys(records)]
    if what == "without merge":
        records = list({(key, time): (key, time, value) for key, time, value in records}.values())
    job = job_of(make, delay=1_000)
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        run(harness, records, history)
        found = sorted(map(tuple, harness.results("out")))

    assert found == window_model.model(kind, records, result)
    assert [type(row[3]) for row in found] == [
        type(row[3]) for row in window_model.model(kind, records, result)
    ]


@PATIENT
@given(
    kind=st.one_of(FIXED, KEPT_SESSIONS),
    epochs=st.lists(RECORDS, min_size=1, max_size=5),
    lateness=st.integers(0, 40),
    parallelism=st.integers(1, 3),
    way=st.sampled_from(["combined", "plain", "triggered"]),
    what=st.sampled_from(["count", "process"]),
    engine=ENGINES,
)
def test_late_records_are_told_from_those_that_update_a_result(
    kind, epochs, lateness, parallelism, way, what, engine
):
    # A trigger is asked at each record, so what closes a session is known there and then.
    assume(way != "triggered" or kind[0] == "aligned")
    compute, result = COMPUTED[what]

    def make(keyed):
        window = set_to(windowed(keyed, kind), way)
        stream = compute(window.allowed_lateness(lateness).late_to("late"))
        stream.collect("out")
        stream.side_output("late").collect("late")

    # Each record is another one, so that they can be told apart.
    epochs = [
        [(key, time, number * 1_000 + i) for i, (key, time, _) in enumerate(epoch)]
        for number, epoch in enumerate(epochs)
    ]
    with Harness(job_of(make, delay=15), parallelism=parallelism, engine=engine) as harness:
        for epoch in epochs:
            harness.push(epoch)
            harness.run_epoch()
        harness.end()
        harness.run()
        rows = list(map(tuple, harness.results("out")))
        late = harness.results("late")

    accepted, too_late = window_model.late_model(kind, epochs, delay=15, lateness=lateness)
    assert Counter(record.value for record in late) == Counter(too_late)
    assert all(type(record) is LateRecord for record in late)
    assert all(record.lateness_ms == record.watermark - record.timestamp for record in late)
    last = {row[:3]: row[3] for row in rows}
    if kind[0] == "aligned":
        expected = closed_in_time(kind, epochs, accepted, lateness=lateness, result=result)
        assert last == expected
    elif what == "process" and not lateness:
        # A session fires once, and each record that counts is in one session.
        assert Counter(r for row in rows for r in row[3]) == Counter(accepted)
    if kind[0] == "session" and not lateness:
        bounds = sorted(row[:3] for row in rows)
        assert all(a[0] != b[0] or a[2] < b[1] for a, b in pairwise(bounds))


@PATIENT
@given(
    gap=st.sampled_from([10, gap_of, lambda record: 90 if record[1] % 3 else 4]),
    longest=st.integers(1, 60),
    records=st.lists(
        st.tuples(
            st.tuples(st.sampled_from("ab"), st.integers(-120, 200), NUMBERS), st.integers(0, 29)
        ),
        min_size=5,
        max_size=30,
    ),
    # Cuts are due, and rests are open, while records still come: most epochs are short.
    history=st.one_of(
        histories(), st.just([(1, "on")] * 20), st.just([(2, "on"), (2, ("rescale", 2))] * 6)
    ),
    parallelism=st.integers(1, 4),
    what=st.sampled_from(["count", "sum", "process"]),
    engine=ENGINES,
)
def test_long_sessions_are_cut_at_the_same_times_in_any_order_within_the_disorder(
    gap, longest, records, history, parallelism, what, engine
):
    compute, result = COMPUTED[what]
    kind = ("cut session", gap, longest)

    def make(keyed):
        results = compute(windowed(keyed, kind).late_to("late"))
        results.collect("out")
        results.side_output("late").collect("late")

    # No record comes 30 ms or more behind a later one.
    records = sorted(dict(records).items(), key=lambda item: item[0][1] + item[1])
    records = [record for record, _ in records]
    with Harness(job_of(make, delay=30), parallelism=parallelism, engine=engine) as harness:
        run(harness, records, history)
        found = sorted(map(tuple, harness.results("out")))
        late = harness.results("late")

    assert late == []
    assert found == window_model.model(kind, records, result)
    assert all(end - start <= longest for _, start, end, _ in found)


@pytest.mark.parametrize("way", ["combined", "plain", "triggered"])
@PATIENT
@given(
    kind=KINDS,
    time=st.integers(-120, 200),
    lateness=st.integers(0, 40),
    distance=st.sampled_from([-1, 0, 1, 2]),
)
def test_a_window_closes_at_the_very_millisecond(way, kind, time, lateness, distance):
    # The other key takes the watermark to where the last window of the time is that far from over.
    record = ("a", time, 1)
    if kind[0] == "session":
        ends = [time + window_model.gap_of(kind, record)]
    else:
        ends = [end for _, end in window_model.aligned_windows(*kind[1:], time)]
    assume(ends)
    watermark = max(ends) + lateness - distance

    def make(keyed):
        stream = set_to(windowed(keyed, kind), way).allowed_lateness(lateness).late_to("late")
        results = stream.count()
        results.collect("out")
        results.side_output("late").collect("late")

    with Harness(job_of(make, delay=15)) as harness:
        # A record at the end of a session would still join it.
        harness.push([("b", watermark + 15 + (kind[0] == "session"), 1)])
        harness.run_epoch()
        harness.push([record])
        harness.end()
        harness.run()
        counted = {row.end for row in harness.results("out") if row.key == "a"}
        late = [row.value for row in harness.results("late")]

    assert late == ([] if distance > 0 else [record])
    assert counted == {end for end in ends if end + lateness > watermark}


def closed_in_time(kind, epochs, accepted, *, lateness, result):
    """Return the last result of each window: of the records that came before it was over."""
    watermark, kept = None, {}
    for epoch in epochs:
        for record in epoch:
            if record not in accepted:
                continue
            for window in window_model.aligned_windows(*kind[1:], record[1]):
                if watermark is None or window[1] + lateness > watermark:
                    kept.setdefault((record[0], *window), []).append(record)
        newest = [r[1] - 15 for r in epoch]
        watermark = max(newest) if watermark is None else max(watermark, *newest)
    return {place: result(sorted(rows, key=lambda r: r[1])) for place, rows in kept.items()}


@PATIENT
@given(records=RECORDS, seed=st.randoms(use_true_random=False), parallelism=st.integers(1, 4))
def test_sums_of_floats_do_not_depend_on_order_or_parallelism(records, seed, parallelism):
    def make(keyed):
        keyed.tumbling_window(50).aggregate(Sum(number), Average(number)).collect("out")

    shuffled = list(records)
    seed.shuffle(shuffled)
    results = []
    for some, width in ((records, 1), (shuffled, parallelism)):
        with Harness(job_of(make, delay=1_000), parallelism=width) as harness:
            run(harness, some, [(5, "on")])
            results.append(sorted(harness.results("out")))

    assert results[0] == results[1]
