"""From graph to stage plan: levels, links, widths; and the size of epochs."""

import random
import statistics

import pytest

from bicycle_runtime.engine.errors import KeyGroupConflictError
from bicycle_runtime.engine.loop.pacing import Pacer
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.engine.planning.stages import plan_stages, with_parallelism
from bicycle_runtime.operators.spec import Link, StateScope
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import GraphError
from bicycle_sdk.functions import RichAsyncFunction


class Rich(RichAsyncFunction[int, int]):
    def process(self, value, ctx):
        return [value]


def plan(build, parallelism=2):
    env = StreamEnvironment.builder().parallelism(parallelism).build()
    build(env)
    graph = env.build_graph("job")
    graph.validate()
    return plan_stages(graph)


def levels(found):
    return {operator.uid: chain.level for chain in found.chains for operator in chain.operators}


def links(found):
    return {
        (chain.operators[route.operator].uid, found.chains[route.target_chain].operators[0].uid):
        route.link for chain in found.chains for route in chain.routes
    }  # fmt: skip


def numbers(env, uid="numbers"):
    return env.from_collection([1]).uid(uid)


def test_a_chain_without_exchange_is_one_level():
    found = plan(lambda env: numbers(env).map(abs).uid("abs").collect("out"))

    assert (found.level_count, len(found.chains)) == (1, 1)


def test_each_exchange_is_a_level_of_its_own():
    def job(env):
        counted = numbers(env).key_by(abs).uid("key").count().uid("count")
        counted.rebalance().map(str).uid("text").global_().collect("out").uid("out")

    assert levels(plan(job)) == {"numbers": 0, "key": 0, "count": 1, "text": 2, "out": 3}


def test_a_fork_is_handed_over_within_the_level():
    def job(env):
        stream = numbers(env)
        stream.map(abs).uid("left").collect("a")
        stream.map(abs).uid("right").collect("b")

    found = plan(job)
    assert found.level_count == 1
    assert links(found) == {("numbers", "left"): Link.DIRECT, ("numbers", "right"): Link.DIRECT}


def test_a_diamond_stands_one_level_below_its_deepest_input():
    def job(env):
        stream = numbers(env)
        deep = stream.key_by(abs).count().uid("count").map(lambda pair: pair[0]).uid("deep")
        stream.map(abs).uid("flat").union(deep).uid("both").collect("out").uid("out")

    found = plan(job)
    assert levels(found)["both"] == levels(found)["deep"] == 1
    assert links(found)["flat", "both"] is Link.PARCEL
    assert links(found)["deep", "both"] is Link.DIRECT


def test_an_edge_may_skip_a_level():
    def job(env):
        stream = numbers(env)
        deep = stream.key_by(abs).count().uid("count").rebalance().map(str).uid("deep")
        stream.rebalance().union(deep.rebalance()).uid("both").collect("out")

    found = plan(job)
    assert levels(found)["both"] == 3
    assert links(found)["numbers", "both"] is Link.PARCEL


def test_feedback_is_a_link_of_its_own_and_makes_no_level():
    def job(env):
        loop = numbers(env).iterate().uid("loop")
        lower = loop.map(abs).uid("lower")
        loop.feedback(lower)
        lower.collect("out")

    found = plan(job)
    assert found.level_count == 1
    assert links(found)["lower", "loop"] is Link.FEEDBACK


def test_a_level_is_as_wide_as_its_widest_chain():
    def job(env):
        numbers(env, "a").set_parallelism(1).map(abs).set_parallelism(1).collect("a")
        numbers(env, "b").set_parallelism(3).key_by(abs).count().set_parallelism(5).collect("b")

    found = plan(job)
    assert found.level_parallelism[0] == 3
    assert max(found.level_parallelism) == 5
    assert all(chain.parallelism <= found.level_parallelism[chain.level] for chain in found.chains)


def test_chains_stand_behind_their_inputs_whatever_the_order_of_calls():
    def job(env):
        one, two = numbers(env, "one"), numbers(env, "two")
        two.map(abs).uid("late").union(one.key_by(abs).count().uid("count")).collect("out")

    found = plan(job)
    for chain in found.chains:
        for route in chain.routes:
            if route.link is not Link.FEEDBACK:
                assert route.target_chain > chain.index


def test_the_scope_of_state_follows_the_key():
    def job(env):
        stream = numbers(env)
        stream.process(Rich()).uid("per task").collect("a")
        stream.key_by(abs).process(Rich()).uid("per key").collect("b")
        stream.key_by(abs).count().uid("count").collect("c")

    scopes = {operator.uid: operator.scope for operator in plan(job).operators()}
    assert scopes["per task"] is StateScope.SUBTASK
    assert scopes["per key"] is scopes["count"] is StateScope.KEY_GROUPS
    assert scopes["numbers"] is StateScope.NONE


def test_consumers_of_one_key_must_agree_on_key_groups():
    def job(env):
        keyed = numbers(env).key_by(abs).uid("key")
        keyed.count().set_max_parallelism(16).collect("a")
        keyed.count().set_max_parallelism(32).collect("b")

    with pytest.raises(KeyGroupConflictError) as caught:
        plan(job)
    assert caught.value.facts == {"vertex": "key", "counts": [16, 32]}


