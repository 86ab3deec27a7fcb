"""Lists of subtasks without keys: kept by each, divided or given whole at a restore."""

import pytest

from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    OperatorListStateDescriptor,
    ProcessFunction,
    RichAsyncFunction,
    UnionListStateDescriptor,
)
from bicycle_sdk.errors import BicycleError, StateDefinitionError
from bicycle_sdk.failures import skip

ASK = ["?"] * 12


class Kept(ProcessFunction):
    """Keeps words in two lists, and tells what a subtask has of both."""

    def open(self, ctx):
        self.subtask = ctx.task_info.subtask_index
        self.own = ctx.get_operator_list_state("own", str)
        self.all = ctx.get_union_list_state("all", str)

    def process_element(self, value, ctx):
        return self.answer(value)

    def answer(self, value):
        if value == "?":
            return [(self.subtask, tuple(self.own.get()), tuple(self.all.get()))]
        if value == "trim":
            self.all.update(self.own.get())
            return []
        self.own.add(value)
        self.all.add(value)
        if value == "bad":
            raise ValueError(value)
        return []


class KeptByRich(RichAsyncFunction):
    """The same in a rich function, with descriptors that are fields."""

    own_words = OperatorListStateDescriptor("own", str)
    all_words = UnionListStateDescriptor("all", str)

    def open(self, ctx):
        self.kept = Kept()
        self.kept.subtask = ctx.task_info.subtask_index
        self.kept.own = ctx.get_operator_list_state(self.own_words)
        self.kept.all = ctx.get_union_list_state(self.all_words)

    async def process(self, value, ctx):
        return self.kept.answer(value)


def job_of(function):
    def job(env):
        words = env.add_source(script_source()).uid("words").rebalance()
        kept = words.process_rich(function) if isinstance(function, KeptByRich) else None
        kept = kept or words.process_fn(function)
        kept.on_error(skip()).uid("kept").collect("out")

    return job


def answers(harness, parallelism):
    """What each subtask has: its own list, and the one of all."""
    before = len(harness.results("out"))
    harness.push(ASK)
    harness.run()
    found = {subtask: lists for subtask, *lists in harness.results("out")[before:]}
    assert sorted(found) == list(range(parallelism))
    return found


def assert_divided(harness, parallelism, words):
    """Every subtask has an even part of one list, and all of the other."""
    found = answers(harness, parallelism)
    parts = [own for own, _ in found.values()]
    assert sorted(word for part in parts for word in part) == words
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [sorted(everything) for _, everything in found.values()] == [words] * parallelism


@pytest.mark.core
@pytest.mark.parametrize("function", [Kept(), KeptByRich()], ids=["process", "rich"])
def test_a_restore_divides_one_list_evenly_and_gives_the_other_whole_to_each(runner, function):
    words = list("abcdefg")
    with runner.harness(job_of(function), parallelism=2) as harness:
        harness.push(words[:4])
        harness.run()
        harness.push([*words[4:], "bad"])
        harness.run()
        before = answers(harness, 2)
        assert all(own == everything for own, everything in before.values())

        harness.lose_workers()
        assert answers(harness, 2) == before
        harness.crash()
        assert_divided(harness, 2, words)
        for parallelism in (3, 1, 4):
            harness.push(["trim"] * 12)
            harness.run()
            harness.rescale(parallelism)
            assert_divided(harness, parallelism, words)
        harness.push(["trim"] * 12)
        harness.fail_at("before_seal")
        harness.run()
        harness.rescale_live(2)
        assert_divided(harness, 2, words)
        harness.lose_workers()
        assert_divided(harness, 2, words)


def test_what_a_union_list_holds_more_than_once_is_kept_so(runner):
    with runner.harness(job_of(Kept()), parallelism=2) as harness:
        harness.push(["a", "b"])
        harness.run()
        for copies in (1, 2, 4):
            harness.crash()
            assert all(
                len(everything) == 2 * copies for _, everything in answers(harness, 2).values()
            )


def test_a_snapshot_is_restored_at_another_parallelism(runner):
    with runner.harness(job_of(Kept()), parallelism=3) as harness:
        harness.push(list("abcde"))
        harness.run()
        snapshot = harness.snapshot()
        harness.push(list("xyz"))
        harness.run()
        harness.restore(snapshot)
        harness.run()  # It reads again what was pushed since.
        harness.push(["trim"] * 12)
        harness.run()
        harness.rescale(2)
        assert_divided(harness, 2, list("abcdexyz"))


class Late(Kept):
    """Asks for a list only when a record comes."""

    def open(self, ctx):
        """Ask for nothing."""

    def process_element(self, value, ctx):
        return ctx.get_union_list_state("all", str).get()


def test_a_list_that_is_asked_for_too_late_or_under_keys_is_refused(runner):
    def keyed(env):
        words = env.add_source(script_source()).uid("words").key_by(str)
        words.process_fn(Kept()).uid("kept").collect("out")

    for job in (job_of(Late()), keyed):
        with runner.harness(job) as harness:
            harness.push(["a"])
            with pytest.raises(BicycleError) as caught:
                harness.run()
            told = [caught.value, caught.value.__cause__]
            assert any(isinstance(each, StateDefinitionError) for each in told), told
