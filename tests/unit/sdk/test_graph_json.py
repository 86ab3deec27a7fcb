import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk import errors
from bicycle_sdk.errors import BicycleError, GraphFormatError
from bicycle_sdk.graph import JobConfig, JobGraph, OperatorKind, Partitioning, RestartStrategy
from tests.unit.sdk.graphs import graph, graphs, json_values, pipeline, vertex


@given(graphs)
def test_reading_what_was_written_gives_the_same_graph(any_graph):
    assert JobGraph.from_json(any_graph.to_json()) == any_graph
    assert JobGraph.from_json(any_graph.to_json().encode()) == any_graph


@given(graphs)
def test_equal_graphs_have_equal_text(any_graph):
    assert JobGraph.from_json(any_graph.to_json()).to_json() == any_graph.to_json()


@given(json_values | st.text() | st.binary())
def test_anything_else_is_refused_with_an_error_of_ours(value):
    text = value if isinstance(value, bytes) else json.dumps(value)

    with pytest.raises(GraphFormatError):
        JobGraph.from_json(text)


def test_order_of_names_in_details_does_not_change_the_text():
    one = pipeline(vertex("p", OperatorKind.PROCESS, details={"is_rich": True, "is_keyed": False}))
    two = pipeline(vertex("p", OperatorKind.PROCESS, details={"is_keyed": False, "is_rich": True}))

    assert one.to_json() == two.to_json()


def test_a_minimal_graph_of_the_shared_shape_takes_the_defaults():
    found = JobGraph.from_json(
        """{"name": "j", "vertices": [
             {"id": "a", "operator_type": {"Source": {"connector": {"connector_type": "Socket"}}}},
             {"id": "b", "name": "Map", "operator_type": "Map", "uid": null, "config": []}],
            "edges": [{"source_id": "a", "target_id": "b"}], "config": {}}"""
    )

    source, mapped = found.vertices
    assert source.details == {"connector": {"connector_type": "Socket", "properties": {}}}
    assert (mapped.parallelism, mapped.slot_sharing_group, mapped.chaining_enabled) == (
        1,
        "default",
        True,
    )
    assert (mapped.uid, mapped.config, mapped.payloads) == (None, {}, ())
    assert found.edges[0].partitioning is Partitioning.FORWARD
    assert found.config == JobConfig()
    assert found.config.restart_strategy == RestartStrategy.fixed_delay(
        max_attempts=3, delay_ms=5_000
    )
    assert (found.config.max_parallelism, found.config.checkpoint_interval_ms) == (128, 60_000)


def test_the_written_shape_is_the_shared_one():
    written = json.loads(pipeline(vertex("m", config={"ordered": True})).to_json())

    assert written["vertices"][1] == {
        "id": "m",
        "uid": None,
        "name": "",
        "operator_type": "Map",
        "parallelism": 1,
        "max_parallelism": None,
        "slot_sharing_group": "default",
        "chaining_enabled": True,
        "plugin_function": None,
        "config": list(b'{"ordered":true}'),
    }
    assert written["edges"][0] == {
        "source_id": "in",
        "target_id": "m",
        "partition_strategy": "Forward",
    }
    assert written["config"] == {
        "parallelism": 1,
        "max_parallelism": 128,
        "checkpoint_interval_ms": 60_000,
        "restart_strategy": {
            "strategy_type": "FixedDelay",
            "max_attempts": 3,
            "delay_ms": 5_000,
        },
        "properties": {},
    }


