"""Sessions with triggers and evictors: what merges, what is let go, and in which order it came."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import WatermarkStrategy
from bicycle_sdk.windows import (
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)


class Always(Trigger):
    """A result at each record, and nothing remembered."""

    def on_element(self, value, timestamp, window, ctx):
        return TriggerResult.FIRE

    def on_merge(self, states, window, ctx):
        pass


class Incomparable(tuple):
    """A record that refuses a comparison, as an array of numpy does."""

    def __eq__(self, other):
        raise ValueError("ambiguous")

    __hash__ = tuple.__hash__


class Copying(Evictor):
    """Keeps a copy of each record."""

    def after(self, elements, window):
        return [one._replace(value=Incomparable([*one.value])) for one in elements]

    def describe(self):
        return "copies"


def times_of(records, ctx):
    return [(ctx.window.start, ctx.window.end, [time for _, time in records])]


def sessions(change, *, delay=100):
    """Return a job that gives the times in each session of gap 10."""

    def job(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(delay)
        timed = env.add_source(script_source()).assign_timestamps(
            strategy.with_timestamps(lambda record: record[1]).with_idle_timeout(None)
        )
        window = timed.key_by(lambda record: record[0]).session_window(10)
        change(window).process(times_of).uid("window").collect("out")

    return job


@pytest.mark.parametrize("crashes", [True, False])
def test_a_session_whose_records_went_keeps_its_bounds_and_goes_on(crashes):
    #  0 ── 5 ── 12 ┄┄ 22     40 ┄┄ 50      each record is let go as soon as it was told
    with Harness(sessions(lambda window: window.trigger(PurgingTrigger(Always())))) as harness:
        for time in (0, 5, 12, 40):
            harness.push([("a", time)])
            harness.run_epoch()
            if crashes:
                harness.crash()
        assert harness.results("out") == [(0, 10, [0]), (0, 15, [5]), (0, 22, [12]), (40, 50, [40])]
        harness.end()
        harness.run()

        assert len(harness.results("out")) == 4
        assert harness.state("window") == {}


def test_the_last_records_of_a_session_are_those_that_arrived_last():
    #  26, then 40, which fires and is all that its session keeps; 33 makes them one session
    def change(window):
        return window.trigger(CountTrigger(1)).evictor(CountEvictor(2))

    with Harness(sessions(change)) as harness:
        harness.push([("a", 26), ("a", 40), ("a", 33)])
        harness.run_epoch()

        assert harness.results("out") == [(26, 36, [26]), (40, 50, [40]), (26, 50, [33, 40])]


def test_late_records_that_join_sessions_keep_the_pace_of_late_results():
    #  0 ┄ 10, 18 ┄ 28 are told at 31. Late: 9 joins both, and 20 is the second late record.
    def change(window):
        return window.allowed_lateness(50).trigger(EventTimeTrigger().late(count=2))

    with Harness(sessions(change, delay=0)) as harness:
        harness.push([("a", 0), ("a", 18), ("b", 31)])
        harness.run_epoch()
        assert harness.results("out") == [(0, 10, [0]), (18, 28, [18])]
        harness.push([("a", 9)])
        harness.run_epoch()
        assert len(harness.results("out")) == 2
        harness.push([("a", 20)])
        harness.run_epoch()

        assert harness.results("out")[2:] == [(0, 30, [0, 9, 18, 20])]


def test_an_evictor_may_keep_other_records_that_refuse_to_be_compared():
    with Harness(
        sessions(lambda window: window.trigger(CountTrigger(1)).evictor(Copying()))
    ) as harness:
        harness.push([Incomparable(("a", 26)), Incomparable(("a", 30))])
        harness.run_epoch()

        assert harness.results("out") == [(26, 36, [26]), (26, 40, [26, 30])]
