"""The collect sink: published records as Python objects in the driver, for tests.

Values come back equal to the last operator's results: dataclasses, tuples and sets keep their
types. Collected values live as long as the process, so exactly-once means: within one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pickle import loads
from typing import Any

from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.staging import StagedWriter, read_staged
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Sink,
    StagedPublication,
    WriterTask,
)
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_sdk.sinks import CollectSinkOptions

_LENGTH_BYTES = 8


class CollectedRecords(list[Any]):
    """A list that records each sink's last epoch, so that publishing is idempotent."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        super().__init__(values)
        self.published_epochs: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class CollectWriterFactory:
    """Opens writers that stage pickled batches."""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one pickle per batch, each behind its length."""
        return StagedWriter(task, "records.pickle", _frame)


def _frame(values: list[Any]) -> bytes:
    data = pickle_by_value(values)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


def _unframe(data: bytes) -> list[Any]:
    values: list[Any] = []
    position = 0
    while position < len(data):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        values += loads(data[start:position])
    return values


class CollectSink(StagedPublication, Sink):
    """Appends records to ``services.collected[name]``."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = CollectSinkOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(CollectSinkOptions, spec)

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Make the list, so that it is there even if no record ever comes."""
        self._services = services
        found = services.collected.get(self._options.name, [])
        if not isinstance(found, CollectedRecords):
            services.collected[self._options.name] = found = CollectedRecords(found)
        self._records = found

    def writer(self) -> CollectWriterFactory:
        """Return the factory of pickling writers."""
        return CollectWriterFactory()

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Append the epoch's records unless this sink has appended them before."""
        if self._has_published(epoch):
            return
        values: list[Any] = []
        for file in self.staged_files(state):
            values += _unframe(read_staged(self._services.storage, file))
        if self._has_published(epoch):  # By another driver, while this one was stopped.
            return
        self._records += values
        self._records.published_epochs[self.spec.vertex_id] = epoch

    def _has_published(self, epoch: int) -> bool:
        return self._records.published_epochs.get(self.spec.vertex_id, -1) >= epoch

    def stop(self) -> None:
        """Do nothing: the sink has no resources."""
