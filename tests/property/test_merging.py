"""Ordered merges against sorting: any order, epochs, crashes and parallelisms; late records."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.join_jobs import STRATEGY, Run, disordered, run
from tests.property.mishaps import FAULTS, RESCALES, actions, befall

MANY = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow]
)
NAMES = ("one", "two", "three")


def merged(names, *, assigns_times):
    """Return a job that merges its sources in the order of their names here."""

    def job(env):
        streams = [env.add_source(script_source()).uid(name) for name in names]
        if assigns_times:
            streams = [stream.assign_timestamps(STRATEGY) for stream in streams]
        stream = streams[0].merge_by_time(*streams[1:], late_to="late").uid("merge")
        stream.process_fn(Stamps()).collect("out")
        stream.side_output("late").collect("late")

    return job


def in_order(names, rows):
    """Return all rows by time, those of one time by stream, those of one stream as they came."""
    found = [row for name in names for row in rows[name]]
    return sorted(found, key=lambda row: row[1])  # It leaves equal times in their order.


@MANY
@given(
    st.fixed_dictionaries({name: disordered(name[1], max_size=9) for name in NAMES}),
    actions(NAMES),
    st.sampled_from([1, 4, 10]),
    st.permutations(NAMES),
)
def test_a_merge_is_a_sort_whatever_happens_on_the_way(rows, actions, budget, names):
    results, _ = run(merged(names, assigns_times=True), rows, actions, Run(budget))

    assert results["out"] == [(row, row[1]) for row in in_order(names, rows)]
    assert results["late"] == []


@st.composite
def epochs(draw):
    """Rows by source with any times, how far the watermark goes then, and what happens."""
    number, found = 0, []
    for _ in range(draw(st.integers(1, 5))):
        rows = {name: [] for name in NAMES}
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=6)):
            rows[name].append((name, draw(st.integers(0, 60)), number))
            number += 1
        event = draw(st.one_of(st.none(), FAULTS, RESCALES, st.just("crash")))
        found.append((rows, draw(st.integers(0, 25)), event))
    return found


@MANY
@given(epochs())
def test_rows_behind_what_has_left_are_late_and_all_others_in_order(epochs):
    watermark = -1
    accepted, late = {name: [] for name in NAMES}, []
    with Harness(merged(NAMES, assigns_times=False)) as harness:
        for rows, distance, event in epochs:
            for name, some in rows.items():
                harness.push(some, source=name, timestamp=[row[1] for row in some])
                accepted[name] += [row for row in some if row[1] > watermark]
                late += [(row, watermark - row[1]) for row in some if row[1] <= watermark]
            watermark += distance
            befall(harness, event)
            harness.advance_watermark(watermark)
            passed = [row for row in in_order(NAMES, accepted) if row[1] <= watermark]
            assert [row for row, _ in harness.results("out")] == passed
        harness.end()
        harness.run()

        assert harness.results("out") == [(row, row[1]) for row in in_order(NAMES, accepted)]
        found = [(record.value, record.lateness_ms) for record in harness.results("late")]
        assert sorted(found) == sorted(late)
