"""The socket sink: a TCP server that sends records as lines to all clients.

While a client is connected nothing is lost: publishing waits for it. With no client connected,
records are dropped and counted. After a crash an epoch may be sent again (at-least-once).

One thread accepts reading clients and sends them lines, each at its own speed. Publishing passes
blocks of lines and waits while a client's buffer is full. A client that takes no byte for
``client_timeout_ms`` is disconnected, so that one stuck reader cannot stop the job; its lines are
counted as lost.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.connectors.errors import PublishInterruptedError
from bicycle_runtime.connectors.lines import text_lines
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.sockets.listening import SocketServer, open_listener
from bicycle_runtime.connectors.staging import (
    StagedWriter,
    staged_blocks,
)
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    DropsRecords,
    Guarantee,
    InterruptiblePublication,
    Sink,
    StagedFile,
    StagedPublication,
    WriterTask,
)
from bicycle_sdk.clock import Clock
from bicycle_sdk.logging import log_event
from bicycle_sdk.sinks import SocketSinkOptions

__all__ = ["Broadcaster", "SendingEndedError", "SocketSink", "SocketWriterFactory"]

_logger = logging.getLogger(__name__)
WAIT_S = 0.05
SEND_BYTES = 1 << 18


class SendingEndedError(Exception):
    """A request to end the job while a client has not received all output."""


@dataclass(slots=True)
class _Client:
    """One reader: its pending output, and the time of its last progress."""

    address: str
    pending: bytearray = field(default_factory=bytearray)
    progress_s: float = 0.0


class Broadcaster(SocketServer):
    """Sends lines to all connected clients from ``start`` to ``stop``.

    Args:
        vertex_id: For the log.
        listener: Listens already, non-blocking; closed by ``stop``.
        options: The bounds.
        clock: Measures how long a client has been stuck.
    """

    def __init__(
        self, vertex_id: str, listener: socket.socket, options: SocketSinkOptions, clock: Clock
    ) -> None:
        super().__init__(f"socket-sink-{vertex_id}", vertex_id, listener, options.clients_max)
        self.dropped_line_count = 0
        self._options = options
        self._clock = clock
        self._clients: dict[socket.socket, _Client] = {}
        self._changed = threading.Condition()
        self._is_interrupted = False

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    def interrupt(self) -> None:
        """Stop all waiting for clients, now and later."""
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def send(self, lines: bytes) -> None:
        """Queue whole lines for every client; waits while a client's buffer is full.

        Without a client the lines are dropped and counted.

        Raises:
            SendingEndedError: the job must end before the client has read.
        """
        with self._changed:
            self._wait_for(self._options.client_buffer_bytes)
            if not self._clients:
                self.dropped_line_count += lines.count(b"\n")
                return
            now_s = self._clock.monotonic()
            for client in self._clients.values():
                if not client.pending:
                    client.progress_s = now_s
                client.pending += lines
        self._wake()

    def flush(self) -> None:
        """Wait until every client has taken everything, or was disconnected.

        Raises:
            SendingEndedError: the job must end before that.
        """
        with self._changed:
            self._wait_for(1)

    def _wait_for(self, pending_max: int) -> None:
        """Wait until every client has fewer than ``pending_max`` bytes to take."""
        while any(len(client.pending) >= pending_max for client in self._clients.values()):
            if self._error is not None:
                raise self._error
            if self._is_stopping or self._is_interrupted:
                raise SendingEndedError
            self._changed.wait(WAIT_S)

    def _connections(self) -> Iterable[socket.socket]:
        return self._clients

    def _turn(self) -> None:
        is_waiting = any(client.pending for client in self._clients.values())
        ready = self._selector.select(WAIT_S if is_waiting else None)
        with self._changed:
            for key, events in ready:
                if isinstance(key.fileobj, socket.socket):
                    self._serve(key.fileobj, events)
            self._drop_stuck()
            self._watch_pending()
            self._changed.notify_all()

    def _run(self) -> None:
        super()._run()
        with self._changed:  # Callers that wait for clients learn that the server has ended.
            self._changed.notify_all()

    def _serve(self, ready: socket.socket, events: int) -> None:
        if ready is self._door.listener:
            self._accept()
        elif ready is self._wake_out:
            ready.recv(SEND_BYTES)
        elif ready in self._clients:
            if events & selectors.EVENT_WRITE:
                self._send_some(ready, self._clients[ready])
            if events & selectors.EVENT_READ and ready in self._clients:
                self._drain(ready)

    def _accept(self) -> None:
        admitted = self._door.admit(len(self._clients))
        if admitted is not None:
            client, address = admitted
            self._clients[client] = _Client(address)
            self._selector.register(client, selectors.EVENT_READ)

    def _send_some(self, connection: socket.socket, client: _Client) -> None:
        try:
            sent = connection.send(memoryview(client.pending)[:SEND_BYTES].tobytes())
        except BlockingIOError:
            return
        except OSError:
            self._forget(connection, "it closed the connection")
            return
        del client.pending[:sent]
        client.progress_s = self._clock.monotonic()

    def _drain(self, connection: socket.socket) -> None:
        """Read from a client, which detects that it left."""
        try:
            data = connection.recv(SEND_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data and not self._clients[connection].pending:
            self._forget(connection, "it closed the connection")
        elif not data:
            # It may only have closed its sending half (nc does); sending shows whether it is gone.
            self._selector.modify(connection, selectors.EVENT_WRITE)

    def _drop_stuck(self) -> None:
        limit_s = self._options.client_timeout_ms / 1_000
        now_s = self._clock.monotonic()
        for connection, client in list(self._clients.items()):
            if client.pending and now_s - client.progress_s >= limit_s:
                self.dropped_line_count += client.pending.count(b"\n")
                self._forget(connection, "it did not read for client_timeout_ms")

    def _forget(self, connection: socket.socket, reason: str) -> None:
        client = self._clients.pop(connection)
        self._selector.unregister(connection)
        connection.close()
        log_event(
            _logger,
            "socket_client_gone",
            level=logging.WARNING if client.pending else logging.INFO,
            vertex=self._vertex_id,
            client=client.address,
            reason=reason,
            unsent_byte_count=len(client.pending),
        )

    def _watch_pending(self) -> None:
        """Watch for writability only of clients with pending output."""
        for connection, client in self._clients.items():
            known = self._selector.get_key(connection).events
            wanted = known | selectors.EVENT_WRITE if client.pending else selectors.EVENT_READ
            if known != wanted:
                self._selector.modify(connection, wanted)


@dataclass(frozen=True, slots=True)
class SocketWriterFactory:
    """Opens writers that stage text lines."""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one line per record."""
        return StagedWriter(task, "records.txt", text_lines, takes_rows=True)


