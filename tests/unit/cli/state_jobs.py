"""A job that keeps state of every kind, for commands that look into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RichAsyncFunction,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from bicycle_sdk.windows import CountTrigger, Sum, WindowFunction

TEN_SECONDS = timedelta(seconds=10)


class Basket:
    """A value of a class that only this module has."""

    def __init__(self, goods):
        self.goods = goods


@dataclass
class Memory(RichAsyncFunction[tuple[str, int], str]):
    """Keeps attributes: typed by key, one without a type, and a value saved by name."""

    counts: dict[str, int] = field(default_factory=dict)
    baskets: dict = field(default_factory=dict)
    seen: int = 0

    async def process(self, value, ctx):
        self.counts[value[0]] = self.counts.get(value[0], 0) + value[1]
        self.baskets[value[0]] = Basket([value[1]])
        self.seen += 1
        ctx.save_state("last", value[1])
        return []


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


class Keeper(KeyedProcessFunction[str, tuple, str]):
    """Keeps every kind of keyed state, and timers."""

    last = ValueStateDescriptor("last", int, ttl=timedelta(hours=1))
    history = ListStateDescriptor("history", int)
    by_parity = MapStateDescriptor("by_parity", str, int)
    highest = ReducingStateDescriptor("highest", int, reduce=max)
    total = AggregatingStateDescriptor("total", Total(), type=int)

    def process_element(self, value, ctx):
        number = value[1]
        ctx.get_value_state(self.last).update(number)
        ctx.get_list_state(self.history).add(number)
        ctx.get_map_state(self.by_parity).put("odd" if number % 2 else "even", number)
        ctx.get_reducing_state(self.highest).add(number)
        ctx.get_aggregating_state(self.total).add(number)
        ctx.timer_service.register_processing_time_timer(10**12 + number)
        return []


class Everything(WindowFunction):
    def process(self, elements, ctx):
        return [len(elements)]


class Priced(BroadcastProcessFunction[tuple, tuple, tuple]):
    prices = MapStateDescriptor("prices", str, int)

    def process_element(self, value, ctx):
        return []

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.prices).put(*value)
        return []


@dataclass
class Tally(RichAsyncFunction[tuple[str, int], str]):
    """Counts without a key: one state per subtask."""

    total: int = 0

    async def process(self, value, ctx):
        self.total += 1
        return []

    def merge_state(self, states):
        return {"total": sum(state["total"] for state in states)}


def name_of(record):
    return record[0]


def second_of(record):
    return record[1] * 1_000


def number_of(record):
    return record[1]


def every_state(env):
    """Build the job; records are (name, number), which is also their event time in seconds."""
    records = env.add_source(script_source(tuple[str, int])).uid("records")
    prices = env.add_source(script_source(tuple[str, int])).uid("prices")
    keyed = records.key_by(name_of)
    keyed.count().uid("counts").collect("counted")
    keyed.process(Memory()).uid("memory").collect("remembered")
    keyed.process_fn(Keeper()).uid("keeper").collect("kept")
    records.process(Tally()).uid("tally").collect("tallied")
    keyed.connect(prices.broadcast()).process(Priced()).uid("priced").collect("priced-out")
    strategy = WatermarkStrategy.ascending().with_timestamps(second_of)
    timed = records.assign_timestamps(strategy).uid("stamped").key_by(name_of)
    timed.tumbling_window(TEN_SECONDS).aggregate(Sum(number_of)).uid("sums").collect("summed")
    timed.session_window(TEN_SECONDS).aggregate(Sum(number_of)).uid("visits").collect("visited")
    timed.tumbling_window(TEN_SECONDS).process(Everything()).uid("whole").collect("wholes")
    (
        timed.tumbling_window(TEN_SECONDS)
        .trigger(CountTrigger(100))
        .aggregate(Sum(number_of))
        .uid("triggered")
        .collect("fired")
    )
