"""Jobs whose checkpoints are kept for ever: together they have every kind of state.

A job may get further operators, never other ones: what a release wrote must be read by the code of
every later one. Records carry their event time; ``before`` is sealed in a golden checkpoint, and
``after`` is what must come out the same as if the job had never stopped.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Aliases,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RichAsyncFunction,
    StateTtl,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from bicycle_sdk.windows import (
    CountEvictor,
    CountTrigger,
    PurgingTrigger,
    WindowFunction,
    tumbling_windows,
)

__all__ = ["JOBS", "GoldenJob"]

S = 1_000


@dataclass(frozen=True, slots=True)
class GoldenJob:
    """A job, what is sealed, and what comes then.

    ``before`` calls its second argument between epochs: time for bases to be made. ``former`` is
    the job with the code of before, which ran first.
    """

    build: Callable[[Any], None]
    before: Callable[[Harness, Callable[[Harness], None]], None]
    after: Callable[[Harness], None]
    former: GoldenJob | None = None


# --- records and functions -------------------------------------------------------------------


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Place(NamedTuple):
    x: float
    y: float = 0.0


@dataclass
class Reading:
    at: dt.datetime
    price: Decimal
    level: Level
    place: Place
    tags: set[str] = field(default_factory=set)
    note: str | None = None


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self):
        return (0, 0)

    def add(self, accumulator, value):
        return (accumulator[0] + number_of(value), accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


class MeanOfNumbers(Mean):
    def add(self, accumulator, value):
        return (accumulator[0] + value, accumulator[1] + 1)


class Everything(KeyedProcessFunction[str, tuple[str, int], tuple]):
    """Keeps keyed state of every kind, with and without a TTL, and sets timers of both kinds."""

    last = ValueStateDescriptor("last", int, default=0)
    reading = ValueStateDescriptor("reading", Reading)
    seen = ListStateDescriptor("seen", int)
    stock = MapStateDescriptor("stock", str, Place)
    highest = ReducingStateDescriptor("highest", int, reduce=max)
    mean = AggregatingStateDescriptor("mean", MeanOfNumbers(), type=tuple[int, int])
    recent = ValueStateDescriptor("recent", int, ttl=StateTtl(timedelta(minutes=1)))
    short = MapStateDescriptor(
        "short", int, int, ttl=StateTtl(timedelta(seconds=30), time="event", update="on_access")
    )

    def process_element(self, pair, ctx):
        key, number = pair[0], pair[1]
        asked = ctx.get_value_state("asked", dict[str, int], default={})
        states = self._states(ctx)
        asked.update({**asked.value(), str(number): number})
        states["last"].update(states["last"].value() + number)
        states["reading"].update(reading_of(number))
        states["seen"].add(number)
        states["stock"].put(f"n{number}", Place(float(number), -0.5 * number))
        states["highest"].add(number)
        states["mean"].add(number)
        states["recent"].update(number)
        states["short"].put(number, number)
        ctx.timer_service.register_event_time_timer(pair[1] * S + 40 * S)
        ctx.timer_service.register_processing_time_timer(ctx.current_processing_time() + 90 * S)
        return [(key, number, asked.value(), *self._told(ctx))]

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), ctx.time_domain, timestamp_ms, *self._told(ctx))]

    def _states(self, ctx):
        return {
            "last": ctx.get_value_state(self.last),
            "reading": ctx.get_value_state(self.reading),
            "seen": ctx.get_list_state(self.seen),
            "stock": ctx.get_map_state(self.stock),
            "highest": ctx.get_reducing_state(self.highest),
            "mean": ctx.get_aggregating_state(self.mean),
            "recent": ctx.get_value_state(self.recent),
            "short": ctx.get_map_state(self.short),
        }

    def _told(self, ctx):
        states = self._states(ctx)
        return (
            states["last"].value(),
            states["reading"].value(),
            states["seen"].get(),
            dict(states["stock"].entries()),
            states["highest"].get(),
            states["mean"].get(),
            states["recent"].value(),
            dict(states["short"].entries()),
        )


@dataclass
class Attributes(RichAsyncFunction[tuple[str, int], tuple]):
    """Keeps attributes: typed and untyped, by key and of a key group, and values by name."""

    counts: dict[str, int] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    untyped: dict = field(default_factory=dict)
    total: int = 0
    newest: Place = field(default_factory=lambda: Place(0.0))

    async def process(self, pair, ctx):
        key, number = pair[0], pair[1]
        self.counts[key] = self.counts.get(key, 0) + 1
        self.readings[key] = reading_of(number)
        self.untyped.setdefault(key, []).append((number, {"a": [number]}))
        self.total += number
        self.newest = Place(float(number), self.newest.x)
        before = ctx.get_state("before", 0)
        ctx.save_state("before", number)
        return [(key, self.counts[key], self.readings[key], list(self.untyped[key]), before)]


@dataclass
class Tally(RichAsyncFunction[tuple[str, int], int]):
    """Counts without a key: one state per subtask."""

    total: int = 0

    async def process(self, pair, ctx):
        self.total += pair[1]
        return [self.total]

    def merge_state(self, states):
        return {"total": sum(state["total"] for state in states)}


class Snapshots(RichAsyncFunction[tuple[str, int], tuple]):
    """Makes its own snapshots."""

    def __init__(self):
        self.seen = []

    async def process(self, pair, ctx):
        self.seen.append(pair[1])
        return [(pair[0], list(self.seen))]

    def snapshot_state(self):
        return {"seen": list(self.seen)}

    def restore_state(self, state):
        self.seen = list(state["seen"])


class Whole(WindowFunction):
    calls = ValueStateDescriptor("calls", int, default=0)

    def process(self, elements, ctx):
        calls = ctx.get_value_state(self.calls)
        calls.update(calls.value() + 1)
        return [(calls.value(), sorted(number_of(each) for each in elements))]


class Priced(BroadcastProcessFunction[tuple, tuple, tuple]):
    prices = MapStateDescriptor("prices", str, int)

    def process_element(self, pair, ctx):
        prices = ctx.get_broadcast_state(self.prices)
        return [(pair[0], pair[1] * prices.get(pair[0], 1))]

    def process_broadcast_element(self, pair, ctx):
        ctx.get_broadcast_state(self.prices).put(pair[0], pair[1])
        return []


def reading_of(number):
    return Reading(
        at=dt.datetime(2026, 1, 1, 0, number % 60, tzinfo=dt.UTC),
        price=Decimal(number) / 8,
        level=Level.HIGH if number % 2 else Level.LOW,
        place=Place(number / 2),
        tags={f"t{number}", "all"},
    )


def key_of(pair):
    return pair[0]


def number_of(pair):
    return pair[1]


def time_of(pair):
    return pair[1] * S


def stamped(stream):
    strategy = WatermarkStrategy.bounded_out_of_orderness(2 * S).with_timestamps(time_of)
    return stream.assign_timestamps(strategy)


def added(a, b):
    return (a[0], a[1] + b[1])


def paired(left, right):
    return (left, right)


def lower(number):
    return number - 1


def is_positive(number):
    return number > 0


# --- jobs ------------------------------------------------------------------------------------


def states(env):
    pairs = stamped(env.add_source(script_source(tuple[str, int])).uid("pairs")).uid("stamped")
    prices = env.add_source(script_source(tuple[str, int])).uid("prices")
    keyed = pairs.key_by(key_of)
    keyed.process_fn(Everything()).uid("everything").collect("everything")
    keyed.process(Attributes()).uid("attributes").collect("attributes")
    keyed.process(Snapshots()).uid("snapshots").collect("snapshots")
    keyed.reduce(added).uid("reduced").collect("reduced")
    keyed.count().uid("counted").collect("counted")
    keyed.connect(prices.broadcast()).process(Priced()).uid("priced").collect("priced")
    pairs.process(Tally()).uid("tally").collect("tally")


def states_before(harness, pause):
    harness.push([("a", 3)], source="prices")
    for first in range(1, 16, 3):
        harness.push([("a", first), ("b", first + 1), ("c", first + 2)], source="pairs")
        harness.run_epoch()
        harness.advance_time(5 * S)
        pause(harness)


def states_after(harness):
    harness.push([("b", 10)], source="prices")
    harness.push([("a", 17), ("b", 18), ("d", 19)], source="pairs")
    harness.run_epoch()
    harness.advance_time(70 * S)
    harness.push([("c", 60)], source="pairs")
    harness.run_epoch()
    harness.advance_time(60 * S)
    harness.end()
    harness.run()


def windows(env):
    pairs = env.add_source(script_source(tuple[str, int])).uid("pairs")
    keyed = stamped(pairs).uid("stamped").key_by(key_of)
    tumbling = keyed.tumbling_window(10 * S).allowed_lateness(5 * S)
    tumbling.sum(number_of).uid("sums").collect("sums")
    keyed.sliding_window(20 * S, 5 * S).count().uid("sliding").collect("sliding")
    keyed.session_window(6 * S).aggregate(Mean()).uid("sessions").collect("sessions")
    cut = keyed.session_window(6 * S, max_duration=12 * S)
    cut.process(Whole()).uid("cut").collect("cut")
    keyed.tumbling_window(10 * S).process(Whole()).uid("whole").collect("whole")
    keyed.tumbling_window(10 * S).reduce(added).uid("reduced").collect("reduced")
    counting = keyed.global_window().trigger(PurgingTrigger(CountTrigger(3)))
    counting.aggregate(Mean()).uid("global").collect("global")
    evicting = keyed.global_window().trigger(CountTrigger(2)).evictor(CountEvictor(3))
    evicting.process(Whole()).uid("evicting").collect("evicting")
    keyed.count_window(4, 2).max(number_of).uid("counts").collect("counts")
    keyed.tumbling_window(10 * S).trigger(CountTrigger(2)).sum(number_of).uid("early").collect(
        "early"
    )


def windows_before(harness, pause):
    rounds = ([1, 2, 4], [6, 3, 7], [11, 12, 14], [13, 9, 15], [18, 16, 8])
    for times in rounds:
        harness.push([*zip("abc", times, strict=True), ("a", times[0] + 1)])
        harness.run_epoch()
        harness.advance_time(2 * S)
        pause(harness)


def windows_after(harness):
    harness.push([("a", 19), ("b", 15), ("a", 8), ("c", 17)])
    harness.run_epoch()
    harness.push([("a", 40), ("b", 41)])
    harness.run_epoch()
    harness.end()
    harness.run()


def joins(env):
    left, right = (
        stamped(env.add_source(script_source(tuple[str, int])).uid(uid)).uid(f"{uid}-stamped")
        for uid in ("left", "right")
    )
    left, right = left.key_by(key_of), right.key_by(key_of)
    near = left.interval_join(right, -5 * S, 5 * S, paired, how="full")
    near.uid("near").collect("near")
    same = left.window_join(right, tumbling_windows(10 * S), paired, how="left")
    same.uid("same").collect("same")
    left.as_of_join(right, paired).uid("as-of").collect("as-of")


def joins_before(harness, pause):
    for first in range(1, 16, 3):
        harness.push([("a", first), ("b", first + 1), ("c", first)], source="left")
        harness.push([("a", first + 2), ("b", first), ("c", first + 1)], source="right")
        harness.run_epoch()
        harness.advance_time(2 * S)
        pause(harness)


def joins_after(harness):
    harness.push([("a", 18), ("d", 19)], source="left")
    harness.push([("b", 17), ("d", 20)], source="right")
    harness.run_epoch()
    harness.end()
    harness.run()


def loops(env):
    numbers = env.add_source(script_source(int)).uid("numbers")
    loop = numbers.iterate()
    falling = loop.map(lower).uid("falling")
    loop.feedback(falling.filter(is_positive).uid("positive"))
    falling.collect("falling")


def loops_before(harness, pause):
    harness.push([5, 9])
    harness.run_epoch()
    harness.run_epoch()
    pause(harness)


def loops_after(harness):
    harness.push([4])
    harness.run()


@dataclass
class FirstAmount:
    count: int
    total: int


@dataclass
class Amount:
    count: int
    amount: Annotated[float, Aliases("total")]
    unit: str = "ms"


class FirstAmounts(KeyedProcessFunction[str, tuple[str, int], FirstAmount]):
    amount = ValueStateDescriptor("amount", FirstAmount)
    points = MapStateDescriptor("points", int, int)

    def process_element(self, pair, ctx):
        ctx.get_map_state(self.points).put(pair[1], pair[1])
        state = ctx.get_value_state(self.amount)
        old = state.value() or FirstAmount(0, 0)
        state.update(FirstAmount(old.count + 1, old.total + pair[1]))
        return [state.value()]


class Amounts(KeyedProcessFunction[str, tuple[str, int], tuple]):
    """Later code: a renamed state of a changed record, and one that a hook migrates."""

    latest = ValueStateDescriptor("latest", Amount, aliases=("amount",))
    points = MapStateDescriptor("points", int, str, version=2, migrate=lambda old, n: f"v{old}:{n}")

    def process_element(self, pair, ctx):
        points, state = ctx.get_map_state(self.points), ctx.get_value_state(self.latest)
        points.put(pair[1], f"v2:{pair[1]}")
        old = state.value() or Amount(0, 0.0)
        state.update(Amount(old.count + 1, old.amount + pair[1] + 0.5))
        return [(state.value(), dict(points.entries()))]


@dataclass
class FirstSums(RichAsyncFunction[tuple[str, int], int]):
    totals: dict[str, int] = field(default_factory=dict)

    async def process(self, pair, ctx):
        self.totals[pair[0]] = self.totals.get(pair[0], 0) + pair[1]
        return [self.totals[pair[0]]]


@dataclass
class Sums(RichAsyncFunction[tuple[str, int], float]):
    sums: Annotated[dict[str, float], Aliases("totals")] = field(default_factory=dict)

    async def process(self, pair, ctx):
        self.sums[pair[0]] = self.sums.get(pair[0], 0.0) + pair[1] + 0.5
        return [self.sums[pair[0]]]


def evolved_former(env):
    keyed = env.add_source(script_source(tuple[str, int])).uid("pairs").key_by(key_of)
    keyed.process_fn(FirstAmounts()).uid("amounts").collect("amounts")
    keyed.process(FirstSums()).uid("sums").collect("sums")


def evolved(env):
    keyed = env.add_source(script_source(tuple[str, int])).uid("pairs").key_by(key_of)
    keyed.process_fn(Amounts()).uid("amounts").collect("amounts")
    keyed.process(Sums()).uid("sums").collect("sums")


def evolved_before(harness, pause):
    for first in (1, 2, 3, 4):
        # "d" is not touched by later code: its values stay in the first form.
        key = "d" if harness.epoch == 0 else "b"
        harness.push([("a", first), (key, first), ("c", 10 * first)])
        harness.run_epoch()
        harness.advance_time(2 * S)
        pause(harness)


def evolved_after(harness):
    harness.push([("a", 5), ("b", 6), ("c", 7), ("d", 8), ("e", 9)])
    harness.run_epoch()


JOBS = {
    "evolved": GoldenJob(
        evolved,
        evolved_before,
        evolved_after,
        former=GoldenJob(evolved_former, evolved_before, evolved_after),
    ),
    "states": GoldenJob(states, states_before, states_after),
    "windows": GoldenJob(windows, windows_before, windows_after),
    "joins": GoldenJob(joins, joins_before, joins_after),
    "loops": GoldenJob(loops, loops_before, loops_after),
}
