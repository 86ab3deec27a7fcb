"""How records find their way through graphs of every shape, on the harness and on Spark alike."""

from collections import Counter

import pytest

from bicycle_runtime.testing import CRASH, END, EPOCH, script_source
from bicycle_sdk import AsyncFunction, ProcessFunction


class Tagged(AsyncFunction[int, tuple[int, int]]):
    """Gives each record with the subtask that saw it."""

    def process(self, value, ctx):
        return [(value, ctx.task_info.subtask_index)]


class Placed(AsyncFunction[int, tuple[int, int]]):
    def process(self, value, ctx):
        return [(value, ctx.task_info.subtask_index)]


class After(AsyncFunction[tuple[int, int], tuple[int, int, int]]):
    def process(self, value, ctx):
        return [(*value, ctx.task_info.subtask_index)]


def spread(runner, how, before, after, *, count=40):
    """Return ``(record, sending subtask, receiving subtask)`` of each record."""

    def job(env):
        placed = (
            env.add_source(script_source(int)).uid("numbers").set_parallelism(before)
            .process(Placed()).set_parallelism(before)
        )  # fmt: skip
        how(placed).process(After()).set_parallelism(after).collect("out")

    return runner(job, {"numbers": range(count)}).results["out"]


SIZES = [(1, 3), (3, 1), (2, 4), (4, 2), (3, 3)]


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_forward_keeps_the_subtask(runner, parallelism):
    seen = spread(runner, lambda s: s.forward(), parallelism, parallelism)

    assert sorted(value for value, _, _ in seen) == list(range(40))
    assert all(sender == receiver for _, sender, receiver in seen)
    assert len({receiver for _, _, receiver in seen}) == parallelism


@pytest.mark.core
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_rebalance_sends_to_all_in_turn(runner, before, after):
    seen = spread(runner, lambda s: s.rebalance(), before, after)

    assert sorted(value for value, _, _ in seen) == list(range(40))
    for sender in range(before):
        counts = Counter(receiver for _, found, receiver in seen if found == sender)
        assert max(counts.values()) - min(counts.get(task, 0) for task in range(after)) <= 1


def test_a_union_of_keyed_streams_may_be_keyed_again(runner):
    """Both sides, counted by another key; one of them is counted by its own, too."""

    def job(numbers):
        left = numbers.key_by(lambda n: n % 5)
        right = numbers.map(lambda n: n + 100).key_by(lambda n: n % 7)
        left.count().uid("left-count").collect("left")
        both = left.union(right).uid("both").key_by(lambda n: n % 2)
        return both.count().uid("both-count").collect("both")

    results = runner(job, [*range(20), EPOCH, *range(20, 35), CRASH, *range(35, 40), END]).results

    assert Counter(results["left"]) == Counter((key, n + 1) for key in range(5) for n in range(8))
    assert Counter(results["both"]) == Counter((key, n + 1) for key in range(2) for n in range(40))


def test_rebalance_takes_turns_over_the_life_of_a_job(runner):
    """One record an epoch, a crash, a new driver, another parallelism; edges take turns."""

    def job(env):
        numbers = env.add_source(script_source(int)).uid("numbers").set_parallelism(1)
        numbers.rebalance().process(Placed()).uid("placed").collect("all")
        even = numbers.filter(lambda n: n % 2 == 0).uid("even").set_parallelism(1)
        even.rebalance().process(Placed()).uid("placed-even").collect("even")

    def feed(harness, numbers):
        for number in numbers:
            harness.push([number])
            if number == 5:
                harness.fail_at("before_seal")
            harness.run()
            if number == 8:
                harness.crash()
        return dict(harness.results("all")), dict(harness.results("even"))

    with runner.harness(job, parallelism=4) as harness:
        seen, even = feed(harness, range(16))
        assert harness.crash_count >= 1
        assert [seen[number] for number in range(16)] == [0, 1, 2, 3] * 4
        assert [even[number] for number in range(0, 16, 2)] == [0, 1, 2, 3] * 2

        harness.rescale(3)
        seen, even = feed(harness, range(16, 22))
        assert [seen[number] for number in range(16, 22)] == [0, 1, 2] * 2
        assert [even[number] for number in range(16, 22, 2)] == [0, 1, 2]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_shuffle_reaches_every_subtask_and_loses_nothing(runner, before, after):
    seen = spread(runner, lambda s: s.shuffle(), before, after, count=200)

    assert sorted(value for value, _, _ in seen) == list(range(200))
    assert {receiver for _, _, receiver in seen} == set(range(after))


