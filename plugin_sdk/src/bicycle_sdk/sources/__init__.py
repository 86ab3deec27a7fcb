"""Sources of records, described by calls. A call opens no file or connection.

Each module declares the options of its sources, once, and derives the calls from them.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.sources.databases import (
        PostgresSourceOptions,
        postgres_source,
    )
    from bicycle_sdk.sources.files import (
        CsvFileSourceOptions,
        FileSourceArguments,
        FileSourceCall,
        FileSourceOptions,
        JsonlFileSourceOptions,
        ParquetFileSourceOptions,
        TextFileSourceOptions,
        csv_file_source,
        jsonl_file_source,
        parquet_file_source,
        text_file_source,
    )
    from bicycle_sdk.sources.samples import (
        GeneratorSourceOptions,
        collection_source,
        generator_source,
    )
    from bicycle_sdk.sources.sockets import (
        SocketSourceOptions,
        socket_source,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "databases": (
                "PostgresSourceOptions",
                "postgres_source",
            ),
            "files": (
                "CsvFileSourceOptions",
                "FileSourceArguments",
                "FileSourceCall",
                "FileSourceOptions",
                "JsonlFileSourceOptions",
                "ParquetFileSourceOptions",
                "TextFileSourceOptions",
                "csv_file_source",
                "jsonl_file_source",
                "parquet_file_source",
                "text_file_source",
            ),
            "sockets": (
                "SocketSourceOptions",
                "socket_source",
            ),
            "samples": (
                "GeneratorSourceOptions",
                "collection_source",
                "generator_source",
            ),
        },
    )

# Schemes of URIs with the options classes that they select, as an extension names them in the
# entry points of the group ``bicycle.sources``.
SCHEMES: dict[str, str] = {
    "csv": "bicycle_sdk.sources.files:CsvFileSourceOptions",
    "file": "bicycle_sdk.stream_options:FileStreamSourceOptions",
    "generator": "bicycle_sdk.sources.samples:GeneratorSourceOptions",
    "jsonl": "bicycle_sdk.sources.files:JsonlFileSourceOptions",
    "kafka": "bicycle_sdk.kafka.options:KafkaSourceOptions",
    "parquet": "bicycle_sdk.sources.files:ParquetFileSourceOptions",
    "postgres": "bicycle_sdk.sources.databases:PostgresSourceOptions",
    "postgresql": "bicycle_sdk.sources.databases:PostgresSourceOptions",
    "pulsar": "bicycle_sdk.stream_options:PulsarSourceOptions",
    "pulsar+ssl": "bicycle_sdk.stream_options:PulsarSourceOptions",
    "redis": "bicycle_sdk.stream_options:RedisSourceOptions",
    "rediss": "bicycle_sdk.stream_options:RedisSourceOptions",
    "socket": "bicycle_sdk.sources.sockets:SocketSourceOptions",
    "stdio": "bicycle_sdk.stream_options:StdioSourceOptions",
    "text": "bicycle_sdk.sources.files:TextFileSourceOptions",
    "ws": "bicycle_sdk.stream_options:WebSocketSourceOptions",
    "wss": "bicycle_sdk.stream_options:WebSocketSourceOptions",
}

__all__ = [
    "CsvFileSourceOptions",
    "FileSourceArguments",
    "FileSourceCall",
    "FileSourceOptions",
    "GeneratorSourceOptions",
    "JsonlFileSourceOptions",
    "ParquetFileSourceOptions",
    "PostgresSourceOptions",
    "SocketSourceOptions",
    "TextFileSourceOptions",
    "collection_source",
    "csv_file_source",
    "generator_source",
    "jsonl_file_source",
    "parquet_file_source",
    "postgres_source",
    "socket_source",
    "text_file_source",
]
