"""A function that changes a record in place changes it for nobody else."""

import copy
import dataclasses

import pytest

from bicycle_runtime.connectors.collection import CollectionReader
from bicycle_runtime.contract import Slice
from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    KeyedProcessFunction,
    ProcessFunction,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from bicycle_sdk.windows import AggregateFunction, CountTrigger, WindowResult, tumbling_windows


@dataclasses.dataclass
class Order:
    key: str
    amount: int


def changed(order: Order) -> Order:
    order.amount += 100
    return order


def itself(order: Order) -> Order:
    return order


def emptied(orders: list[Order]) -> list[Order]:
    return [orders.pop() for _ in range(len(orders))]


class Last(KeyedProcessFunction[str, Order, Order]):
    """Keeps each order, and gives it on; the amount before goes to a side output."""

    last = ValueStateDescriptor("last", Order)
    seen: list[Order]

    def process_element(self, value, ctx):
        state = ctx.get_value_state(self.last)
        if (before := state.value()) is not None:
            ctx.side_output("before", (before.key, before.amount))
        state.update(value)
        return [value]


class Twice(ProcessFunction[Order, Order]):
    """Gives each order, and sends it to a side output."""

    def process_element(self, value, ctx):
        ctx.side_output("copy", value)
        return [value]


def untyped(order):
    return order


BRANCHES = {
    "changed": lambda s: s.map(changed).collect("changed"),
    "changed again": lambda s: s.map(changed).map(changed).collect("changed again"),
    "read": lambda s: s.map(itself).collect("read"),
    "written": lambda s: s.collect("written"),
    "sent": lambda s: s.rebalance().map(itself).collect("sent"),
    "passed on": lambda s: s.union(s).map(itself).collect("passed on"),
    "emptied": lambda s: s.map_batches(emptied).collect("emptied"),
}
ADDED = {"changed": 100, "changed again": 200}


@pytest.mark.parametrize("above", [itself, untyped])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_branches_see_what_was_given_whatever_the_order_of_lines(runner, above, is_reversed):
    def job(env):
        orders = env.add_source(script_source(Order)).uid("orders").map(above)
        for name in reversed(BRANCHES) if is_reversed else BRANCHES:
            BRANCHES[name](orders)

    with runner.harness(job) as harness:
        harness.push([Order("a", n) for n in range(3)])
        harness.run()
        found = {n: sorted(o.amount for o in harness.results(n)) for n in harness.sink_names()}

    expected = {name: [n + ADDED.get(name, 0) for n in range(3)] for name in BRANCHES}
    expected["passed on"] = [0, 0, 1, 1, 2, 2]
    assert found == expected


def test_what_an_operator_keeps_stays_what_it_was(runner):
    def job(env):
        orders = env.add_source(script_source(Order)).uid("orders")
        last = orders.key_by(lambda order: order.key).process_fn(Last()).uid("last")
        last.side_output("before").collect("before")
        last.map(changed).collect("changed")

    with runner.harness(job) as harness:
        for number in range(4):
            harness.push([Order("a", number), Order("b", number)])
            harness.run()
            if number == 1:
                harness.crash()

        assert sorted(harness.results("before")) == [(key, n) for key in "ab" for n in range(3)]
        assert sorted(o.amount for o in harness.results("changed")) == [
            100,
            100,
            101,
            101,
            102,
            102,
            103,
            103,
        ]


def changed_all(value):
    """Change all orders in a value in place, at any depth."""
    match value:
        case Order():
            value.amount += 100
        case WindowResult():
            changed_all(value.value)
        case tuple() | list():
            for part in value:
                changed_all(part)
    return value


def together(left: Order, right: Order) -> Order:
    left.amount += right.amount
    return left


def marked(elements, ctx):
    """Change the records of a window in place, and give them."""
    return [[changed(order) for order in elements]]


