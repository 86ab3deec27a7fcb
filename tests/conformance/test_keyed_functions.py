"""Keys, running totals, and state of every kind, on the harness and on Spark alike."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import (
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
)
from bicycle_sdk.windows import Average

LONG = timedelta(seconds=30)


class Parity(KeySelector[int, str]):
    def get_key(self, value: int) -> str:
        return "odd" if value % 2 else "even"


class Longest(ReduceFunction[str]):
    def reduce(self, a: str, b: str) -> str:
        return max(a, b, key=len)


PAIRS = [("a", 3), ("b", 5), ("a", 1), EPOCH, ("a", 2), ("b", 5), ("b", 7), END]


def name_of(pair: tuple[str, int]) -> str:
    return pair[0]


def number_of(pair: tuple[str, int]) -> int:
    return pair[1]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (
            lambda s: s.sum(number_of),
            [("a", 3), ("a", 4), ("a", 6), ("b", 5), ("b", 10), ("b", 17)],
        ),
        (lambda s: s.min(number_of), [("a", 3), ("a", 1), ("a", 1), ("b", 5), ("b", 5), ("b", 5)]),
        (lambda s: s.max(number_of), [("a", 3), ("a", 3), ("a", 3), ("b", 5), ("b", 5), ("b", 7)]),
        (
            lambda s: s.min_by(number_of),
            [("a", 3), ("a", 1), ("a", 1), ("b", 5), ("b", 5), ("b", 5)],
        ),
        (
            lambda s: s.max_by(number_of),
            [("a", 3), ("a", 3), ("a", 3), ("b", 5), ("b", 5), ("b", 7)],
        ),
        (lambda s: s.count(), [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]),
        (
            lambda s: s.reduce(lambda x, y: (x[0], x[1] * 10 + y[1])),
            [("a", 3), ("a", 31), ("a", 312), ("b", 5), ("b", 55), ("b", 557)],
        ),
        (
            lambda s: s.aggregate(Average(number_of)),
            [("a", 3.0), ("a", 2.0), ("a", 2.0), ("b", 5.0), ("b", 5.0), ("b", 17 / 3)],
        ),
    ],
    ids=["sum", "min", "max", "min_by", "max_by", "count", "reduce", "aggregate"],
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_running_totals_follow_each_record(runner, aggregate, expected, parallelism):
    job = runner(lambda s: aggregate(s.key_by(name_of)), PAIRS, parallelism=parallelism)

    by_key = sorted(job.published, key=name_of)
    assert by_key == expected


def test_a_reduce_takes_objects_and_async_functions(runner):
    async def joined(a, b):
        await asyncio.sleep(0)
        return a + b

    def both(env):
        words = env.add_source(script_source(str)).uid("words").key_by(lambda w: w[0])
        words.reduce(Longest()).collect("longest")
        words.reduce(joined).collect("joined")

    job = runner(both, {"words": ["a", "abc", "ab", "b"]})

    assert job.results["longest"] == ["a", "abc", "abc", "b"]
    assert job.results["joined"] == ["a", "aabc", "aabcab", "b"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_async_key_selector_chooses_the_key(runner, parallelism):
    async def parity(number):
        return number % 2

    job = runner(lambda s: s.key_by(parity).count(), [1, 3, 2, END], parallelism=parallelism)

    assert sorted(job.published) == [(0, 1), (1, 1), (1, 2)]


def test_a_key_selector_may_be_an_object(runner):
    job = runner(lambda s: s.key_by(Parity()).count(), [1, 3, 2, END])

    assert job.published == [("odd", 1), ("odd", 2), ("even", 1)]


def test_a_count_over_the_whole_stream_has_one_key(runner):
    job = runner(lambda s: s.count(), ["x", "y", EPOCH, "z", END], parallelism=2)

    assert job.published == [1, 2, 3]


# --- state ---------------------------------------------------------------------------------------


@dataclass
class Counter(RichAsyncFunction[str, tuple[str, int]]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]


@pytest.mark.core
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_attributes_of_a_rich_function_are_kept_per_key(runner, parallelism):
    words = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question", "to", "be"]
    job = runner(
        lambda s: s.key_by(lambda w: w).process_ordered(Counter(), timeout=LONG, capacity=5),
        [*words[:5], EPOCH, *words[5:], END],
        parallelism=parallelism,
    )

    assert sorted(job.published) == sorted(
        (word, words[: i + 1].count(word)) for i, word in enumerate(words)
    )


class SlowCounter(RichAsyncFunction[str, tuple[str, int]]):
    def __init__(self):
        self.counts: dict[str, int] = {}

    async def process(self, value, ctx):
        seen = self.counts.get(value, 0)
        await asyncio.sleep(0.001)
        self.counts[value] = seen + 1
        return [(value, seen + 1)]


def test_calls_of_one_key_never_overlap(runner):
    words = ["a", "b", "a", "c", "a", "b"] * 3
    job = runner(
        lambda s: s.key_by(lambda w: w).process_unordered(SlowCounter(), timeout=LONG, capacity=9),
        [*words, END],
    )

    assert sorted(job.published) == sorted(
        (word, words[: i + 1].count(word)) for i, word in enumerate(words)
    )


class Total(RichAsyncFunction[int, int]):
    """State without keys."""

    total = 0

    def process(self, value, ctx):
        self.total += value
        return [self.total]

    def merge_state(self, states):
        return {"total": sum(state["total"] for state in states)}


def test_state_without_keys_is_kept_per_subtask(runner):
    def on_one_subtask(env):
        numbers = env.add_source(script_source(int)).uid("numbers")
        numbers.process(Total()).collect("out")

    assert runner(on_one_subtask, {"numbers": [1, 2, 3]}).published == [1, 3, 6]


@dataclass
class Median(RichAsyncFunction[tuple[str, int], tuple[str, int]]):
    """Keeps its state in a form of its own, and hands out another."""

    seen: dict[str, list[int]] = field(default_factory=dict)

    def process(self, value, ctx):
        name, number = value
        numbers = self.seen.setdefault(name, [])
        numbers.append(number)
        return [(name, sorted(numbers)[len(numbers) // 2])]

    def snapshot_state(self):
        return {"texts": {name: " ".join(map(str, seen)) for name, seen in self.seen.items()}}

    def restore_state(self, state):
        self.seen = {name: list(map(int, text.split())) for name, text in state["texts"].items()}


@pytest.mark.core
def test_snapshot_and_restore_hooks_carry_the_state_over_a_crash(runner):
    with runner.harness(_median_job) as harness:
        harness.push([("a", 5), ("a", 1)])
        harness.run_epoch()
        harness.crash()
        harness.push([("a", 7), ("b", 9)])
        harness.run()

        assert harness.published == [("a", 5), ("a", 5), ("a", 5), ("b", 9)]


def _median_job(env):
    numbers = env.add_source(script_source())
    numbers.key_by(name_of).process(Median()).uid("median").collect("out")


class Inventory(RichAsyncFunction[str, tuple[str, int]]):
    """Adds what it is given back to what it has, and counts how often that was."""

    def __init__(self):
        self.items: dict[str, int] = {}
        self.total = 0
        self.restored = 0

    def process(self, value, ctx):
        self.items[value] = self.items.get(value, 0) + 1
        self.total += 1
        return [(value, self.items[value], self.total, self.restored)]

    def snapshot_state(self):
        return {"items": dict(self.items), "total": self.total}

    def restore_state(self, state):
        self.restored += 1
        self.total += state["total"]
        for name, count in state["items"].items():
            self.items[name] = self.items.get(name, 0) + count


def test_a_hook_gets_the_newest_snapshot_once_however_many_epochs_were_sealed(runner):
    def inventory(env):
        words = env.add_source(script_source(str)).uid("words")
        words.key_by(str).process(Inventory()).uid("items").collect("out")

    with runner.harness(inventory, parallelism=2) as harness:
        for _ in range(4):
            harness.push(["a", "b"])
            harness.run_epoch()
        harness.crash()
        harness.push(["a", "b"])
        harness.run_epoch()
        harness.rescale_live(1)
        harness.push(["a", "b"])
        harness.run_epoch()
        harness.rescale_live(3)
        harness.lose_workers()
        harness.push(["a", "b"])
        harness.run()

        counts = sorted(row[:3] for row in harness.published)
        assert counts == [(word, n, n) for word in "ab" for n in range(1, 8)]
        assert max(restored for *_, restored in harness.published) == 1
        assert harness.value("items", key="a", name="items") == 7


class Streak(KeyedProcessFunction[str, str, tuple[str, int]]):
    """Counts with named state, and forgets at a full stop."""

    def process_element(self, value, ctx):
        count = ctx.get_state("count", 0) + 1
        ctx.save_state("count", count)
        if value.endswith("."):
            ctx.delete_state("count")
        return [(ctx.current_key(), count)]


class YieldingStreak(KeyedProcessFunction[str, str, tuple[str, int]]):
    """The same as a generator: its body must run while its record is the one in hand."""

    def process_element(self, value, ctx):
        count = ctx.get_state("count", 0) + 1
        ctx.save_state("count", count)
        if value.endswith("."):
            ctx.delete_state("count")
        yield (ctx.current_key(), count)


@pytest.mark.parametrize("function", [Streak(), YieldingStreak()], ids=["list", "generator"])
def test_named_state_is_kept_per_key(runner, function):
    job = runner(
        lambda s: s.key_by(lambda w: w[0]).process_fn(function),
        ["a", "b", "aa", EPOCH, "a.", "a", "b", END],
    )

    assert job.published == [
        ("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 1), ("b", 2)
    ]  # fmt: skip


class Chance(RichAsyncFunction[str, tuple[str, float, int]]):
    def process(self, value, ctx):
        return [(value, ctx.random.random(), ctx.now())]


@pytest.mark.core
def test_an_epoch_computed_again_sees_the_same_random_numbers_and_time(runner):
    def chances(stream):
        return stream.process(Chance()).uid("chance")

    smooth = runner(chances, ["a", "b", EPOCH, "c", END])
    crashed = runner(chances, ["a", "b", CRASH, EPOCH, "c", CRASH, CRASH, END])

    assert crashed.crash_count == 3
    assert crashed.published == smooth.published
    assert len({number for _, number, _ in smooth.published}) == 3


class Router(ProcessFunction[int, int]):
    def process_element(self, value, ctx):
        if value < 0:
            ctx.side_output("negative", -value)
            return []
        return [value]


class YieldingRouter(ProcessFunction[int, int]):
    def process_element(self, value, ctx):
        if value < 0:
            ctx.side_output("negative", -value)
        else:
            yield value


@pytest.mark.core
@pytest.mark.parametrize("function", [Router(), YieldingRouter()], ids=["list", "generator"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_side_outputs_reach_those_who_read_them(runner, function, parallelism):
    def routed(env):
        positive = env.add_source(script_source(int)).uid("numbers").process_fn(function)
        positive.side_output("negative", int).map(lambda n: n * 10).collect("negative")
        positive.side_output("nobody-sends-this").collect("silent")
        positive.collect("positive")

    job = runner(routed, {"numbers": [1, -2, 3, -4]}, parallelism=parallelism)

    assert sorted(job.results["positive"]) == [1, 3]
    assert sorted(job.results["negative"]) == [20, 40]
    assert job.results["silent"] == []
