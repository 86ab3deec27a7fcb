"""State over crashes, restarts and other parallelisms, on the harness and on Spark alike."""

from dataclasses import dataclass, field

import pytest

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.operators.errors import FunctionHookError
from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import KeyedProcessFunction, RichAsyncFunction, skip
from bicycle_sdk.errors import BicycleError

WORDS = [
    "to",
    "be",
    "or",
    "not",
    "to",
    "be",
    "that",
    "is",
    "the",
    "question",
    "whether",
    "tis",
    "nobler",
]


@dataclass
class Counter(RichAsyncFunction[str, tuple[str, int]]):
    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0

    async def process(self, value, ctx):
        self.counts[value] = self.counts.get(value, 0) + 1
        self.total += 1
        return [(value, self.counts[value])]


class Named(KeyedProcessFunction[str, str, tuple[str, int]]):
    def process_element(self, value, ctx):
        count = ctx.get_state("count", 0) + 1
        ctx.save_state("count", count)
        return [(value, count)]


def counted(env):
    words = env.add_source(script_source(str)).uid("words").key_by(lambda w: w)
    words.process(Counter()).uid("rich").collect("rich")
    words.process_fn(Named()).uid("named").collect("named")
    words.count().uid("count").collect("count")


def running_counts(words):
    return sorted((word, words[: i + 1].count(word)) for i, word in enumerate(words))


@pytest.mark.core
def test_a_count_goes_on_after_a_crash_without_counting_twice(runner):
    #  epoch 1: ada ada | epoch 2: ada ✗      restart → epoch 2: ada bob |
    job = runner(
        lambda s: s.key_by(lambda w: w).count(), ["ada", "ada", EPOCH, "ada", CRASH, "bob", END]
    )

    assert job.published == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]


@pytest.mark.parametrize("sizes", [(1, 2, 4, 3), (4, 1), (3, 3), (1, 3, 1, 3, 1)])
def test_state_follows_its_keys_to_another_parallelism(runner, sizes):
    with runner.harness(counted, parallelism=sizes[0]) as harness:
        seen = []
        for size in sizes:
            harness.rescale(size)
            for _ in range(3):
                harness.push(WORDS)
                harness.run()
                seen += WORDS

        for name in ("rich", "named", "count"):
            assert sorted(harness.results(name)) == running_counts(seen)
        assert harness.state("count", "be") == 2 * 3 * len(sizes)
        assert harness.state("rich", "be")["counts"] == 2 * 3 * len(sizes)
        assert harness.state("named", "be") == {"count": 2 * 3 * len(sizes)}


@pytest.mark.core
@pytest.mark.parametrize("point", ["before_seal", "after_seal", "before_publish", "after_publish"])
def test_a_death_of_the_driver_neither_loses_nor_repeats(runner, point):
    with runner.harness(counted, parallelism=2) as harness:
        for _ in range(3):
            harness.push(WORDS)
            harness.fail_at(point)
            harness.run()
        harness.end()
        harness.run()

        assert harness.crash_count == 3
        for name in ("rich", "named", "count"):
            assert sorted(harness.results(name)) == running_counts(WORDS * 3)


def test_the_points_above_are_points_of_the_driver():
    assert {"before_seal", "after_seal", "before_publish", "after_publish"} <= {*FAULT_POINTS}


def test_a_snapshot_can_be_gone_back_to(runner):
    with runner.harness(counted) as harness:
        harness.push(WORDS)
        harness.run()
        snapshot = harness.snapshot()
        harness.push(["be"])
        harness.run()
        assert harness.state("count", "be") == 3

        harness.restore(snapshot)
        assert harness.state("count", "be") == 2
        assert sorted(harness.results("count")) == running_counts(WORDS)

        harness.run()
        assert sorted(harness.results("count")) == running_counts([*WORDS, "be"])


@dataclass
class Sums(RichAsyncFunction[int, int]):
    """State per subtask, that can be merged."""

    numbers: list[int] = field(default_factory=list)

    def process(self, value, ctx):
        self.numbers.append(value)
        return [sum(self.numbers)]

    def merge_state(self, states):
        return {"numbers": sorted(n for state in states for n in state["numbers"])}


