"""The contract of a source: its part on the driver, and its reader on workers.

A source owns no progress: the engine keeps its offsets and its state in the manifest and hands them
back at a start. Offsets belong to a *shard* (a file, a partition); a *slice* is a bounded piece of
one shard that one task reads in one epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

from bicycle_runtime.contract.vertex import Connector, DriverServices, Guarantee

Headers = tuple[tuple[str, bytes | None], ...]  # None: a header without a value.
Raw = tuple[bytes | None, bytes | None]  # Key and value of a message, as they came.


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
class Budget:
    """The limits of one epoch for one source, and the number of subtasks.

    Where it ``is_approximate`` a few more records do no harm: their number makes epochs take the
    time that they should, or is high. A source need not count then what it can estimate. Where it
    ``reads_on``, tasks go on behind their slices: each shard has one, be it empty. A ``wave`` of
    more than 1 is the number of records that calls in flight take at one time, in all subtasks:
    then records are divided evenly, however few they are.
    """

    record_count: int
    byte_count: int
    parallelism: int
    is_approximate: bool = False
    reads_on: bool = False
    wave: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOn:
    """The limits of reading beyond slices: duration, records and bytes.

    The record with which a number is reached is the last one.
    """

    duration_ms: int
    record_count: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The available but unread input; None for numbers that are expensive to find.

    A number is None where the source cannot know it cheaply.

    ``age_ms``: for how long the first of it has been ready, as far as this run has seen it.
    """

    record_count: int | None = None
    byte_count: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The result of ``poll``: available input, end of input, time of the next poll.

    What follows is for watermarks. ``waiting_shards`` are those with unread input: they hold event
    time back until they are read (None: the source has one shard, or cannot tell).
    ``unknown_shards`` may have unread input, because the source has not looked at them since the
    last epoch: they are not idle. A shard of a source that ``is_bounded`` gets no more input once
    it has none; only such sources can be read in batch mode. While a source is not
    ``is_reachable``, silence does not make its shards idle, and lags are the last known ones.
    ``shard_lags`` contains the lag of each shard, where the source knows it.
    """

    has_input: bool
    is_finished: bool
    lag: Lag = Lag()
    next_poll_ms: int = 100
    waiting_shards: frozenset[str] | None = None
    unknown_shards: frozenset[str] = frozenset()
    is_bounded: bool = False
    is_reachable: bool = True
    shard_lags: Mapping[str, Lag] = field(default_factory=dict)


class Source(Connector, ABC):
    """One source vertex, on the driver. The constructor checks options only.

    ``gives_times`` tells whether its records have event times, None where it is not known before
    they are read; ``gives_fields`` that its readers are ``FieldReader``s which give fields of its
    record type. Where options decide them, the constructor sets them. ``default_parallelism_max``
    is 1 for sources that cannot be read in parallel.
    """

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    default_parallelism_max: ClassVar[int | None] = None
    gives_times: bool | None = None
    gives_fields: bool = False

    @abstractmethod
    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Begin or resume. Called once per run, before the first poll; may open ports.

        ``offsets`` (shard -> next offset to read) and ``state`` are those of the last sealed epoch,
        or empty.
        """

    @abstractmethod
    def poll(self) -> SourceStatus:
        """Look for input, without blocking. Called before each epoch and while idle."""

    @abstractmethod
    def plan(self, budget: Budget) -> list[Slice]:
        """Plan at most ``budget`` of the input that the last poll found.

        Slice i goes to subtask ``i % parallelism``. Several slices of one shard are contiguous and
        in order. Planning again before anything is sealed gives the same slices. An empty list is
        fine.
        """

    @abstractmethod
    def sealed(self, ends: Mapping[str, int]) -> None:
        """Take note that an epoch is sealed: per shard that was read, the next offset."""

    @abstractmethod
    def reader(self) -> SourceReader:
        """Return the picklable reader that tasks use."""

    @abstractmethod
    def stop(self) -> None:
        """Close ports and threads. Called once, also after errors."""

    def describe(self, shard: str, offset: int) -> str:
        """Return a position for people: ``lines.txt line 17``. Called when a record failed."""
        return f"{shard} @ {offset}"


