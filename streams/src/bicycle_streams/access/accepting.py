"""A listening socket that counts accepted connections from the first packet on.

A connection counts before TLS has been negotiated and before a byte has been read, so that those
that never get that far are bounded, too. The event loop calls ``accept`` as on any other socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

from bicycle_streams.access.connections import Connections, OpenConnection

# Of a flood of connections no more are accepted between two looks at requests.
_ACCEPTED_AT_ONCE = 16
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListeningSocket(socket.socket):
    """A listening socket.

    Attributes:
        connections: Counts what was accepted, and is not closed yet.
    """

    connections: Connections

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.connections = Connections()
        self._by_peer: dict[Any, OpenConnection] = {}
        self._accepted_count = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection, and the address of its peer.

        Raises:
            BlockingIOError: there is none, or requests are to be looked at first.
        """
        if self._accepted_count >= _ACCEPTED_AT_ONCE:
            raise BlockingIOError(errno.EAGAIN, "requests come first")
        try:
            plain, peer = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self.connections.drop_one()
            raise BlockingIOError(error.errno, str(error)) from error
        if not self._accepted_count:
            asyncio.get_running_loop().call_soon(self._start_anew)
        self._accepted_count += 1
        accepted = _Accepted(fileno=plain.detach())
        connection = self.connections.open(str(peer[0]), accepted.hang_up)
        self._by_peer[peer] = connection
        accepted.attach(self, peer)
        return accepted, peer

    def connection_of(self, peer: Any) -> OpenConnection:
        """Return the connection that was accepted from a peer; it may be closed by now."""
        return self._by_peer.get(peer) or OpenConnection(Connections(), "", lambda: None)

    def forget(self, peer: Any) -> None:
        """Count a connection no longer: it is closed."""
        connection = self._by_peer.pop(peer, None)
        if connection is not None:
            connection.close()

    def _start_anew(self) -> None:
        self._accepted_count = 0


class _Accepted(socket.socket):
    """A connection that its listener hears of when it is closed."""

    _listener: ListeningSocket | None = None
    _peer: Any = None

    def attach(self, listener: ListeningSocket, peer: Any) -> None:
        """Set the listener to notify."""
        self._listener, self._peer = listener, peer

    def hang_up(self) -> None:
        """End the connection; the reader sees its end, and closes it."""
        with contextlib.suppress(OSError):  # The client was faster.
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close, and notify the listener."""
        super().close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.forget(self._peer)
