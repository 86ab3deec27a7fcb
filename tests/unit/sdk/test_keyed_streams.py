from datetime import timedelta

import pytest

from bicycle_sdk import StateTtl, StreamEnvironment
from bicycle_sdk.errors import StateDefinitionError, StreamDefinitionError
from bicycle_sdk.functions import as_callable, full_name
from bicycle_sdk.graph import JobGraph, OperatorKind, Partitioning
from bicycle_sdk.testing import FunctionHarness
from bicycle_sdk.windows import AggregateFunction, ApproximateDistinct, Sum
from bicycle_sdk.windows import Count as CountAll
from bicycle_sdk.windows.aggregates import Reduction
from tests.unit.sdk.jobs import Count, PerKey, Route, Split, edge_into, finished, only

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda k: k.process(Count()),
        lambda k: k.process(Split()),
        lambda k: k.process_ordered(Count(), timeout=SECOND),
        lambda k: k.process_fn(PerKey()),
        lambda k: k.process_fn(Route()),
        lambda k: k.reduce(lambda a, b: a),
        lambda k: k.count(),
        lambda k: k.map(len),
        lambda k: k.filter(bool),
        lambda k: k.union(),
    ],
)
def test_whatever_follows_a_key_gets_a_hash_edge(env, words, call):
    graph = finished(env, call(words.key_by(lambda w: w)))

    assert edge_into(graph, "vertex_2").partitioning is Partitioning.FORWARD
    assert edge_into(graph, "vertex_3").partitioning is Partitioning.HASH


def test_a_sink_after_a_key_gets_a_hash_edge(env, words):
    graph = finished(env, words.key_by(lambda w: w))

    assert edge_into(graph, "vertex_3").partitioning is Partitioning.HASH


@pytest.mark.parametrize(
    ("call", "is_keyed"),
    [
        (lambda k: k.process(Count()), True),
        (lambda k: k.process_fn(PerKey()), True),
        (lambda k: k.process_fn(Route()), True),
        (lambda k: k.process(Split()), False),
    ],
)
def test_only_functions_with_state_work_per_key(env, words, call, is_keyed):
    graph = finished(env, call(words.key_by(lambda w: w)))

    assert only(graph, OperatorKind.PROCESS).details["is_keyed"] is is_keyed


def test_a_second_key_replaces_the_first(env, words):
    graph = finished(env, words.key_by(len).key_by(lambda w: w).count())

    assert [e.partitioning.value for e in graph.edges[:3]] == ["Forward", "Forward", "Hash"]


def test_dropping_the_key_or_choosing_a_strategy_ends_the_hash_edge(env, words):
    keyed = words.key_by(len)
    graph = finished(env, keyed.into_stream(), keyed.rebalance())

    assert edge_into(graph, "vertex_3").partitioning is Partitioning.FORWARD
    assert edge_into(graph, "vertex_4").partitioning is Partitioning.REBALANCE


def test_a_key_has_the_parallelism_of_its_input_unless_set(env, words):
    words.set_parallelism(3)
    graph = finished(env, words.key_by(len).count(), words.key_by(len).set_parallelism(2).count())

    assert [v.parallelism for v in graph.vertices if v.kind is OperatorKind.KEY_BY] == [3, 2]


def run_reduce(env: StreamEnvironment, graph: JobGraph, values: list, key) -> list:
    """Do what a Reduce means, for one vertex of the graph."""
    vertex = only(graph, OperatorKind.REDUCE)
    function = as_callable(env.payloads[f"{vertex.id}/function"], "reduce")
    initial = env.payloads.get(f"{vertex.id}/initial", lambda value: value)
    kept, out = {}, []
    for value in values:
        k = key(value)
        kept[k] = function(kept[k], value) if k in kept else initial(value)
        out.append((k, kept[k]) if vertex.details.get("emits_key") else kept[k])
    return out


def first(pair):
    return pair[0]


