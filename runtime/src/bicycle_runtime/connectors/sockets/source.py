"""The socket source: a TCP server that journals the lines which any number of clients send.

What is journalled is processed exactly once. A line counts as received when it is in the journal;
TCP has no answer that would tell the client, so what a client sent in the last moments before a
crash of the driver may be lost. Lines of one client keep their order. When too much waits unread,
clients are simply not read from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Lag,
    Source,
    SourceStatus,
)
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.sockets.journal import Journal, JournalSegments
from bicycle_runtime.connectors.sockets.listening import open_listener
from bicycle_runtime.connectors.sockets.options import SocketSourceOptions
from bicycle_runtime.connectors.sockets.receiving import Receiver
from bicycle_runtime.connectors.text import LineBlock, text_decoder
from bicycle_runtime.operators.io import Slice, SourceBatch

__all__ = ["SocketReader", "SocketSource"]

SHARD = "journal"
NEXT_POLL_MS = 20


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


class SocketSource(Source):
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
        self, services: DriverServices, offsets: Mapping[str, int], memo: Mapping[str, Any]
    ) -> None:
        """Open the journal, then the port.

        Raises:
            PortUnavailableError: the port is in use.
            JournalDamagedError: lines that were received and not read are gone.
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

    def memo(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """The offset says it all."""
        return {}

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
