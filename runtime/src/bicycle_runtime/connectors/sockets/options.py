"""Options of the socket connectors, declared once."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_sdk.options import option

__all__ = ["SocketSinkOptions", "SocketSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSourceOptions:
    """The options of the socket source: address, limits and journal."""

    host: str = option(
        "127.0.0.1",
        doc=(
            "Address to listen on; with `0.0.0.0`, other machines can connect without "
            "authentication."
        ),
    )
    port: int = option(9999, low=0, high=65_535, doc="Port to listen on; 0 selects a free port.")
    clients_max: int = option(
        256,
        low=1,
        high=65_536,
        doc="Maximum number of connected clients; further clients are rejected and counted.",
    )
    journal_bytes_max: int = option(
        1 << 30,
        low=1 << 16,
        high=1 << 40,
        doc="Received bytes that may wait unread; above this limit, no client is read.",
    )
    segment_bytes: int = option(
        8 << 20, low=1 << 10, high=1 << 30, doc="Size at which a new journal file begins."
    )
    journal_epochs_min: int = option(
        10,
        low=1,
        high=1_000,
        doc="Number of published epochs whose journal is kept, to fall back to an older epoch.",
    )
    line_bytes_max: int = option(
        16 << 20,
        low=1 << 10,
        high=1 << 30,
        doc="Maximum length of a line; a client with a longer line is disconnected.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketSinkOptions:
    """The options of the socket sink: address, and limits for slow readers."""

    host: str = option(
        "127.0.0.1",
        doc=(
            "Address to listen on; with `0.0.0.0`, other machines can connect without "
            "authentication."
        ),
    )
    port: int = option(9998, low=0, high=65_535, doc="Port to listen on; 0 selects a free port.")
    clients_max: int = option(
        256,
        low=1,
        high=65_536,
        doc="Maximum number of connected clients; further clients are rejected and counted.",
    )
    client_timeout_ms: int = option(
        30_000,
        low=100,
        high=3_600_000,
        doc=(
            "Time without a read by the client after which it is disconnected, and its loss is "
            "counted."
        ),
    )
    client_buffer_bytes: int = option(
        1 << 20,
        low=1 << 12,
        high=1 << 30,
        doc="Bytes that may wait for one client; above this limit, publication waits.",
    )
