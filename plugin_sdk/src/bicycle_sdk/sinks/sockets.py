"""Sinks that are lines to sockets."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.connector_options import SinkOptions, sink_call
from bicycle_sdk.options import option

__all__ = ["SocketSinkOptions", "socket_sink"]


class SocketSinkOptions(SinkOptions, connector="socket", call="socket_sink"):
    """The options of the socket sink: address, and limits for slow readers.

    Programs of other machines reach it only if ``host`` allows it. Clients are not authenticated.
    """

    host: str = option(
        default="127.0.0.1",
        doc=(
            "Address to listen on; with `0.0.0.0`, other machines can connect without "
            "authentication."
        ),
    )
    port: int = option(
        default=9998, low=0, high=65_535, doc="Port to listen on; 0 selects a free port."
    )
    clients_max: int = option(
        default=256,
        low=1,
        high=65_536,
        doc="Maximum number of connected clients; further clients are rejected and counted.",
    )
    client_timeout_ms: int = option(
        default=30_000,
        low=100,
        high=3_600_000,
        doc=(
            "Time without a read by the client after which it is disconnected, and its loss is "
            "counted."
        ),
    )
    client_buffer_bytes: int = option(
        default=1 << 20,
        low=1 << 12,
        high=1 << 30,
        doc="Bytes that may wait for one client; above this limit, publication waits.",
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the address, which graphs always have."""
        return {"host": cls.host, "port": cls.port, **given}


socket_sink = sink_call(
    SocketSinkOptions,
    "Return a sink of lines to clients of a TCP server on ``host:port`` (0: any).",
)
