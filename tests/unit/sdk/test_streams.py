from datetime import timedelta

import pytest

from bicycle_sdk import (
    FlatMapFunction,
    StreamEnvironment,
    retry,
    skip,
)
from bicycle_sdk.errors import GraphError, StreamDefinitionError
from bicycle_sdk.functions import as_callable
from bicycle_sdk.graph import OperatorKind, Partitioning
from tests.unit.sdk.jobs import (
    Add,
    Count,
    Double,
    Embed,
    Even,
    Lookup,
    Parity,
    PerKey,
    Route,
    Split,
    edge_into,
    finished,
    only,
)

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("call", "kind", "details"),
    [
        (lambda s: s.map(len), "Map", {}),
        (lambda s: s.flat_map(str.split), "FlatMap", {}),
        (lambda s: s.filter(bool), "Filter", {}),
        (lambda s: s.map_batches(list), "MapBatches", {}),
        (
            lambda s: s.process(Split()),
            "Process",
            {"is_rich": False, "function_kind": "async", "is_keyed": False},
        ),
        (
            lambda s: s.process(Count()),
            "Process",
            {"is_rich": True, "function_kind": "rich", "is_keyed": False},
        ),
        (
            lambda s: s.process_rich(Count()),
            "Process",
            {"is_rich": True, "function_kind": "rich", "is_keyed": False},
        ),
        (
            lambda s: s.process_fn(Route()),
            "Process",
            {"is_rich": False, "function_kind": "process", "is_keyed": False},
        ),
        (
            lambda s: s.async_io_ordered(Lookup(), timeout=SECOND, capacity=7),
            "AsyncIO",
            {
                "ordered": True,
                "timeout_ms": 1_000,
                "capacity": 7,
                "retries": 0,
                "backoff_ms": 0,
            },
        ),
        (
            lambda s: s.async_io_unordered(
                Lookup(), timeout=SECOND, retry=retry(2, backoff=SECOND)
            ),
            "AsyncIO",
            {
                "ordered": False,
                "timeout_ms": 1_000,
                "capacity": 100,
                "retries": 2,
                "backoff_ms": 1_000,
            },
        ),
        (
            lambda s: s.async_io_batches(Embed(), max_size=32, timeout=SECOND, ordered=False),
            "AsyncIO",
            {
                "ordered": False,
                "timeout_ms": 1_000,
                "capacity": 4,
                "batch_size": 32,
                "retries": 0,
                "backoff_ms": 0,
            },
        ),
    ],
)
def test_a_call_adds_one_vertex_with_a_forward_edge(env, words, call, kind, details):
    graph = finished(env, call(words))

    assert [v.kind.value for v in graph.vertices] == ["Source", kind, "Sink"]
    assert graph.vertices[1].details == details
    assert edge_into(graph, "vertex_2").partitioning is Partitioning.FORWARD
    assert "vertex_2/function" in env.payloads


def test_the_function_itself_is_the_payload(env, words):
    function, splitter = (lambda word: word), Split()
    finished(env, words.map(function).uid("mapped").process(splitter))

    assert env.payloads["mapped/function"] is function
    assert env.payloads["vertex_3/function"] is splitter


def test_names_are_those_of_the_functions(env, words):
    graph = finished(env, words.process(Split()).map(len).map(lambda n: n).map(Double()))

    assert [v.name for v in graph.vertices[1:5]] == ["Split", "len", "Map", "Double"]
    assert graph.vertices[1].plugin_function == f"{Split.__module__}.Split"


def test_one_method_classes_stand_wherever_callables_do(env):
    numbers = env.from_collection([1, 2]).map(Double()).filter(Even()).key_by(Parity())
    graph = finished(env, numbers.reduce(Add()))

    found = [env.payloads[f"vertex_{n}/function"] for n in (2, 3, 4, 5)]
    methods = ["map", "filter", "get_key", "reduce"]
    calls = [as_callable(f, m) for f, m in zip(found, methods, strict=True)]
    assert [call(3) for call in calls[:3]] + [calls[3](3, 4)] == [6, False, 1, 7]
    assert [v.kind.value for v in graph.vertices[1:5]] == ["Map", "Filter", "KeyBy", "Reduce"]


def test_a_function_with_a_name_shows_it(env, words):
    class Named(Split):
        name = "cutter"

    graph = finished(env, words.process(Named()))

    assert graph.vertices[1].name == "cutter"


