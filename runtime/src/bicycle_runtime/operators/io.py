"""What a task reads and writes: slices of a source, batches of records, staged output of a sink.

These are the worker's half of the connector contract; ``connectors.contract`` holds the driver's
half. Readers and writers are picklable values that open their files or clients when first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from bicycle_runtime.base.storage import Storage

__all__ = [
    "BadRecord",
    "EventTimes",
    "Headers",
    "PreparingWriter",
    "Raw",
    "RowWriter",
    "SinkWriter",
    "Slice",
    "SourceBatch",
    "SourceReader",
    "StagedFile",
    "WriterFactory",
    "WriterTask",
]

Headers = tuple[tuple[str, bytes], ...]
Raw = tuple[bytes | None, bytes | None]  # Key and value of a message, as they came.
# The event time of each record in ms, None for one that has none; None alone: the sink does not
# ask for times, or the stream has none.
EventTimes = Sequence[int | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A bounded piece of one shard, read by one task in one epoch.

    The reader yields the records whose offset is in ``[start, end)``. ``details`` is plain JSON
    for the reader.
    """

    shard: str
    start: int
    end: int
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """Input that could not be decoded: where it stood, its bytes, and why.

    ``key`` and ``headers`` are the raw ones of a message, where the source has such things.
    """

    offset: int
    raw: bytes
    reason: str
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class SourceBatch:
    """Some records of a slice, in order.

    Shape: ``values[i]`` stood at ``offsets[i]``; reading goes on at ``next_offset``. ``failures``
    are undecodable records between them; the runtime applies the source's ``on_error`` to them.
    The other columns are None where the source has no such thing: ``timestamps`` event time in ms
    since 1970, ``keys`` the decoded keys of messages, ``headers`` their headers, ``raws`` the
    bytes that key and value were decoded from, looked at when a record fails only.
    """

    values: Sequence[Any]
    offsets: Sequence[int]
    next_offset: int
    failures: Sequence[BadRecord] = ()
    timestamps: Sequence[int] | None = None
    keys: Sequence[Any] | None = None
    headers: Sequence[Headers] | None = None
    raws: Sequence[Raw] | None = None


class SourceReader(Protocol):
    """Reads slices; one instance serves many epochs of a worker and may keep clients open."""

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the slice's records in batches of some thousand.

        Called on a worker, once per slice and attempt. The same slice gives the same records at
        each attempt. The last batch's ``next_offset`` is where the next epoch starts (it may lie
        behind ``part.end`` when a record crosses it, or before it when the input ended); an empty
        slice yields one batch without records.
        """

    def close(self) -> None:
        """Release what was opened. Called when the worker drops the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterTask:
    """Where a writer stages its output.

    ``prefix`` is unique to (sink, epoch, subtask, attempt): whatever is written below it is
    garbage until a manifest names it.
    """

    storage: Storage
    prefix: str
    epoch: int
    subtask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One finished staged file of a writer. ``details`` is plain JSON for the sink's driver."""

    path: str
    record_count: int
    byte_count: int
    crc32: int
    subtask: int
    details: Mapping[str, Any] = field(default_factory=dict)


class SinkWriter(Protocol):
    """Takes the records of one subtask in one epoch. Created on a worker for each attempt."""

    def write(self, values: list[Any]) -> None:
        """Take some records, in order. Called any number of times."""

    def finish(self) -> list[StagedFile]:
        """Make everything durable and return what was staged (empty when there were no records)."""

    def abort(self) -> None:
        """Drop everything. Called instead of ``finish`` when the task fails."""


@runtime_checkable
class PreparingWriter(SinkWriter, Protocol):
    """A writer that first turns records into what it writes, which may fail for single ones.

    User code runs there (a key function, a schema), and formats and limits are checked. What fails
    is settled by the vertex's ``on_error``; ``write`` then takes what was prepared. Event times are
    there when the sink ``takes_times``.
    """

    def prepare(self, values: list[Any], times: EventTimes) -> list[Any]:
        """Return what to write, one for each record; raise anything when one of them fails.

        Called once per batch, before ``write``.
        """

    def prepare_one(self, value: Any, time_ms: int | None) -> Any:
        """Return what to write for one record; raise a plain exception that says why it fails.

        Called for each record of a batch for which ``prepare`` raised, and again for a retry.
        """


@runtime_checkable
class RowWriter(PreparingWriter, Protocol):
    """One that, where ``takes_rows``, also takes ``TupleRecords`` in place of a list.

    Their ``rows`` give what they hold as plain tuples, one at a time.
    """

    takes_rows: bool

    def write(self, values: Sequence[Any]) -> None: ...
    def prepare(self, values: Sequence[Any], times: EventTimes) -> Any: ...


class WriterFactory(Protocol):
    """The picklable part of a sink that travels to workers."""

    def open(self, task: WriterTask) -> SinkWriter:
        """Return a writer for one subtask and epoch; it creates no file before the first record."""
