"""Functions in the order of event time, on the harness and on Spark alike."""

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.testing import CRASH, END, EPOCH, Runner, script_source
from bicycle_sdk import KeyedProcessFunction, ValueStateDescriptor, WatermarkStrategy
from tests.conformance.conftest import KeptSpark
from tests.event_time import first, second
from tests.raising import raises

S = 1_000


class Quiet(KeyedProcessFunction[str, tuple[str, int], tuple[str, int, int]]):
    """Tells how many records there were before ten quiet seconds, and forgets them."""

    count = ValueStateDescriptor("count", int, default=0)
    until = ValueStateDescriptor("until", int, default=0)

    def process_element(self, value, ctx):
        if ctx.timestamp <= ctx.current_watermark():
            ctx.side_output("late", value)
            return []
        count, until = ctx.get_value_state(self.count), ctx.get_value_state(self.until)
        count.update(count.value() + 1)
        ctx.timer_service.delete_event_time_timer(until.value())
        until.update(ctx.timestamp + 10 * S)
        ctx.timer_service.register_event_time_timer(until.value())
        return []

    def on_timer(self, timestamp_ms, ctx):
        count = ctx.get_value_state(self.count)
        told = (ctx.current_key(), timestamp_ms // S, count.value())
        count.clear()
        return [told]


def quiet(stream):
    strategy = WatermarkStrategy.bounded_out_of_orderness(5 * S).with_timestamps(second)
    timed = stream.assign_timestamps(strategy.with_idle_timeout(None))
    return timed.key_by(first).process_fn(Quiet()).in_event_time_order().uid("quiet")


#  ada 0 1 · 20 · 40 42 41 · 60; bob 0 · 21 22
BACKLOG = [
    ("ada", 1 * S), ("ada", 0), ("bob", 0), ("ada", 20 * S), ("bob", 22 * S), ("bob", 21 * S),
    ("ada", 42 * S), ("ada", 40 * S), ("ada", 41 * S), ("ada", 60 * S),
]  # fmt: skip
QUIET = [
    ("ada", 11, 2), ("ada", 30, 1), ("ada", 52, 3), ("ada", 70, 1), ("bob", 10, 1), ("bob", 32, 2),
]  # fmt: skip


@pytest.mark.parametrize("ends", [[], [EPOCH], [CRASH, EPOCH]], ids=["one", "each", "crashes"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_backlog_gives_what_it_would_have_given_live(runner, ends, parallelism):
    script = [step for record in BACKLOG for step in (record, *ends)]

    job = runner(quiet, [*script, END], parallelism=parallelism)

    assert sorted(job.published) == QUIET
    own = [row for row in job.published if row[0] == "ada"]
    assert own == sorted(own)


def test_records_wait_over_a_crash_and_a_rescale(runner):
    def job(env):
        quiet(env.add_source(script_source()).uid("script")).collect("published")

    with runner.harness(job, parallelism=2) as harness:
        for index, record in enumerate(BACKLOG):
            harness.push([record])
            harness.run_epoch()
            if index == 4:
                harness.crash()
            if index == 7:
                harness.rescale(3)
        harness.end()
        harness.run()

        assert sorted(harness.published) == QUIET


def test_a_record_behind_the_watermark_comes_at_once_and_can_be_told(runner):
    def job(stream):
        found = quiet(stream)
        return found.side_output("late")

    job = runner(job, [("ada", 30 * S), EPOCH, ("ada", 24 * S), ("ada", 26 * S), EPOCH, END])

    assert job.published == [("ada", 24 * S)]


def test_records_without_event_time_are_refused(runner):
    with raises(NO_EVENT_TIME) as caught:
        runner(
            lambda s: s.key_by(first).process_fn(Quiet()).in_event_time_order().uid("quiet"),
            [("ada", 1), END],
        )
    assert caught.value.facts["operator"] == "quiet"


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_on_spark_records_wait_over_a_crash_on_either_backend(spark, backend):
    def job(env):
        quiet(env.add_source(script_source()).uid("script")).collect("published")

    engine = EngineOptions(state_backend=backend)
    with Runner(lambda: KeptSpark(spark)).harness(job, parallelism=2, engine=engine) as harness:
        for index, record in enumerate(BACKLOG):
            harness.push([record])
            harness.run_epoch()
            if index in {1, 4, 8}:  # Records wait, then timers too, then a window of quiet is open.
                harness.crash()
        harness.end()
        harness.run()

        assert sorted(harness.published) == QUIET
