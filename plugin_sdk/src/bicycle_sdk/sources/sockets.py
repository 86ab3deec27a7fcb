"""Sources that are lines from sockets."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.client_options import LineLength
from bicycle_sdk.connector_options import SourceOptions, source_call
from bicycle_sdk.options import adapt_option
from bicycle_sdk.stream_options import JournalOptions, SocketLines

__all__ = ["SocketSourceOptions", "socket_source"]


class SocketSourceOptions(
    LineLength,
    SocketLines,
    JournalOptions,
    SourceOptions[Any],
    connector="socket",
    call="socket_source",
):
    """The options of the socket source: address, limits and journal."""

    line_bytes_max: int = adapt_option(LineLength, "line_bytes_max", default=16 << 20, low=1)

    @property
    def has_journal(self) -> bool:
        """True if lines are on disk before they are read: all that clients send unasked."""
        return self.journal or not self.stream

    @property
    def gives_times(self) -> bool:
        """True if lines have the time at which they came, as the messages of a stream."""
        return bool(self.stream)


socket_source = source_call(
    SocketSourceOptions,
    "Return a source of lines: of clients of a TCP server on ``host:port``, or of a server.",
)
