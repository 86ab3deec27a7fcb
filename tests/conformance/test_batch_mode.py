"""Input that ends, read in one pass: the results are those of following it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.errors import BATCH_MODE_ENDLESS
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import EventTimeTrigger, TimeEvictor, session_windows, sliding_windows
from tests.event_time import SIZE, Tumbling, first, second
from tests.examples import examples
from tests.raising import raises

DISORDER_MS = 2_000
BATCH = EngineOptions(mode="batch")


def windows(stream):
    """Count by key and 10 s."""
    timed = stream.assign_timestamps(
        WatermarkStrategy.bounded_out_of_orderness(DISORDER_MS).with_timestamps(second)
    )
    counts = timed.key_by(first).tumbling_window(SIZE).count().uid("windows")
    return counts.map(lambda row: (row.key, row.start, row.value))


def on_script(build):
    return lambda env: build(env.add_source(script_source()).uid("script")).collect("out")


EVENTS = [("a", 1_000), ("b", 4_000), ("a", 9_000), ("a", 8_000), ("b", 11_000), ("b", 25_000)]
LATE = [("a", 30_000), ("a", 1_000)]  # The second one is 27 s behind the watermark.


def played(runner, job, events, **settings):
    """Return the sorted results and the number of epochs that read something."""
    with runner.harness(job, **settings) as harness:
        harness.push(events)
        harness.end()
        harness.run()
        return sorted(harness.published), sum(1 for e in harness.epochs if e.record_count)


@pytest.mark.core
def test_one_pass_gives_what_small_epochs_give(runner):
    streaming, many = played(
        runner, on_script(windows), EVENTS, engine=EngineOptions(max_records_per_epoch=1)
    )
    batch, one = played(runner, on_script(windows), EVENTS, engine=BATCH)

    assert batch == streaming
    assert (many, one) == (len(EVENTS), 1)


def test_the_job_itself_may_ask_for_one_pass(runner):
    def job(env):
        env.set_runtime_mode("batch")
        on_script(windows)(env)

    assert played(runner, job, EVENTS) == played(runner, on_script(windows), EVENTS, engine=BATCH)


def test_no_record_is_late_and_nothing_fires_before_the_end(runner):
    engine = EngineOptions(mode="batch", max_records_per_epoch=1)
    with runner.harness(on_script(windows), engine=engine) as harness:
        harness.push(LATE)
        harness.run()
        assert harness.published == []
        assert harness.watermark("windows") is None
        assert harness.epochs[-1].watermark_ms is None

        harness.end()
        harness.run()
        assert len(harness.published) == 2
        assert sum(e.counts["windows"].late for e in harness.epochs if e.counts) == 0


def test_a_crash_in_the_middle_changes_no_result(runner):
    engine = EngineOptions(mode="batch", max_records_per_epoch=2)
    with runner.harness(on_script(windows), engine=engine) as harness:
        harness.push(EVENTS)
        harness.fail_at("before_seal", passage=2)
        harness.end()
        harness.run()

        assert harness.crash_count == 1
        assert sorted(harness.published) == played(runner, on_script(windows), EVENTS)[0]


def test_an_operator_behind_a_source_that_has_ended_waits_for_no_other(runner):
    def build(env):
        for uid in ("short", "long"):
            timed = env.add_source(script_source()).uid(uid).assign_timestamps(second)
            timed.key_by(first).process_fn(Tumbling()).collect(f"{uid}-out")

    with runner.harness(build, engine=BATCH) as harness:
        harness.push([("a", 1)], source="short")
        harness.end(source="short")
        harness.push([("b", 1)], source="long")
        harness.run()
        harness.push([("b", 2)], source="long")
        harness.run()
        assert harness.results("long-out") == []

        harness.end()
        harness.run()
        assert harness.results("short-out") == [("a", SIZE, 1)]
        assert harness.results("long-out") == [("b", SIZE, 2)]


def test_sources_that_never_end_are_named():
    def job(env):
        env.generator_source().uid("endless").print()
        env.socket_source("127.0.0.1", 0).uid("lines").print()
        env.generator_source(count=3).uid("three").print()
        env.from_collection([1]).uid("one").print()

    with raises(BATCH_MODE_ENDLESS) as caught, Harness(job, engine=BATCH):
        pass

    assert caught.value.facts["sources"] == ["endless", "lines"]


@st.composite
def histories(draw):
    """Return events whose disorder is within the bound, in any order that this allows."""
    steps = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4_000)), max_size=20))
    delays = st.integers(0, DISORDER_MS)
    time, events = 0, []
    for key, gap in steps:
        time += gap
        events.append((time + draw(delays), key, time))
    return [(key, time) for _, key, time in sorted(events)]


def pair(left, right):
    return (left, right)


def both(left, right):
    return [(sorted(left), sorted(right))]


def windows_of_all_kinds(keyed):
    """Return the results of all windows, by what they are."""
    sliding = keyed.sliding_window(SIZE, 3_000, offset=-700)
    return {
        "tumbling": keyed.tumbling_window(SIZE).count(),
        "sliding": sliding.sum(second),
        "kept": sliding.process(lambda rows, ctx: [(ctx.current_key(), ctx.window, sorted(rows))]),
        "session": keyed.session_window(1_500).count(),
        "cut session": keyed.session_window(1_500, max_duration=4_000).count(),
        "triggered": keyed.tumbling_window(SIZE).trigger(EventTimeTrigger()).avg(second),
        "evicted": keyed.tumbling_window(SIZE).evictor(TimeEvictor(2_000)).max(second),
        "counted": keyed.count_window(3).count(),
    }


def joins_of_all_kinds(timed, keyed):
    """Return the results of all joins of a stream with a part of itself, by what they are."""
    others = timed.filter(lambda event: event[1] % 3 == 0).key_by(first)
    return {
        "interval": keyed.interval_join(others, -1_000, 2_000, pair, how="full"),
        "windowed": keyed.window_join(others, sliding_windows(SIZE, 4_000), pair, how="left"),
        "grouped": keyed.co_group(others, session_windows(1_500), both),
        "as of": keyed.as_of_join(others, pair, how="left", tolerance=3_000),
        "merged": timed.merge_by_time(timed.filter(lambda event: event[0] == "a")),
    }


def everything(env):
    """Event time in every operator that waits for it."""
    strategy = WatermarkStrategy.bounded_out_of_orderness(DISORDER_MS).with_timestamps(second)
    timed = env.add_source(script_source()).uid("script").assign_timestamps(strategy)
    keyed = timed.key_by(first)
    found = windows_of_all_kinds(keyed) | joins_of_all_kinds(timed, keyed)
    found["by hand"] = keyed.process_fn(Tumbling())
    found["running"] = keyed.count()
    for name, stream in found.items():
        stream.collect(name)


@settings(deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow])
@given(histories(), st.integers(1, 7), st.integers(1, 3))
def test_one_pass_equals_any_epochs_of_streaming(events, budget, parallelism):
    found = []
    for engine in (EngineOptions(max_records_per_epoch=budget), BATCH):
        with Harness(everything, engine=engine, parallelism=parallelism) as harness:
            harness.push(events)
            harness.end()
            harness.run()
            found.append({name: sorted(map(str, harness.results(name)))
                          for name in harness.sink_names()})  # fmt: skip

    assert found[0] == found[1]