@pytest.mark.core
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_broadcast_sends_each_record_to_every_subtask(runner, before, after):
    seen = spread(runner, lambda s: s.broadcast(), before, after)

    assert sorted((value, receiver) for value, _, receiver in seen) == [
        (value, task) for value in range(40) for task in range(after)
    ]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_global_sends_everything_to_the_first_subtask(runner, before, after):
    seen = spread(runner, lambda s: s.global_(), before, after)

    assert sorted(value for value, _, _ in seen) == list(range(40))
    assert {receiver for _, _, receiver in seen} == {0}


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_a_key_belongs_to_one_subtask(runner, before, after):
    seen = spread(runner, lambda s: s.key_by(lambda pair: pair[0] % 60), before, after, count=180)

    owners = {value % 60: receiver for value, _, receiver in seen}
    assert sorted(value for value, _, _ in seen) == list(range(180))
    assert all(owners[value % 60] == receiver for value, _, receiver in seen)
    assert len(set(owners.values())) == after


@pytest.mark.parametrize("parallelism", [1, 3])
def test_split_sends_each_record_to_the_outputs_named(runner, parallelism):
    def job(env):
        def outputs(number):
            return [name for name, d in (("even", 2), ("third", 3)) if number % d == 0]

        split = env.add_source(script_source(int)).uid("numbers").split(outputs)
        split.select("even").collect("even")
        split.select("third").map(lambda n: -n).collect("third")

    results = runner(job, {"numbers": range(10)}, parallelism=parallelism).results

    assert sorted(results["even"]) == [0, 2, 4, 6, 8]
    assert sorted(results["third"]) == [-9, -6, -3, 0]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_diamond_gives_each_record_once_per_path(runner, parallelism):
    def diamond(stream):
        left = stream.map(lambda n: ("left", n))
        right = stream.filter(lambda n: n % 2 == 0).map(lambda n: ("right", n))
        return left.union(right)

    job = runner(diamond, [*range(5), EPOCH, 5, END], parallelism=parallelism)

    assert sorted(job.published) == [
        *(("left", n) for n in range(6)), *(("right", n) for n in (0, 2, 4))
    ]  # fmt: skip


def test_a_diamond_of_different_depths_gives_each_record_once_per_path(runner):
    def diamond(stream):
        deep = stream.key_by(lambda n: n % 3).count().rebalance().map(lambda pair: ("deep", *pair))
        return stream.map(lambda n: ("flat", n)).union(deep).rebalance().map(lambda r: r)

    job = runner(diamond, [*range(6), END], parallelism=2)

    flat = [("flat", n) for n in range(6)]
    deep = [("deep", key, count) for key in range(3) for count in (1, 2)]
    assert sorted(job.published) == sorted([*flat, *deep])


def test_a_stream_united_with_itself_gives_each_record_twice(runner):
    job = runner(lambda s: s.union(s), [1, 2, END])

    assert sorted(job.published) == [1, 1, 2, 2]


def countdown(stream):
    """Each number goes round until it is 0; every step is published."""
    loop = stream.iterate()
    lower = loop.map(lambda n: n - 1)
    loop.feedback(lower.filter(lambda n: n > 0))
    return lower


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_feedback_comes_round_in_the_next_epoch(runner, parallelism):
    job = runner(countdown, [3, 1, EPOCH, 2, END], parallelism=parallelism)

    assert sorted(job.published) == [0, 0, 0, 1, 1, 2]
    assert job.published[:2] in ([2, 0], [0, 2])


@pytest.mark.core
def test_feedback_survives_crashes(runner):
    job = runner(countdown, [3, EPOCH, CRASH, EPOCH, CRASH, END])

    assert job.crash_count == 2
    assert job.published == [2, 1, 0]