def graph_of(build):
    env = StreamEnvironment()
    build(env)
    return env.build_graph("job")


@pytest.mark.parametrize("width", [1, 2, 7])
def test_another_parallelism_keeps_limits_and_mends_forward_edges(width):
    graph = graph_of(lambda env: numbers(env).map(abs).uid("abs").collect("out").uid("out"))
    widened = with_parallelism(graph, width, {"numbers": 1})

    assert {v.id: v.parallelism for v in widened.vertices} == {
        "numbers": 1, "abs": width, "out": width
    }  # fmt: skip
    widened.validate()


def test_another_parallelism_is_refused_beyond_the_key_groups():
    graph = graph_of(lambda env: numbers(env).key_by(abs).count().collect("out"))

    with pytest.raises(GraphError):
        with_parallelism(graph, 129, {})


def test_epochs_grow_under_backlog_up_to_the_limit_and_not_when_idle():
    pacer = Pacer(EngineOptions(max_records_per_epoch=200_000))
    first = pacer.record_count
    pacer.learn(duration_ms=1, record_count=first, has_backlog=False)
    assert pacer.record_count == first
    for _ in range(20):
        before = pacer.record_count
        pacer.learn(duration_ms=100, record_count=before, has_backlog=True)
        assert before <= pacer.record_count <= 200_000
    assert pacer.record_count == 200_000


def test_in_batch_mode_an_epoch_takes_all_that_the_limits_allow():
    pacer = Pacer(EngineOptions(mode="batch", max_records_per_epoch=700, max_bytes_per_epoch=9))
    pacer.learn(duration_ms=600_000, record_count=700, has_backlog=True)

    assert (pacer.record_count, pacer.byte_count) == (700, 9)


@pytest.mark.parametrize("call_ms", [0.001, 1, 100, 5_000])
def test_epochs_come_to_take_the_time_they_should_however_slow_functions_are(call_ms):
    options = EngineOptions()
    pacer = Pacer(options)
    durations_ms = []
    for _ in range(8):
        durations_ms.append(20 + pacer.record_count * call_ms)
        pacer.learn(duration_ms=durations_ms[-1], record_count=pacer.record_count, has_backlog=True)

    target_ms = max(options.epoch_target_ms, call_ms)
    is_at_limit = pacer.record_count == options.max_records_per_epoch
    assert is_at_limit or target_ms / 2 <= durations_ms[-1] <= 2 * target_ms


@pytest.mark.parametrize("own_ms", [1_900, 5_000, 60_000])
def test_epochs_that_are_slow_by_themselves_do_not_shrink_until_they_make_no_progress(own_ms):
    pacer = Pacer(EngineOptions(epoch_target_ms=2_000))
    for _ in range(30):
        taken_ms = pacer.record_count / 10
        pacer.learn(
            duration_ms=own_ms + taken_ms, record_count=pacer.record_count, has_backlog=True
        )

    assert own_ms / 2 <= taken_ms <= 2 * own_ms


def test_epochs_that_become_slow_by_themselves_make_progress_all_the_same():
    pacer = Pacer(EngineOptions(epoch_target_ms=2_000))
    for own_ms in [100] * 50 + [10_000] * 150:
        taken_ms = pacer.record_count / 10
        pacer.learn(
            duration_ms=own_ms + taken_ms, record_count=pacer.record_count, has_backlog=True
        )

    assert 5_000 <= taken_ms <= 20_000


@pytest.mark.parametrize("seed", range(5))
def test_epochs_that_are_slow_by_themselves_make_progress_whatever_the_noise(seed):
    chance = random.Random(seed)
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    counts = []
    for _ in range(200):
        counts.append(pacer.record_count)
        duration_ms = (1_500 + counts[-1] / 10) * chance.uniform(0.8, 1.2)
        pacer.learn(duration_ms=duration_ms, record_count=counts[-1], has_backlog=True)

    assert statistics.median(counts) >= 3_000


def test_a_slow_epoch_of_few_records_says_that_few_are_enough():
    pacer = Pacer(EngineOptions(epoch_target_ms=1_000))
    pacer.learn(duration_ms=10_000, record_count=50, has_backlog=False)

    assert pacer.record_count == 5


def test_an_epoch_without_input_teaches_nothing():
    pacer = Pacer(EngineOptions())
    first = pacer.record_count
    pacer.learn(duration_ms=60_000, record_count=0, has_backlog=True)

    assert pacer.record_count == first


@pytest.mark.parametrize("limit", [1, 10, 49_999])
def test_an_epoch_never_takes_more_than_the_limit(limit):
    pacer = Pacer(EngineOptions(max_records_per_epoch=limit, max_bytes_per_epoch=limit))
    for duration_ms in (1, 10_000, 1, 1, 1, 1):
        assert 1 <= pacer.record_count <= limit
        assert 1 <= pacer.byte_count <= limit
        pacer.learn(duration_ms=duration_ms, record_count=pacer.record_count, has_backlog=True)
    assert pacer.record_count == pacer.byte_count == limit
