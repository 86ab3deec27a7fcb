"""Streams: each call adds vertices to the graph and returns the stream behind them.

A stream is a point in the graph: a vertex, perhaps one of its side outputs, and how the next edge
chooses subtasks. Nothing runs here, and no closure is called; what the runtime knows are the kinds
of ``graph.OperatorKind``, and everything else expands into them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import timedelta
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar, overload

from bicycle_sdk import aggregations, connectors
from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.drafts import EdgeDraft, GraphDraft, VertexDraft
from bicycle_sdk.errors import PreviewError, StreamDefinitionError
from bicycle_sdk.failures import Retry
from bicycle_sdk.function_vertices import (
    async_io_vertex,
    concurrency,
    function_vertex,
    process_vertex,
    reduce_vertex,
)
from bicycle_sdk.functions import (
    AsyncFunction,
    AsyncIOFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RichAsyncFunction,
)
from bicycle_sdk.graph import OperatorKind, Partitioning
from bicycle_sdk.record_types import function_types, pair_type
from bicycle_sdk.settings import VertexSettings

__all__ = ["DataStream", "IterativeStream", "KeyedStream", "SinkStream", "SplitStream"]

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)
K_new = TypeVar("K_new", bound=Hashable)


class SinkStream(VertexSettings):
    """The end of a stream; it has settings and no records."""


class DataStream(VertexSettings, Generic[T]):
    """Records of type ``T`` on their way.

    Example:
        >>> from bicycle_sdk import StreamEnvironment
        >>> env = StreamEnvironment()
        >>> _ = env.from_collection([1, 2]).map(lambda n: n + 1).uid("next").print()
        >>> [vertex.id for vertex in env.execute("demo").vertices]
        ['vertex_1', 'next', 'vertex_3']
    """

    # Which vertices the next edge reaches; streams with a key always send by key.
    _default_partitioning: Partitioning | None = None

    def __init__(
        self,
        draft: GraphDraft,
        vertex: VertexDraft,
        *,
        partitioning: Partitioning | None = None,
        output_tag: str | None = None,
    ) -> None:
        super().__init__(vertex)
        self._draft = draft
        self._partitioning = partitioning
        self._output_tag = output_tag

    # --- one record in -----------------------------------------------------------------------

    @overload
    def map(self, function: Callable[[T], Awaitable[R]]) -> DataStream[R]: ...
    @overload
    def map(self, function: Callable[[T], R] | MapFunction[T, R]) -> DataStream[R]: ...
    def map(self, function: Any) -> DataStream[Any]:
        """Replace each record by what the function returns."""
        return self._then_function(OperatorKind.MAP, function)

    @overload
    def flat_map(self, function: Callable[[T], Awaitable[Iterable[R]]]) -> DataStream[R]: ...
    @overload
    def flat_map(
        self, function: Callable[[T], Iterable[R]] | FlatMapFunction[T, R]
    ) -> DataStream[R]: ...
    def flat_map(self, function: Any) -> DataStream[Any]:
        """Replace each record by the records that the function returns."""
        return self._then_function(OperatorKind.FLAT_MAP, function)

    def filter(
        self, function: Callable[[T], bool | Awaitable[bool]] | FilterFunction[T]
    ) -> DataStream[T]:
        """Keep the records for which the function is true."""
        return self._then_function(OperatorKind.FILTER, function)

    def map_batches(
        self, function: Callable[[list[T]], Iterable[R] | Awaitable[Iterable[R]]]
    ) -> DataStream[R]:
        """Replace whole batches, for numpy, Arrow or Polars. How batches are cut is not fixed."""
        return self._then_function(OperatorKind.MAP_BATCHES, function)

    def process(self, function: AsyncFunction[T, R] | RichAsyncFunction[T, R]) -> DataStream[R]:
        """Call the function for one record after the other."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_rich(self, function: RichAsyncFunction[T, R]) -> DataStream[R]:
        """Call a function with state for one record after the other."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_fn(self, function: ProcessFunction[T, R]) -> DataStream[R]:
        """Call a function that sees event time and writes side outputs."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_ordered(
        self,
        function: AsyncFunction[T, R] | RichAsyncFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
    ) -> DataStream[R]:
        """Call the function with several calls in flight; results keep the order of the input.

        Args:
            function: The function.
            timeout: A call that takes longer is an error of its record, 1 ms to 7 days.
            capacity: Calls in flight per subtask, 1 to 1 000 000.
        """
        return self._process_concurrently(
            function, ordered=True, timeout=timeout, capacity=capacity
        )

    def process_unordered(
        self,
        function: AsyncFunction[T, R] | RichAsyncFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
    ) -> DataStream[R]:
        """Call the function as ``process_ordered`` does, but pass results on as they come."""
        return self._process_concurrently(
            function, ordered=False, timeout=timeout, capacity=capacity
        )

    def async_io_ordered(
        self,
        function: AsyncIOFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
        retry: Retry | None = None,
    ) -> DataStream[R]:
        """Call another system for each record; results keep the input's order.

        Args:
            function: The call, and what a timed-out record gives.
            timeout: Limit of one record, all attempts together, 1 ms to 7 days.
            capacity: Calls in flight per subtask, 1 to 1 000 000.
            retry: ``retry(n, backoff=…)`` calls again after an exception; None does not.
        """
        config = concurrency(ordered=True, timeout=timeout, capacity=capacity)
        return self._then(async_io_vertex(function, config=config, retry=retry))

    def async_io_unordered(
        self,
        function: AsyncIOFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
        retry: Retry | None = None,
    ) -> DataStream[R]:
        """Call another system as ``async_io_ordered`` does, but pass results on as they come."""
        config = concurrency(ordered=False, timeout=timeout, capacity=capacity)
        return self._then(async_io_vertex(function, config=config, retry=retry))

    # --- keys and totals ---------------------------------------------------------------------

    def key_by(
        self, selector: Callable[[T], K_new] | KeySelector[T, K_new]
    ) -> KeyedStream[K_new, T]:
        """Give each record a key; records of one key meet in one subtask, in order."""
        vertex = function_vertex(OperatorKind.KEY_BY, selector, input_type=self._vertex.output_type)
        vertex.follows = self._vertex
        self._draft.add_vertex(vertex)
        self._connect_to(vertex, partitioning=self._partitioning)
        return KeyedStream(self._draft, vertex)

    def count(self) -> DataStream[int]:
        """The number of records so far, after each record, over the whole stream."""
        counted = self.key_by(aggregations.everything)._then(
            reduce_vertex(
                "count",
                aggregations.increment,
                initial=aggregations.one,
                output_type=int,
            )
        )
        counted._vertex.parallelism = 1  # All records share one key.
        return counted

    # --- several streams ---------------------------------------------------------------------

    def union(self, *others: DataStream[T]) -> DataStream[T]:
        """The records of this stream and the others; each keeps its order, they mix freely."""
        vertex = VertexDraft(kind=OperatorKind.UNION, name="union")
        types = [stream._record_type() for stream in (self, *others)]
        if all(record_type == types[0] for record_type in types):
            vertex.output_type = types[0]
        for stream in others:
            self._check_same_draft("union", stream)
        self._draft.add_vertex(vertex)
        for ordinal, stream in enumerate((self, *others)):
            stream._connect_to(vertex, input_ordinal=ordinal)
        return DataStream(self._draft, vertex)

    @overload
    def side_output(self, tag: str) -> DataStream[Any]: ...
    @overload
    def side_output(self, tag: str, record_type: type[V]) -> DataStream[V]: ...
    def side_output(self, tag: str, record_type: Any = None) -> DataStream[Any]:
        """The records that the process function sends with ``ctx.side_output(tag, …)``.

        Args:
            tag: The tag.
            record_type: Type of the records; None when unknown.
        """
        return self._side_output(tag, record_type)

    def split(self, selector: Callable[[T], str | Iterable[str]]) -> SplitStream[T]:
        """Send each record to the outputs that the selector names: none, one, or several."""
        record_type = self._record_type()
        stream: DataStream[T] = self._then(
            process_vertex(aggregations.SplitFunction(selector), is_keyed=False)
        )
        stream._vertex.name = "split"
        stream._vertex.output_type = record_type
        return SplitStream(stream, record_type)

    def iterate(self) -> IterativeStream[T]:
        """Begin a loop: what ``feedback`` takes comes in again here, one epoch later."""
        vertex = VertexDraft(
            kind=OperatorKind.UNION, name="iterate", output_type=self._record_type()
        )
        self._draft.add_vertex(vertex)
        self._connect_to(vertex)
        return IterativeStream(self._draft, vertex)

    # --- how the next edge chooses a subtask -------------------------------------------------

    def forward(self) -> DataStream[T]:
        """Subtask i sends to subtask i; both sides must have the same parallelism."""
        return self._with_partitioning(Partitioning.FORWARD)

    def rebalance(self) -> DataStream[T]:
        """Each subtask sends to all in turn."""
        return self._with_partitioning(Partitioning.REBALANCE)

    def shuffle(self) -> DataStream[T]:
        """Each record goes to a subtask picked by chance."""
        return self._with_partitioning(Partitioning.SHUFFLE)

    def broadcast(self) -> DataStream[T]:
        """Each record goes to every subtask."""
        return self._with_partitioning(Partitioning.BROADCAST)

    def global_(self) -> DataStream[T]:
        """All records go to one subtask."""
        return self._with_partitioning(Partitioning.GLOBAL)

    # --- ends --------------------------------------------------------------------------------

    def sink_to(self, sink: SinkDescriptor[T]) -> SinkStream:
        """Send the records to a sink."""
        vertex = VertexDraft(
            kind=OperatorKind.SINK,
            name=f"{sink.connector_type} sink",
            details={
                "connector": {
                    "connector_type": sink.connector_type,
                    "properties": dict(sink.properties),
                }
            },
            payloads=dict(sink.payloads),
            input_type=sink.input_type,
        )
        self._draft.add_vertex(vertex)
        self._connect_to(vertex)
        return SinkStream(vertex)

    def print(self) -> SinkStream:
        """Show each record on the console as ``[SINK] <record>``."""
        return self.sink_to(connectors.console_sink())

    def socket_sink(self, host: str = "0.0.0.0", port: int = 9998) -> SinkStream:
        """Send each record as a line to every client of a TCP server on ``host:port``."""
        return self.sink_to(connectors.socket_sink(host=host, port=port))

    def collect(self, name: str) -> SinkStream:
        """Collect the records in a list of the test harness."""
        return self.sink_to(connectors.collect_sink(name))

    def preview(self, n: int = 10) -> list[T]:
        """Run the job so far in this process and return the first ``n`` records of this stream.

        Raises:
            PreviewError: the runtime is not installed.
        """
        try:
            # The runtime is another distribution, and a job's wheel does without it.
            testing = import_module("bicycle_runtime.testing")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("bicycle_runtime"):
                raise
            raise PreviewError(vertex=self.vertex_id()) from error
        found: list[T] = testing.preview(self._draft, self.vertex_id(), n)
        return found

    # --- how vertices are added --------------------------------------------------------------

    def _is_keyed(self) -> bool:
        return self._default_partitioning is Partitioning.HASH

    def _record_type(self) -> Any:
        return None if self._output_tag is not None else self._vertex.output_type

    def _then(self, vertex: VertexDraft) -> DataStream[Any]:
        self._draft.add_vertex(vertex)
        self._connect_to(vertex)
        return DataStream(self._draft, vertex)

    def _then_function(self, kind: OperatorKind, function: object) -> DataStream[Any]:
        return self._then(function_vertex(kind, function, input_type=self._record_type()))

    def _process_concurrently(
        self, function: object, *, ordered: bool, timeout: timedelta, capacity: int
    ) -> DataStream[Any]:
        config = concurrency(ordered=ordered, timeout=timeout, capacity=capacity)
        return self._then(process_vertex(function, is_keyed=self._is_keyed(), config=config))

    def _side_output(self, tag: str, record_type: Any) -> DataStream[Any]:
        vertex = VertexDraft(
            kind=OperatorKind.SIDE_OUTPUT,
            name=tag,
            details={"tag": tag},
            output_type=record_type,
            follows=self._vertex,
        )
        self._draft.add_vertex(vertex)
        self._draft.add_edge(EdgeDraft(source=self._vertex, target=vertex, output_tag=tag))
        return DataStream(self._draft, vertex)

    def _connect_to(
        self,
        vertex: VertexDraft,
        *,
        partitioning: Partitioning | Literal["as_set"] | None = "as_set",
        input_ordinal: int = 0,
        feedback: bool = False,
    ) -> None:
        if partitioning == "as_set":
            partitioning = self._partitioning or self._default_partitioning
        self._draft.add_edge(
            EdgeDraft(
                source=self._vertex,
                target=vertex,
                partitioning=partitioning,
                input_ordinal=input_ordinal,
                output_tag=self._output_tag,
                feedback=feedback,
            )
        )

    def _with_partitioning(self, partitioning: Partitioning) -> DataStream[T]:
        return DataStream(
            self._draft, self._vertex, partitioning=partitioning, output_tag=self._output_tag
        )

    def _check_same_draft(self, call: str, other: DataStream[Any]) -> None:
        if other._draft is not self._draft:
            raise StreamDefinitionError(
                call=call,
                problem="the streams belong to different environments",
                hint="build both streams from one StreamEnvironment",
            )


