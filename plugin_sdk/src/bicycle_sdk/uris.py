"""Sources from a URI: ``kafka://broker:9092/orders?group=readers``.

The scheme names the kind of stream, the rest its place, the query its options. A URI has the
settings that most jobs need; the calls of the environment and the builders have more. Nothing is
opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from bicycle_sdk import connectors
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.formats import type_given_by
from bicycle_sdk.kafka import KafkaSourceBuilder
from bicycle_sdk.sinks.addresses import (
    NOT_KEPT,
    PULSAR,
    REDIS,
    Query,
    address_error,
    address_of,
    format_of,
    given_options,
    is_stream_file,
    payload_options,
    pulsar_options,
    redis_options,
    socket_address,
    tls_options,
)

__all__ = ["source_from_uri"]

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
        uri: ``file:``, ``kafka:``, ``pulsar:``, ``redis:``, ``ws:``, ``stdio:``, ``socket:`` or
            ``generator:``, as listed in ``docs/reference/connectors.md``.
        record_type: Type of the records; None for the source's default.

    Raises:
        StreamDefinitionError: the URI names no source, or an option that the source does not have.

    Example:
        >>> source_from_uri("file:in/*.jsonl?follow=true").properties
        {'path': 'in/*.jsonl', 'follow': True}
    """
    parts = urlsplit(uri, allow_fragments=False)
    make = _SCHEMES.get(parts.scheme)
    if make is None:
        known = ", ".join(_SCHEMES)
        problem = (
            f"{uri!r} has the scheme {parts.scheme!r}" if parts.scheme else f"{uri!r} has no scheme"
        )
        raise address_error(
            f"{problem}; known schemes: {known}",
            "start the URI with a known scheme, e.g. file:in.txt",
        )
    query = Query(parts)
    source = make(parts, query, record_type)
    query.require_all_used()
    if record_type is not None and source.output_type is str and record_type is not str:
        raise address_error(
            f"{uri!r} returns str", "convert the lines with map, or remove the type"
        )
    return source


def _streams(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    """Return the source of streams of Pulsar, of Redis or of a file."""
    properties: dict[str, Any] = {"address": address_of(parts)}
    properties |= payload_options(query, record_type)
    properties |= given_options(start=query.text("start"), bounded=query.flag("bounded") or None)
    word = "stream_file"
    if parts.scheme in REDIS:
        word = "redis"
        properties |= redis_options(query) | given_options(group=query.text("group"))
    if parts.scheme in PULSAR:
        word = "pulsar"
        properties |= pulsar_options(query) | given_options(group=query.text("group"))
    given = type_given_by(properties.get("value_format", "string"))
    output_type = record_type if given is None else given
    return SourceDescriptor(connector_type=word, properties=properties, output_type=output_type)


def _receiving_source(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    """Return the source of streams without storage: WebSockets, and standard input."""
    properties: dict[str, Any] = {"address": address_of(parts)}
    properties |= payload_options(query, record_type)
    properties |= given_options(
        journal=query.flag("journal") or None, journal_bytes_max=query.number("journal_bytes_max")
    )
    word = NOT_KEPT[parts.scheme]
    if word == "socket_stream":
        properties |= given_options(
            listen=query.flag("listen") or None,
            heads=query.flag("heads") or None,
            line_bytes_max=query.number("line_bytes_max"),
        )
    if word == "websocket":
        properties |= given_options(
            subscribe=query.text("subscribe"),
            sequence_field=query.text("sequence_field"),
            listen=query.flag("listen") or None,
            ping_interval_ms=query.number("ping_interval_ms"),
            ping_timeout_ms=query.number("ping_timeout_ms"),
            **tls_options(query),
        )
    given = type_given_by(properties.get("value_format", "string"))
    output_type = record_type if given is None else given
    return SourceDescriptor(connector_type=word, properties=properties, output_type=output_type)


def _file(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    if is_stream_file(parts):
        return _streams(parts, query, record_type)
    path = unquote(parts.path)
    if parts.netloc or not path:
        raise address_error(
            f"the path is {parts.netloc + path!r}",
            "write file:relative/path or file:///absolute/path",
        )
    name = PurePath(path).name
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    format = query.text("format") or _FORMATS.get(PurePath(name).suffix, "")
    follow, field = query.flag("follow"), query.text("timestamp_field")
    if format == "text" and field is None:
        return connectors.text_file_source(path, follow=follow)
    typed = _TYPED_FILES.get(format)
    if typed is None:
        problem = (
            f"option 'format' is {format!r}" if format else f"{name!r} does not identify a format"
        )
        if format == "text":
            problem = "a line of text has no fields for 'timestamp_field'"
        raise address_error(problem, f"add ?format= with one of text, {', '.join(_TYPED_FILES)}")
    return typed(path, follow=follow, record_type=record_type or dict, timestamp_field=field)


def _kafka(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    topics = [unquote(topic) for topic in parts.path.strip("/").split(",") if topic]
    if not parts.netloc or not topics:
        raise address_error("brokers or topic are missing", "write kafka://host:9092/topic")
    format = format_of(query)
    declared = str if record_type is None and format is None else record_type
    builder = KafkaSourceBuilder[Any](parts.netloc, topics=topics, record_type=declared)
    if format is not None:
        builder.deserializer(format)
    calls: Mapping[str, Callable[[Any], Any]] = {
        "group": builder.group_id,
        "start": builder.starting_offsets,
    }
    for name, call in calls.items():
        value = query.text(name)
        if value is not None:
            call(value)
    if query.flag("bounded"):
        builder.bounded()
    return builder.build_connector()


def _socket(parts: SplitResult, query: Query, record_type: Any) -> SourceDescriptor[Any]:
    """Return a source of lines: from clients, or with a stream from the other side."""
    if parts.path.strip("/"):
        return _receiving_source(parts, query, record_type)
    if query.text("journal") not in (None, "true"):
        hint = "use socket://127.0.0.1:9999/KEY to connect; it has no journal by default"
        raise address_error("a listening socket always has a journal", hint)
    host, port = socket_address(parts)
    return connectors.socket_source(host=host, port=port)


def _generator(_parts: SplitResult, query: Query, _record_type: Any) -> SourceDescriptor[Any]:
    rate_ms = query.number("rate_ms")
    return connectors.generator_source(
        rate_ms=100 if rate_ms is None else rate_ms, count=query.number("count")
    )


_TYPED_FILES: Mapping[str, Callable[..., SourceDescriptor[Any]]] = {
    "jsonl": connectors.jsonl_file_source,
    "csv": connectors.csv_file_source,
    "parquet": connectors.parquet_file_source,
}
_SCHEMES: Mapping[str, Callable[[SplitResult, Query, Any], SourceDescriptor[Any]]] = {
    "file": _file,
    "kafka": _kafka,
    "pulsar": _streams,
    "pulsar+ssl": _streams,
    "redis": _streams,
    "rediss": _streams,
    "stdio": _receiving_source,
    "ws": _receiving_source,
    "wss": _receiving_source,
    "socket": _socket,
    "generator": _generator,
}