class SnapshotsState(ABC):
    """A source that needs more than offsets to continue after a restart."""

    @abstractmethod
    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return plain JSON that a restart needs beside the offsets, as of such an epoch.

        Called just before the epoch is sealed; small, since it is in each manifest. ``start`` gets
        it back as ``state``.
        """


class StartsBeforeSinks(ABC):
    """A source that may start before the sinks of its job, if independent of them."""

    @abstractmethod
    def is_fed_by(self, made: Collection[str]) -> bool:
        """Return whether the source may need targets that sinks of its job create.

        One that needs none of it is started before them, so that a source that cannot begin
        leaves nothing behind in other systems. Called before ``start``; asks nobody.

        Args:
            made: What ``MakesTargets.makes`` returned, of all sinks.
        """


class RereadsEarlierSlices(ABC):
    """A source whose reader needs driver data to read slices of earlier epochs."""

    @abstractmethod
    def rereader(self, services: DriverServices) -> SourceReader:
        """Return a reader for slices of earlier epochs, while the source is not started.

        A replay asks for it, maybe beside the running job: nothing is opened or changed here. What
        cannot be read any more must be an error when it is read, whatever the options say. A
        source without this mixin is asked for its ``reader``.
        """


class FollowsPublication(ABC):
    """A source that discards data, or notifies others, once output is visible."""

    @abstractmethod
    def published(self, offsets: Mapping[str, int]) -> None:
        """Note that all input before these offsets is published."""


class ReadsOn(ABC):
    """A source whose ``FollowingReader``s can read beyond their slices."""

    @abstractmethod
    def reached_slice(self, part: Slice, end: int) -> Slice:
        """Return a slice as if it had been planned to this end, which reading has reached.

        A replay reads it. Called on the driver, also while the source is not started.
        """


Source._mixins = (
    SnapshotsState, StartsBeforeSinks, RereadsEarlierSlices, FollowsPublication, ReadsOn,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """Undecodable input: its position, its bytes, and the reason.

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
    bytes that key and value were decoded from, looked at when a record fails only. Headers are
    looked at one by one; those of a message that has unreadable ones raise a ValueError.
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
    """A reader of slices on workers, used for many epochs, with open clients.

    It is a picklable value that opens its files or clients when first used.
    """

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the slice's records in batches of some thousand.

        Called on a worker, once per slice and attempt. The same slice gives the same records at
        each attempt. The last batch's ``next_offset`` is where the next epoch starts (it may lie
        behind ``part.end`` when a record crosses it, or before it when the input ended); an empty
        slice yields one batch without records.
        """

    def close(self) -> None:
        """Release the resources of the reader.

        Called when the worker drops the reader.
        """


@runtime_checkable
class FieldReader(SourceReader, Protocol):
    """A reader that can return its records as a ``Frame``."""

    def give_fields(self) -> bool:
        """Switch to frames; return whether format and record type allow it."""


@runtime_checkable
class FollowingReader(SourceReader, Protocol):
    """A reader that can continue behind its slices while more comes."""

    def read_on(
        self, parts: Sequence[Slice], limits: ReadOn
    ) -> Iterator[Iterable[tuple[str, SourceBatch]]]:
        """Yield shards and batches that arrive after the ends of some slices.

        Together comes what is there at one time; it is not held back until there is more. Ends
        early where a shard cannot be read, which the next epoch then finds out.
        """


def even_slices(shard: str, *, start: int, count: int, parallelism: int) -> list[Slice]:
    """Divide ``count`` records from ``start`` into contiguous slices per subtask."""
    bounds = [start + count * index // parallelism for index in range(parallelism + 1)]
    return [
        Slice(shard=shard, start=first, end=end) for first, end in pairwise(bounds) if first < end
    ]


def total_lag(lags: Collection[Lag]) -> Lag:
    """Return the total of unread input, None if unknown, and the greatest age."""
    records = [lag.record_count for lag in lags if lag.record_count is not None]
    sizes = [lag.byte_count for lag in lags if lag.byte_count is not None]
    return Lag(
        record_count=sum(records) if records else None,
        byte_count=sum(sizes) if sizes else None,
        age_ms=max((lag.age_ms for lag in lags if lag.age_ms is not None), default=None),
    )