class KeyedStream(DataStream[T], Generic[K, T]):
    """Records with a key: whatever follows sees all records of one key in one subtask."""

    _default_partitioning = Partitioning.HASH

    def process_fn(
        self, function: KeyedProcessFunction[K, T, R] | ProcessFunction[T, R]
    ) -> DataStream[R]:
        """Call a function that sees event time, its key and state per key."""
        return self._then(process_vertex(function, is_keyed=True))

    def reduce(
        self, function: Callable[[T, T], T | Awaitable[T]] | ReduceFunction[T]
    ) -> DataStream[T]:
        """Join the records of a key; the result so far follows each record, the first as it is."""
        return self._then(reduce_vertex("reduce", function, output_type=self._vertex.output_type))

    def sum(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, sum so far of the selected values)`` after each record."""
        return self._aggregate("sum", aggregations.Total(selector), selector)

    def min(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, least selected value so far)`` after each record."""
        return self._aggregate("min", aggregations.Minimum(selector), selector)

    def max(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, greatest selected value so far)`` after each record."""
        return self._aggregate("max", aggregations.Maximum(selector), selector)

    def min_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """The record with the least selected value so far, the earliest of equals."""
        return self._then(
            reduce_vertex(
                "min_by", aggregations.KeepLowest(selector), output_type=self._vertex.output_type
            )
        )

    def max_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """The record with the greatest selected value so far, the earliest of equals."""
        return self._then(
            reduce_vertex(
                "max_by", aggregations.KeepHighest(selector), output_type=self._vertex.output_type
            )
        )

    # A count per key is a pair, a count of a whole stream a number.
    def count(self) -> DataStream[tuple[K, int]]:  # type: ignore[override]
        """``(key, number of records so far)`` after each record."""
        return self._then(
            reduce_vertex(
                "count",
                aggregations.increment,
                initial=aggregations.one,
                emits_key=True,
                output_type=pair_type(self._key_type(), int),
            )
        )

    def into_stream(self) -> DataStream[T]:
        """The same records without keys."""
        return DataStream(self._draft, self._vertex)

    def _aggregate(
        self, word: str, function: object, selector: Callable[[T], V]
    ) -> DataStream[tuple[K, V]]:
        selected = function_types(selector, "get_key").gives
        vertex = reduce_vertex(
            word,
            function,
            initial=selector,
            emits_key=True,
            output_type=pair_type(self._key_type(), selected),
        )
        return self._then(vertex)

    def _key_type(self) -> Any:
        return function_types(self._vertex.payloads["function"], "get_key").gives


class IterativeStream(DataStream[T]):
    """The head of a loop."""

    def feedback(self, stream: DataStream[T]) -> DataStream[T]:
        """Send the records of ``stream`` to the head of the loop, one epoch later."""
        self._check_same_draft("feedback", stream)
        ordinal = sum(edge.target is self._vertex for edge in self._draft.edges)
        stream._connect_to(self._vertex, input_ordinal=ordinal, feedback=True)
        return stream


class SplitStream(Generic[T]):
    """The outputs of a ``split``."""

    def __init__(self, stream: DataStream[T], record_type: Any) -> None:
        self._stream = stream
        self._type = record_type

    def select(self, tag: str) -> DataStream[T]:
        """The records that the selector sent to ``tag``."""
        return self._stream._side_output(tag, self._type)