def test_calls_in_flight_are_settings_of_the_vertex(env, words):
    graph = finished(
        env,
        words.process_ordered(Split(), timeout=SECOND, capacity=5),
        words.process_unordered(Split(), timeout=SECOND),
        words.process(Split()),
    )

    assert [v.config for v in graph.vertices if v.kind is OperatorKind.PROCESS] == [
        {"ordered": True, "timeout_ms": 1_000, "capacity": 5},
        {"ordered": False, "timeout_ms": 1_000, "capacity": 100},
        {},
    ]


@pytest.mark.parametrize(
    ("timeout", "capacity"), [(timedelta(0), 1), (timedelta(days=8), 1), (SECOND, 0)]
)
def test_bounds_of_calls_in_flight_are_checked(words, timeout, capacity):
    with pytest.raises(StreamDefinitionError):
        words.process_ordered(Split(), timeout=timeout, capacity=capacity)


class Lines(FlatMapFunction[str, str]):
    def flat_map(self, value):
        return value.splitlines()


async def not_at_once(value):
    return value


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.map(3),
        lambda s: s.map(None),
        lambda s: s.map(Double),
        lambda s: s.filter(Even),
        lambda s: s.flat_map(Lines),
        lambda s: s.key_by(Parity),
        lambda s: s.broadcast().key_by(len),
        lambda s: s.broadcast().count(),
        lambda s: s.key_by(len).reduce(Add),
        lambda s: s.key_by(len).sum(Parity),
        lambda s: s.key_by(len).tumbling_window(5).reduce(Add),
        lambda s: s.key_by(len).tumbling_window(5).reduce(3),
        lambda s: s.partition_custom(max, Parity),
        lambda s: s.process(len),
        lambda s: s.process(Split),
        lambda s: s.process_fn(PerKey()),
        lambda s: s.async_io_ordered(Split(), timeout=SECOND),
        lambda s: s.async_io_ordered(Embed(), timeout=SECOND),
        lambda s: s.async_io_batches(Lookup(), max_size=2, timeout=SECOND),
        lambda s: s.async_io_ordered(Lookup(), timeout=SECOND, retry=3),
        lambda s: s.async_io_ordered(Lookup(), timeout=SECOND, retry=retry(2).then(skip())),
        lambda s: s.lookup_join(len, not_at_once, max, retry=retry(2).then(skip())),
        lambda s: s.async_io_batches(Embed(), max_size=0, timeout=SECOND),
        lambda s: s.async_io_batches(Embed(), max_size=4_097, timeout=SECOND),
        lambda s: s.process_ordered(Route(), timeout=SECOND),
        lambda s: s.split(3),
        lambda s: s.key_by(len).sum(Double()),
        lambda s: s.key_by(len).max_by(not_at_once),
        lambda s: s.uid(""),
        lambda s: s.uid("a/b"),
        lambda s: s.uid(5),
        lambda s: s.name(None),
        lambda s: s.slot_sharing_group(""),
        lambda s: s.process_ordered(Split(), timeout=30),
        lambda s: s.process_ordered(Split(), timeout=SECOND, capacity="5"),
        lambda s: s.async_io_batches(Embed(), max_size=2.0, timeout=SECOND),
        lambda s: s.set_parallelism(0),
        lambda s: s.set_parallelism("2"),
        lambda s: s.set_parallelism(True),
        lambda s: s.set_max_parallelism(40_000),
        lambda s: s.union(StreamEnvironment().from_collection(["x"])),
        lambda s: s.union([s, s]),
        lambda s: s.sink_to("out"),
        lambda s: s.on_error("explode"),
        lambda s: s.on_error(skip),
        lambda s: s.on_error(retry(3).then(skip)),
        lambda s: s.on_error(retry(3).then("explode")),
        lambda s: s.on_error(retry("3")),
        lambda s: s.on_error(retry(3, backoff=1)),
        lambda s: s.on_error(retry(3, backoff=61 * SECOND)),
        lambda s: s.on_error(skip(), max_error_rate=2),
        lambda s: s.on_error(skip(), max_error_rate="1%"),
        lambda s: s.on_error("fail", max_error_rate=0.5),
    ],
)
def test_an_impossible_call_fails_where_it_stands(words, call):
    with pytest.raises(StreamDefinitionError):
        call(words)


def test_a_policy_after_retries_may_be_a_word():
    assert retry(3).then("skip") == retry(3).then(skip())


def test_union_numbers_its_inputs(env, words):
    graph = finished(env, words.union(words.map(str.upper), words))
    union = only(graph, OperatorKind.UNION)

    assert [(e.source_id, e.input_ordinal) for e in graph.inputs_of(union.id)] == [
        ("vertex_1", 0),
        ("vertex_2", 1),
        ("vertex_1", 2),
    ]


