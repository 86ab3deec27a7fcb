"""Functions and look-ups that the tests of streams share."""

from bicycle_sdk import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    DataStream,
    FilterFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
    StreamEnvironment,
)
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex


class Split(AsyncFunction[str, str]):
    def process(self, value, ctx):
        return value.split()


class Count(RichAsyncFunction[str, int]):
    def process(self, value, ctx):
        return [1]


class Route(ProcessFunction[str, str]):
    def process_element(self, value, ctx):
        return [value]


class PerKey(KeyedProcessFunction[str, str, str]):
    def process_element(self, value, ctx):
        return [value]


class Lookup(AsyncIOFunction[str, str]):
    async def async_invoke(self, value):
        return [value]


class Embed(AsyncIOBatchFunction[str, int]):
    async def async_invoke_batch(self, values):
        return [[len(value)] for value in values]


class Double(MapFunction[int, int]):
    def map(self, value):
        return value * 2


class Even(FilterFunction[int]):
    def filter(self, value):
        return value % 2 == 0


class Parity(KeySelector[int, int]):
    def get_key(self, value):
        return value % 2


class Add(ReduceFunction[int]):
    def reduce(self, a, b):
        return a + b


def finished(env: StreamEnvironment, *streams: DataStream) -> JobGraph:
    """Return the valid graph after each stream got a sink."""
    for number, stream in enumerate(streams):
        stream.collect(str(number))
    return env.execute("job")


def edge_into(graph: JobGraph, vertex_id: str):
    (edge,) = graph.inputs_of(vertex_id)
    return edge


def only(graph: JobGraph, kind: OperatorKind) -> Vertex:
    (vertex,) = (v for v in graph.vertices if v.kind is kind)
    return vertex
