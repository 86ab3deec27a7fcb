"""The stream of records, and its ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from bicycle_sdk import aggregations, kafka, sinks
from bicycle_sdk.arguments import require_whole
from bicycle_sdk.datastream.base import Stream, refuse_key_type
from bicycle_sdk.datastream.connecting import Connecting
from bicycle_sdk.descriptors import SinkBuilder, SinkDescriptor, built
from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.errors import PreviewError, StreamDefinitionError
from bicycle_sdk.expressions import Expression, is_expression, together
from bicycle_sdk.function_vertices import (
    function_vertex,
    order_by_event_time,
    process_vertex,
    reduce_vertex,
)
from bicycle_sdk.functions import KeySelector, full_name
from bicycle_sdk.graph import OperatorKind, Partitioning
from bicycle_sdk.installed import preview_runner
from bicycle_sdk.settings import VertexSettings

if TYPE_CHECKING:
    from bicycle_sdk.datastream.connected import ConnectedStreams
    from bicycle_sdk.datastream.keyed import KeyedStream

__all__ = ["DataStream", "IterativeStream", "SinkStream", "SplitStream"]

T = TypeVar("T")
V = TypeVar("V")
P = TypeVar("P")
K_new = TypeVar("K_new", bound=Hashable)


class SinkStream(VertexSettings):
    """The end of a stream; it has settings and no records."""


class SplitStream(Generic[T]):
    """The outputs of a ``split``."""

    def __init__(self, stream: Stream[T], record_type: Any) -> None:
        self._stream = stream
        self._type = record_type

    def select(self, tag: str) -> DataStream[T]:
        """Return the stream of records that the selector sent to ``tag``."""
        return self._stream._side_output(tag, self._type)


class DataStream(Connecting[T]):
    """A stream of records of type ``T``; each call adds an operator to the graph.

    Example:
        >>> from bicycle_sdk import StreamEnvironment
        >>> env = StreamEnvironment()
        >>> _ = env.from_collection([1, 2]).map(lambda n: n + 1).uid("next").print()
        >>> [vertex.id for vertex in env.execute("demo").vertices]
        ['vertex_1', 'next', 'vertex_3']
    """

    # --- keys and totals ---------------------------------------------------------------------

    @overload
    def key_by(
        self, selector: Callable[[T], K_new] | KeySelector[T, K_new]
    ) -> KeyedStream[K_new, T]: ...
    @overload
    def key_by(
        self, selector: Expression, second: Expression, /, *more: Expression
    ) -> KeyedStream[tuple[Any, ...], T]: ...
    def key_by(self, selector: Any, *more: Any) -> KeyedStream[Any, T]:
        """Assign each record a key; records of one key meet in one subtask, in order.

        Args:
            selector: A function of a record, or an expression.
            more: Further expressions; then the key is a tuple.

        Raises:
            StreamDefinitionError: there are several, and one is no expression; or the annotated
                type of the key has an ``__eq__`` that disagrees with the encoding of keys; or the
                stream is broadcast, so that each key would get a copy from every subtask.
        """
        if self._partitioning is Partitioning.BROADCAST:
            raise StreamDefinitionError(
                call="key_by",
                problem="after broadcast() each key would get a record once from every subtask",
                hint="remove broadcast(), or call key_by(…) on the other stream only",
            )
        if more:
            other = next((one for one in (selector, *more) if not is_expression(one)), None)
            if other is not None:
                raise StreamDefinitionError(
                    call="key_by",
                    problem=(
                        f"{full_name(other)} is not an expression, and several arguments must be "
                        "expressions"
                    ),
                    hint="pass one function, or several col(...) expressions",
                )
            selector = together(selector, *more)
        vertex = function_vertex(OperatorKind.KEY_BY, selector, input_type=self._vertex.output_type)
        refuse_key_type(vertex)
        vertex.follows = self._vertex
        self._draft.add_vertex(vertex)
        self._connect_to(vertex, partitioning=self._partitioning)
        keyed: KeyedStream[Any, T] = self._make("KeyedStream", vertex)
        return keyed

    def count(self) -> DataStream[int]:
        """Count the records of the whole stream, with a result after each record."""
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
        """Merge this stream with others; each keeps its order, without order between them."""
        vertex = VertexDraft(kind=OperatorKind.UNION, name="union")
        for stream in others:
            self._check_same_draft("union", stream)
        types = [stream._record_type() for stream in (self, *others)]
        if all(record_type == types[0] for record_type in types):
            vertex.output_type = types[0]
        self._draft.add_vertex(vertex)
        for ordinal, stream in enumerate((self, *others)):
            stream._connect_to(vertex, input_ordinal=ordinal)
        return DataStream(self._draft, vertex)

    def connect(self, other: DataStream[V]) -> ConnectedStreams[T, V]:
        """Connect this stream with another of other records, for one function and state.

        Raises:
            StreamDefinitionError: only one of the two has a key.
        """
        if other._is_keyed():
            raise StreamDefinitionError(
                call="connect",
                problem="only one of the streams has a key",
                hint="call key_by(…) on both, or connect(…).key_by(…, …)",
            )
        # Slow on the start path: few jobs have functions with two inputs.
        from bicycle_sdk.datastream.connected import ConnectedStreams

        return ConnectedStreams(self, other)

    @overload
    def side_output(self, tag: str) -> DataStream[Any]: ...
    @overload
    def side_output(self, tag: str, record_type: type[V]) -> DataStream[V]: ...
    def side_output(self, tag: str, record_type: Any = None) -> DataStream[Any]:
        """Return the records that the process function sends with ``ctx.side_output(…)``.

        Args:
            tag: The tag.
            record_type: Type of the records; None when unknown.
        """
        return self._side_output(tag, record_type)

    def split(self, selector: Callable[[T], str | Iterable[str]]) -> SplitStream[T]:
        """Send each record to the outputs that the selector names: any number of them.

        Records for outputs that the job does not select are dropped; the run's summary counts them.
        """
        record_type = self._record_type()
        stream: DataStream[T] = self._then(
            process_vertex(aggregations.SplitFunction(selector), is_keyed=False)
        )
        stream._vertex.name = "split"
        stream._vertex.output_type = record_type
        return SplitStream(stream, record_type)

    def iterate(self) -> IterativeStream[T]:
        """Start a loop: records of ``feedback`` return here, one epoch later."""
        vertex = VertexDraft(
            kind=OperatorKind.UNION, name="iterate", output_type=self._record_type()
        )
        self._draft.add_vertex(vertex)
        self._connect_to(vertex)
        return IterativeStream(self._draft, vertex)

    def in_event_time_order(self) -> Self:
        """Call the preceding keyed function with records and timers in event-time order.

        Each record waits in the state of its key until the watermark reaches it. Then each key
        processes its records and its event-time timers in order of time; a timer at T fires after
        the records at T. So the results do not depend on the length of epochs, the parallelism or a
        replay, nor on the order of records within the out-of-orderness bound. Records with equal
        times are processed in this order: first input before second input, then by arrival.
        ``ctx.current_watermark()`` is 1 ms before the current record; in ``on_timer`` it is the
        time of the timer. A late record is not dropped: it is processed at once, with a
        ``ctx.timestamp`` at or before the watermark.

        Results are delayed by the out-of-orderness bound. The method is available after
        ``process_fn``, ``process`` of a rich function and ``connect(…).process`` on keyed streams,
        and after ``table_join``.

        Raises:
            StreamDefinitionError: the preceding call does not add such a function.

        Example:
            >>> from bicycle_sdk import KeyedProcessFunction, StreamEnvironment
            >>> class Last(KeyedProcessFunction[str, str, str]):
            ...     def process_element(self, value, ctx):
            ...         return [value]
            >>> env = StreamEnvironment()
            >>> words = env.from_collection(["a", "b"]).assign_timestamps(lambda word: 0)
            >>> last = words.key_by(lambda word: word).process_fn(Last()).in_event_time_order()
            >>> _ = last.uid("last").print()
        """
        order_by_event_time(self._vertex)
        return self

    # --- how the next edge chooses a subtask -------------------------------------------------

    def forward(self) -> DataStream[T]:
        """Send from subtask i to subtask i; both sides must have the same parallelism."""
        return self._with_partitioning(Partitioning.FORWARD)

    def rebalance(self) -> DataStream[T]:
        """Send from each subtask to all in turn, over the life of the job."""
        return self._with_partitioning(Partitioning.REBALANCE)

    def shuffle(self) -> DataStream[T]:
        """Send each record to a random subtask."""
        return self._with_partitioning(Partitioning.SHUFFLE)

    def broadcast(self) -> DataStream[T]:
        """Send each record to every subtask."""
        return self._with_partitioning(Partitioning.BROADCAST)

    def global_(self) -> DataStream[T]:
        """Send all records to one subtask."""
        return self._with_partitioning(Partitioning.GLOBAL)

    def partition_custom(
        self, partitioner: Callable[[P, int], int], key: Callable[[T], P] | KeySelector[T, P]
    ) -> DataStream[T]:
        """Send each record to the subtask that a function chooses for its key.

        The result has no key: state and timers per key need ``key_by``. All operators directly
        after the call must have the same parallelism.

        Args:
            partitioner: Takes a key and the number ``n`` of subtasks of the next operator, and
                returns a whole number from 0 to ``n - 1``; anything else is an error of the record.
                ``n`` changes when the job is rescaled. A repeated epoch calls it again, so it must
                return the same number for the same arguments.
            key: Returns the partitioner's key of a record.

        Raises:
            StreamDefinitionError: the partitioner is not callable, or is ``async``.

        Example:
            >>> from bicycle_sdk import StreamEnvironment
            >>> env = StreamEnvironment.builder().parallelism(2).build()
            >>> words = env.from_collection(["ada", "bob"])
            >>> by_length = words.partition_custom(lambda length, n: length % n, len)
            >>> _ = by_length.map(str.upper).uid("upper").print()
        """
        given: object = partitioner  # Jobs need not be type-checked.
        if not callable(given) or iscoroutinefunction(given):
            raise StreamDefinitionError(
                call="partition_custom",
                problem=f"{full_name(partitioner)} is not a plain function",
                hint="pass a function of a key and the number of subtasks, without async",
            )
        vertex = function_vertex(OperatorKind.PARTITION_CUSTOM, key, input_type=self._record_type())
        vertex.name, vertex.plugin_function = "partition_custom", full_name(partitioner)
        vertex.details = {"partitioner": full_name(partitioner)}
        vertex.payloads = {**vertex.payloads, "partitioner": partitioner}
        vertex.follows = self._vertex
        return self._then(vertex)._with_partitioning(Partitioning.CUSTOM)

    # --- ends --------------------------------------------------------------------------------

    def sink_to(self, sink: SinkDescriptor[T] | SinkBuilder[T]) -> SinkStream:
        """Send the records to a sink, given as a value or as the builder of one."""
        if not isinstance(sink, SinkDescriptor):
            sink = built("sink_to", sink)
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

    def to_uri(self, uri: str) -> SinkStream:
        """Send the records to the stream of a URI, such as a parameter of the plugin.

        Args:
            uri: ``redis://host:6379/orders?format=json``, ``file://./events.ss/orders``,
                ``kafka://host:9092/topic``, ``ws://host:port/key``, ``socket://127.0.0.1:9998`` or
                ``stdio:///key``; without a format records are texts.

        Raises:
            StreamDefinitionError: the URI names no sink, or an option that it does not have.
        """
        # Slow on the start path: urllib is needed by this call only.
        from bicycle_sdk.sinks.addresses import sink_from_uri

        return self.sink_to(sink_from_uri(uri))

    def print(self) -> SinkStream:
        """Show each record on the console as ``[SINK] <record>``."""
        return self.sink_to(sinks.ConsoleSinkOptions())

    def socket_sink(
        self, host: str = "127.0.0.1", port: int = 9998, *, clients_max: int | None = None
    ) -> SinkStream:
        """Send each record as a line to every client of a TCP server on ``host:port``.

        Programs of other machines reach it only if ``host`` allows it.
        """
        options: dict[str, Any] = {"clients_max": clients_max}
        return self.sink_to(sinks.SocketSinkOptions(host=host, port=port, **options))

    def kafka_sink(self, brokers: str, topic: str) -> SinkStream:
        """Send each record to Kafka, at least once; ``KafkaSinkBuilder`` has more options."""
        return self.sink_to(kafka.KafkaSinkBuilder[Any](brokers, topic))

    def collect(self, name: str) -> SinkStream:
        """Collect the records in a list of the test harness."""
        return self.sink_to(sinks.CollectSinkOptions(name))

    def preview(self, n: int = 10) -> list[T]:
        """Run the job so far in this process, and return ``n`` records of this stream.

        Raises:
            PreviewError: nothing that is installed can run it.
            StreamDefinitionError: ``n`` is not a whole number from 0 to 1,000,000,000.
        """
        runner = preview_runner()
        if runner is None:
            raise PreviewError(vertex=self.vertex_id())
        count = require_whole("preview", n, low=0, high=1_000_000_000)
        found: list[T] = runner(self._draft, self.vertex_id(), count)
        return found


class IterativeStream(DataStream[T]):
    """The head of a loop, which receives records of a later stream, one epoch later."""

    def feedback(self, stream: DataStream[T]) -> DataStream[T]:
        """Send the records of ``stream`` to the head of the loop, one epoch later."""
        self._check_same_draft("feedback", stream)
        ordinal = sum(edge.target is self._vertex for edge in self._draft.edges)
        stream._connect_to(self._vertex, input_ordinal=ordinal, feedback=True)
        return stream
