"""The socket source: a TCP server that journals the lines which any number of clients send.

What is journalled is processed exactly once. A line counts as received when it is in the journal;
TCP has no answer that would tell the client, so what a client sent in the last moments before a
crash of the driver may be lost. Lines of one client keep their order. When too much waits unread,
clients are simply not read from.

One thread serves all clients: it takes what is there, journals all whole lines with one flush, and
only then reads on. A client's half line waits in memory, bounded by ``line_bytes_max``, until its
rest or the end comes.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.connectors.lines import LineBlock, text_decoder
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.sockets.journal import Journal, JournalSegments
from bicycle_runtime.connectors.sockets.listening import SocketServer, open_listener
from bicycle_runtime.connectors.sockets.options import SocketSourceOptions
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    FollowsPublication,
    Guarantee,
    Lag,
    RereadsEarlierSlices,
    Slice,
    Source,
    SourceBatch,
    SourceStatus,
)

__all__ = ["Receiver", "SocketReader", "SocketSource"]

_logger = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 20
WAIT_S = 0.05

SHARD = "journal"
NEXT_POLL_MS = 20


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

    def stop(self) -> None:
        """Close everything, the journal too; returns when the thread has ended."""
        super().stop()
        self._journal.close()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def _connected(self) -> Iterable[socket.socket]:
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
        """Nothing is held open between slices."""


class SocketSource(RereadsEarlierSlices, FollowsPublication, Source):
    """Listens on ``host:port``; shard ``journal``, offsets are bytes of the journal; never ends."""

    guarantee = Guarantee.EXACTLY_ONCE
    default_parallelism_max = 1
    options_class = SocketSourceOptions
    gives_times = False

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(SocketSourceOptions, spec)
        self._receiver: Receiver | None = None
        self._next = 0
        self._published: deque[int] = deque(maxlen=self._options.journal_epochs_min)

    @property
    def port(self) -> int:
        """The port that is listened on, also when port 0 was asked for."""
        return self._receiver.port if self._receiver is not None else self._options.port

    @property
    def refused_count(self) -> int:
        """How many clients were refused: too many were connected, or no descriptor was left."""
        return self._receiver.refused_count if self._receiver is not None else 0

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Open the journal, then the port.

        Raises:
            PORT_UNAVAILABLE: the port is in use.
            JOURNAL_DAMAGED: lines that were received and not read are gone.
        """
        self._next = offsets.get(SHARD, 0)
        self._segments = JournalSegments(services.storage, f"{services.prefix}/journal")
        self._journal = Journal(self._segments, self._options.segment_bytes, self._next)
        listener = open_listener(self.spec.vertex_id, self._options.host, self._options.port)
        self._receiver = Receiver(self.spec.vertex_id, listener, self._journal, self._options)
        self._receiver.read_position = self._next
        self._receiver.start()

    def poll(self) -> SourceStatus:
        """See what is journalled and unread; an error of the receiving thread is raised here."""
        if self._receiver is not None:
            self._receiver.check()
        self._available = self._journal.end
        left = self._available - self._next
        return SourceStatus(
            has_input=left > 0,
            is_finished=False,
            lag=Lag(byte_count=left),
            next_poll_ms=NEXT_POLL_MS,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Take whole lines within the budget, at least one, as one slice."""
        end = self._cut(budget)
        if end == self._next:
            return []
        details = {"segments": self._journal.covering(self._next, end)}
        return [Slice(shard=SHARD, start=self._next, end=end, details=details)]

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on; clients that were held back may send again."""
        self._next = ends.get(SHARD, self._next)
        if self._receiver is not None:
            self._receiver.read_position = self._next

    def reader(self) -> SocketReader:
        """Return a reader of the journal."""
        return SocketReader(self._segments)

    def rereader(self, services: DriverServices) -> SocketReader:
        """Return a reader of what is left of the journal; the port stays closed."""
        return SocketReader(JournalSegments(services.storage, f"{services.prefix}/journal"))

    def stop(self) -> None:
        """Close the port, the clients and the journal."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None

    def published(self, offsets: Mapping[str, int]) -> None:
        """Delete segments published some epochs ago: a job may fall back to an older epoch."""
        if len(self._published) == self._published.maxlen:
            self._journal.drop_before(self._published[0])
        self._published.append(offsets.get(SHARD, 0))

    def describe(self, shard: str, offset: int) -> str:
        """Name the place in the journal."""
        return f"line at byte {offset} of the journal of {self.spec.vertex_id}"

    def _cut(self, budget: Budget) -> int:
        """Return the end of the last line that fits the budget; one line fits always."""
        start, end = self._next, self._available
        if end - start <= min(budget.byte_count, budget.record_count):
            return end
        position, cut, count = start, start, 0
        for data in self._segments.blocks(self._journal.covering(start, end), start, end):
            found = 0
            while (newline := data.find(b"\n", found)) >= 0:
                found = newline + 1
                if cut > start and position + found - start > budget.byte_count:
                    return cut
                cut, count = position + found, count + 1
                if count >= budget.record_count:
                    return cut
            position += len(data)
        return cut
