"""Bicycle's own connectors, registered through extension hooks, without imports."""

from __future__ import annotations

from bicycle_runtime.connectors.hooks import connector_hook

# Former words of connectors, in stored jobs and in job files.
FORMER_WORDS = {"socket_stream": "socket"}
_ROOM = "bicycle_runtime.connectors"


@connector_hook
def bicycle_sources() -> dict[str, str]:
    """Name our sources."""
    return {
        "collection": f"{_ROOM}.collection:CollectionSource",
        "generator": f"{_ROOM}.generator:GeneratorSource",
        "text": f"{_ROOM}.files.source:TextFileSource",
        "jsonl": f"{_ROOM}.files.source:JsonlFileSource",
        "csv": f"{_ROOM}.files.source:CsvFileSource",
        "parquet": f"{_ROOM}.files.source:ParquetFileSource",
        "socket": f"{_ROOM}.stream_clients.sockets:SocketSource",
        "kafka": f"{_ROOM}.kafka.source:KafkaSource",
        "postgres": f"{_ROOM}.postgres.source:PostgresSource",
        "pulsar": f"{_ROOM}.stream_clients.pulsar:PulsarStreamSource",
        "redis": f"{_ROOM}.stream_clients.redis:RedisStreamSource",
        "stream_file": f"{_ROOM}.stream_clients.stream_files:StreamFileSource",
        "stdio": f"{_ROOM}.stream_clients.received:StdioSource",
        "websocket": f"{_ROOM}.stream_clients.received:WebSocketSource",
    }


@connector_hook
def bicycle_sinks() -> dict[str, str]:
    """Name our sinks."""
    return {
        "console": f"{_ROOM}.console:ConsoleSink",
        "jsonl_file": f"{_ROOM}.files.sink:JsonlFileSink",
        "text_file": f"{_ROOM}.files.sink:TextFileSink",
        "csv_file": f"{_ROOM}.files.sink:CsvFileSink",
        "parquet_file": f"{_ROOM}.files.parquet_sink:ParquetSink",
        "postgres": f"{_ROOM}.postgres.sink:PostgresSink",
        "delta": f"{_ROOM}.lakes.delta:DeltaSink",
        "duckdb": f"{_ROOM}.lakes.duckdb_file:DuckdbSink",
        "http": f"{_ROOM}.http.sink:HttpSink",
        "iceberg": f"{_ROOM}.lakes.iceberg:IcebergSink",
        "socket": f"{_ROOM}.stream_clients.sockets:SocketSink",
        "collect": f"{_ROOM}.collect:CollectSink",
        "kafka": f"{_ROOM}.kafka.sink:KafkaSink",
        "pulsar": f"{_ROOM}.stream_clients.pulsar:PulsarStreamSink",
        "redis": f"{_ROOM}.stream_clients.redis:RedisStreamSink",
        "stream_file": f"{_ROOM}.stream_clients.stream_files:StreamFileSink",
        "stdio": f"{_ROOM}.stream_clients.sent:StdioSink",
        "websocket": f"{_ROOM}.stream_clients.sent:WebSocketSink",
    }