class Amounts(AggregateFunction[Order, list, list]):
    """Gives its accumulator, which it changes in place."""

    def create_accumulator(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(value.amount)
        return accumulator

    def merge(self, a, b):
        a.extend(b)
        return a

    def get_result(self, accumulator):
        return accumulator


def pair(left, right):
    return (left, right)


def key_of(order):
    return order.key


def each_time(windows):
    return windows.trigger(CountTrigger(1))


KEEPERS = {
    "reduce": lambda a, b: a.reduce(together),
    "lowest": lambda a, b: a.min_by(lambda order: order.amount),
    "aggregate": lambda a, b: a.aggregate(Amounts()),
    "sliding reduce": lambda a, b: a.sliding_window(40, 20).reduce(together),
    "sliding aggregate": lambda a, b: a.sliding_window(40, 20).aggregate(Amounts()),
    "sliding records": lambda a, b: a.sliding_window(40, 20).process(marked),
    "late reduce": lambda a, b: a.tumbling_window(40).allowed_lateness(500).reduce(together),
    "session reduce": lambda a, b: a.session_window(15).reduce(together),
    "triggered reduce": lambda a, b: each_time(a.sliding_window(40, 20)).reduce(together),
    "triggered aggregate": lambda a, b: each_time(a.global_window()).aggregate(Amounts()),
    "triggered records": lambda a, b: each_time(a.tumbling_window(1_000)).process(marked),
    "last records": lambda a, b: a.count_window(3, 1).process(marked),
    "last reduced": lambda a, b: a.count_window(3, 1).reduce(together),
    "interval join": lambda a, b: a.interval_join(b, -50, 50, pair, how="full"),
    "as-of join": lambda a, b: a.as_of_join(b, pair, how="left"),
    "window join": lambda a, b: a.window_join(b, tumbling_windows(60), pair, how="full"),
    "table join": lambda a, b: a.table_join(b, pair, how="left").in_event_time_order(),
}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_functions_change_shows_in_no_other_result_whatever_the_epochs(runner, parallelism):
    """Rows of several pairs or windows, accumulators that go on: results are of their moment."""

    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda order: order.amount * 10)
        sides = [
            env.add_source(script_source()).uid(uid)
            .assign_timestamps(strategy.with_idle_timeout(None)).key_by(key_of)
            for uid in ("left", "right")
        ]  # fmt: skip
        for name, build in KEEPERS.items():
            given = build(*sides)
            given.map(copy.deepcopy).map(changed_all).collect(f"{name}: copies")
            given.map(changed_all).collect(f"{name}: itself")
            given.rebalance().map(changed_all).collect(f"{name}: sent")
            given.collect(f"{name}: as it was")

    def results(size, *, crashes):
        with runner.harness(job, parallelism=parallelism) as harness:
            left = [Order("aab"[n % 3], n) for n in range(12)]
            right = [Order("aab"[n % 3], n + 1) for n in range(12)]
            for start in range(0, 12, size):
                harness.push(left[start : start + size], source="left")
                harness.push(right[start : start + size], source="right")
                harness.run()
                if crashes and start == 4:
                    harness.crash()
            harness.end()
            harness.run()
            return {name: sorted(map(repr, harness.results(name))) for name in harness.sink_names()}

    found = results(12, crashes=False)
    for name in KEEPERS:
        assert found[f"{name}: itself"] == found[f"{name}: copies"], name
        assert found[f"{name}: sent"] == found[f"{name}: copies"], name
    assert found == results(1, crashes=True)


def test_side_outputs_have_records_of_their_own(runner):
    def job(env):
        orders = env.add_source(script_source(Order)).uid("orders").process(Twice())
        orders.side_output("copy").map(changed).map(changed).collect("side")
        orders.map(changed).collect("main")

    with runner.harness(job) as harness:
        harness.push([Order("a", 1)])
        harness.run()

        assert harness.results("side") == [Order("a", 201)]
        assert harness.results("main") == [Order("a", 101)]


def test_a_collection_is_read_again_as_it_was_given():
    reader = CollectionReader([Order("a", 1), Order("b", 2)])
    for _ in range(2):
        (batch,) = reader.read(Slice(shard="items", start=0, end=2))

        assert [changed(order).amount for order in batch.values] == [101, 102]
