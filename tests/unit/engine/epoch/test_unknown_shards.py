"""Shards that may have input nobody has seen: not idle, for as long as that is so."""

import pytest

from bicycle_runtime.engine.epoch.watermarks import SourceView, Timeline
from bicycle_runtime.layouts.manifest import ShardTime
from bicycle_runtime.operators.shard_times import source_shard, subtask_shard
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.contexts import WATERMARK_MIN
from tests.unit.engine.epoch.timelines import (
    IDLE,
    Driver,
    at,
    behind_an_exchange,
    one_source,
    plan_of,
    two_sources,
)


def test_a_shard_without_a_fresh_answer_is_not_idle():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500, "2": 400})
    driver.clock.advance(60_000)
    driver.epoch({"1": 90_000}, waiting=frozenset("1"), unknown=frozenset("12"))
    assert driver.marks == [400, 400]

    # An answer without input ends the doubt: the shard was idle all the time.
    driver.epoch({"1": 90_000}, waiting=frozenset("1"))
    assert driver.marks[-1] == 90_000
    assert set(driver.timeline.record.shards["source"]) == {"1", "2"}


def test_event_time_does_not_go_on_with_the_clock_while_nobody_knows_what_waits():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500, "2": 400})
    driver.clock.advance(60_000)
    driver.epoch({}, unknown=frozenset("2"))
    assert driver.marks == [400, 400]

    driver.epoch({})
    assert driver.marks[-1] == 400 + 60_000


def test_a_shard_that_has_shown_nothing_holds_back_only_while_it_is_unknown():
    driver = Driver(plan_of(one_source))
    driver.epoch({"1": 500}, unknown=frozenset("12"), waiting=frozenset("1"))
    assert driver.marks == [WATERMARK_MIN]

    driver.epoch({"1": 600}, waiting=frozenset("1"))
    assert driver.marks[-1] == 600


def test_the_wait_for_a_first_record_goes_on_while_shards_are_unknown():
    driver = Driver(plan_of(one_source))
    driver.epoch({})
    driver.clock.advance(IDLE)
    driver.epoch({}, unknown=frozenset("1"))

    assert driver.timeline.record.shards["source"] == {"": ShardTime(active_ms=0)}


def test_a_source_that_was_not_reached_yet_holds_back_what_it_shares_with_another():
    timeline = Timeline(plan_of(two_sources), ManualClock())

    def mark_of(**far):
        views = {
            "near": SourceView(is_finished=False, planned=frozenset("1")),
            "far": SourceView(is_finished=False, **far),
        }
        order = timeline.order(views)
        times = {"times": {source_shard("near", "1"): at(500, order.clock_ms)}}
        report = TaskReport(level=0, subtask=0, attempt="", times=times)
        return timeline.sealed_after(order, [report]).watermarks["reader"]

    assert mark_of(is_reachable=False) == WATERMARK_MIN
    assert mark_of() == 500


@pytest.mark.parametrize("view", [{"unknown": frozenset("1")}, {"is_reachable": False}])
def test_behind_an_exchange_nothing_is_idle_while_its_source_is_in_doubt(view):
    plan, clock = plan_of(behind_an_exchange), ManualClock()
    timeline = Timeline(plan, clock)
    times = {"times": {subtask_shard(n): at(500) for n in range(2)}}
    first = timeline.order({"source": SourceView(is_finished=False)})
    reports = [TaskReport(level=1, subtask=0, attempt="", times=times)]
    timeline.take(timeline.sealed_after(first, reports))
    clock.advance(3_600_000)

    order = timeline.order({"source": SourceView(is_finished=False, **view)})

    assert timeline.sealed_after(order, []).watermarks["reader"] == 500
