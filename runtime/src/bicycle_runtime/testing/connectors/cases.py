"""Cases: the knowledge of the suite about a connector, written by its author.

A case is the outside world of one test: it makes the connector's descriptor, puts records into the
source's system, and reads the sink's output as an outside reader would. Records are numbered: the
suite requests the n-th one. Features that not every connector has (bad input, outages, …) are
*traits*, second base classes; their rules apply to the cases that have them. A case checks nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bicycle_runtime.base.extensions import Extension
from bicycle_runtime.connectors.registry import ConnectorRegistry, default_registry, load_registry
from bicycle_runtime.contract import ConnectorSpec, Guarantee, Headers, Sink, Source
from bicycle_sdk.clock import Clock
from bicycle_sdk.connectors import SinkDescriptor, SourceDescriptor

__all__ = [
    "RECORD_COUNT",
    "CanBeUnwritable",
    "CarriesMetadata",
    "Case",
    "EndlessSourceCase",
    "FeedsBadRecords",
    "HasOutages",
    "Metadata",
    "RunsInForks",
    "SinkCase",
    "SourceCase",
]

RECORD_COUNT = 60  # So many records does a rule for sources feed in all.


class Case(ABC):
    """The common base of source and sink cases.

    Attributes:
        word: The word of the connector in its extension's hooks.
        guarantee: The connector's declared guarantee; the suite compares, and tests just that.
        extension: The module with the hooks that name the connector; None takes installed ones.
        clock: The driver's clock; None for a clock that the suite moves by hand.
        wait_s: How long to wait for the work of another thread or a server.
        outage_s: How long an outage lasts.

    Args:
        folder: A new directory for this test.
    """

    word: ClassVar[str]
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    extension: ClassVar[object | None] = None
    clock: ClassVar[Clock | None] = None
    wait_s: float = 60.0
    outage_s: float = 1.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def record(self, number: int) -> Any:
        """Return the n-th record, as the source emits it or the sink receives it."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open.
        """Release the resources of the case.

        Called once, after the test.
        """

    def records(self, numbers: range) -> list[Any]:
        """Return the records of these numbers."""
        return [self.record(number) for number in numbers]

    @classmethod
    def registry(cls) -> ConnectorRegistry:
        """Return the registry that knows the connector."""
        if cls.extension is None:
            return default_registry()
        found = cls.extension
        return load_registry([Extension(name="under-test", load=lambda: found)])


class SourceCase(Case):
    """A source that ends when all that was fed is read.

    Attributes:
        is_ordered: Whether records come in the order of their numbers; False for several shards.
    """

    is_ordered: ClassVar[bool] = True
    is_endless: ClassVar[bool] = False

    @abstractmethod
    def descriptor(self) -> SourceDescriptor[Any]:
        """Return the source, as a job would name it. Called after ``feed``."""

    @abstractmethod
    def feed(self, numbers: range) -> None:
        """Add these records to the source's input, after earlier ones."""

    def started(self, source: Source) -> None:
        """Take note of a source that was started, perhaps again: its port, for instance."""

    def spec(self) -> ConnectorSpec:
        """Return the engine's specification of the descriptor."""
        found = self.descriptor()
        return ConnectorSpec(
            vertex_id="in",
            connector_type=found.connector_type,
            properties=found.properties,
            payloads=found.payloads,
            record_type=found.output_type,
        )


class EndlessSourceCase(SourceCase):
    """A source that waits for more. ``descriptor`` comes first, then ``feed``, while it runs."""

    is_endless = True


class SinkCase(Case):
    """A sink. All records are distinct.

    Attributes:
        collected: Records of collect sinks by name, for a sink that writes into the driver.
        console: Lines printed, for a sink that prints.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.collected: dict[str, list[Any]] = {}
        self.console: list[str] = []

    @abstractmethod
    def descriptor(self) -> SinkDescriptor[Any]:
        """Return the sink, as a job would name it."""

    @abstractmethod
    def visible(self) -> list[list[Any]]:
        """Return every record visible to an outside reader, in its original form.

        Shape: one list for each place in which order counts: a partition, or all files together.
        """

    def started(self, sink: Sink) -> None:
        """Connect the readers of the output, for sinks that store no output."""

    def spec(self) -> ConnectorSpec:
        """Return the engine's specification of the descriptor."""
        found = self.descriptor()
        return ConnectorSpec(
            vertex_id="out",
            connector_type=found.connector_type,
            properties=found.properties,
            payloads=found.payloads,
            record_type=found.input_type,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The metadata of a record beside its value."""

    timestamp_ms: int | None = None
    key: Any = None
    headers: Headers = ()


class CarriesMetadata(ABC):
    """Trait of sources whose records have event times, keys or headers."""

    @abstractmethod
    def metadata(self, number: int) -> Metadata:
        """Return the source's metadata of the n-th record."""


class FeedsBadRecords(ABC):
    """The trait of sources that decode input, and so may reject it."""

    @abstractmethod
    def feed_bad(self) -> bytes:
        """Add undecodable input after earlier input; return its bytes."""


class HasOutages(ABC):
    """Trait of connectors that talk to something that may be away for a while."""

    @abstractmethod
    def break_transport(self) -> None:
        """Make the remote system of the connector silent or dead.

        Called from any thread.
        """

    @abstractmethod
    def repair_transport(self) -> None:
        """Take that back. Called from any thread, also when nothing is broken."""


class CanBeUnwritable(ABC):
    """Trait of sinks whose output may be refused: a missing right, an unknown place."""

    @abstractmethod
    def unwritable(self) -> SinkDescriptor[Any]:
        """Return a sink whose output cannot be written."""


class RunsInForks(ABC):
    """The trait of sinks without threads or connections: killed before every line.

    Attributes:
        traced_modules: Ends of the paths of the modules whose lines count, ``"tide/sink.py"``.
        traced_lines_min: At least so many lines does publishing take there.
    """

    traced_modules: ClassVar[tuple[str, ...]]
    traced_lines_min: ClassVar[int] = 5