def second(pair):
    return pair[1]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda k: k.sum(second), [("a", 3), ("a", 5), ("b", 1), ("a", 9)]),
        (lambda k: k.min(second), [("a", 3), ("a", 2), ("b", 1), ("a", 2)]),
        (lambda k: k.max(second), [("a", 3), ("a", 3), ("b", 1), ("a", 4)]),
        (lambda k: k.count(), [("a", 1), ("a", 2), ("b", 1), ("a", 3)]),
        (lambda k: k.min_by(second), [("a", 3), ("a", 2), ("b", 1), ("a", 2)]),
        (lambda k: k.max_by(second), [("a", 3), ("a", 3), ("b", 1), ("a", 4)]),
        (
            lambda k: k.reduce(lambda a, b: (a[0], a[1] * b[1])),
            [("a", 3), ("a", 6), ("b", 1), ("a", 24)],
        ),
    ],
)
def test_running_aggregations(env, call, expected):
    values = [("a", 3), ("a", 2), ("b", 1), ("a", 4)]
    graph = finished(env, call(env.from_collection(values).key_by(first)))

    assert run_reduce(env, graph, values, first) == expected


class Spread(AggregateFunction[tuple[str, int], list[int], int]):
    """From the least to the greatest number."""

    def create_accumulator(self):
        return []

    def add(self, accumulator, value):
        return [min([value[1], *accumulator]), max([value[1], *accumulator])]

    def get_result(self, accumulator) -> int:
        return accumulator[1] - accumulator[0]


def test_an_aggregate_function_gives_key_and_result_for_each_record(env):
    graph = finished(env, env.from_collection([("a", 3)]).key_by(first).aggregate(Spread()))
    vertex = only(graph, OperatorKind.PROCESS)
    function = env.payloads[f"{vertex.id}/function"]

    with FunctionHarness(function, key=first) as harness:
        given = harness.process(("a", 3), ("a", 7), ("b", 1), ("a", 4))

    assert given == [("a", 0), ("a", 4), ("b", 0), ("a", 4)]
    assert (vertex.name, vertex.plugin_function) == ("Spread", full_name(Spread()))
    assert function.state.type == list[int]


def test_what_an_aggregate_function_kept_expires(env):
    graph = finished(
        env,
        env.from_collection([1]).key_by(lambda n: 0).aggregate(CountAll(), ttl=StateTtl(1_000)),
    )
    function = env.payloads[f"{only(graph, OperatorKind.PROCESS).id}/function"]

    with FunctionHarness(function, key=lambda n: 0) as harness:
        assert harness.process(1, 1) == [(0, 1), (0, 2)]
        harness.advance_time(1_000)
        assert harness.process(1) == [(0, 1)]


class Waits(Spread):
    async def add(self, accumulator, value):
        return accumulator


async def asks(*_values):
    return 1


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (Spread, StreamDefinitionError),
        (first, StreamDefinitionError),
        (ApproximateDistinct(first), StreamDefinitionError),
        (Waits(), StateDefinitionError),
        (CountAll(asks), StateDefinitionError),
        (Sum(asks), StateDefinitionError),
        (Reduction(asks), StateDefinitionError),
    ],
    ids=["class", "function", "sketch", "async", "count", "sum", "reduction"],
)
def test_what_cannot_be_a_running_aggregate_is_refused(env, function, error):
    with pytest.raises(error):
        env.from_collection([("a", 3)]).key_by(first).aggregate(function)


def test_min_by_and_max_by_keep_the_earliest_of_equals(env):
    values = [(1, "first"), (1, "second")]
    keyed = env.from_collection(values).key_by(lambda v: 0)
    lowest = finished(env, keyed.min_by(first))

    assert run_reduce(env, lowest, values, lambda v: 0) == [values[0]] * 2


def test_count_of_a_stream_is_one_running_total(env, words):
    graph = finished(env, words.count())
    key = env.payloads[f"{only(graph, OperatorKind.KEY_BY).id}/function"]

    assert run_reduce(env, graph, ["x", "y", "x"], key) == [1, 2, 3]
    assert only(graph, OperatorKind.REDUCE).parallelism == 1
