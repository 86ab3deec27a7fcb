"""The environment of a job: its settings, its sources, and its graph.

``execute`` names the job and checks it; nothing is submitted from here. The command line or a test
takes the graph and the objects beside it (``payloads``) and runs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from bicycle_sdk import connectors, kafka
from bicycle_sdk.arguments import require_text, require_whole
from bicycle_sdk.datastream import DataStream
from bicycle_sdk.descriptors import SourceBuilder, SourceDescriptor, built
from bicycle_sdk.drafts import GraphDraft, VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import JobConfig, JobGraph, OperatorKind, RestartStrategy, RuntimeMode
from bicycle_sdk.settings import check_parallelism

if TYPE_CHECKING:
    from bicycle_sdk.chaining import OptimizedGraph
    from bicycle_sdk.kafka import KafkaSinkBuilder
    from bicycle_sdk.sources import FileSourceArguments
    from bicycle_sdk.tables import Table
    from bicycle_sdk.windows.assigners import Duration

__all__ = ["StreamEnvironment", "StreamEnvironmentBuilder"]

T = TypeVar("T")
_INTERVAL_MS_MAX = 86_400_000


class StreamEnvironment(GraphDraft):
    """The settings and sources of a job. ``execute`` sets ``job_name``.

    Example:
        >>> env = StreamEnvironment.builder().parallelism(2).build()
        >>> _ = env.from_collection(["a", "b"]).print()
        >>> env.execute("letters").vertices[0].parallelism
        2
    """

    def __init__(self, config: JobConfig | None = None) -> None:
        super().__init__(JobConfig() if config is None else config)
        self.job_name: str | None = None
        self._sql_session: Any = None

    @classmethod
    def builder(cls) -> StreamEnvironmentBuilder:
        """Return a builder that collects the settings first."""
        return StreamEnvironmentBuilder()

    # --- settings ----------------------------------------------------------------------------

    def set_parallelism(self, n: int) -> Self:
        """Set the default parallelism of vertices, initially 1."""
        self.config = replace(self.config, parallelism=check_parallelism("set_parallelism", n))
        return self

    def set_max_parallelism(self, n: int) -> Self:
        """Set the number of key groups, 1 to 32 768 (default 128), fixed with the state."""
        n = check_parallelism("set_max_parallelism", n)
        self.config = replace(self.config, max_parallelism=n)
        return self

    def set_checkpoint_interval(self, interval_ms: int) -> Self:
        """Set how often state is folded into a base; 60 000 ms otherwise."""
        ms = require_whole("set_checkpoint_interval", interval_ms, low=1, high=_INTERVAL_MS_MAX)
        self.config = replace(self.config, checkpoint_interval_ms=ms)
        return self

    def set_restart_strategy(self, strategy: RestartStrategy) -> Self:
        """Set when a failed job starts again; 3 times, 5 s apart, otherwise."""
        self.config = replace(self.config, restart_strategy=strategy)
        return self

    def set_runtime_mode(self, mode: Literal["streaming", "batch"]) -> Self:
        """Set whether input is followed (streaming, the default) or read once (batch).

        In batch mode all sources must end by themselves, and event time does not advance until
        then: no record is late, and timers and windows fire at the end.
        """
        known = {known.value: known for known in RuntimeMode}
        if mode not in known:
            raise StreamDefinitionError(
                call="set_runtime_mode",
                problem=f"expected one of {', '.join(map(repr, known))}, got {mode!r}",
                hint="use 'batch' for bounded input, 'streaming' otherwise",
            )
        self.config = replace(self.config, mode=known[mode])
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of the job: functions find it in ``ctx.task_info.properties``."""
        name = require_text("set_property", key)
        text = require_text("set_property", value, is_empty_fine=True)
        self.config = replace(self.config, properties={**self.config.properties, name: text})
        return self

    # --- sources -----------------------------------------------------------------------------

    def add_source(self, source: SourceDescriptor[T] | SourceBuilder[T]) -> DataStream[T]:
        """Read from a source, given as a value or as the builder of one."""
        if not isinstance(source, SourceDescriptor):
            source = built("add_source", source)
        vertex = VertexDraft(
            kind=OperatorKind.SOURCE,
            name=f"{source.connector_type} source",
            details={
                "connector": {
                    "connector_type": source.connector_type,
                    "properties": dict(source.properties),
                }
            },
            payloads=dict(source.payloads),
            output_type=source.output_type,
        )
        return DataStream(self, self.add_vertex(vertex))

    def from_collection(self, items: Iterable[T]) -> DataStream[T]:
        """Read exactly these records, then end."""
        return self.add_source(connectors.collection_source(items))

    def generator_source(self, rate_ms: int = 100, *, count: int | None = None) -> DataStream[str]:
        """Read words in a circle, one every ``rate_ms``, ``count`` in all or forever."""
        return self.add_source(connectors.generator_source(rate_ms=rate_ms, count=count))

    def socket_source(
        self, host: str = "127.0.0.1", port: int = 9999, *, clients_max: int | None = None
    ) -> DataStream[str]:
        """Read the lines that clients send to a TCP server on ``host:port``.

        Programs of other machines reach it only if ``host`` allows it.
        """
        options: dict[str, Any] = {"clients_max": clients_max}
        return self.add_source(connectors.socket_source(host=host, port=port, **options))

    def read_text(
        self, path: str | os.PathLike[str], **options: Unpack[FileSourceArguments]
    ) -> DataStream[str]:
        """Read the lines of a file, a glob or a directory; ``follow`` waits for more."""
        return self.add_source(connectors.text_file_source(path, **options))

    @overload
    def read_jsonl(
        self, path: str | os.PathLike[str], **options: Unpack[FileSourceArguments]
    ) -> DataStream[dict[str, Any]]: ...
    @overload
    def read_jsonl(
        self,
        path: str | os.PathLike[str],
        *,
        type: type[T],
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[T]: ...
    def read_jsonl(
        self,
        path: str | os.PathLike[str],
        *,
        type: Any = dict,
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[Any]:
        """Read JSON lines as records of ``type``: dict, a dataclass, a TypedDict.

        ``timestamp_field`` names the field with the event time, RFC 3339 or ms since 1970.
        """
        return self.add_source(connectors.jsonl_file_source(path, record_type=type, **options))

    @overload
    def read_csv(
        self, path: str | os.PathLike[str], **options: Unpack[FileSourceArguments]
    ) -> DataStream[dict[str, str]]: ...
    @overload
    def read_csv(
        self,
        path: str | os.PathLike[str],
        *,
        type: type[T],
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[T]: ...
    def read_csv(
        self,
        path: str | os.PathLike[str],
        *,
        type: Any = dict,
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[Any]:
        """Read CSV rows as records of ``type``; the first row names the fields.

        ``timestamp_field`` names the field with the event time, RFC 3339 or ms since 1970.
        """
        return self.add_source(connectors.csv_file_source(path, record_type=type, **options))

    @overload
    def read_parquet(
        self, path: str | os.PathLike[str], **options: Unpack[FileSourceArguments]
    ) -> DataStream[dict[str, Any]]: ...
    @overload
    def read_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        type: type[T],
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[T]: ...
    def read_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        type: Any = dict,
        **options: Unpack[FileSourceArguments],
    ) -> DataStream[Any]:
        """Read rows of Parquet files as records of ``type``; columns are taken by name.

        ``timestamp_field`` names the column with the event time: a time with a zone, or ms since
        1970.
        """
        return self.add_source(connectors.parquet_file_source(path, record_type=type, **options))

    @overload
    def from_uri(self, uri: str) -> DataStream[Any]: ...
    @overload
    def from_uri(self, uri: str, *, type: type[T]) -> DataStream[T]: ...
    def from_uri(self, uri: str, *, type: Any = None) -> DataStream[Any]:
        """Read the source that a URI names, such as a parameter of the plugin.

        Args:
            uri: ``file:in/*.jsonl?follow=true``, ``kafka://host:9092/topic?group=readers``,
                ``redis://host:6379/orders?format=json``, ``file://./events.ss/orders``,
                ``ws://host:port/key``, ``stdio:///key``, ``socket://127.0.0.1:9999`` or
                ``generator:?rate_ms=10&count=100``.
            type: Type of the records, where the source has more than texts.

        Raises:
            StreamDefinitionError: the URI names no source, or an option that it does not have.
        """
        # Slow on the start path: urllib is needed by this call only.
        from bicycle_sdk.uris import source_from_uri

        return self.add_source(source_from_uri(uri, type))

    @overload
    def kafka_source(
        self, brokers: str, topic: str, group_id: str | None = None
    ) -> DataStream[str]: ...
    @overload
    def kafka_source(
        self, brokers: str, topic: str, group_id: str | None = None, *, type: type[T]
    ) -> DataStream[T]: ...
    def kafka_source(
        self, brokers: str, topic: str, group_id: str | None = None, *, type: Any = str
    ) -> DataStream[Any]:
        """Read a Kafka topic from its first message; see also ``KafkaSourceBuilder``.

        Args:
            brokers: ``host:port``, several with commas.
            topic: The topic.
            group_id: The group to which progress is reported.
            type: Type of the records: str, bytes, or one that is read from JSON.
        """
        builder = kafka.KafkaSourceBuilder[Any](brokers, topic, record_type=type)
        return self.add_source(builder if group_id is None else builder.group_id(group_id))

    @overload
    def kafka_sink(self, brokers: str, topic: str) -> KafkaSinkBuilder[Any]: ...
    @overload
    def kafka_sink(self, brokers: str, topic: str, *, type: type[T]) -> KafkaSinkBuilder[T]: ...
    def kafka_sink(self, brokers: str, topic: str, *, type: Any = None) -> KafkaSinkBuilder[Any]:
        """Return a Kafka sink builder: ``stream.sink_to(env.kafka_sink(…).key(…))``."""
        return kafka.KafkaSinkBuilder[Any](brokers, topic, record_type=type)

    # --- tables ------------------------------------------------------------------------------

    def sql(self, text: str) -> Table[dict[str, Any]]:
        """Run SQL statements, and return the table of the query that is the last one.

        The statements are those of SQL files: CREATE TABLE, CREATE VIEW, INSERT INTO and SET. All
        texts and tables of an environment are one job, and know each other's names.

        Args:
            text: The statements, separated by semicolons. A text without a query returns a table
                that cannot be used.

        Raises:
            BicycleError: BIC-3204 with the positions of all problems; no statement has an effect.

        Example:
            >>> from bicycle_sdk import StreamEnvironment
            >>> env = StreamEnvironment()
            >>> _ = env.sql("CREATE TABLE bids (item BIGINT) WITH (kind = 'file', path = 'bids')")
            >>> env.sql("SELECT item FROM bids WHERE item > 7").columns
            {'item': 'BIGINT'}
        """
        # Slow on the start path: few jobs have tables.
        from bicycle_sdk.tables import sql_table

        return sql_table(self, text)

    def table(
        self,
        stream: DataStream[T],
        *,
        name: str,
        type: Any = None,
        watermark: str | None = None,
        delay: Duration = 0,
        key: str | Sequence[str] = (),
    ) -> Table[T]:
        """Make a stream of records a table, which SQL texts read by its name.

        Args:
            stream: A stream of dataclasses, named tuples or typed dicts. Annotations are the types
                of the columns; a field that may be None may be NULL.
            name: The name of the table.
            type: The type of the records, if the stream does not declare it.
            watermark: The column with the event time.
            delay: How far event times may be out of order: milliseconds or a timedelta.
            key: The columns of the primary key.

        Raises:
            StreamDefinitionError: the type of a field cannot be a column, a column is unknown, or
                the name is in use.
        """
        # Slow on the start path: few jobs have tables.
        from bicycle_sdk.tables import stream_table

        return stream_table(
            self, stream, name=name, type=type, watermark=watermark, delay=delay, key=key
        )

    # --- the finished graph ------------------------------------------------------------------

    def execute(self, name: str) -> JobGraph:
        """Name the job, check its graph and return it; nothing is submitted.

        Raises:
            GraphError: a rule is broken; all broken rules are named at once.
        """
        graph = self.build_graph(name)
        graph.validate()
        self.job_name = name
        return graph

    def execute_optimized(self, name: str) -> tuple[JobGraph, OptimizedGraph]:
        """Do as ``execute`` and return, too, how its vertices are chained."""
        # Slow on the start path of every plugin, and only this call needs it.
        from bicycle_sdk.chaining import optimize

        graph = self.execute(name)
        return graph, optimize(graph)

    def execute_and_serialize(self, name: str) -> bytes:
        """Do as ``execute`` and return the graph as JSON."""
        return self.execute(name).to_json().encode()


class StreamEnvironmentBuilder:
    """A builder of an environment from settings."""

    def __init__(self) -> None:
        self._environment = StreamEnvironment()

    def parallelism(self, n: int) -> Self:
        """Set the default parallelism."""
        self._environment.set_parallelism(n)
        return self

    def max_parallelism(self, n: int) -> Self:
        """Set the number of key groups."""
        self._environment.set_max_parallelism(n)
        return self

    def checkpoint_interval(self, interval_ms: int) -> Self:
        """Set the checkpoint interval in ms."""
        self._environment.set_checkpoint_interval(interval_ms)
        return self

    def restart_strategy(self, strategy: RestartStrategy) -> Self:
        """Set when a failed job starts again."""
        self._environment.set_restart_strategy(strategy)
        return self

    def runtime_mode(self, mode: Literal["streaming", "batch"]) -> Self:
        """Set whether input is followed or read in one pass."""
        self._environment.set_runtime_mode(mode)
        return self

    def build(self) -> StreamEnvironment:
        """Return a new environment with these settings."""
        return StreamEnvironment(self._environment.config)
