"""Sources from a URI: ``kafka://broker:9092/orders?group=readers``.

The scheme names the connector, the rest its address, the query its options. Nothing is opened here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bicycle_sdk import sources, stream_options
from bicycle_sdk.connector_options import path_of
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.installed import installed_options
from bicycle_sdk.kafka import options as kafka_options
from bicycle_sdk.options import describe
from bicycle_sdk.record_types import clash, type_name
from bicycle_sdk.sinks.addresses import is_stream_file
from bicycle_sdk.sources.files import (
    CsvFileSourceOptions,
    JsonlFileSourceOptions,
    ParquetFileSourceOptions,
    TextFileSourceOptions,
)
from bicycle_sdk.uri_queries import Query, address_error, classes_by_scheme, read_connector

__all__ = ["SOURCE_SCHEMES", "source_from_uri"]

_FORMATS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".log": "text",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".zst")


def source_from_uri(uri: str, record_type: Any = None) -> SourceDescriptor[Any]:
    """Return the source that a URI names.

    Args:
        uri: ``file:``, ``kafka:``, ``redis:``, ``postgresql:``, ``socket:`` and others, as listed
            in ``docs/reference/connectors.md``.
        record_type: Type of the records; None for the source's default.

    Raises:
        StreamDefinitionError: the URI names no source, or an option that the source does not have.

    Example:
        >>> source_from_uri("file:in/*.jsonl?follow=true").properties
        {'follow': True, 'path': 'in/*.jsonl'}
    """
    parts = urlsplit(uri, allow_fragments=False)
    source = _read(parts, record_type)
    if source is None:
        known = ", ".join(sorted(SOURCE_SCHEMES))
        problem = (
            f"{uri!r} has the scheme {parts.scheme!r}" if parts.scheme else f"{uri!r} has no scheme"
        )
        raise address_error(
            f"{problem}; known schemes: {known}",
            "start the URI with a known scheme, e.g. file:in.txt",
        )
    if clash(source.output_type, record_type):
        raise address_error(
            f"{uri!r} returns {type_name(source.output_type)}, not {type_name(record_type)}",
            "convert the records with map, or remove the type",
        )
    return source


def _read(parts: SplitResult, record_type: Any) -> SourceDescriptor[Any] | None:
    """Return the source of a URI; None for an unknown scheme."""
    if parts.scheme == "file" and not is_stream_file(parts):
        return _file(parts, Query(parts), record_type)
    found: Any = SOURCE_SCHEMES.get(parts.scheme)
    if found is None and parts.scheme:
        found = installed_options("source", parts.scheme)
    if found is None:
        return None
    read: SourceDescriptor[Any] = read_connector(
        parts, found, call="from_uri", record_type=record_type
    )
    if record_type is None or clash(read.output_type, record_type):
        return read
    return dataclasses.replace(read, output_type=record_type)


def _file(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    try:
        path = path_of(parts)
    except ValueError as error:
        raise address_error(str(error), "correct the path") from error
    name = PurePath(path).name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    format = query.text("format") or _FORMATS.get(PurePath(name).suffix, "")
    options_class = _FILES.get(format)
    if options_class is None:
        problem = (
            f"option 'format' is {format!r}" if format else f"{name!r} does not identify a format"
        )
        raise address_error(problem, f"add ?format= with one of {', '.join(_FILES)}")
    is_text = format == "text"  # Lines have neither fields nor another type.
    in_address = ("path", "timestamp_field") if is_text else ("path",)
    options = query.options(describe(options_class), in_address)
    if not is_text:
        options["record_type"] = record_type or dict
    source: SourceDescriptor[Any] = options_class(path, **options).build_connector()
    return source


_FILES: Mapping[str, Any] = {
    "text": TextFileSourceOptions,
    "jsonl": JsonlFileSourceOptions,
    "csv": CsvFileSourceOptions,
    "parquet": ParquetFileSourceOptions,
}
SOURCE_SCHEMES = classes_by_scheme("source", sources, stream_options, kafka_options)
