"""The thread that accepts clients and journals their lines.

One thread serves all clients: it takes what is there, journals all whole lines with one flush, and
only then reads on. A client's half line waits in memory, bounded by ``line_bytes_max``, until its
rest or the end comes.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.sockets.journal import Journal
from bicycle_runtime.connectors.sockets.listening import Door
from bicycle_runtime.connectors.sockets.options import SocketSourceOptions

__all__ = ["Receiver"]

_logger = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 20
WAIT_S = 0.05


class Receiver:
    """Receives lines from ``start`` to ``stop``.

    Args:
        vertex_id: For the log.
        listener: Listens already, non-blocking; closed by ``stop``.
        journal: Where lines go.
        options: The bounds.
    """

    def __init__(
        self,
        vertex_id: str,
        listener: socket.socket,
        journal: Journal,
        options: SocketSourceOptions,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.read_position = 0
        self._vertex_id = vertex_id
        self._door = Door(vertex_id, listener, options.clients_max)
        self._journal = journal
        self._options = options
        self._half_lines: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._is_reading = True
        self._is_stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"socket-source-{vertex_id}")
        self._thread.daemon = True

    @property
    def refused_count(self) -> int:
        """How many clients were refused."""
        return self._door.refused_count

    def start(self) -> None:
        """Begin to accept clients."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything; returns when the thread has ended."""
        self._is_stopping = True
        self._wake_in.send(b"x")
        self._thread.join()
        for client in [*self._half_lines, self._wake_in, self._wake_out]:
            client.close()
        self._door.close()
        self._selector.close()
        self._journal.close()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._apply_back_pressure()
                ready = self._selector.select(None if self._is_reading else WAIT_S)
                lines = [self._serve(key.fileobj) for key, _ in ready]
                self._journal.append(b"".join(lines))
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver's next poll raises it.
            self._error = error

    def _serve(self, ready: object) -> bytes:
        """Return the whole lines that came from one ready socket."""
        if ready is self._door.listener:
            self._accept()
        elif isinstance(ready, socket.socket) and ready in self._half_lines:
            return self._receive(ready)
        return b""

    def _accept(self) -> None:
        admitted = self._door.admit(len(self._half_lines))
        if admitted is None:
            return
        client, _ = admitted
        self._half_lines[client] = b""
        if self._is_reading:
            self._selector.register(client, selectors.EVENT_READ)

    def _receive(self, client: socket.socket) -> bytes:
        try:
            data = client.recv(CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            log_event(_logger, "socket_client_failed", vertex=self._vertex_id, reason=str(error))
            data = b""
        if not data:
            rest = self._forget(client)
            return rest + b"\n" if rest else b""
        whole, newline, rest = (self._half_lines[client] + data).rpartition(b"\n")
        self._half_lines[client] = rest
        if len(rest) > self._options.line_bytes_max:
            log_event(
                _logger,
                "socket_client_refused",
                level=logging.ERROR,
                vertex=self._vertex_id,
                reason="a line is longer than line_bytes_max",
                line_bytes_max=self._options.line_bytes_max,
            )
            self._forget(client)
        return whole + newline

    def _forget(self, client: socket.socket) -> bytes:
        rest = self._half_lines.pop(client)
        self._selector.unregister(client)
        client.close()
        return rest

    def _apply_back_pressure(self) -> None:
        """Stop or go on reading from clients, as much as waits unread."""
        unread = self._journal.end - self.read_position  # Both only grow, so a stale value is safe.
        is_reading = unread < self._options.journal_bytes_max
        if is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        log_event(
            _logger,
            "socket_clients_released" if is_reading else "socket_clients_held_back",
            vertex=self._vertex_id,
            unread_byte_count=unread,
        )
        for client in self._half_lines:
            if is_reading:
                self._selector.register(client, selectors.EVENT_READ)
            else:
                self._selector.unregister(client)
