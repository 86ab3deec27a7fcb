"""State that all subtasks hold alike, on the harness and on Spark."""

import asyncio

import pytest

from bicycle_runtime.operators.errors import FunctionFailedError
from bicycle_runtime.testing import script_source
from bicycle_sdk import BroadcastProcessFunction, JoinFunction, MapStateDescriptor


class Priced(BroadcastProcessFunction[tuple, tuple, tuple]):
    """Gives each order the price of its good; a price comes to every subtask."""

    prices = MapStateDescriptor("prices", str, int)

    def process_element(self, value, ctx):
        return [(*value, ctx.get_broadcast_state(self.prices).get(value[1]))]

    async def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.prices).put(*value)
        return []


class KeyedPriced(Priced):
    """Counts the orders of a user, too."""

    def process_element(self, value, ctx):
        count = ctx.get_value_state("count", int, default=0)
        count.update(count.value() + 1)
        ctx.timer_service.register_event_time_timer(10)
        return [(*row, count.value()) for row in super().process_element(value, ctx)]

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), ctx.get_broadcast_state(self.prices).get("tea"))]


def priced(function, env, *, is_keyed):
    orders = env.add_source(script_source()).uid("orders")
    prices = env.add_source(script_source()).uid("prices").broadcast()
    spread = orders.key_by(lambda order: order[0]) if is_keyed else orders.rebalance()
    spread.connect(prices).process(function).uid("priced").collect("out")


USERS = [f"u{number}" for number in range(8)]


@pytest.mark.parametrize("is_keyed", [False, True], ids=["plain", "keyed"])
def test_all_subtasks_see_the_same_maps_after_crash_and_rescale(runner, is_keyed):
    function = KeyedPriced() if is_keyed else Priced()
    with runner.harness(
        lambda env: priced(function, env, is_keyed=is_keyed), parallelism=2
    ) as harness:
        harness.push([("tea", 3)], source="prices")
        harness.push([(user, "tea") for user in USERS], source="orders")
        harness.fail_at("before_seal")
        harness.run()
        assert {row[2] for row in harness.results("out")} == {3}
        for parallelism in (3, 1):
            harness.rescale(parallelism)
            harness.push([(user, "tea") for user in USERS], source="orders")
            harness.run()
        assert [row[2] for row in harness.results("out")] == [3] * 24
        if is_keyed:
            assert sorted(row[3] for row in harness.results("out")) == [1] * 8 + [2] * 8 + [3] * 8
            harness.advance_watermark(10)
            assert sorted(harness.results("out")[24:]) == [(user, 3) for user in USERS]


class Forbidden(Priced):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(self.prices).put("tea", 0)
        return []


def test_records_that_only_one_subtask_sees_cannot_change_the_maps(runner):
    with runner.harness(lambda env: priced(Forbidden(), env, is_keyed=False)) as harness:
        harness.push([("ada", "tea")], source="orders")
        with pytest.raises(FunctionFailedError) as caught:
            harness.run()
        assert caught.value.facts["exception"] == "AttributeError"


class Named(JoinFunction):
    async def join(self, left, right):
        await asyncio.sleep(0)
        return named(left, right)


def named(left, right):
    return (left, right and right[1])


@pytest.mark.core
@pytest.mark.parametrize("function", [named, Named()], ids=["plain", "async"])
def test_a_small_side_is_joined_by_every_subtask(runner, function):
    def job(env):
        codes = env.add_source(script_source()).uid("orders").rebalance()
        names = env.add_source(script_source()).uid("prices")
        rows = codes.broadcast_join(
            names, str.lower, first, function, how="left", deleted_when=lambda row: not row[1]
        )
        rows.uid("join").collect("out")

    with runner.harness(job, parallelism=3) as harness:
        harness.push([("de", "Germany"), ("pe", "Peru")], source="prices")
        harness.push(["DE", "PE", "XX"], source="orders")
        harness.run()
        harness.push([("de", None)], source="prices")
        harness.rescale(2)
        harness.push(["DE", "PE"], source="orders")
        harness.run()

        found = harness.results("out")
        assert sorted(found[:3]) == [("DE", "Germany"), ("PE", "Peru"), ("XX", None)]
        assert sorted(found[3:]) == [("DE", None), ("PE", "Peru")]


def first(row):
    return row[0]
