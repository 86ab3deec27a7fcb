"""The contract of a sink: its part on the driver, and its writers on workers.

A sink changes nothing that is visible before ``publish``, and publishing an epoch twice is
harmless. Five methods are required; each mixin below stands for one thing that only some sinks do,
and says what the engine then asks, and when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bicycle_runtime.contract.vertex import Connector, DriverServices, Guarantee

if TYPE_CHECKING:
    from bicycle_runtime.base.storage import Storage


# The event time of each record in ms, None for a record without event time. None instead of the
# list: the sink does not read event times, or the stream has no event time.
EventTimes = Sequence[int | None] | None
Accepts = Literal["records", "frames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One finished staged file of a writer. ``details`` is plain JSON for the sink's driver."""

    path: str
    record_count: int
    byte_count: int
    crc32: int
    subtask: int
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return how a sink's state names the file; ``from_json`` is the inverse."""
        return {
            "path": self.path,
            "records": self.record_count,
            "bytes": self.byte_count,
            "crc32": self.crc32,
            "subtask": self.subtask,
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StagedFile:
        """Return the staged file that a state names."""
        return cls(
            path=data["path"],
            record_count=data["records"],
            byte_count=data["bytes"],
            crc32=data["crc32"],
            subtask=data["subtask"],
            details=data["details"],
        )


def in_subtask_order(staged: Sequence[StagedFile]) -> list[StagedFile]:
    """Return the files in an order that does not depend on which task ended first."""
    return sorted(staged, key=lambda file: (file.subtask, file.path))


class Sink(Connector, ABC):
    """One sink vertex, on the driver. The constructor checks options only.

    ``guarantee`` is the promise of this vertex. ``accepts`` is the input of its writers: lists of
    records, or also frames. A frame has a known ``form``; its ``rows`` are objects with the same
    JSON text as the records, its ``columns`` their values. With ``takes_times``, writers are
    ``PreparingWriter``s that need the event times of records. With ``refuses_records``, published
    records may be refused one by one, and become dead letters. With ``writes_at_once``, writers are
    ``PromptWriter``s, and nothing is published when the epoch is sealed. Where options decide these
    attributes, the constructor sets them, so read them from instances.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    takes_times: bool = False
    accepts: Accepts = "records"
    refuses_records: bool = False
    writes_at_once: bool = False

    @abstractmethod
    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Begin or resume with the state of the last sealed epoch, or empty. May open ports.

        After this call the engine publishes the last sealed epoch again, then begins new ones. An
        output that cannot be written is an error here, not later.
        """

    @abstractmethod
    def writer(self) -> WriterFactory:
        """Return the picklable factory of writers that tasks use."""

    @abstractmethod
    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Decide how the epoch will be published, changing nothing. Called just before sealing.

        The result is plain JSON; it is sealed in the manifest and is the state of the next start.
        Everything that ``publish`` needs must be in it. ``is_last`` is set at the end of bounded
        input, at a clean stop, and for a savepoint: what is open is completed; epochs may follow.
        """

    @abstractmethod
    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Make a sealed epoch visible according to ``state``; safe to repeat.

        Called again after a crash: harmless.
        """

    @abstractmethod
    def stop(self) -> None:
        """Release the resources of the sink.

        Called once, also after errors.
        """


class StagedPublication(ABC):  # noqa: B024 - it can all be kept as it is.
    """A sink whose writers stage files, invisible until ``publish`` reads them.

    It has the ``prepare`` of a sink that publishes all files of an epoch at once; name it before
    ``Sink`` among the bases. Attempts that lose leave files, too, which are removed as garbage: a
    sink that publishes some files later says in ``referenced_paths`` which ones it still needs.
    """

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Return the staged files, in an order independent of the end of tasks."""
        return {"files": [file.to_json() for file in in_subtask_order(staged)]}

    def staged_files(self, state: Mapping[str, Any]) -> list[StagedFile]:
        """Return the files of the epoch of a state, in order, perhaps empty."""
        return [StagedFile.from_json(entry) for entry in state.get("files", ())]

    def referenced_paths(self, state: Mapping[str, Any]) -> set[str]:
        """Return the staged paths that publication of this state or later epochs needs."""
        return {file.path for file in self.staged_files(state)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Output that is sealed and not yet visible: it comes later, whatever dies.

    ``record_count`` is 0 where it is not known. ``visible_ms`` is when (clock ms) it becomes
    visible at the latest, while the job runs; None where that is not known.
    """

    record_count: int
    byte_count: int
    visible_ms: int | None = None


class HoldsBackOutput(ABC):
    """A sink that publishes some output with a later epoch, as large file parts."""

    @abstractmethod
    def deadline_ms(self) -> int | None:
        """Return when (clock ms) an epoch is due without input, as a part rolls, or None."""

    @abstractmethod
    def waiting(self) -> Waiting | None:
        """Return the sealed but invisible output of the last epoch, or None.

        Called after each ``prepare``.
        """


class ChecksBeforeStart(ABC):
    """A sink that can refuse its output before any sink of the job is started."""

    @abstractmethod
    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Raise the errors of ``start``, as far as known in advance; change nothing.

        Called at each start for every sink before the first one is started, so that what one of
        them lacks leaves nothing behind that another one made. ``start`` gets the same arguments.
        Called as well, with the state of another job's epoch, before a job begins with that and
        anything of it is copied: another job may go on with what the state names.
        """


class MakesTargets(ABC):
    """A sink whose ``start`` creates a missing target: a topic, a folder."""

    @abstractmethod
    def makes(self) -> Collection[str]:
        """Return the names of targets that ``start`` creates, for ``is_fed_by``.

        A name begins with what it is of, as in ``kafka:orders``. Called before ``start``.
        """


class InterruptiblePublication(ABC):
    """A sink whose ``publish`` may wait for another system, and can be interrupted."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make a waiting ``publish`` raise ``PublishInterruptedError`` soon.

        Called from another thread when the job must end; the next start publishes the epoch.
        """


class DropsRecords(ABC):
    """A sink that may publish records without a receiver, and counts them."""

    @abstractmethod
    def dropped_count(self) -> int:
        """Return the number of records in this run without a receiver."""


Sink._mixins = (
    StagedPublication,
    HoldsBackOutput,
    ChecksBeforeStart,
    MakesTargets,
    InterruptiblePublication,
    DropsRecords,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterTask:
    """The location of a writer's staged output.

    ``prefix`` is unique to (sink, epoch, subtask, attempt): files below it are garbage until a
    manifest names them.
    """

    storage: Storage
    prefix: str
    epoch: int
    subtask: int


class WriterFactory(Protocol):
    """The picklable part of a sink that travels to workers."""

    def open(self, task: WriterTask) -> SinkWriter:
        """Return a writer for a subtask and epoch; it creates no file before a record."""


class SinkWriter(Protocol):
    """Takes the records of one subtask in one epoch. Created on a worker for each attempt."""

    def write(self, values: list[Any]) -> None:
        """Take some records, in order. Called any number of times."""

    def finish(self) -> list[StagedFile]:
        """Make the output durable, and return the staged files, empty without records."""

    def abort(self) -> None:
        """Drop everything. Called instead of ``finish`` when the task fails."""


@runtime_checkable
class PromptWriter(SinkWriter, Protocol):
    """A writer whose records are visible before the epoch is sealed: at least once."""

    def flush(self) -> None:
        """Make written output visible; called while a task continues to read.

        Called while a task reads on.
        """


@runtime_checkable
class PreparingWriter(SinkWriter, Protocol):
    """A writer that first prepares records, which may fail for single ones.

    User code runs there (a key function, a schema), and formats and limits are checked. What fails
    is settled by the vertex's ``on_error``; ``write`` then takes what was prepared. Event times are
    there when the sink ``takes_times``.
    """

    def prepare(self, values: list[Any], times: EventTimes) -> list[Any]:
        """Return the prepared records; raise any error if one of them fails.

        Called once per batch, before ``write``.
        """

    def prepare_one(self, value: Any, time_ms: int | None) -> Any:
        """Return a prepared record; raise a plain exception with the reason if it fails.

        Called for each record of a batch for which ``prepare`` raised, and again for a retry.
        """
