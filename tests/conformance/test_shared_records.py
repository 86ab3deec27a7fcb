"""A function that changes a record in place changes it for nobody else."""

import dataclasses

import pytest

from bicycle_runtime.connectors.collection import CollectionReader
from bicycle_runtime.contract import Slice
from bicycle_runtime.testing import script_source
from bicycle_sdk import KeyedProcessFunction, ProcessFunction, ValueStateDescriptor


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
