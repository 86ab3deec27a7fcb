"""Event time over exchanges, loops, crashes and silence, on the harness and on Spark alike."""

import json
from datetime import timedelta

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import KeyedProcessFunction, ProcessFunction, WatermarkStrategy, file_sink
from bicycle_sdk.contexts import WATERMARK_MAX
from tests.event_time import Stamps, Tumbling, first, second


def by_second(delay=2_000):
    return WatermarkStrategy.bounded_out_of_orderness(delay).with_timestamps(second)


def windowed(stream, strategy=None):
    timed = stream.assign_timestamps(strategy or by_second()).uid("times")
    return timed.key_by(first).process_fn(Tumbling()).uid("windows")


def on_script(job):
    def build(env):
        job(env.add_source(script_source()).uid("script")).collect("published")

    return build


EVENTS = [("a", 1_000), ("b", 4_000), ("a", 9_000), ("a", 12_000), ("b", 11_000), ("b", 25_000)]
COUNTS = [("a", 10_000, 2), ("a", 20_000, 1), ("b", 10_000, 1), ("b", 20_000, 1), ("b", 30_000, 1)]


@pytest.mark.core
def test_a_window_closes_when_the_watermark_reaches_its_end(runner):
    #  disorder 2 s: the watermark is 6.999 s, 8.999 s, 9.998 s and then 9.999 s
    with runner.harness(on_script(windowed)) as harness:
        for time in (9_000, 11_000, 11_999):
            harness.push([("a", time)])
            harness.run_epoch()
            assert harness.published == []
        harness.push([("a", 12_000)])
        harness.run_epoch()

        assert harness.published == [("a", 10_000, 1)]
        assert harness.watermark("windows") == 9_999


@pytest.mark.core
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_results_depend_neither_on_epochs_nor_on_parallelism(runner, parallelism, size):
    script = []
    for start in range(0, len(EVENTS), size):
        script += [*EVENTS[start : start + size], EPOCH]
    job = runner(windowed, [*script, END], parallelism=parallelism)

    assert sorted(job.published) == COUNTS


@pytest.mark.parametrize("count", range(len(EVENTS) + 1))
def test_results_do_not_depend_on_crashes(runner, count):
    job = runner(windowed, [*EVENTS[:count], CRASH, *EVENTS[count:], EPOCH, END])

    assert sorted(job.published) == COUNTS


@pytest.mark.core
def test_a_watermark_passes_through_stateful_operators_within_one_epoch(runner):
    def twice(stream):
        counts = windowed(stream)
        return counts.map(lambda c: (c[0], c[1])).key_by(first).process_fn(Tumbling())

    job = runner(twice, [*EVENTS, END])

    # A count has the time of its timer, the last ms of its window, and so falls into the same one.
    assert sorted(job.published) == [(key, end, 1) for key, end, _ in COUNTS]


