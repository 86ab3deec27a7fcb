"""Sources that are lines from sockets."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.connector_options import SourceOptions, source_call
from bicycle_sdk.options import option

__all__ = ["SocketSourceOptions", "socket_source"]


class SocketSourceOptions(SourceOptions[str], connector="socket", call="socket_source"):
    """The options of the socket source: address, limits and journal.

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
        default=9999, low=0, high=65_535, doc="Port to listen on; 0 selects a free port."
    )
    clients_max: int = option(
        default=256,
        low=1,
        high=65_536,
        doc="Maximum number of connected clients; further clients are rejected and counted.",
    )
    journal_bytes_max: int = option(
        default=1 << 30,
        low=1 << 16,
        high=1 << 40,
        doc="Received bytes that may wait unread; above this limit, no client is read.",
    )
    segment_bytes: int = option(
        default=8 << 20, low=1 << 10, high=1 << 30, doc="Size at which a new journal file begins."
    )
    journal_epochs_min: int = option(
        default=10,
        low=1,
        high=1_000,
        doc="Number of published epochs whose journal is kept, to fall back to an older epoch.",
    )
    line_bytes_max: int = option(
        default=16 << 20,
        low=1 << 10,
        high=1 << 30,
        doc="Maximum length of a line; a client with a longer line is disconnected.",
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the address, which graphs always have."""
        return {"host": cls.host, "port": cls.port, **given}

    def output_type(self) -> Any:
        """Return the type of lines."""
        return str


socket_source = source_call(
    SocketSourceOptions,
    "Return a source of lines from clients of a TCP server on ``host:port`` (0: any).",
)