def changed(**fields) -> str:
    """Return the JSON of a small graph with fields of its middle vertex replaced."""
    data = json.loads(pipeline(vertex("m")).to_json())
    data["vertices"][1].update(fields)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (changed(colour="red"), ["'m'", "colour"]),
        (changed(operator_type="Teleport"), ["'m'", "Teleport", "FlatMap"]),
        (changed(operator_type={"Map": {"speed": 1}}), ["'m'", "speed"]),
        (changed(operator_type="Process"), ["'m'", "is_rich"]),
        (changed(operator_type={"Process": {"is_rich": 1}}), ["is_rich", "true or false"]),
        (changed(operator_type={"Sink": {"connector": {"properties": {}}}}), ["connector_type"]),
        (changed(operator_type=7), ["operator_type"]),
        (changed(parallelism="2"), ["parallelism", "a string", "whole number"]),
        (changed(parallelism=True), ["parallelism", "true or false", "whole number"]),
        (changed(config=[1, 2]), ["config"]),
        (changed(config=list(b"[]")), ["config", "an object"]),
        (changed(config=[-1]), ["config"]),
        (changed(on_error={"action": "explode"}), ["on_error", "explode", "dead_letter"]),
        (changed(payloads=[1]), ["payloads"]),
        ("[]", ["a list", "an object"]),
        ("{", ["JSON"]),
        ("[" * 100_000, ["Recursion"]),
        ('{"vertices": [], "edges": []}', ["name"]),
        ('{"name": "j", "vertices": [{}], "edges": []}', ["id"]),
        (
            '{"name": "j", "vertices": [], "edges": [{"source_id": "a", "target_id": "b", '
            '"partition_strategy": "Sideways"}]}',
            ["'a' -> 'b'", "Sideways", "Rebalance"],
        ),
        (
            '{"name": "j", "vertices": [], "edges": [], '
            '"config": {"restart_strategy": {"strategy_type": "Never"}}}',
            ["Never", "ExponentialBackoff"],
        ),
    ],
)
def test_unreadable_json_names_what_is_wrong(text, named):
    with pytest.raises(GraphFormatError) as caught:
        JobGraph.from_json(text)

    for word in named:
        assert word in caught.value.facts["detail"]


def test_a_restart_strategy_can_be_none_or_grow():
    none = graph([], restart_strategy=RestartStrategy.none())
    growing = graph(
        [], restart_strategy=RestartStrategy.exponential_backoff(max_attempts=9, delay_ms=10)
    )

    for one in (none, growing):
        assert JobGraph.from_json(one.to_json()) == one


def test_every_error_of_the_sdk_has_a_code_of_its_range():
    ours = [vars(errors)[name] for name in errors.__all__ if name.endswith("Error")]

    own, of_options = "BIC-10", "BIC-11"
    assert {cls.code[:6] for cls in ours if cls is not BicycleError} == {own, of_options}


SOURCE = {"id": "s", "operator_type": {"Source": {"connector": {"connector_type": "Socket"}}}}
OTHER = {**SOURCE, "id": "t"}


def shared(vertices, edges):
    return JobGraph.from_json(json.dumps({"name": "j", "vertices": vertices, "edges": edges}))


def edge(source, target, **more):
    return {"source_id": source, "target_id": target, **more}


@pytest.mark.parametrize("word", ["Count", {"Count": None}, {"Count": {}}])
def test_a_count_of_the_shared_language_is_a_reduce_that_counts(word):
    found = shared([SOURCE, {"id": "c", "operator_type": word}], [edge("s", "c")])

    count = found.vertex("c")
    assert (count.kind, count.details) == (OperatorKind.REDUCE, {"aggregation": "count"})
    assert count.words == ("Count",)
    assert JobGraph.from_json(found.to_json()) == found


@pytest.mark.parametrize(("is_rich", "kind"), [(True, "co_process"), (False, "co_map")])
def test_a_connect_of_the_shared_language_goes_into_the_function_behind_it(is_rich, kind):
    both = {"id": "f", "operator_type": {"CoProcess": {"is_rich": is_rich}}}
    end = {"id": "m", "operator_type": "Map"}
    found = shared(
        [SOURCE, OTHER, {"id": "c", "operator_type": "Connect"}, both, end],
        [
            edge("s", "c", partition_strategy="Hash"),
            edge("t", "c", partition_strategy="Broadcast"),
            edge("c", "f"),
            edge("f", "m"),
        ],
    )

    assert [each.id for each in found.vertices] == ["s", "t", "f", "m"]
    assert [
        (each.source_id, each.input_ordinal, each.partitioning) for each in found.inputs_of("f")
    ] == [("s", 0, Partitioning.HASH), ("t", 1, Partitioning.BROADCAST)]
    assert found.vertex("f").details == {"is_rich": is_rich, "function_kind": kind}
    assert found.vertex("f").words == ("Connect", "CoProcess")
    assert JobGraph.from_json(found.to_json()) == found


def test_a_connect_without_its_function_is_named():
    connect = {"id": "c", "operator_type": "Connect"}
    mapped = {"id": "m", "operator_type": "Map"}

    for vertices, edges in (
        ([SOURCE, connect], [edge("s", "c")]),
        ([SOURCE, connect, mapped], [edge("s", "c"), edge("c", "m")]),
        ([SOURCE, connect], [edge("s", "c"), edge("c", "gone")]),
    ):
        with pytest.raises(GraphFormatError) as caught:
            shared(vertices, edges)
        assert "'c': Connect must have exactly one CoProcess" in caught.value.facts["detail"]
