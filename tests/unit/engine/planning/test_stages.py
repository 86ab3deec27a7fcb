"""From graph to stage plan: levels, links, parallelism."""

import pytest

from bicycle_runtime.engine.errors import KEY_GROUP_CONFLICT, PARTITION_CONFLICT
from bicycle_runtime.engine.planning.stages import plan_stages, with_parallelism
from bicycle_runtime.operators.spec import Link, StateScope
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import GraphError
from bicycle_sdk.functions import RichAsyncFunction
from tests.raising import raises


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
    assert links(found)["flat", "both"] is Link.SHUFFLE
    assert links(found)["deep", "both"] is Link.DIRECT


def test_an_edge_may_skip_a_level():
    def job(env):
        stream = numbers(env)
        deep = stream.key_by(abs).count().uid("count").rebalance().map(str).uid("deep")
        stream.rebalance().union(deep.rebalance()).uid("both").collect("out")

    found = plan(job)
    assert levels(found)["both"] == 3
    assert links(found)["numbers", "both"] is Link.SHUFFLE


def keyed_again(env, *, parallelism=None):
    """Two keyed streams in a union, which is keyed by something else."""
    sides = [numbers(env, uid).key_by(abs).uid(f"{uid}-key") for uid in ("left", "right")]
    sides[0].count().uid("own").collect("own")
    union = sides[0].union(sides[1]).uid("both")
    if parallelism is not None:
        union.set_parallelism(parallelism)
    return union


def test_keyed_streams_go_straight_into_a_union_that_is_keyed_again():
    def job(env):
        keyed_again(env).key_by(str).uid("key").count().uid("count").collect("out").uid("out")

    found = plan(job)
    assert levels(found)["count"] == levels(found)["own"] == 1
    assert links(found)["left-key", "both"] is links(found)["right-key", "both"] is Link.DIRECT
    assert links(found)["left-key", "own"] is Link.SHUFFLE


@pytest.mark.parametrize(
    "behind",
    [
        lambda union: union.map(abs),  # Who looks would see that a key stays in its subtask.
        lambda union: union.key_by(str).forward(),
        lambda union: union.map(abs).key_by(str).count(),
    ],
)
def test_keyed_streams_are_divided_where_somebody_would_see_it(behind):
    found = plan(lambda env: behind(keyed_again(env)).collect("out"))

    assert links(found)["left-key", "both"] is Link.SHUFFLE


def test_keyed_streams_are_divided_over_the_subtasks_of_a_union_with_others():
    found = plan(lambda env: keyed_again(env, parallelism=3).key_by(str).count().collect("out"))

    assert links(found)["left-key", "both"] is Link.SHUFFLE


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

    with raises(KEY_GROUP_CONFLICT) as caught:
        plan(job)
    assert caught.value.facts == {"vertex": "key", "counts": [16, 32]}


def spread(env):
    return numbers(env).partition_custom(lambda key, n: key % n, abs).uid("spread")


def test_a_partitioner_chooses_from_the_subtasks_behind_it():
    found = plan(lambda env: spread(env).map(abs).set_parallelism(5).collect("a"))

    assert {spec.uid: spec.group_count for spec in found.operators()}["spread"] == 5


def test_operators_behind_one_partitioner_must_have_the_same_parallelism():
    def job(env):
        chosen = spread(env)
        chosen.map(abs).set_parallelism(2).collect("a")
        chosen.map(abs).set_parallelism(3).collect("b")

    with raises(PARTITION_CONFLICT) as caught:
        plan(job)
    assert caught.value.facts["operator"] == "spread"
    assert "test_stages.py:" in caught.value.facts["made"]
    assert "[2, 3]" in caught.value.facts["problem"]


def test_a_partitioner_does_not_choose_for_the_next_epoch():
    def job(env):
        head = numbers(env).iterate()
        head.feedback(head.partition_custom(lambda key, n: 0, abs))
        head.collect("out")

    with raises(PARTITION_CONFLICT):
        plan(job)


def graph_of(build):
    env = StreamEnvironment()
    build(env)
    return env.build_graph("job")


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_another_parallelism_keeps_limits_and_mends_forward_edges(parallelism):
    graph = graph_of(lambda env: numbers(env).map(abs).uid("abs").collect("out").uid("out"))
    widened = with_parallelism(graph, parallelism, {"numbers": 1})

    assert {v.id: v.parallelism for v in widened.vertices} == {
        "numbers": 1, "abs": parallelism, "out": parallelism
    }  # fmt: skip
    widened.validate()


def test_another_parallelism_is_refused_beyond_the_key_groups():
    graph = graph_of(lambda env: numbers(env).key_by(abs).count().collect("out"))

    with pytest.raises(GraphError):
        with_parallelism(graph, 129, {})
