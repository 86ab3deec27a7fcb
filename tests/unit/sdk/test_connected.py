"""What ``connect`` makes of two streams, and what it refuses."""

import pytest

from bicycle_sdk import (
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    StreamEnvironment,
)
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import JobGraph, OperatorKind, Partitioning


class Text(CoMapFunction[int, str, str]):
    def map1(self, value: int) -> str:
        return str(value)

    def map2(self, value: str) -> str:
        return value


class Plain(CoProcessFunction[int, str, str]):
    def process_element1(self, value: int, ctx: object) -> list[str]:
        return [str(value)]

    def process_element2(self, value: str, ctx: object) -> list[str]:
        return [value]


class PerKey(KeyedCoProcessFunction[int, int, str, str]):
    def process_element1(self, value: int, ctx: object) -> list[str]:
        return [str(value)]

    def process_element2(self, value: str, ctx: object) -> list[str]:
        return [value]


def text_key(value: str) -> str:
    return value


def number_key(value: int) -> int:
    return value


@pytest.fixture
def streams():
    env = StreamEnvironment()
    return env.from_collection([1]), env.from_collection(["a"])


def test_a_connected_vertex_has_two_inputs_in_order_and_survives_json(streams):
    numbers, texts = streams
    numbers.connect(texts).map(Text()).uid("both").print()

    graph = JobGraph.from_json(numbers._draft.execute("job").to_json())
    vertex = next(v for v in graph.vertices if v.id == "both")
    assert vertex.kind is OperatorKind.CO_PROCESS
    assert vertex.output_type == "str"
    assert vertex.name == "Text"
    edges = graph.inputs_of("both")
    assert [edge.input_ordinal for edge in edges] == [0, 1]
    assert [edge.source_id for edge in edges] == ["vertex_1", "vertex_2"]


def test_keyed_streams_meet_by_hash(streams):
    numbers, texts = streams
    keyed = numbers.connect(texts).key_by(number_key, len)
    keyed.process(PerKey()).uid("both").print()

    edges = numbers._draft.build_graph("job").inputs_of("both")
    assert {edge.partitioning for edge in edges} == {Partitioning.HASH}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, t: n.connect(t).map(Plain()),
        lambda n, t: n.connect(t).process(Text()),
        lambda n, t: n.connect(t).process(PerKey()),
        lambda n, t: t.connect(n).process(Plain()),
        lambda n, t: t.connect(n).map(Text()),
        lambda n, t: n.connect(t.key_by(text_key)),
        lambda n, t: n.key_by(number_key).connect(t),
        lambda n, t: n.key_by(number_key).connect(t.key_by(text_key)),
        lambda n, t: n.connect(t.broadcast()).key_by(number_key, text_key),
        lambda n, t: n.connect(StreamEnvironment().from_collection(["a"])),
    ],
    ids=[
        "a process function for map",
        "a map function for process",
        "a keyed function without keys",
        "record types the wrong way round, process",
        "record types the wrong way round, map",
        "a key on the right only",
        "a key on the left only",
        "keys of other types",
        "a key of a broadcast stream",
        "another environment",
    ],
)
def test_what_cannot_be_connected_is_refused_by_the_call_itself(streams, wrong):
    with pytest.raises(StreamDefinitionError):
        wrong(*streams)
