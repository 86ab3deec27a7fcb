"""States that a function asks for while it runs, and code that asks for others later."""

import pytest

from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.state.errors import SCHEMA_REFUSED
from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
)
from tests.raising import raises
from tests.unit.engine.resuming.changed_code import Run, keyed_job, sealed_by

BACKENDS = ["memory", "rocksdb"]


class AsksForInt(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        state = ctx.get_value_state("asked", int, default=0)
        state.update(state.value() + pair[1])
        return [state.value()]


class AsksForNothing(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        return []


class AsksForFloat(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        state = ctx.get_value_state("asked", float, default=0.0)
        state.update(state.value() + pair[1] + 0.5)
        return [state.value()]


class AsksForText(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        state = ctx.get_value_state("asked", str, default="")
        return [state.value()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_is_only_asked_for_is_compared_when_it_is(backend):
    sealed = sealed_by(keyed_job(AsksForInt()), [("a", 1), ("b", 4)], backend=backend)
    wider = sealed_by(keyed_job(AsksForFloat()), [("a", 1)], former=sealed, backend=backend)

    with Run(keyed_job(AsksForFloat()), wider, backend=backend) as run:
        assert run.put(("a", 1), ("b", 1))[-2:] == [4.0, 5.5]
    with raises(SCHEMA_REFUSED):
        sealed_by(keyed_job(AsksForText()), [("a", 1)], former=wider, backend=backend)
    with Run(keyed_job(AsksForFloat()), wider, parallelism=3, backend=backend) as run:
        assert sorted(run.put(("a", 1), ("b", 1))[-2:]) == [4.0, 5.5]


def test_a_state_that_nobody_asks_for_any_more_is_lost_as_one_that_was_declared():
    sealed = sealed_by(keyed_job(AsksForInt()), [("a", 1)])

    with raises(STATE_LOST) as lost:
        Run(keyed_job(AsksForNothing()), sealed)

    assert "'asked' of operator 'state'" in lost.value.facts["lost"]


class AsksByMadeNames(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        state = ctx.get_value_state(f"of-{pair[1] % 2}", int, default=0)
        state.update(state.value() + 1)
        return [state.value()]


def test_names_that_are_made_while_the_code_runs_are_no_loss_at_its_next_start():
    job = keyed_job(AsksByMadeNames())
    sealed = sealed_by(job, [("a", 1), ("a", 2)])
    sealed = sealed_by(job, [("a", 3)], former=sealed)

    with Run(job, sealed) as run:
        assert run.put(("a", 1), ("a", 2))[-2:] == [3, 2]


RULES = MapStateDescriptor("rules", str, int)


def counted(ctx):
    """Count under the key at hand, for any function."""
    state = ctx.get_value_state("counted", int, default=0)
    state.update(state.value() + 1)
    return state.value()


class AsksByAHelper(KeyedProcessFunction):
    def process_element(self, pair, ctx):
        return [counted(ctx)]


def asks_in_a_window(elements, ctx):
    return [counted(ctx) for _ in elements]


class AsksForRules(BroadcastProcessFunction):
    def process_element(self, pair, ctx):
        return [ctx.get_broadcast_state(RULES).get("step", 0) + 1]

    def process_broadcast_element(self, pair, ctx):
        ctx.get_broadcast_state(RULES).put("step", 1)
        return []


def by_name(pairs):
    return pairs.key_by(lambda pair: pair[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda pairs: by_name(pairs).process_fn(AsksByAHelper()),
        lambda pairs: by_name(pairs).count_window(1).process(asks_in_a_window),
        lambda pairs: by_name(pairs).connect(pairs.broadcast()).process(AsksForRules()),
    ],
    ids=["helper", "window", "broadcast"],
)
def test_a_state_of_which_the_class_of_the_function_says_nothing_survives_a_crash(make):
    def job(env):
        make(env.add_source(script_source()).uid("pairs")).uid("state").collect("out")

    with Harness(job) as harness:
        harness.push([("a", 1)])
        harness.run_epoch()
        harness.crash()
        harness.push([("a", 2)])
        harness.run()

        assert harness.results("out")[-1] == 2
