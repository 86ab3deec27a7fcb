"""The connector contract, driver's half: what a source and a sink do between epochs.

A source owns no progress: the engine keeps its offsets and its memo in the manifest and hands them
back at start. A sink changes nothing that is visible before ``publish``, and publishing an epoch
twice is harmless. The worker's half (readers, writers, slices) is in ``operators.io``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, ClassVar

from bicycle_runtime.base.clock import Clock
from bicycle_runtime.base.storage import Storage
from bicycle_runtime.operators.io import Slice, SourceReader, StagedFile, WriterFactory

__all__ = [
    "Budget",
    "ConnectorSpec",
    "DriverServices",
    "Guarantee",
    "Lag",
    "Sink",
    "Source",
    "SourceStatus",
    "even_slices",
]


class Guarantee(Enum):
    """What a connector promises after any crash; ordered from weakest to strongest."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSpec:
    """What the graph says about a connector: vertex, properties (JSON), live payloads by role.

    ``record_type`` is the declared record type of a source, or the input type of a sink, when
    known.
    """

    vertex_id: str
    connector_type: str
    properties: Mapping[str, Any]
    payloads: Mapping[str, Any] = field(default_factory=dict)
    record_type: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverServices:
    """What the driver lends a connector.

    ``storage`` is the job's checkpoint storage; ``prefix`` is the connector's own folder in it
    (journals, open parts). ``collected`` gets the records of collect sinks by name. ``console``
    writes one line for people. ``job`` is the job's name, for connectors that leave a name in
    another system; ``epoch_interval_ms`` is the least time between two epochs.
    """

    storage: Storage
    prefix: str
    clock: Clock
    collected: dict[str, list[Any]]
    console: Any  # Callable[[str], None]
    job: str = "job"
    epoch_interval_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that one epoch may take from one source, and among how many subtasks it is split."""

    record_count: int
    byte_count: int
    parallelism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What lies ready and unread. A number is None where the source can not know it cheaply.

    ``age_ms``: for how long the first of it has been ready, as far as this run has seen it.
    """

    record_count: int | None = None
    byte_count: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Output that is sealed and not yet visible: it comes later, whatever dies.

    ``record_count`` is 0 where it is not known. ``visible_ms`` is when (clock ms) it becomes
    visible at the latest, while the job runs; None where that is not known.
    """

    record_count: int
    byte_count: int
    visible_ms: int | None = None


def total_lag(lags: Collection[Lag]) -> Lag:
    """Return what lies unread together; None where nobody knows a number, the greatest age."""
    records = [lag.record_count for lag in lags if lag.record_count is not None]
    sizes = [lag.byte_count for lag in lags if lag.byte_count is not None]
    return Lag(
        record_count=sum(records) if records else None,
        byte_count=sum(sizes) if sizes else None,
        age_ms=max((lag.age_ms for lag in lags if lag.age_ms is not None), default=None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """What ``poll`` found: is there input, will there ever be more, and when to look again.

    What follows is for watermarks. ``waiting_shards`` are those with unread input: they hold event
    time back until they are read (None: the source has one shard, or can not tell). A shard of a
    source that ``is_bounded`` gets no more input once it has none; only such sources can be read in
    batch mode. While a source is not ``is_reachable``, silence does not make its shards idle, and
    lags are those it last knew. ``shard_lags`` tells the lag shard by shard, where the source can.
    """

    has_input: bool
    is_finished: bool
    lag: Lag = Lag()
    next_poll_ms: int = 100
    waiting_shards: frozenset[str] | None = None
    is_bounded: bool = False
    is_reachable: bool = True
    shard_lags: Mapping[str, Lag] = field(default_factory=dict)


def even_slices(shard: str, *, start: int, count: int, parallelism: int) -> list[Slice]:
    """Divide ``count`` records from ``start`` on into contiguous slices, one per subtask."""
    bounds = [start + count * slot // parallelism for slot in range(parallelism + 1)]
    return [
        Slice(shard=shard, start=first, end=end) for first, end in pairwise(bounds) if first < end
    ]


class Source(ABC):
    """One source vertex, on the driver. The constructor checks options only.

    ``gives_times`` tells whether its records have event times, None where it is not known before
    they are read. Where options decide it, the constructor sets it.
    """

    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    default_parallelism_max: ClassVar[int | None] = (
        None  # 1 for sources that can not be read in parallel
    )
    gives_times: bool | None = None

    def __init__(self, spec: ConnectorSpec) -> None:
        self.spec = spec

    @abstractmethod
    def start(
        self, services: DriverServices, offsets: Mapping[str, int], memo: Mapping[str, Any]
    ) -> None:
        """Begin or resume. Called once per run, before the first poll; may open ports.

        ``offsets`` (shard -> next offset to read) and ``memo`` are those of the last sealed epoch,
        or empty.
        """

    def is_fed_by(self, made: Collection[str]) -> bool:
        """Tell whether the source may need what sinks of its own job make when they start.

        One that needs none of it is started before them, so that a source that can not begin
        leaves nothing behind in other systems. Called before ``start``; asks nobody.

        Args:
            made: What ``Sink.makes`` returned, of all sinks.
        """
        return True

    @abstractmethod
    def poll(self) -> SourceStatus:
        """Look for input, without blocking. Called before each epoch and while idle."""

    @abstractmethod
    def plan(self, budget: Budget) -> list[Slice]:
        """Take at most ``budget`` from what the last poll found.

        Slice i goes to subtask ``i % parallelism``. Several slices of one shard are contiguous and
        in order. Planning again before anything is sealed gives the same slices. An empty list is
        fine.
        """

    @abstractmethod
    def sealed(self, ends: Mapping[str, int]) -> None:
        """Take note that an epoch is sealed: per shard that was read, the next offset."""

    @abstractmethod
    def memo(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return plain JSON that a restart needs beside the offsets, as of such an epoch.

        Called just before the epoch is sealed; small, since it is in each manifest.
        """

    @abstractmethod
    def reader(self) -> SourceReader:
        """Return the picklable reader that tasks use."""

    def rereader(self, services: DriverServices) -> SourceReader:  # most need none
        """Return a reader for slices of earlier epochs, while the source is not started.

        A replay asks for it, maybe beside the running job: nothing is opened or changed here. What
        can not be read any more must be an error when it is read, whatever the options say.
        """
        return self.reader()

    @abstractmethod
    def stop(self) -> None:
        """Close ports and threads. Called once, also after errors."""

    def published(self, offsets: Mapping[str, int]) -> None:  # noqa: B027 - most need nothing.
        """Take note that all before these offsets is published: drop journals, tell others."""

    def describe(self, shard: str, offset: int) -> str:
        """Return a position for people: ``lines.txt line 17``. Called when a record failed."""
        return f"{shard} @ {offset}"


