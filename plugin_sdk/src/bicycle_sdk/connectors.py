"""Sources and sinks that need nothing but files, sockets or the job itself.

They are in ``bicycle_sdk.sources`` and ``bicycle_sdk.sinks``, like all others; the plain values are
in ``bicycle_sdk.descriptors``.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.descriptors import (
        SinkBuilder,
        SinkDescriptor,
        SourceBuilder,
        SourceDescriptor,
        built,
    )
    from bicycle_sdk.sinks import (
        FileFormat,
        collect_sink,
        console_sink,
        file_sink,
        socket_sink,
    )
    from bicycle_sdk.sources import (
        collection_source,
        csv_file_source,
        generator_source,
        jsonl_file_source,
        parquet_file_source,
        socket_source,
        text_file_source,
    )
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "descriptors": (
                "SinkBuilder",
                "SinkDescriptor",
                "SourceBuilder",
                "SourceDescriptor",
                "built",
            ),
            "sinks": (
                "FileFormat",
                "collect_sink",
                "console_sink",
                "file_sink",
                "socket_sink",
            ),
            "sources": (
                "collection_source",
                "csv_file_source",
                "generator_source",
                "jsonl_file_source",
                "parquet_file_source",
                "socket_source",
                "text_file_source",
            ),
        },
        parent="bicycle_sdk",
    )

__all__ = [
    "FileFormat",
    "SinkBuilder",
    "SinkDescriptor",
    "SourceBuilder",
    "SourceDescriptor",
    "built",
    "collect_sink",
    "collection_source",
    "console_sink",
    "csv_file_source",
    "file_sink",
    "generator_source",
    "jsonl_file_source",
    "parquet_file_source",
    "socket_sink",
    "socket_source",
    "text_file_source",
]
