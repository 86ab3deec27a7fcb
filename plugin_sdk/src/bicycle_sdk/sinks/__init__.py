"""Places where results go, described by calls; nothing here opens anything.

A call makes the checks that do not need the place, and returns a descriptor: a word, JSON
properties. Absent settings are left out, since the connector knows the defaults.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.sinks.databases import postgres_sink
    from bicycle_sdk.sinks.http import HttpBody, HttpServer, http_sink
    from bicycle_sdk.sinks.lakes import (
        DeltaSinkOptions,
        IcebergCatalog,
        IcebergSinkOptions,
        LakeSinkOptions,
        Rolling,
        delta_sink,
        iceberg_sink,
    )
    from bicycle_sdk.sinks.tables import (
        ColumnType,
        Compression,
        Folders,
        ParquetSinkOptions,
        TableSinkOptions,
        by_date,
        by_field,
        console_table_sink,
        parquet_sink,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "databases": ("postgres_sink",),
            "http": ("HttpBody", "HttpServer", "http_sink"),
            "lakes": (
                "DeltaSinkOptions",
                "IcebergCatalog",
                "IcebergSinkOptions",
                "LakeSinkOptions",
                "Rolling",
                "delta_sink",
                "iceberg_sink",
            ),
            "tables": (
                "ColumnType",
                "Compression",
                "Folders",
                "ParquetSinkOptions",
                "TableSinkOptions",
                "by_date",
                "by_field",
                "console_table_sink",
                "parquet_sink",
            ),
        },
    )

__all__ = [
    "ColumnType",
    "Compression",
    "DeltaSinkOptions",
    "Folders",
    "HttpBody",
    "HttpServer",
    "IcebergCatalog",
    "IcebergSinkOptions",
    "LakeSinkOptions",
    "ParquetSinkOptions",
    "Rolling",
    "TableSinkOptions",
    "by_date",
    "by_field",
    "console_table_sink",
    "delta_sink",
    "http_sink",
    "iceberg_sink",
    "parquet_sink",
    "postgres_sink",
]
