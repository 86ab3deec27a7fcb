"""Sinks of results, described by calls. A call opens no file or connection.

Each module declares the options of its sinks, once, and derives the calls from them. A descriptor
has the given options only, since the connector knows the defaults.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.sinks.console import (
        CollectSinkOptions,
        ConsoleSinkOptions,
        ConsoleTableSinkOptions,
        collect_sink,
        console_sink,
        console_table_sink,
    )
    from bicycle_sdk.sinks.databases import (
        PostgresSinkOptions,
        postgres_sink,
    )
    from bicycle_sdk.sinks.files import (
        FileFormat,
        FileSinkOptions,
        file_sink,
    )
    from bicycle_sdk.sinks.http import (
        HttpBody,
        HttpServer,
        HttpSinkOptions,
        http_sink,
    )
    from bicycle_sdk.sinks.lakes import (
        DeltaSinkOptions,
        DuckdbSinkOptions,
        FolderSinkOptions,
        IcebergCatalog,
        IcebergSinkOptions,
        LakeSinkOptions,
        Rolling,
        delta_sink,
        duckdb_sink,
        iceberg_sink,
    )
    from bicycle_sdk.sinks.sockets import (
        SocketSinkOptions,
        socket_sink,
    )
    from bicycle_sdk.sinks.tables import (
        ColumnType,
        Compression,
        Folders,
        ParquetSinkOptions,
        TableSinkOptions,
        by_date,
        by_field,
        parquet_sink,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "databases": (
                "PostgresSinkOptions",
                "postgres_sink",
            ),
            "files": (
                "FileFormat",
                "FileSinkOptions",
                "file_sink",
            ),
            "http": (
                "HttpBody",
                "HttpServer",
                "HttpSinkOptions",
                "http_sink",
            ),
            "lakes": (
                "DeltaSinkOptions",
                "DuckdbSinkOptions",
                "IcebergCatalog",
                "IcebergSinkOptions",
                "LakeSinkOptions",
                "FolderSinkOptions",
                "Rolling",
                "delta_sink",
                "duckdb_sink",
                "iceberg_sink",
            ),
            "sockets": (
                "SocketSinkOptions",
                "socket_sink",
            ),
            "tables": (
                "ColumnType",
                "Compression",
                "Folders",
                "ParquetSinkOptions",
                "TableSinkOptions",
                "by_date",
                "by_field",
                "parquet_sink",
            ),
            "console": (
                "CollectSinkOptions",
                "ConsoleSinkOptions",
                "ConsoleTableSinkOptions",
                "collect_sink",
                "console_sink",
                "console_table_sink",
            ),
        },
    )

# Schemes of URIs with the options classes that they select, as an extension names them in the
# entry points of the group ``bicycle.sinks``.
SCHEMES: dict[str, str] = {
    "collect": "bicycle_sdk.sinks.console:CollectSinkOptions",
    "console": "bicycle_sdk.sinks.console:ConsoleSinkOptions",
    "csv": "bicycle_sdk.sinks.files:FileSinkOptions",
    "delta": "bicycle_sdk.sinks.lakes:DeltaSinkOptions",
    "duckdb": "bicycle_sdk.sinks.lakes:DuckdbSinkOptions",
    "file": "bicycle_sdk.stream_options:FileStreamSinkOptions",
    "http": "bicycle_sdk.sinks.http:HttpSinkOptions",
    "https": "bicycle_sdk.sinks.http:HttpSinkOptions",
    "iceberg": "bicycle_sdk.sinks.lakes:IcebergSinkOptions",
    "jsonl": "bicycle_sdk.sinks.files:FileSinkOptions",
    "kafka": "bicycle_sdk.kafka.options:KafkaSinkOptions",
    "parquet": "bicycle_sdk.sinks.tables:ParquetSinkOptions",
    "postgres": "bicycle_sdk.sinks.databases:PostgresSinkOptions",
    "postgresql": "bicycle_sdk.sinks.databases:PostgresSinkOptions",
    "pulsar": "bicycle_sdk.stream_options:PulsarSinkOptions",
    "pulsar+ssl": "bicycle_sdk.stream_options:PulsarSinkOptions",
    "redis": "bicycle_sdk.stream_options:RedisSinkOptions",
    "rediss": "bicycle_sdk.stream_options:RedisSinkOptions",
    "socket": "bicycle_sdk.sinks.sockets:SocketSinkOptions",
    "stdio": "bicycle_sdk.stream_options:StdioSinkOptions",
    "text": "bicycle_sdk.sinks.files:FileSinkOptions",
    "ws": "bicycle_sdk.stream_options:WebSocketSinkOptions",
    "wss": "bicycle_sdk.stream_options:WebSocketSinkOptions",
}

__all__ = [
    "CollectSinkOptions",
    "ColumnType",
    "Compression",
    "ConsoleSinkOptions",
    "ConsoleTableSinkOptions",
    "DeltaSinkOptions",
    "DuckdbSinkOptions",
    "FileFormat",
    "FileSinkOptions",
    "FolderSinkOptions",
    "Folders",
    "HttpBody",
    "HttpServer",
    "HttpSinkOptions",
    "IcebergCatalog",
    "IcebergSinkOptions",
    "LakeSinkOptions",
    "ParquetSinkOptions",
    "PostgresSinkOptions",
    "Rolling",
    "SocketSinkOptions",
    "TableSinkOptions",
    "by_date",
    "by_field",
    "collect_sink",
    "console_sink",
    "console_table_sink",
    "delta_sink",
    "duckdb_sink",
    "file_sink",
    "http_sink",
    "iceberg_sink",
    "parquet_sink",
    "postgres_sink",
    "socket_sink",
]
