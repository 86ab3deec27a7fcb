"""Event time against a model: any order within the bound, any epochs, crashes and parallelisms."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from tests.event_time import SIZE, Stamps, Tumbling, first, second
from tests.examples import examples
from tests.property.mishaps import act, actions

DISORDER = 5_000


def job(*, is_behind_exchange):
    """Return a job with two sources; timestamps are assigned beside them, or behind an exchange."""

    def build(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(DISORDER).with_timestamps(second)
        streams = []
        for uid in ("a-in", "b-in"):
            source = env.add_source(script_source()).uid(uid)
            stream = source.rebalance() if is_behind_exchange else source
            streams.append(stream.assign_timestamps(strategy))
        both = streams[0].union(streams[1]).rebalance().map(lambda v: v)
        counts = both.key_by(first).process_fn(Tumbling()).uid("windows")
        counts.collect("counts")
        counts.side_output("late").collect("late")
        both.shuffle().process_fn(Stamps()).collect("stamps")

    return build


@st.composite
def disordered(draw):
    """Records of one shard, none older than the newest before it less the bound."""
    records, newest = [], 0
    for _ in range(draw(st.integers(0, 12))):
        newest += draw(st.integers(0, 7_000))
        time = newest - draw(st.integers(0, DISORDER))
        records.append((draw(st.sampled_from("xyz")), time))
    return records


WAITS = st.tuples(st.just("wait"), st.integers(1, 400))


@settings(deadline=None, max_examples=examples(60))
@given(
    disordered(),
    disordered(),
    actions(["a-in", "b-in"], WAITS),
    st.sampled_from([1, 3, 10]),
    st.booleans(),
)
def test_counts_by_window_equal_the_model(left, right, actions, budget, is_behind_exchange):
    model = Counter((key, time // SIZE * SIZE + SIZE) for key, time in left + right)
    expected = sorted((key, end, count) for (key, end), count in model.items())
    todo = {"a-in": list(left), "b-in": list(right)}
    engine = EngineOptions(max_records_per_epoch=budget)
    with Harness(job(is_behind_exchange=is_behind_exchange), engine=engine) as harness:
        for action in actions:
            act(harness, action, todo)
        for source, records in todo.items():
            harness.push(records, source=source)
        harness.end()
        harness.run()

        assert sorted(harness.results("counts")) == expected
        assert harness.results("late") == []
        stamps = harness.results("stamps")
        assert sorted(value for value, _ in stamps) == sorted(left + right)
        assert all(time == value[1] for value, time in stamps)
        marks = [stats.time.watermarks.get("windows") for stats in harness.epochs]
        known = [mark for mark in marks if mark is not None]
        assert known == sorted(known)
