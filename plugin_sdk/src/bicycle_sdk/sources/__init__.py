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
