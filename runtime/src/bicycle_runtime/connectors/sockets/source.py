"""The socket source: a TCP server that journals the lines of its clients.

Journalled lines are processed exactly once. A line counts as received when it is in the journal;
TCP has no acknowledgement for the client, so lines that a client sent in the last moments before a
crash of the driver may be lost. Lines of one client keep their order. When too much waits unread,
clients are simply not read from.

One thread serves all clients: it takes the available bytes, journals all whole lines with one
flush, and only then reads on. A client's half line waits in memory, bounded by ``line_bytes_max``,
until its rest or the end comes.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.connectors.journal_source import JournalSource
from bicycle_runtime.connectors.lines import LineBlock, text_decoder
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.sockets.listening import SocketServer, open_listener
from bicycle_runtime.contract import (
    ConnectorSpec,
    Guarantee,
    Slice,
    SourceBatch,
)
from bicycle_sdk.logging import log_event
from bicycle_sdk.sources import SocketSourceOptions

__all__ = ["Receiver", "SocketReader", "SocketSource"]

_logger = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 20
WAIT_S = 0.05


class Receiver(SocketServer):
    """Receives lines from ``start`` to ``stop``.

    Args:
        vertex_id: For the log.
        listener: As ``SocketServer`` takes it.
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
        super().__init__(f"socket-source-{vertex_id}", vertex_id, listener, options.clients_max)
        self.read_position = 0
        self._journal = journal
        self._options = options
        self._half_lines: dict[socket.socket, bytes] = {}
        self._is_reading = True
        self.has_ended = False
        self.is_reachable = True

    def stop(self) -> None:
        """Close everything, the journal too; returns when the thread has ended."""
        super().stop()
        self._journal.close()

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self._error is not None:
            raise self._error

    def _connections(self) -> Iterable[socket.socket]:
        return self._half_lines

    def _turn(self) -> None:
        self._apply_back_pressure()
        ready = self._selector.select(None if self._is_reading else WAIT_S)
        lines = [self._serve(key.fileobj) for key, _ in ready]
        self._journal.append(b"".join(lines))

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
        """Stop or continue reading from clients, as much as waits unread."""
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


@dataclass(frozen=True, slots=True)
class SocketReader:
    """Reads lines out of the journal."""

    segments: JournalSegments

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the lines of the range, which begins and ends at line starts."""
        position, held = part.start, b""
        for data in self.segments.blocks(list(part.details["segments"]), part.start, part.end):
            whole, newline, held_next = (held + data).rpartition(b"\n")
            held = held_next
            if newline:
                block = LineBlock(position, whole + newline, position + len(whole) + 1)
                position = block.next_offset
                yield text_decoder(block)
        if position == part.start:
            yield SourceBatch(values=[], offsets=(), next_offset=part.start)

    def close(self) -> None:
        """Do nothing: the reader has no open resources between slices."""


class SocketSource(JournalSource):
    """A source that listens on ``host:port``; offsets are bytes of its journal."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = SocketSourceOptions
    gives_times = False

    def __init__(self, spec: ConnectorSpec) -> None:
        self._options = options = read_options(SocketSourceOptions, spec)
        super().__init__(
            spec, segment_bytes=options.segment_bytes, epochs_min=options.journal_epochs_min
        )
        self._server: Receiver | None = None

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was requested."""
        return self._server.port if self._server is not None else self._options.port

    @property
    def refused_count(self) -> int:
        """The number of refused clients: beyond the limit, or without a descriptor."""
        return self._server.refused_count if self._server is not None else 0

    def receive(self, journal: Journal, position: int, state: Mapping[str, Any]) -> Receiver:
        """Open the port.

        Raises:
            PORT_UNAVAILABLE: the port is in use.
        """
        listener = open_listener(self.spec.vertex_id, self._options.host, self._options.port)
        self._server = Receiver(self.spec.vertex_id, listener, journal, self._options)
        self._server.read_position = position
        self._server.start()
        return self._server

    def reader_of(self, segments: JournalSegments) -> SocketReader:
        """Return a reader of lines."""
        return SocketReader(segments)

    def stop(self) -> None:
        """Close the port, the clients and the journal."""
        super().stop()
        self._server = None
