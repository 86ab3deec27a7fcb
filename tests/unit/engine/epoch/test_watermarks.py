"""The rules of watermarks: least of the active shards, never back, on with the clock in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.contract import Slice, SourceStatus
from bicycle_runtime.engine.epoch.watermarks import SourceView, Timeline
from bicycle_runtime.layouts.manifest import PlanRecord, ShardTime, TimeRecord
from bicycle_runtime.operators.shard_times import (
    joined_times,
    source_shard,
    subtask_shard,
    watermark_of,
)
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from tests.unit.engine.epoch.timelines import (
    IDLE,
    Driver,
    Reader,
    at,
    behind_an_exchange,
    one_source,
    plan_of,
    spec_of,
)

SHARD_TIMES = st.builds(at, st.integers(-100_000, 100_000), st.integers(0, 60_000))
TIMES = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.sampled_from("1234"), SHARD_TIMES, max_size=4)
)
BOTH = [spec_of("a"), spec_of("b")]


def watermark(times, *, clock_ms=0, finished=(), generators=BOTH):
    return watermark_of(generators, times, finished=finished, clock_ms=clock_ms)


@given(TIMES, st.integers(0, 100_000))
def test_the_watermark_is_the_least_of_the_shards_that_are_not_idle(times, clock_ms):
    shards = [time for found in times.values() for time in found.values()]
    active = [t.watermark_ms for t in shards if clock_ms - t.active_ms < IDLE]
    if active:
        assert watermark(times, clock_ms=clock_ms) == min(active)


@given(TIMES, st.integers(60_000 + IDLE, 200_000), st.integers(0, 100_000))
def test_when_all_are_idle_event_time_goes_on_as_fast_as_the_clock(times, clock_ms, elapsed_ms):
    shards = [time for found in times.values() for time in found.values()]
    now = watermark(times, clock_ms=clock_ms)
    if not shards:
        assert now == WATERMARK_MIN
        return
    heard_ms = max(time.active_ms for time in shards)
    last = [time.watermark_ms for time in shards if time.active_ms == heard_ms]

    assert now == min(last) + clock_ms - heard_ms
    assert watermark(times, clock_ms=clock_ms + elapsed_ms) == now + elapsed_ms


@given(TIMES, TIMES, st.integers(0, 100_000))
def test_an_input_that_has_ended_counts_no_more(times, others, clock_ms):
    alone = watermark(times, clock_ms=clock_ms, generators=[spec_of("a")])

    assert watermark(times, clock_ms=clock_ms, finished=["b"]) == alone
    assert watermark(times, clock_ms=clock_ms, finished=["a", "b"]) == WATERMARK_MAX


def test_without_generators_there_is_no_watermark():
    assert watermark({}, generators=[]) == WATERMARK_MIN


@given(TIMES, TIMES, TIMES)
def test_joining_what_tasks_say_depends_on_no_order(first, second, third):
    assert joined_times(first, second) == joined_times(second, first)
    assert joined_times(joined_times(first, second), third) == joined_times(
        first, joined_times(second, third)
    )
    assert joined_times(first, first) == joined_times(first)


# --- the driver's half ---------------------------------------------------------------------------


STEPS = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("1234"), st.integers(-50_000, 50_000), max_size=4),
        st.integers(0, 30_000),
        st.just("restart"),
    ),
    max_size=30,
)


@given(STEPS)
def test_a_watermark_never_goes_back(steps):
    driver = Driver(plan_of(one_source))
    for step in steps:
        if isinstance(step, int):
            driver.clock.advance(step)
        elif step == "restart":
            driver.restart()
        else:
            driver.epoch(step)

    assert driver.marks == sorted(driver.marks)


@given(STEPS)
def test_no_shard_that_is_heard_again_and_again_is_passed(steps):
    """While a shard is active, the watermark is not ahead of it but where it was before."""
    driver = Driver(plan_of(one_source))
    for step in steps:
        if isinstance(step, int):
            driver.clock.advance(step)
        elif step != "restart":
            before = driver.marks[-1] if driver.marks else WATERMARK_MIN
            record = driver.epoch(step)
            active = [
                time.watermark_ms
                for shard, time in record.shards["source"].items()
                if record.clock_ms - time.active_ms < IDLE
            ]
            if active:
                assert driver.marks[-1] == max(before, min(active))


def test_a_shard_with_unread_input_holds_the_watermark_back_however_long_it_waits():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500}, waiting=frozenset("12"))
    driver.clock.advance(60_000)
    driver.epoch({"1": 900}, waiting=frozenset("12"))
    assert driver.marks == [WATERMARK_MIN, WATERMARK_MIN]

    driver.epoch({"2": 700}, waiting=frozenset("2"))
    assert driver.marks[-1] == 700


def test_a_shard_that_is_read_to_its_end_counts_no_more():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500, "2": 700}, waiting=frozenset("12"), is_bounded=True)
    driver.epoch({"2": 900}, waiting=frozenset("2"), is_bounded=True)

    assert driver.marks == [500, 900]


def test_while_a_source_cannot_be_reached_its_silence_is_not_idleness():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500})
    driver.clock.advance(60_000)
    driver.epoch({}, is_reachable=False)
    assert driver.marks == [500, 500]

    driver.clock.advance(IDLE)
    driver.epoch({})
    assert driver.marks[-1] == 500 + IDLE


def test_a_source_without_a_record_holds_back_until_it_is_idle():
    driver = Driver(plan_of(one_source))
    driver.epoch({})
    driver.clock.advance(IDLE - 1)
    driver.epoch({})
    assert driver.marks == [WATERMARK_MIN] * 2
    driver.epoch({"1": 30})
    assert driver.marks[-1] == 30
    assert set(driver.timeline.record.shards["source"]) == {"1"}


def test_each_subtask_behind_an_exchange_holds_back_until_it_has_seen_a_record():
    plan = plan_of(behind_an_exchange)
    timeline = Timeline(plan, ManualClock())
    order = timeline.order({"source": SourceView(is_finished=False)})
    assert set(order.times["times"]) == {subtask_shard(0), subtask_shard(1)}

    def after(*seen):
        reports = [
            TaskReport(
                level=1, subtask=n, attempt="", times={"times": {subtask_shard(n): at(newest)}}
            )
            for n, newest in enumerate(seen)
        ]
        return timeline.sealed_after(order, reports).watermarks["reader"]

    assert after(500) == WATERMARK_MIN
    assert after(500, 300) == 300


SUBTASK_TIMES = st.builds(
    ShardTime,
    watermark_ms=st.one_of(st.just(WATERMARK_MIN), st.integers(0, 50_000)),
    event_ms=st.integers(0, 60_000),
    active_ms=st.integers(0, 3 * IDLE),
)


@given(
    st.lists(SUBTASK_TIMES, min_size=1, max_size=6), st.integers(1, 6), st.integers(0, 3 * IDLE),
    st.booleans(),
)  # fmt: skip
def test_no_watermark_moves_when_subtasks_become_more_or_fewer(
    times, parallelism, later_ms, is_live
):
    clock = ManualClock()
    record = TimeRecord(
        clock_ms=3 * IDLE,
        shards={"times": {subtask_shard(n): time for n, time in enumerate(times)}},
    )
    old = Timeline(plan_of(behind_an_exchange, len(times)), clock)
    old.resume(record)
    if is_live:
        new = old.with_plan(plan_of(behind_an_exchange, parallelism))
    else:
        new = Timeline(plan_of(behind_an_exchange, parallelism), clock)
        new.resume(record)
    clock.advance(later_ms)
    before, after = (
        timeline.sealed_after(timeline.order({}), []).watermarks["reader"]
        for timeline in (old, new)
    )

    assert set(new.order({}).times["times"]) == {subtask_shard(n) for n in range(parallelism)}
    if parallelism > 1:  # One subtask is not held back by another of which nothing was heard.
        assert after <= before if later_ms else after == before
    if later_ms > IDLE and max(time.watermark_ms for time in times) > WATERMARK_MIN:
        assert after > WATERMARK_MIN


def test_a_slow_shard_is_not_late_when_another_subtask_gets_it():
    """Two shards, one far behind: after a rescale its records come to a subtask that was ahead."""
    clock = ManualClock()
    record = TimeRecord(
        shards={"times": {subtask_shard(0): at(90_000), subtask_shard(1): at(10_000)}},
        watermarks={"reader": 10_000},
    )
    wide = Timeline(plan_of(behind_an_exchange, 2), clock)
    wide.resume(record)
    narrow = wide.with_plan(plan_of(behind_an_exchange, 1))
    order = narrow.order({})
    report = TaskReport(
        level=1, subtask=0, attempt="", times={"times": {subtask_shard(0): at(11_000)}}
    )

    assert narrow.sealed_after(order, [report]).watermarks["reader"] == 11_000


def test_a_generator_that_comes_behind_an_exchange_or_before_it_keeps_its_watermark():
    clock = ManualClock()

    def beside_the_source(env):
        stream = env.add_source(script_source()).uid("source")
        timed = stream.assign_timestamps(lambda value: value).uid("times")
        timed.process_fn(Reader()).uid("reader").print()

    before = {"source: script": at(7_000)}
    near = Timeline(plan_of(beside_the_source), clock)
    near.resume(TimeRecord(shards={"times": before}))
    far = near.with_plan(plan_of(behind_an_exchange, 3))
    back = far.with_plan(plan_of(beside_the_source))

    assert set(far.record.shards["times"]) == {subtask_shard(n) for n in range(3)}
    assert [time.watermark_ms for time in back.record.shards["times"].values()] == [7_000]
    assert near.record.shards["times"] == before


def test_a_job_that_goes_on_behind_its_end_stands_at_its_newest_record():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500, "2": 400})
    driver.epoch({}, is_finished=True)
    assert driver.marks[-1] == WATERMARK_MAX

    driver.restart()
    driver.epoch({"1": 450, "2": 800})
    assert driver.marks[-1] == 500


def test_behind_its_end_an_operator_stands_at_its_own_slowest_active_shard():
    def build(env):
        fast, slow = (env.add_source(script_source()).uid(uid) for uid in ("fast", "slow"))
        for name, stream in {"one": fast, "other": slow, "both": fast.union(slow)}.items():
            stream.process_fn(Reader()).uid(name).print()

    timeline = Timeline(plan_of(build), ManualClock())
    timeline.resume(
        TimeRecord(
            shards={"fast": {"1": at(900), "2": at(800)}, "slow": {"1": at(5)}},
            watermarks=dict.fromkeys(("one", "other", "both"), WATERMARK_MAX),
        )
    )

    marks = timeline.record.watermarks
    assert (marks["one"], marks["other"], marks["both"]) == (800, 5, 5)


@pytest.mark.parametrize("cut", ["tumbling", "session"])
def test_a_combining_step_of_later_code_knows_which_windows_have_closed(cut):
    def counted(early):
        def build(env):
            strategy = WatermarkStrategy.ascending().with_timestamps(lambda time: time)
            stream = env.add_source(script_source()).uid("source").assign_timestamps(strategy)
            keyed = stream.key_by(lambda _: "a")
            window = keyed.tumbling_window(10) if cut == "tumbling" else keyed.session_window(5)
            results = window.pre_combine(early).late_to("late").count().uid("count")
            results.side_output("late").map(lambda late: late.value).collect("late")
            results.map(tuple).collect("out")

        return build

    with Harness(counted(False)) as former:
        former.push([5, 100])
        former.run_epoch()
        with Harness(counted(True), start_from=str(former.storage.root)) as later:
            later.push([5, 100, 3])
            later.run_epoch()

            assert (later.results("late"), later.results("out")) == ([3], [])


def test_very_many_idle_shards_are_forgotten_but_for_the_last():
    driver = Driver(plan_of(one_source))
    driver.epoch({str(number): number for number in range(400)})
    driver.clock.advance(IDLE)
    driver.epoch({"last": 70})

    assert len(driver.timeline.record.shards["source"]) == 257
    assert driver.marks[-1] == 70


def test_a_status_gives_the_view_of_its_source():
    status = SourceStatus(
        has_input=True, is_finished=False,
        waiting_shards=frozenset("ab"), unknown_shards=frozenset("c"),
    )  # fmt: skip
    view = SourceView.of(status, [Slice(shard="a", start=0, end=1)])

    assert (view.waiting, view.planned, view.has_input) == (frozenset("ab"), {"a"}, True)
    assert view.unknown == {"c"}
    assert SourceView.of(SourceStatus(has_input=False, is_finished=False), is_held=True).has_input


@given(STEPS)
def test_where_event_time_stands_comes_back_from_a_manifest(steps):
    driver = Driver(plan_of(one_source))
    for step in steps:
        if isinstance(step, dict):
            driver.epoch(step)
    record = driver.timeline.record
    plan = PlanRecord(bundle_digest="", parallelism={}, now_ms=0)
    for watermark_ms in (0, 5_000, WATERMARK_MAX):
        manifest = Manifest(epoch=1, plan=plan, time=record, watermark_ms=watermark_ms)
        found = decode_manifest(encode_manifest(manifest), path="x")
        assert found.time == record
        assert found.watermark_ms == min(watermark_ms, (2**64 - 1) // 1_000_000)


# --- who needs what ------------------------------------------------------------------------------


def routes_with_time(plan):
    return [route.carries_time for chain in plan.chains for route in chain.routes]


def test_times_travel_only_where_somebody_reads_them():
    def job(env):
        words = env.add_source(script_source()).uid("source").rebalance()
        words.map(str).key_by(len).count().print()
        words.map(str).key_by(len).process_fn(Reader()).print()

    plan = plan_of(job)
    by_target = {
        chain.operators[0].uid: route.carries_time
        for sender in plan.chains
        for route in sender.routes
        for chain in plan.chains
        if chain.index == route.target_chain
    }
    # 1 source; 2 map, 3 key_by, 4 count, 5 print; 6 map, 7 key_by, 8 process, 9 print
    assert by_target["vertex_2"] is False
    assert by_target["vertex_6"] is True
    assert by_target["vertex_8"] is True


def test_a_job_without_event_time_has_no_generators_and_carries_no_times():
    plan = plan_of(lambda env: env.add_source(script_source()).key_by(len).count().print())

    assert (plan.generators(), plan.is_timed) == ({}, False)
    assert not any(routes_with_time(plan))


def test_an_assigner_with_a_function_needs_no_times_from_above():
    plan = plan_of(behind_an_exchange)
    (route,) = [r for c in plan.chains for r in c.routes if c.operators[0].uid == "source"]

    assert route.carries_time is False
    assert set(plan.generators()) == {"times"}


def test_an_assigner_without_a_function_keeps_the_times_that_there_are():
    def job(env):
        stream = env.add_source(script_source()).uid("source").rebalance()
        timed = stream.assign_timestamps(WatermarkStrategy.ascending()).uid("times")
        timed.process_fn(Reader()).print()

    plan = plan_of(job)
    (route,) = [r for c in plan.chains for r in c.routes if c.operators[0].uid == "source"]

    assert route.carries_time is True


def test_an_assigner_in_the_chain_of_a_source_follows_its_shards():
    def job(env):
        for uid in ("a", "b"):
            stream = env.add_source(script_source()).uid(uid)
            stream.assign_timestamps(len).uid(f"{uid}-times").process_fn(Reader()).print()

    generators = plan_of(job).generators()

    assert generators["a-times"].is_by_shard
    assert generators["a-times"].sources == ("a",)
    assert source_shard("a", "x") != source_shard("b", "x")


@pytest.mark.parametrize("timeout", [1, 5_000, None])
def test_a_strategy_keeps_its_idle_timeout(timeout):
    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(len).with_idle_timeout(timeout)
        stream = env.add_source(script_source()).assign_timestamps(strategy).uid("times")
        stream.process_fn(Reader()).print()

    assert plan_of(job).generators()["times"].idle_timeout_ms == timeout
