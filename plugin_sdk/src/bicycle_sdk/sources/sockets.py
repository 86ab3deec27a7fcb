"""Sources that are lines from sockets."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.connector_options import SourceOptions, source_call
from bicycle_sdk.options import option
from bicycle_sdk.stream_options import JournalOptions, SocketLines, listening_port

__all__ = ["SocketSourceOptions", "socket_source"]


class SocketSourceOptions(
    SocketLines,
    JournalOptions,
    SourceOptions[Any],
    connector="socket",
    call="socket_source",
):
    """The options of the socket source: address, limits and journal."""

    port: int = listening_port(9999)
    line_bytes_max: int = option(
        default=16 << 20,
        low=1,
        high=1 << 30,
        doc="Maximum length of a line; a sender with a longer line is disconnected.",
    )

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
