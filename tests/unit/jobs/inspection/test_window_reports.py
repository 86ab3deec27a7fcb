"""What plan tells of windows: whether their state grows, what they keep, and event time."""

import pytest

from bicycle_runtime.jobs.inspection.child import describe_job
from bicycle_runtime.jobs.inspection.reports import inspect_job
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_sdk import ValueStateDescriptor
from bicycle_sdk.windows import (
    CountEvictor,
    CountTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
    WindowFunction,
)
from tests.raising import raises
from tests.unit.jobs.inspection.test_reports import kinds, report
from tests.unit.jobs.job_samples import bundle_of


class Purging(Trigger):
    """Lets records go at each third."""

    def on_element(self, value, timestamp, window, ctx):
        return TriggerResult.FIRE_AND_PURGE if value % 3 == 0 else TriggerResult.CONTINUE


class Keeping(Trigger):
    """Lets no record go."""

    def on_element(self, value, timestamp, window, ctx):
        return TriggerResult.FIRE


def listed(elements, ctx):
    return elements


def windowed(cut):
    def build(env):
        numbers = env.from_collection([1, 2]).assign_timestamps(int)
        cut(numbers.key_by(str)).process(listed).uid("w").print()

    return build


def growth(cut):
    return [w.text for w in report(windowed(cut)).warnings if w.kind == "unbounded-state"]


@pytest.mark.parametrize("trigger", [CountTrigger(2), Keeping(), ProcessingTimeTrigger(10), None])
def test_a_global_window_that_nothing_purges_is_warned_of(trigger):
    def cut(keyed):
        window = keyed.global_window()
        return window if trigger is None else window.trigger(trigger)

    [text] = growth(cut)

    assert ("never fires" in text) is (trigger is None)
    assert "global window" in text


@pytest.mark.parametrize(
    "cut",
    [
        lambda keyed: keyed.global_window().trigger(PurgingTrigger(CountTrigger(2))),
        lambda keyed: keyed.global_window().trigger(Purging()),
        lambda keyed: keyed.global_window().trigger(CountTrigger(2)).evictor(CountEvictor(5)),
        lambda keyed: keyed.count_window(3),
    ],
    ids=["purging", "own", "evictor", "count"],
)
def test_windows_without_time_that_are_purged_grow_with_the_keys_only(cut):
    assert growth(cut) == ["state grows with the number of different keys"]


@pytest.mark.parametrize(
    "cut", [lambda keyed: keyed.tumbling_window(5), lambda keyed: keyed.session_window(5)]
)
def test_windows_of_event_time_do_not_grow(cut):
    assert growth(cut) == []


class Remembering(WindowFunction):
    """Keeps a state of the key and a value of the window."""

    seen = ValueStateDescriptor("seen", int)

    def process(self, elements, ctx):
        ctx.save_state("count", len(elements))
        return [ctx.get_value_state(self.seen).value()]


def test_states_of_keys_in_window_functions_are_described():
    def build(env):
        keyed = env.from_collection([1, 2]).assign_timestamps(int).key_by(str)
        keyed.tumbling_window(5).process(Remembering()).uid("w").print()

    found = report(build)

    assert [state.name for state in found.states[0].keyed] == ["seen"]
    assert not found.states[0].has_named
    assert ("unbounded-state", "w") in kinds(found)


def test_a_window_over_records_without_event_time_is_refused_by_plan_with_its_line():
    def build(env):
        words = env.read_text("in").uid("lines").map(str.lower).key_by(str)
        words.tumbling_window(1_000).count().uid("counts").print()

    with raises(NO_EVENT_TIME) as caught:
        inspect_job(bundle_of(build))
    assert caught.value.facts["operator"] == "counts"
    assert "test_window_reports.py:" in caught.value.facts["made"]


def test_event_time_that_may_come_is_not_refused(tmp_path):
    def timed(env):
        rows = env.read_jsonl("in", timestamp_field="at").uid("lines").key_by(str)
        rows.tumbling_window(1_000).count().uid("counts").print()

    def counted(env):
        env.read_text("in").uid("lines").key_by(str).count_window(3).count().uid("c").print()

    def assigned(env):
        timed = env.read_text("in").uid("lines").assign_timestamps(len).uid("times")
        timed.key_by(str).tumbling_window(1_000).count().uid("counts").print()

    for build in (timed, counted, assigned):
        describe_job(bundle_of(build), parallelism=None)