def test_feedback_may_go_by_key(runner):
    def by_key(stream):
        loop = stream.iterate()
        counted = loop.key_by(lambda w: w).count()
        again = counted.filter(lambda pair: pair[1] < 3).map(lambda pair: pair[0])
        loop.feedback(again.key_by(lambda w: w))
        return counted

    job = runner(by_key, ["a", "b", END], parallelism=2)

    assert sorted(job.published) == [(w, n) for w in "ab" for n in (1, 2, 3)]


def one_more(number):
    return number + 1


def is_odd(number):
    return number % 2 == 1


CHAININGS = {
    "default": lambda s: s.map(one_more).filter(is_odd).map(str),
    "disabled": lambda s: s.map(one_more).disable_chaining().filter(is_odd).disable_chaining(),
    "new-chain": lambda s: s.map(one_more).filter(is_odd).start_new_chain().map(str),
    "slots": lambda s: s.map(one_more).slot_sharing_group("other").filter(is_odd).map(str),
}


@pytest.mark.parametrize("how", CHAININGS)
def test_chaining_changes_no_result(runner, how):
    job = runner(CHAININGS[how], [*range(6), EPOCH, 6, END])

    assert list(map(str, job.published)) == ["1", "3", "5", "7"]


def test_disconnected_pipelines_run_in_one_job(runner):
    def both(env):
        env.add_source(script_source(int)).uid("numbers").map(lambda n: n * 2).collect("numbers")
        words = env.add_source(script_source(str)).uid("words")
        words.key_by(lambda w: w).count().collect("words")
        env.from_collection(["x", "y"]).collect("letters")

    job = runner(both, {"numbers": [1, 2], "words": ["a", "a"]})

    assert job.results == {
        "numbers": [2, 4], "words": [("a", 1), ("a", 2)], "letters": ["x", "y"]
    }  # fmt: skip


class Sorter(ProcessFunction[tuple[str, int], tuple[str, int]]):
    def process_element(self, value, ctx):
        if value[1] < 0:
            ctx.side_output("negative", value)
            return []
        return [value]


def everything(env):
    """Two sources, a fan-out to three sinks, a side output, a union diamond, a feedback edge."""
    left = env.add_source(script_source()).uid("left")
    right = env.add_source(script_source()).uid("right").map(lambda n: ("right", n))
    both = left.map(lambda n: ("left", n)).union(right)
    sound = both.process_fn(Sorter()).uid("sorter")
    sound.side_output("negative").collect("negative")
    sound.collect("plain")
    sound.map(lambda pair: pair[1] * 2).collect("doubled")
    diamond = sound.map(lambda p: ("a", p[1])).union(sound.rebalance().map(lambda p: ("b", p[1])))
    diamond.key_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).uid("sums").collect("sums")
    loop = sound.map(lambda pair: pair[1]).iterate()
    halves = loop.map(lambda n: n // 2)
    loop.feedback(halves.filter(lambda n: n > 0))
    halves.key_by(lambda n: n).count().collect("halves")


LEFT, RIGHT = [5, -1, 8, 13], [2, -4, 7]


def halves_of(number):
    while number > 0:
        number //= 2
        yield number


@pytest.mark.core
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_a_graph_of_all_shapes_reads_once_and_gives_the_same_at_any_parallelism(
    runner, parallelism
):
    job = runner(everything, {"left": LEFT, "right": RIGHT}, parallelism=parallelism)

    sound = [("left", n) for n in LEFT if n >= 0] + [("right", n) for n in RIGHT if n >= 0]
    halves = Counter(half for _, number in sound for half in halves_of(number))
    total = sum(number for _, number in sound)
    assert sorted(job.results["plain"]) == sorted(sound)
    assert sorted(job.results["negative"]) == [("left", -1), ("right", -4)]
    assert sorted(job.results["doubled"]) == sorted(number * 2 for _, number in sound)
    assert max(n for key, n in job.results["sums"] if key == "a") == total
    assert max(n for key, n in job.results["sums"] if key == "b") == total
    assert len(job.results["sums"]) == 2 * len(sound)
    assert sorted(job.results["halves"]) == sorted(
        (half, n) for half, count in halves.items() for n in range(1, count + 1)
    )
    assert sum(job.record_counts) == len(LEFT) + len(RIGHT)
    assert job.read_counts == {"left": len(LEFT), "right": len(RIGHT)}