TRANSFORMS = {
    "key_by": lambda s: s.key_by(first),
    "rebalance": lambda s: s.rebalance(),
    "shuffle": lambda s: s.shuffle(),
    "global": lambda s: s.global_(),
    "broadcast": lambda s: s.broadcast(),
    "map": lambda s: s.map(lambda v: v),
    "filter": lambda s: s.filter(lambda v: v[1] % 2 == 0),
    "flat_map": lambda s: s.flat_map(lambda v: [v] * (v[1] % 3)),
    "union": lambda s: s.union(s.map(lambda v: v)),
    "process": lambda s: s.process_fn(Same()),
    "side_output": lambda s: s.process_fn(Aside()).side_output("aside"),
    "skip": lambda s: s.map(lambda v: (v[0], v[1] // (v[1] % 4) * (v[1] % 4))).on_error("skip"),
}


class Same(ProcessFunction[tuple[str, int], tuple[str, int]]):
    def process_element(self, value, ctx):
        return [value]


class Aside(ProcessFunction[tuple[str, int], tuple[str, int]]):
    def process_element(self, value, ctx):
        ctx.side_output("aside", value)
        return []


@pytest.mark.parametrize("name", TRANSFORMS)
def test_records_keep_their_times_through_operators_and_exchanges(runner, name):
    def job(stream):
        timed = stream.assign_timestamps(lambda value: value[1] * 1_000)
        return TRANSFORMS[name](TRANSFORMS[name](timed)).process_fn(Stamps())

    records = [(str(number % 3), number) for number in range(1, 20)]
    job = runner(job, [*records, END], parallelism=2)

    assert job.published
    assert all(time // 1_000 == int(value[1]) or name == "skip" for value, time in job.published)
    assert {time for _, time in job.published} <= {number * 1_000 for number in range(1, 20)}


def test_a_sink_that_asks_for_times_gets_them_behind_an_exchange(runner, tmp_path):
    folder = tmp_path / "out"

    def job(env):
        timed = env.add_source(script_source()).uid("script").assign_timestamps(second)
        named = timed.rebalance().map(lambda value: {"name": value[0]})
        named.sink_to(file_sink(folder, timestamp_field="at")).uid("out")

    with runner.harness(job, parallelism=2, real_sinks=["out"]) as harness:
        harness.push(EVENTS)
        harness.end()
        harness.run()

    lines = [
        json.loads(line) for path in folder.glob("part-*") for line in path.read_text().split()
    ]
    assert sorted((line["name"], line["at"]) for line in lines) == sorted(EVENTS)


def test_records_keep_their_times_round_a_loop(runner):
    def job(stream):
        head = stream.assign_timestamps(second).iterate()
        more = head.process_fn(Same())
        head.feedback(more.filter(lambda v: v[0] != "end").map(lambda v: ("end", v[1])))
        return more.process_fn(Stamps())

    job = runner(job, [("a", 5), ("b", 9), EPOCH, EPOCH, END], parallelism=2)

    assert sorted(job.published) == [
        (("a", 5), 5), (("b", 9), 9), (("end", 5), 5), (("end", 9), 9),
    ]  # fmt: skip


class OnceMore(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Gives each record one more than it has when its time has come."""

    def process_element(self, value, ctx):
        ctx.save_state("value", value)
        ctx.timer_service.register_event_time_timer(ctx.timestamp + 1)
        return []

    def on_timer(self, timestamp_ms, ctx):
        name, number = ctx.get_state("value")
        return [(name, number + 1)]


def test_what_the_end_of_input_sends_round_a_loop_comes_out(runner):
    def job(stream):
        head = stream.assign_timestamps(second).iterate()
        more = head.key_by(first).process_fn(OnceMore())
        head.feedback(more.filter(lambda v: v[1] < 3))
        return more

    assert runner(job, [("a", 0), END]).published == [("a", 1), ("a", 2), ("a", 3)]


def test_a_source_may_give_times_and_keeps_them_from_epoch_to_epoch(runner):
    def job(env):
        words = env.add_source(script_source(str)).uid("words").key_by(len)
        words.process_fn(Stamps()).collect("stamps")

    with runner.harness(job) as harness:
        harness.push(["a", "b"], timestamp=[7_000, 9_000])
        harness.run_epoch()
        harness.push(["c"])
        harness.push(["d"], timestamp=8_000)
        harness.run_epoch()

        assert sorted(harness.results("stamps")) == [
            ("a", 7_000), ("b", 9_000), ("c", None), ("d", 8_000),
        ]  # fmt: skip


def test_a_source_tells_of_each_record_where_it_stood_until_an_exchange(runner):
    class Places(ProcessFunction[str, tuple]):
        def process_element(self, value, ctx):
            message = ctx.message
            return [(value, message and (message.source, message.offset, message.timestamp_ms))]

    def job(env):
        words = env.add_source(script_source(str)).uid("words")
        doubled = words.flat_map(lambda w: [w, w]).filter(lambda w: w != "b")
        doubled.process_fn(Places()).collect("before")
        words.key_by(len).process_fn(Places()).collect("behind")

    with runner.harness(job) as harness:
        harness.push(["a", "b", "c"], timestamp=[1, 2, 3])
        harness.run_epoch()

        assert harness.results("before") == [
            ("a", ("words", 0, 1)), ("a", ("words", 0, 1)),
            ("c", ("words", 2, 3)), ("c", ("words", 2, 3)),
        ]  # fmt: skip
        assert harness.results("behind") == [("a", None), ("b", None), ("c", None)]


def two_sources(env):
    streams = [
        env.add_source(script_source()).uid(uid).assign_timestamps(by_second(0)).uid(f"{uid}-times")
        for uid in ("left", "right")
    ]
    both = streams[0].union(streams[1]).key_by(first)
    both.process_fn(Tumbling()).uid("windows").collect("published")


def test_the_watermark_of_a_union_is_the_least(runner):
    with runner.harness(two_sources) as harness:
        harness.push([("a", 50_000)], source="left")
        harness.push([("b", 3_000)], source="right")
        harness.run()
        assert harness.watermark("windows") == 2_999
        assert harness.epochs[-1].slowest_inputs["windows"] == "right-times: right: script"

        harness.push([("b", 12_000)], source="right")
        harness.run()
        assert harness.watermark("windows") == 11_999
        assert harness.published == [("b", 10_000, 1)]


def test_an_input_that_ends_holds_no_watermark_back(runner):
    with runner.harness(two_sources) as harness:
        harness.push([("a", 50_000)], source="left")
        harness.push([("b", 3_000)], source="right")
        harness.run()
        harness.end(source="right")
        harness.run()

        assert harness.published == [("b", 10_000, 1)]
        assert harness.watermark("windows") == 49_999
        harness.end(source="left")
        harness.run()
        assert harness.published[1:] == [("a", 60_000, 1)]
        assert harness.watermark("windows") == WATERMARK_MAX


def test_silence_of_one_input_holds_the_others_back_until_it_is_idle(runner):
    with runner.harness(two_sources) as harness:
        harness.push([("b", 3_000)], source="right")
        harness.run()
        for _ in range(9):
            harness.advance_time(1_000)
            harness.push([("a", 50_000)], source="left")
            harness.run()
        assert (harness.watermark("windows"), harness.published) == (2_999, [])

        harness.advance_time(1_000)
        assert (harness.watermark("windows"), harness.published) == (49_999, [("b", 10_000, 1)])


def test_what_an_idle_input_sends_when_it_wakes_meets_the_rule_for_late_records(runner):
    def job(env):
        two_sources(env)

    with runner.harness(job, taps=[("windows", "late")]) as harness:
        harness.push([("b", 3_000)], source="right")
        harness.run()
        harness.advance_time(9_500)
        harness.push([("a", 50_000)], source="left")
        harness.run()
        harness.advance_time(500)
        harness.push([("b", 4_000), ("b", 70_000)], source="right")
        harness.run()

        assert harness.results("windows.late") == [("b", 4_000)]
        assert harness.watermark("windows") == 49_999


@pytest.mark.parametrize(("delay", "closed_after"), [(0, 10), (2_000, 12), (5_000, 15)])
def test_one_event_and_then_silence_closes_its_window_in_time(runner, delay, closed_after):
    with runner.harness(on_script(lambda s: windowed(s, by_second(delay)))) as harness:
        harness.push([("a", 20_000)])
        harness.run()
        for _ in range(closed_after - 1):
            harness.advance_time(1_000)
        assert harness.published == []

        harness.advance_time(1_000)
        assert harness.published == [("a", 30_000, 1)]


def test_without_an_idle_timeout_silence_closes_nothing(runner):
    strategy = by_second().with_idle_timeout(None)
    with runner.harness(on_script(lambda s: windowed(s, strategy))) as harness:
        harness.push([("a", 20_000)])
        harness.run()
        harness.advance_time(1_000_000)
        assert harness.published == []

        harness.end()
        harness.run()
        assert harness.published == [("a", 30_000, 1)]


def test_silence_runs_no_epoch_but_those_that_fire(runner):
    with runner.harness(on_script(windowed)) as harness:
        harness.push([("a", 20_000)])
        harness.run()
        for _ in range(40):
            harness.advance_time(1_000)

        assert len(harness.epochs) == 2


def test_silence_goes_on_counting_after_a_crash(runner):
    with runner.harness(on_script(windowed)) as harness:
        harness.push([("a", 20_000)])
        harness.run()
        harness.advance_time(11_000)
        harness.crash()  # What was not sealed of the silence is silence no more.
        harness.run()
        assert harness.published == []

        harness.advance_time(12_000)
        assert harness.published == [("a", 30_000, 1)]


def test_time_while_the_job_stands_still_is_no_silence(runner):
    with runner.harness(on_script(windowed)) as harness:
        harness.push([("a", 20_000)])
        harness.run()
        harness.rescale(2)
        harness.clock.advance(10_000)
        harness.rescale(1)
        harness.clock.advance(86_400_000)
        harness.rescale(1)
        harness.push([("a", 21_000)])
        harness.run()

        assert harness.published == []


def test_a_watermark_moved_by_hand_fires_and_survives_a_crash(runner):
    with runner.harness(on_script(windowed), taps=[("windows", "late")]) as harness:
        harness.push([("a", 1_000)])
        harness.advance_watermark(10_000)
        assert harness.published == [("a", 10_000, 1)]
        harness.crash()
        harness.push([("a", 2_000), ("a", 11_000)])
        harness.run()

        assert harness.results("windows.late") == [("a", 2_000)]
        assert harness.watermark("windows") == 10_000


READERS = {
    "a reader of watermarks": lambda stream: stream.process_fn(Same()),
    "nobody who reads them": lambda stream: stream.map(lambda value: value),
}


def aligned(drift, behind=READERS["a reader of watermarks"]):
    """A slow and a fast source of one group."""

    def job(env):
        strategy = by_second(0).with_alignment("clicks", drift)
        for uid in ("slow", "fast"):
            stream = env.add_source(script_source()).uid(uid).assign_timestamps(strategy)
            behind(stream).collect(f"{uid}-out")

    return job


def run_ahead(harness):
    """Let the fast source have what lies 20 s behind the slow one, and then more."""
    harness.push([("a", 1_000)], source="slow")
    harness.push([("a", 20_000)], source="fast")
    harness.run()
    harness.push([("a", 21_000)], source="fast")
    harness.run()


@pytest.mark.parametrize("reader", READERS)
def test_a_source_far_ahead_of_its_group_pauses(runner, reader):
    with runner.harness(aligned(timedelta(seconds=5), READERS[reader])) as harness:
        run_ahead(harness)
        assert harness.results("fast-out") == [("a", 20_000)]

        harness.push([("a", 15_000)], source="slow")
        harness.run()
        assert harness.results("fast-out") == [("a", 20_000), ("a", 21_000)]


def test_a_source_that_pauses_for_one_which_falls_silent_goes_on(runner):
    with runner.harness(aligned(5_000)) as harness:
        run_ahead(harness)
        harness.advance_time(10_000)

        assert harness.results("fast-out") == [("a", 20_000), ("a", 21_000)]