def test_a_side_output_is_a_tagged_edge(env, words):
    routed = words.process_fn(Route())
    graph = finished(env, routed.side_output("late"), routed)
    side = only(graph, OperatorKind.SIDE_OUTPUT)

    assert side.details == {"tag": "late"}
    assert edge_into(graph, side.id).output_tag == "late"
    assert edge_into(graph, side.id).source_id == "vertex_2"


def test_only_process_functions_have_side_outputs(env, words):
    with pytest.raises(GraphError) as caught:
        finished(env, words.map(len).side_output("late"))

    problem = caught.value.facts["problem_text"]
    assert "edge 'vertex_2' (Map without uid" in problem
    assert "-> 'vertex_3' (SideOutput without uid" in problem


def test_split_sends_records_to_the_named_outputs(env, words):
    split = words.split(lambda word: [word, "all"])
    graph = finished(env, split.select("a"), split.select("all"))

    assert [e.output_tag for e in graph.outputs_of("vertex_2")] == ["a", "all"]
    assert [v.details["tag"] for v in graph.vertices[2:4]] == ["a", "all"]
    assert graph.vertices[2].output_type == "str"


def test_a_loop_is_a_union_with_a_feedback_edge(env):
    loop = env.from_collection([3]).iterate()
    smaller = loop.map(lambda n: n - 1)
    loop.feedback(smaller.filter(lambda n: n > 0))
    graph = finished(env, smaller)
    forward, back = graph.inputs_of("vertex_2")

    assert (forward.source_id, forward.feedback) == ("vertex_1", False)
    assert (back.source_id, back.feedback, back.input_ordinal) == ("vertex_4", True, 1)


@pytest.mark.parametrize(
    ("call", "strategy"),
    [
        ("forward", "Forward"),
        ("rebalance", "Rebalance"),
        ("shuffle", "Shuffle"),
        ("broadcast", "Broadcast"),
        ("global_", "Global"),
    ],
)
def test_a_strategy_is_that_of_the_next_edge_only(env, words, call, strategy):
    graph = finished(env, getattr(words, call)().map(len).map(str))

    assert edge_into(graph, "vertex_2").partitioning.value == strategy
    assert edge_into(graph, "vertex_3").partitioning is Partitioning.FORWARD


def by_length(length, n):
    return length % n


def test_a_partitioner_of_the_job_is_a_vertex_with_edges_of_its_own(env, words):
    graph = finished(env, words.partition_custom(by_length, len).map(str))
    chosen = graph.vertex("vertex_2")

    assert (chosen.kind, chosen.name) == (OperatorKind.PARTITION_CUSTOM, "partition_custom")
    assert chosen.details == {"partitioner": f"{__name__}.by_length"}
    assert set(chosen.payloads) >= {"function", "partitioner"}
    assert edge_into(graph, "vertex_2").partitioning is Partitioning.FORWARD
    assert edge_into(graph, "vertex_3").partitioning is Partitioning.CUSTOM


async def slowly(length, n):
    return length % n


@pytest.mark.parametrize("wrong", [slowly, 3, "by_length"])
def test_a_partitioner_is_a_plain_function(words, wrong):
    with pytest.raises(StreamDefinitionError) as caught:
        words.partition_custom(wrong, len)

    assert caught.value.facts["call"] == "partition_custom"


def test_a_rate_limit_is_part_of_the_graph_and_keeps_the_type(env, words):
    graph = finished(env, words.rate_limit(5).map(str.upper))
    vertex = graph.vertex("vertex_2")

    assert (vertex.kind, vertex.output_type) == (OperatorKind.RATE_LIMIT, "str")
    assert vertex.details == {"per_second": 5.0, "burst": 100}


@pytest.mark.parametrize(
    ("rate", "burst"), [(0, 1), (-1, 1), (True, 1), ("5", 1), (float("nan"), 1), (5, 0), (5, 1.5)]
)
def test_a_rate_limit_is_a_number_within_bounds(words, rate, burst):
    with pytest.raises(StreamDefinitionError) as caught:
        words.rate_limit(rate, burst=burst)

    assert caught.value.facts["call"] == "rate_limit"


def test_an_unset_strategy_rebalances_between_different_parallelisms(env, words):
    graph = finished(env, words.map(len).set_parallelism(2))

    assert edge_into(graph, "vertex_2").partitioning is Partitioning.REBALANCE


def test_an_explicit_forward_between_different_parallelisms_is_refused(env, words):
    with pytest.raises(GraphError) as caught:
        finished(env, words.forward().map(len).set_parallelism(2))

    problem = caught.value.facts["problem_text"]
    assert "forward edge 'vertex_1' (Source without uid" in problem
    assert "-> 'vertex_2' (Map without uid" in problem
