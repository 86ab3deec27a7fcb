"""Functions in the order of event time against plain loops: any epochs, orders, mishaps."""

import asyncio
from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RichAsyncFunction,
    StateTtl,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tests.event_time import Stamps
from tests.examples import examples
from tests.property.mishaps import ENGINES, act, actions

BOUND = 6
LIFE = 5
SOURCES = ("left", "right")


def change(count, last, time, number):
    """What a record, or a timer (without a number), changes: timers to set, and to delete."""
    if number is None:
        return ([time + 3], []) if count % 2 else ([], [])
    deleted = [last + 4] if number % 3 == 0 and last is not None else []
    return [time + 4, *([time - 2] if number % 5 == 0 else [])], deleted


class Seen:
    """Tells of each record and timer, of all before it, and of what has not expired."""

    count = ValueStateDescriptor("count", int, default=0)
    last = ValueStateDescriptor("last", int)
    recent = ValueStateDescriptor("recent", int, ttl=StateTtl(LIFE, time="event"))

    def seen(self, ctx, time, number):
        count, last, recent = map(ctx.get_value_state, (self.count, self.last, self.recent))
        told = (ctx.current_key(), time, number, count.value(), last.value(), recent.value())
        added, deleted = change(count.value(), last.value(), time, number)
        for timer in deleted:
            ctx.timer_service.delete_event_time_timer(timer)
        for timer in added:
            ctx.timer_service.register_event_time_timer(timer)
        count.update(count.value() + 1)
        if number is not None:
            last.update(time)
            recent.update(number)
        ctx.side_output("marks", (ctx.current_key(), time, ctx.current_watermark()))
        return [told]

    def on_timer(self, timestamp_ms, ctx):
        return self.seen(ctx, timestamp_ms, None)


class Trace(Seen, KeyedProcessFunction[str, tuple, tuple]):
    """For one input."""

    def process_element(self, value, ctx):
        return self.seen(ctx, ctx.timestamp, value[2])


class Both(Seen, KeyedCoProcessFunction[str, tuple, tuple, tuple]):
    """For two inputs, one of which waits for something."""

    async def process_element1(self, value, ctx):
        await asyncio.sleep(0)
        return self.seen(ctx, ctx.timestamp, value[2])

    def process_element2(self, value, ctx):
        return self.seen(ctx, ctx.timestamp, value[2])


class Previous(RichAsyncFunction[tuple, tuple]):
    """Each record with the one before it."""

    def __init__(self):
        self.before = {}

    async def process(self, value, ctx):
        before = self.before.get(value[0])
        self.before[value[0]] = value
        return [(before, value)]


def model(rows):
    """Return what ``Seen`` tells of rows of all keys: records and timers, one by one, by time."""
    told, marks = [], []
    by_key = defaultdict(list)
    for row in rows:
        by_key[row[0]].append(row)
    for key, own in by_key.items():
        left, timers = sorted(own, key=lambda row: row[1]), set()
        count, last, recent = 0, None, (None, 0)
        while left or timers:
            if left and (not timers or left[0][1] <= min(timers)):
                _, time, number = left.pop(0)
            else:
                time, number = min(timers), None
                timers.discard(time)
            alive = recent[0] if time < recent[1] + LIFE else None
            told.append(((key, time, number, count, last, alive), time))
            marks.append(((key, time, time if number is None else time - 1), time))
            added, deleted = change(count, last, time, number)
            timers = (timers - set(deleted)) | set(added)
            count += 1
            if number is not None:
                last, recent = time, (number, time)
    return told, marks


def job(env):
    strategy = WatermarkStrategy.bounded_out_of_orderness(BOUND).with_timestamps(lambda r: r[1])
    left, right = [
        env.add_source(script_source(tuple[str, int, int])).uid(uid)
        .assign_timestamps(strategy.with_idle_timeout(None))
        for uid in SOURCES
    ]  # fmt: skip
    both = left.union(right).rebalance().key_by(lambda row: row[0])
    sides = [side.key_by(lambda row: row[0]) for side in (left, right)]
    found = {
        "one": both.process_fn(Trace()),
        "two": sides[0].connect(sides[1]).process(Both()),
        "rich": both.process_rich(Previous()),
        "table": sides[0].table_join(sides[1], lambda a, b: (a, b), how="left"),
    }
    for name, stream in found.items():
        stream.in_event_time_order().uid(name).process_fn(Stamps()).collect(name)
    for name in ("one", "two"):
        found[name].side_output("marks").process_fn(Stamps()).collect(f"marks of {name}")


@st.composite
def rows(draw):
    """Rows by source, each within the bound; no two of all have one time."""
    found, newest = {source: [] for source in SOURCES}, dict.fromkeys(SOURCES, 0)
    times = set()
    for number in range(draw(st.integers(0, 14))):
        source = draw(st.sampled_from(SOURCES))
        time = newest[source] + draw(st.integers(-BOUND, 8))
        if time not in times:
            times.add(time)
            newest[source] = max(newest[source], time)
            found[source].append((draw(st.sampled_from("ab")), time, number))
    return found


@settings(deadline=None, max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(rows(), actions(list(SOURCES)), st.sampled_from([1, 3]), ENGINES)
def test_results_are_those_of_plain_loops(rows, actions, parallelism, engine):
    every = rows["left"] + rows["right"]
    left = {source: list(found) for source, found in rows.items()}
    with Harness(job, parallelism=parallelism, engine=engine) as harness:
        for action in actions:
            act(harness, action, left)
        for source, found in left.items():
            harness.push(found, source=source)
        harness.end()
        harness.run()
        results = {name: harness.results(name) for name in harness.sink_names()}

    told, marks = model(every)
    for name in ("one", "two"):
        assert sorted(results[name], key=repr) == sorted(told, key=repr)
        assert sorted(results[f"marks of {name}"], key=repr) == sorted(marks, key=repr)
        for key in "ab":  # in that order, too
            own = [value for value, _ in results[name] if value[0] == key]
            assert own == [value for value, _ in told if value[0] == key]
    ordered = sorted(every, key=lambda row: row[1])
    for before, value in (value for value, _ in results["rich"]):
        own = [None, *(row for row in ordered if row[0] == value[0])]
        assert own[own.index(value) - 1] == before
    for (row, other), time in results["table"]:
        known = [r for r in rows["right"] if r[0] == row[0] and r[1] < row[1]]
        assert (other, time) == (max(known, key=lambda r: r[1], default=None), row[1])
    assert len(results["rich"]) == len(every)
    assert len(results["table"]) == len(rows["left"])
