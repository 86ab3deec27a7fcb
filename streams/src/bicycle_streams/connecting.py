"""The way from an address to its backend, by the protocol.

Backends of this package are imported when their protocol is used. Other backends are found by the
entry point group ``bicycle.streams``, whose names are protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bicycle_sdk.entry_points import entry_points
from bicycle_streams.addresses import StreamerUri, StreamUrl
from bicycle_streams.contract import Streamer
from bicycle_streams.errors import EXTRA_MISSING, PROTOCOL_REQUIRED, ProtocolUnknownError
from bicycle_streams.options import StreamerOptions, read_options

ENTRY_POINTS = "bicycle.streams"
_BACKENDS = {
    "file": "bicycle_streams.file.streamer:FileStreamer",
    "kafka": "bicycle_streams.kafka.streamer:KafkaStreamer",
    "pulsar": "bicycle_streams.pulsar.streamer:PulsarStreamer",
    "pulsar+ssl": "bicycle_streams.pulsar.streamer:PulsarStreamer",
    "redis": "bicycle_streams.redis.streamer:RedisStreamer",
    "rediss": "bicycle_streams.redis.streamer:RedisStreamer",
    "socket": "bicycle_streams.sockets:SocketStreamer",
    "stdio": "bicycle_streams.stdio:StdioStreamer",
    "ws": "bicycle_streams.websocket:WebSocketStreamer",
    "wss": "bicycle_streams.websocket:WebSocketStreamer",
}
# Library -> the extra that brings it.
_EXTRAS = {
    "confluent_kafka": "kafka",
    "pulsar": "pulsar",
    "redis": "redis",
    "websockets": "websocket",
}


def connect(
    uri: str | StreamerUri | StreamUrl,
    options: StreamerOptions | Mapping[str, object] | None = None,
) -> Streamer:
    """Return the streamer of an address; ``async with`` opens and disconnects it.

    Args:
        uri: ``file://./events.ss``, ``stdio://``, ``ws://host:port`` and the like. Of the address
            of streams, the place counts.
        options: Options of the backend, or their names and values as texts.

    Raises:
        StreamUrlError: the address cannot be read, or has no protocol.
        ProtocolUnknownError: there is no backend for the protocol.
        OptionError: an option is out of bounds, or the backend does not have it.
    """
    if isinstance(uri, StreamUrl):
        uri = uri.streamer
    elif isinstance(uri, str):
        uri = StreamerUri.parse(uri)
    backend = backend_of(uri)
    if not isinstance(options, StreamerOptions):
        options = read_options(backend.options_type, options or {})
    elif not isinstance(options, backend.options_type):
        raise TypeError(f"{uri} requires options of the class {backend.options_type.__name__}")
    return backend(uri, options)


def backend_of(uri: StreamerUri) -> type[Streamer]:
    """Return the class that serves the protocol of an address."""
    if uri.protocol is None:
        raise PROTOCOL_REQUIRED(address=str(uri))
    if location := _BACKENDS.get(uri.protocol):
        found: Any = _load(uri, location)
    else:
        points = entry_points(ENTRY_POINTS)
        installed = [point for point in points if point.name == uri.protocol]
        if not installed:
            known = sorted({*_BACKENDS, *(point.name for point in points)})
            raise ProtocolUnknownError(
                address=str(uri), protocol=uri.protocol, known_text=", ".join(known)
            )
        found = installed[0].load()
    return found  # type: ignore[no-any-return]  # Whatever an entry point names, used as a backend.


def _load(uri: StreamerUri, location: str) -> Any:
    module, _, name = location.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if (extra := _EXTRAS.get(library)) is None:
            raise
        raise EXTRA_MISSING(address=str(uri), library=library, extra=extra) from None
