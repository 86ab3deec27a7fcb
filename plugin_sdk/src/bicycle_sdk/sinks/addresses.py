"""Sinks from a text such as ``redis://host:6379/orders?format=json``.

The scheme names the connector, the rest its address, the query its options. Nothing is opened here.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bicycle_sdk import sinks, stream_options
from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.installed import installed_options
from bicycle_sdk.kafka import options as kafka_options
from bicycle_sdk.uri_queries import address_error, classes_by_scheme, read_connector

__all__ = ["SINK_SCHEMES", "is_stream_file", "sink_from_uri"]

_CALL = "to_uri"
SINK_SCHEMES = classes_by_scheme("sink", sinks, stream_options, kafka_options)


def sink_from_uri(uri: str) -> SinkDescriptor[Any]:
    """Return the sink that a URI names.

    Args:
        uri: ``redis://host:6379/orders``, ``delta:lake/orders``, ``jsonl:out`` and others, as
            listed in ``docs/reference/connectors.md``; or a scheme of an installed extension.

    Raises:
        StreamDefinitionError: the URI names no sink, or an option that it does not have.

    Example:
        >>> sink_from_uri("file://./events.ss/orders?format=json").properties
        {'address': 'file://./events.ss/orders', 'value_format': 'json'}
    """
    parts = urlsplit(uri, allow_fragments=False)
    is_path = parts.scheme == "file" and not is_stream_file(parts)
    found = None if is_path else SINK_SCHEMES.get(parts.scheme)
    if found is None and parts.scheme and not is_path:
        found = installed_options("sink", parts.scheme)
    if found is None:
        known = ", ".join(sorted(SINK_SCHEMES))
        raise address_error(
            f"{uri!r} is not the URI of a sink",
            f"write file://./events.ss/key for a stream, jsonl:out for files, or another scheme: "
            f"{known}",
            call=_CALL,
        )
    sink: SinkDescriptor[Any] = read_connector(parts, found, call=_CALL, record_type=None)
    return sink


def is_stream_file(parts: SplitResult) -> bool:
    """Return whether a URI names streams of a file: ``file://./events.ss/orders``."""
    return parts.scheme == "file" and PurePath(parts.netloc + parts.path).parent.suffix == ".ss"
