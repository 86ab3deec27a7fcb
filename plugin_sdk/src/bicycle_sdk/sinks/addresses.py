"""Sinks from a text such as ``redis://host:6379/orders?format=json``.

The scheme names the connector, the rest its address, the query its options. Nothing is opened here.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bicycle_sdk import stream_options
from bicycle_sdk.descriptors import SinkDescriptor
from bicycle_sdk.installed import installed_options
from bicycle_sdk.kafka.options import KafkaSinkOptions
from bicycle_sdk.sinks.sockets import SocketSinkOptions
from bicycle_sdk.uri_queries import address_error, read_connector

__all__ = ["is_stream_file", "sink_from_uri"]

_CALL = "to_uri"
_CLASSES: tuple[Any, ...] = (
    KafkaSinkOptions,
    stream_options.RedisSinkOptions,
    stream_options.PulsarSinkOptions,
    stream_options.WebSocketSinkOptions,
    SocketSinkOptions,
    stream_options.StdioSinkOptions,
)
_SCHEMES = {scheme: cls for cls in _CLASSES for scheme in cls.connector.schemes}


def sink_from_uri(uri: str) -> SinkDescriptor[Any]:
    """Return the sink that a URI names.

    Args:
        uri: ``redis://host:6379/orders``, ``file://./events.ss/orders``, ``kafka:``, ``ws:``,
            ``socket:`` or ``stdio:``, with a format behind the question mark where records are no
            texts; or a scheme of an installed extension.

    Raises:
        StreamDefinitionError: the URI names no sink, or an option that it does not have.

    Example:
        >>> sink_from_uri("file://./events.ss/orders?format=json").properties
        {'address': 'file://./events.ss/orders', 'value_format': 'json'}
    """
    parts = urlsplit(uri, allow_fragments=False)
    found = _SCHEMES.get(parts.scheme)
    if is_stream_file(parts):
        found = stream_options.FileStreamSinkOptions
    if found is None and parts.scheme:
        found = installed_options("sink", parts.scheme)
    if found is None:
        raise address_error(
            f"{uri!r} is not the URI of a sink",
            "write redis://host:6379/key, pulsar://host:6650/key, file://./events.ss/key, "
            "kafka://host:9092/topic, ws://host:port/key, socket://host:port or stdio:///key",
            call=_CALL,
        )
    sink: SinkDescriptor[Any] = read_connector(parts, found, call=_CALL, record_type=None)
    return sink


def is_stream_file(parts: SplitResult) -> bool:
    """Return whether a URI names streams of a file: ``file://./events.ss/orders``."""
    return parts.scheme == "file" and PurePath(parts.netloc + parts.path).parent.suffix == ".ss"