class SocketSink(StagedPublication, InterruptiblePublication, DropsRecords, Sink):
    """Listens on ``host:port`` and broadcasts."""

    guarantee = Guarantee.AT_LEAST_ONCE
    options_class = SocketSinkOptions
    takes_rows = True

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(SocketSinkOptions, spec)
        self._broadcaster: Broadcaster | None = None
        self._dropped_count = 0
        self._sent_epoch = -1

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was requested."""
        return self._broadcaster.port if self._broadcaster is not None else self._options.port

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return self._broadcaster.client_count if self._broadcaster is not None else 0

    @property
    def refused_count(self) -> int:
        """The number of refused clients: beyond the limit, or without a descriptor."""
        return self._broadcaster.refused_count if self._broadcaster is not None else 0

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Open the port.

        Raises:
            PORT_UNAVAILABLE: the port is in use.
        """
        self._storage = services.storage
        listener = open_listener(self.spec.vertex_id, self._options.host, self._options.port)
        self._broadcaster = Broadcaster(
            self.spec.vertex_id, listener, self._options, services.clock
        )
        self._broadcaster.start()

    def writer(self) -> SocketWriterFactory:
        """Return the factory of text writers."""
        return SocketWriterFactory()

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Send the epoch's records, once per run; returns when all clients took them.

        Raises:
            PublishInterruptedError: the job must end while a client does not read.
        """
        if self._broadcaster is None or epoch <= self._sent_epoch:
            return
        try:
            for file in self.staged_files(state):
                self._send(self._broadcaster, file)
            self._broadcaster.flush()
        except SendingEndedError as error:
            raise PublishInterruptedError(
                vertex=self.spec.vertex_id, epoch=epoch, reason="a client does not read",
                target=f"the clients of port {self._broadcaster.port}",
            ) from error  # fmt: skip
        self._sent_epoch = epoch

    def interrupt(self) -> None:
        """Make publishing stop waiting for clients that do not read."""
        if self._broadcaster is not None:
            self._broadcaster.interrupt()

    def _send(self, broadcaster: Broadcaster, file: StagedFile) -> None:
        held = b""
        for data in staged_blocks(self._storage, file):
            whole, newline, held = (held + data).rpartition(b"\n")
            broadcaster.send(whole + newline)

    def stop(self) -> None:
        """Close the port and the clients."""
        if self._broadcaster is not None:
            self._broadcaster.stop()
            self._dropped_count += self._broadcaster.dropped_line_count
            self._broadcaster = None

    def dropped_count(self) -> int:
        """Return how many records found no client, or a client that did not read."""
        running = self._broadcaster.dropped_line_count if self._broadcaster is not None else 0
        return self._dropped_count + running
