"""Two streams in one function, on the harness and on Spark alike."""

import asyncio

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import CoMapFunction, CoProcessFunction, KeyedCoProcessFunction
from bicycle_sdk.failures import skip


def both(env, connect):
    """Build ``connect(a, b)`` over two scripted sources and collect what comes out."""
    a, b = (env.add_source(script_source()).uid(uid) for uid in "ab")
    connect(a, b).uid("both").collect("out")


class Tagged(CoMapFunction[int, str, str]):
    def map1(self, value):
        return f"number {value}"

    def map2(self, value):
        return f"text {value}"


class TaggedLater(Tagged):
    async def map2(self, value):
        await asyncio.sleep(0)
        return super().map2(value)


@pytest.mark.parametrize("function", [Tagged(), TaggedLater()], ids=["plain", "async"])
def test_a_co_map_calls_the_method_of_the_stream_that_a_record_came_from(runner, function):
    finished = runner(
        lambda env: both(env, lambda a, b: a.connect(b).map(function)),
        {"a": [1, 2], "b": ["x"]},
        parallelism=2,
    )

    assert sorted(finished.published) == ["number 1", "number 2", "text x"]


class Limit(KeyedCoProcessFunction[str, tuple, tuple, tuple]):
    """Passes amounts up to the limit of their key; a timer tells how many it has seen."""

    def open(self, ctx):
        self.limit = ctx.get_value_state("limit", int, default=10)
        self.seen = ctx.get_value_state("seen", int, default=0)

    def process_element1(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        ctx.timer_service.register_event_time_timer(100)
        if value[1] > self.limit.value():
            ctx.side_output("over", value)
            return []
        return [value]

    async def process_element2(self, value, ctx):
        await asyncio.sleep(0)
        assert ctx.current_key() == value["user"]
        self.limit.update(value["limit"])
        return []

    def on_timer(self, timestamp_ms, ctx):
        return [(ctx.current_key(), "seen", self.seen.value())]


def limits(env):
    amounts = env.add_source(script_source()).uid("a").key_by(lambda pair: pair[0])
    rules = env.add_source(script_source()).uid("b").key_by(lambda rule: rule["user"])
    passed = amounts.connect(rules).process(Limit()).uid("limit")
    passed.collect("out")
    passed.side_output("over").collect("over")


@pytest.mark.core
def test_two_keyed_streams_share_state_and_timers_by_key_over_crash_and_rescale(runner):
    with runner.harness(limits, parallelism=2) as harness:
        harness.push([("ada", 11), ("bob", 11)], source="a")
        harness.run_epoch()
        harness.push([{"user": "ada", "limit": 20}], source="b")
        harness.fail_at("before_seal")
        harness.run_epoch()
        harness.run()
        harness.rescale(3)
        harness.push([("ada", 12), ("bob", 12)], source="a")
        harness.run()
        harness.advance_watermark(100)

        assert sorted(harness.results("over")) == [("ada", 11), ("bob", 11), ("bob", 12)]
        out = harness.results("out")
        assert out[0] == ("ada", 12)
        assert sorted(out[1:]) == [("ada", "seen", 2), ("bob", "seen", 2)]
        assert harness.state("limit", "ada") == {"limit": 20, "seen": 2}


def test_key_by_on_connected_streams_keys_each_side_by_its_own_selector(runner):
    def job(env):
        both(env, lambda a, b: a.connect(b).key_by(lambda v: v[0], lambda r: r["user"]).process(
            Limit()
        ))  # fmt: skip

    with runner.harness(job) as harness:
        harness.push([{"user": "ada", "limit": 5}], source="b")
        harness.run_epoch()
        harness.push([("ada", 6), ("bob", 6)], source="a")
        harness.run_epoch()

        assert harness.results("out") == [("bob", 6)]


class Totals(CoProcessFunction[int, int, int]):
    """Adds what both streams bring, per subtask."""

    def process_element1(self, value, ctx):
        ctx.save_state("total", ctx.get_state("total", 0) + value)
        return [ctx.get_state("total")]

    def process_element2(self, value, ctx):
        return self.process_element1(100 * value, ctx)


def test_streams_without_keys_share_named_values_of_the_subtask(runner):
    with runner.harness(
        lambda env: both(env, lambda a, b: a.connect(b).process(Totals()))
    ) as harness:
        harness.push([1], source="a")
        harness.run_epoch()
        harness.push([1], source="b")
        harness.run_epoch()
        harness.crash()
        harness.push([5], source="a")
        harness.run_epoch()

        assert harness.results("out") == [1, 101, 106]


class Fragile(Totals):
    def process_element2(self, value, ctx):
        raise ValueError("unlucky")


def test_a_failure_on_one_input_follows_on_error(runner):
    finished = runner(
        lambda env: both(env, lambda a, b: a.connect(b).process(Fragile()).on_error(skip())),
        {"a": [1], "b": [2, 3]},
    )

    assert finished.published == [1]
