"""Sources of transient input: they journal it, and epochs read the journal.

A subclass receives on a thread of its own, and reads lines back. Its shard is ``journal``, offsets
are bytes of it. Journalled lines are read exactly once; they are removed some epochs after their
output was published. When too much waits unread, the receiver must pause.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from bicycle_runtime.connectors.journal import Journal, JournalSegments
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    FollowsPublication,
    Lag,
    RereadsEarlierSlices,
    Slice,
    Source,
    SourceReader,
    SourceStatus,
)

SHARD = "journal"
NEXT_POLL_MS = 20


class Receiving(Protocol):
    """A thread that fills a journal until it is stopped.

    ``read_position`` is the position up to which the journal was read.
    """

    read_position: int

    @property
    def has_ended(self) -> bool:
        """Return whether the input has ended."""

    @property
    def is_reachable(self) -> bool:
        """Return whether the other side is connected."""

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""

    def stop(self) -> None:
        """Close everything, the journal too; returns when the thread has ended."""


class JournalSource(RereadsEarlierSlices, FollowsPublication, Source):
    """A source that journals its input.

    Args:
        spec: The connector.
        segment_bytes: Size at which a new file of the journal begins.
        epochs_min: Journal of so many published epochs is kept, for a fall back to an older one.
        is_synced: Whether received lines survive a crash of the machine.
    """

    default_parallelism_max = 1

    def __init__(
        self, spec: ConnectorSpec, *, segment_bytes: int, epochs_min: int, is_synced: bool = True
    ) -> None:
        super().__init__(spec)
        self._segment_bytes = segment_bytes
        self._is_synced = is_synced
        self._receiver: Receiving | None = None
        self._next = 0
        self._published: deque[int] = deque(maxlen=epochs_min)

    @abstractmethod
    def receive(self, journal: Journal, position: int, state: Mapping[str, Any]) -> Receiving:
        """Begin to receive into a journal.

        Args:
            journal: It is open.
            position: The position up to which it was read.
            state: Of the epoch sealed last, or empty.
        """

    @abstractmethod
    def reader_of(self, segments: JournalSegments) -> SourceReader:
        """Return a reader of slices whose ``details`` name ``segments``."""

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Open the journal, then begin to receive.

        Raises:
            JOURNAL_DAMAGED: lines received and not read are lost.
        """
        self._next = offsets.get(SHARD, 0)
        self._segments = _segments(services)
        self._journal = Journal(
            self._segments, self._segment_bytes, self._next, is_synced=self._is_synced
        )
        self._receiver = self.receive(self._journal, self._next, state)

    def poll(self) -> SourceStatus:
        """Return the unread journal; raise an error of the receiving thread."""
        receiver = self._receiver
        if receiver is not None:
            receiver.check()
        has_ended = receiver is None or receiver.has_ended  # Before the journal is looked at.
        self._available = self._journal.end
        left = self._available - self._next
        return SourceStatus(
            has_input=left > 0,
            is_finished=has_ended and not left,
            lag=Lag(byte_count=left),
            next_poll_ms=NEXT_POLL_MS,
            is_reachable=receiver is None or receiver.is_reachable,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Take whole lines within the budget, at least one, as one slice."""
        end = self._cut(budget)
        if end == self._next:
            return []
        details = {"segments": self._journal.covering(self._next, end)}
        return [Slice(shard=SHARD, start=self._next, end=end, details=details)]

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Advance the position; blocked senders may continue."""
        self._next = ends.get(SHARD, self._next)
        if self._receiver is not None:
            self._receiver.read_position = self._next

    def reader(self) -> SourceReader:
        """Return a reader of the journal."""
        return self.reader_of(self._segments)

    def rereader(self, services: DriverServices) -> SourceReader:
        """Return a reader of the remaining journal, without receiving."""
        return self.reader_of(_segments(services))

    def stop(self) -> None:
        """Receive no more, and close the journal."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None

    def published(self, offsets: Mapping[str, int]) -> None:
        """Delete segments published some epochs ago, since a job may fall back."""
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


def _segments(services: DriverServices) -> JournalSegments:
    return JournalSegments(services.storage, f"{services.prefix}/journal")