class Unmergeable(RichAsyncFunction[int, int]):
    def __init__(self):
        self.total = 0

    def process(self, value, ctx):
        self.total += value
        return [self.total]


class MergedNames(RichAsyncFunction[int, int]):
    """Keeps named values per subtask, and merges only attributes."""

    def process(self, value, ctx):
        ctx.save_state(f"seen {value}", True)
        return [value]

    def merge_state(self, states):
        return {}


def per_subtask(function):
    def job(env):
        env.add_source(script_source(int)).uid("numbers").process(function).uid("state").collect(
            "out"
        )

    return job


@pytest.mark.parametrize("sizes", [(4, 1), (4, 2, 1), (1, 3), (2, 3, 1)])
def test_state_without_keys_is_merged_when_the_parallelism_changes(runner, sizes):
    with runner.harness(per_subtask(Sums()), parallelism=sizes[0]) as harness:
        pushed = []
        for size in sizes:
            harness.rescale(size)
            numbers = list(range(len(pushed), len(pushed) + 8))
            harness.push(numbers)
            harness.run()
            pushed += numbers

        kept = [n for state in harness.state("state").values() for n in state["numbers"]]
        assert sorted(kept) == pushed


def test_without_merge_state_another_parallelism_is_refused(runner):
    with runner.harness(per_subtask(Unmergeable()), parallelism=2) as harness:
        harness.push([1, 2])
        harness.run()
        harness.rescale(1)
        harness.push([3])
        with pytest.raises(BicycleError) as caught:
            harness.run()

        assert caught.value.code == "BIC-1303"
        assert (caught.value.facts["old"], caught.value.facts["new"]) == (2, 1)
        harness.rescale(2)
        harness.run()
        assert len(harness.published) == 3


def test_named_values_without_keys_are_kept_when_states_are_merged(runner):
    with runner.harness(per_subtask(MergedNames()), parallelism=2) as harness:
        harness.push([1, 2])
        harness.run()
        harness.rescale(1)
        harness.push([3])
        harness.run()

        assert harness.state("state") == {0: {f"seen {n}": True for n in (1, 2, 3)}}


class BadMemory(RichAsyncFunction[str, str]):
    def __init__(self):
        self.words: list[str] = []

    def process(self, value, ctx):
        self.words.append(value)
        return [value]

    def snapshot_state(self):
        raise RuntimeError("forgot")


def test_a_failing_snapshot_hook_names_the_operator(runner):
    with pytest.raises(FunctionHookError) as caught:
        runner(lambda s: s.process(BadMemory()).uid("memory"), ["a", END])

    assert caught.value.facts["operator"] == "memory"


class WorseMemory(RichAsyncFunction[str, str]):
    def process(self, value, ctx):
        return [value]

    def snapshot_state(self):
        return "all"

    def restore_state(self, state):
        raise RuntimeError("forgot")


def test_a_failing_restore_hook_is_no_failure_of_a_record(runner):
    def job(env):
        words = env.add_source(script_source(str)).key_by(str)
        words.process(WorseMemory()).on_error(skip()).uid("memory").collect("out")

    with runner.harness(job) as harness:
        harness.push(["a"])
        harness.run_epoch()
        harness.crash()
        harness.push(["a"])
        with pytest.raises(FunctionHookError) as caught:
            harness.run_epoch()

        assert caught.value.facts["operator"] == "memory"


@dataclass
class Replacer(RichAsyncFunction[str, int]):
    """Puts a new dict in the place of its state."""

    seen: dict[str, int] = field(default_factory=dict)

    def process(self, value, ctx):
        if value == "clear":
            self.seen = {}
        elif value == "only":
            self.seen = {"only": 1}
        else:
            self.seen[value] = 1
        return [len(self.seen)]


def test_a_dict_that_was_replaced_is_replaced_after_a_crash_too(runner):
    job = runner(
        lambda s: s.process(Replacer()),
        ["a", "b", EPOCH, "only", EPOCH, CRASH, "c", EPOCH, "clear", EPOCH, CRASH, "d", END],
    )

    assert job.published == [1, 2, 1, 2, 0, 1]
