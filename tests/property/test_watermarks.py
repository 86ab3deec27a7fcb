"""What waits for the watermark, cut into epochs in any way: nothing comes out differently.

Times lie so close together that records fall on ends of windows, on timers, on the watermark.
"""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import KeyedProcessFunction, StateTtl, ValueStateDescriptor, WatermarkStrategy
from bicycle_sdk.windows import ContinuousEventTimeTrigger, EventTimeTrigger, session_windows
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.mishaps import ENGINES, LOSSES, befall

GAP = 5


class SeenBefore(KeyedProcessFunction[str, tuple, tuple]):
    """At each time, in a timer, how many records lay at or before it."""

    seen = ValueStateDescriptor("seen", list[int], ttl=StateTtl(1_000, time="event"))

    def process_element(self, value, ctx):
        seen = ctx.get_value_state(self.seen)
        seen.update([*(seen.value() or []), ctx.timestamp])
        ctx.timer_service.register_event_time_timer(ctx.timestamp)
        return []

    def on_timer(self, timestamp_ms, ctx):
        times = ctx.get_value_state(self.seen).value()
        return [(ctx.current_key(), timestamp_ms, sum(time <= timestamp_ms for time in times))]


def key_of(row):
    return row[0]


def pair(left, right):
    return (left, right)


def sessions(left, right):
    return left.union(right).key_by(key_of).session_window(GAP)


JOBS = {
    "timers": lambda a, b: a.union(b).key_by(key_of).process_fn(SeenBefore()),
    "sessions": lambda a, b: sessions(a, b).count(),
    "sessions with records": lambda a, b: sessions(a, b).process(
        lambda records, ctx: [(ctx.window, sorted(records))]
    ),
    "triggered sessions": lambda a, b: sessions(a, b).trigger(EventTimeTrigger()).count(),
    "cut sessions": lambda a, b: (
        a.union(b).key_by(key_of).session_window(GAP, max_duration=2 * GAP).count()
    ),
    "windows": lambda a, b: a.union(b).key_by(key_of).tumbling_window(GAP).count(),
    "sliding windows": lambda a, b: a.union(b).key_by(key_of).sliding_window(GAP, 2).count(),
    "triggered windows": lambda a, b: (
        a.union(b).key_by(key_of).tumbling_window(3 * GAP)
        .trigger(ContinuousEventTimeTrigger(3 * GAP)).count()
    ),
    "windows of sessions": lambda a, b: (
        sessions(a, b).count().key_by(key_of).tumbling_window(GAP).count()
    ),
    "sessions of sessions": lambda a, b: (
        sessions(a, b).count().key_by(key_of).session_window(GAP).count()
    ),
    "joins of sessions": lambda a, b: (
        sessions(a, b).count().key_by(key_of)
        .interval_join(b.key_by(key_of), -GAP, 0, pair, how="full")
    ),
    "interval join": lambda a, b: (
        a.key_by(key_of).interval_join(b.key_by(key_of), -1, 2, pair, how="full")
    ),
    "as-of join": lambda a, b: (
        a.key_by(key_of).as_of_join(b.key_by(key_of), pair, tolerance=3, how="left")
    ),
    "window join": lambda a, b: (
        a.key_by(key_of).window_join(b.key_by(key_of), session_windows(GAP), pair, how="full")
    ),
    "merge": lambda a, b: a.merge_by_time(b),
}  # fmt: skip


def job_of(bound):
    def job(env):
        strategy = WatermarkStrategy.bounded_out_of_orderness(bound) if bound else (
            WatermarkStrategy.ascending()
        )  # fmt: skip
        strategy = strategy.with_timestamps(lambda row: row[1]).with_idle_timeout(None)
        sides = [
            env.add_source(script_source()).uid(uid).assign_timestamps(strategy)
            for uid in ("left", "right")
        ]
        for name, build in JOBS.items():
            build(*sides).process_fn(Stamps()).collect(name)

    return job


@st.composite
def rows(draw, bound):
    """Rows of both sides, none older than the newest before it less the bound."""
    found, newest = [], {"left": 0, "right": 0}
    for number in range(draw(st.integers(0, 14))):
        side = draw(st.sampled_from(["left", "right"]))
        newest[side] += draw(st.sampled_from([0, 0, 1, 2, GAP, GAP, GAP + 1]))
        time = newest[side] - draw(st.integers(0, bound))
        found.append((side, (draw(st.sampled_from("ab")), time, f"{side}{number}")))
    return found


def results(job, script, *, parallelism=1, engine=EngineOptions()):  # noqa: B008  # it is frozen
    """Run a script of rows, of ``None`` for the end of an epoch, and of what may happen there."""
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        for step in script:
            match step:
                case None:
                    harness.run_epoch()
                case ("left" | "right" as side, row):
                    harness.push([row], source=side)
                case _:
                    befall(harness, step)
        harness.end()
        harness.run()
        return {name: sorted(harness.results(name), key=repr) for name in JOBS}


@settings(deadline=None, max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(data=st.data(), bound=st.sampled_from([0, 0, 3]))
def test_results_are_equal_whatever_the_epochs_are(data, bound):
    job = job_of(bound)
    script = data.draw(rows(bound))
    ends = st.sampled_from(["", "", "epoch", "epoch", "crash"])
    cut = []
    for row in script:
        cut.append(row)
        end = data.draw(ends)
        cut += [None] if end else []
        cut += [data.draw(LOSSES)] if end == "crash" else []

    found = results(
        job, cut, parallelism=data.draw(st.sampled_from([1, 3])), engine=data.draw(ENGINES)
    )

    assert found == results(job, script)


def test_state_that_is_read_when_no_batch_is_processed_is_read_alone_from_disk():
    before = [
        *(("left", ("a", 0, f"left{number}")) for number in range(3)),
        *(("left", ("b", 0, "left3")), ("right", ("b", 0, "right4")), ("left", ("a", 0, "left5"))),
        *(("right", ("a", 5, "right6")), ("right", ("b", 10, "right7"))),
        *(("left", ("b", 0, "left8")), ("left", ("b", 6, "left9"))),
    ]
    last = [("right", ("a", 10, "right10")), ("right", ("a", 10, "right11"))]
    cut = [each for row in before for each in (row, None)]

    found = results(
        job_of(0),
        [*cut, "crash", *last],
        parallelism=3,
        engine=EngineOptions(state_backend="rocksdb"),
    )

    assert found == results(job_of(0), before + last)