class Sink(ABC):
    """One sink vertex, on the driver. The constructor checks options only.

    ``guarantee`` is what this vertex promises; ``takes_times`` tells that its writers are
    ``PreparingWriter``s which want the event times of records. Where options decide them, the
    constructor sets them; ask instances only.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    takes_times: bool = False

    def __init__(self, spec: ConnectorSpec) -> None:
        self.spec = spec

    @abstractmethod
    def start(self, services: DriverServices, memo: Mapping[str, Any]) -> None:
        """Begin or resume with the memo of the last sealed epoch, or empty. May open ports.

        After this call the engine publishes the last sealed epoch again, then begins new ones. An
        output that can not be written is an error here, not later.
        """

    def check(  # noqa: B027 - most make nothing that outlives a refused start.
        self, services: DriverServices, memo: Mapping[str, Any]
    ) -> None:
        """Raise what ``start`` would, as far as it can be known; change nothing.

        Called at each start for every sink before the first one is started, so that what one of
        them lacks leaves nothing behind that another one made. ``start`` gets the same arguments.
        Called as well, with the memo of another job's epoch, before a job begins with that and
        anything of it is copied: another job may go on with what the memo names.
        """

    def makes(self) -> Collection[str]:
        """Return names of what ``start`` makes where it is missing, for ``Source.is_fed_by``.

        A name begins with what it is of, as in ``kafka:orders``. Called before ``start``.
        """
        return ()

    @abstractmethod
    def writer(self) -> WriterFactory:
        """Return the picklable factory of writers that tasks use."""

    @abstractmethod
    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Decide how the epoch will be published, changing nothing. Called just before sealing.

        The result is plain JSON; it is sealed in the manifest and is the memo of the next start.
        Everything that ``publish`` needs must be in it. ``is_last`` is set at the end of bounded
        input, at a clean stop, and for a savepoint: what is open is completed; epochs may follow.
        """

    @abstractmethod
    def publish(self, epoch: int, memo: Mapping[str, Any]) -> None:
        """Make a sealed epoch visible as ``memo`` says. Called again after a crash: harmless."""

    @abstractmethod
    def stop(self) -> None:
        """Close what was opened. Called once, also after errors."""

    def interrupt(self) -> None:  # noqa: B027 - most never wait for long.
        """Let a ``publish`` that waits for another system raise ``PublishInterruptedError`` soon.

        Called from another thread when the job must end; the next start publishes the epoch.
        """

    def deadline_ms(self) -> int | None:
        """Return when (clock ms) an epoch is due without input, as a part must roll; or None."""
        return None

    def waiting(self) -> Waiting | None:
        """Return what is sealed and not yet visible, of the last epoch; None for nothing.

        Called after each ``prepare``. A sink that publishes each epoch whole has nothing to tell.
        """
        return None

    def dropped_count(self) -> int:
        """Return how many records of this run reached nobody: no client, or it was stuck."""
        return 0

    def referenced_paths(self, memo: Mapping[str, Any]) -> set[str]:
        """Return the staged paths that publishing this memo, or a later epoch, still needs."""
        return set()
