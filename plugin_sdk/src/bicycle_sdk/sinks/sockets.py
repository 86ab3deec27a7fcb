"""Sinks that are lines to sockets."""

from __future__ import annotations

from bicycle_sdk.client_options import Publication
from bicycle_sdk.connector_options import SinkOptions, sink_call
from bicycle_sdk.options import adapt_option, option
from bicycle_sdk.stream_options import SocketLines

__all__ = ["SocketSinkOptions", "socket_sink"]


class SocketSinkOptions(
    SocketLines,
    Publication,
    SinkOptions,
    connector="socket",
    call="socket_sink",
):
    """The options of the socket sink: address, and limits for slow readers."""

    port: int = adapt_option(SocketLines, "port", default=9998)
    send_timeout_ms: int = option(
        default=30_000,
        low=100,
        high=3_600_000,
        doc=(
            "Time without a read after which a client "
            "is disconnected, and its lost records are counted."
        ),
        aliases=("client_timeout_ms",),
    )
    client_buffer_bytes: int = option(
        default=1 << 20,
        low=1 << 12,
        high=1 << 30,
        doc="Bytes that may wait for one reader; above this limit, publication waits.",
    )


socket_sink = sink_call(
    SocketSinkOptions,
    "Return a sink of lines: to clients of a TCP server on ``host:port``, or to a server.",
)
