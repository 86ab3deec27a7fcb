"""The engine's side of one connector: sealed progress, and the live object.

A run keeps offsets and states as a manifest would (through JSON) and restores them at a restart. It
has no tasks and no threads: jobs on the ``Harness`` add these.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.registry import ConnectorRegistry, default_registry
from bicycle_runtime.contract import (
    BadRecord,
    Budget,
    ConnectorSpec,
    DriverServices,
    FollowsPublication,
    LetterFolder,
    PreparingWriter,
    Sink,
    SinkWriter,
    Slice,
    SnapshotsState,
    Source,
    SourceBatch,
    SourceReader,
    SourceStatus,
    StagedFile,
    StagedPublication,
    WriterTask,
)
from bicycle_sdk.clock import Clock, ManualClock

PLENTY = Budget(record_count=1_000_000, byte_count=1 << 30, parallelism=2)
_WAIT_S = 60.0
_PAUSE_S = 0.005
_EPOCHS_MAX = 10_000
_TIMES_MAX = 3


def services_in(
    folder: Path,
    printed: list[str] | None = None,
    collected: dict[str, list[Any]] | None = None,
    *,
    clock: Clock | None = None,
) -> DriverServices:
    """Return services over a folder.

    Args:
        folder: Where the checkpoint directory will be.
        printed: Takes console lines.
        collected: Takes records of collect sinks.
        clock: None for one that is moved by hand.
    """
    letters = LocalStorage(str(folder / "checkpoints" / "dead_letters"), is_synced=False)
    return DriverServices(
        storage=LocalStorage(str(folder / "checkpoints"), is_synced=False),
        letters=LetterFolder(storage=letters),
        prefix="connectors/v",
        clock=clock or ManualClock(start_ms=1_000_000),
        collected={} if collected is None else collected,
        console=lambda text: None if printed is None else printed.extend(text.split("\n")),
    )


def eventually(condition: Callable[[], bool], wait_s: float = _WAIT_S) -> None:
    """Wait until another thread has made a condition true."""
    for _ in pauses(wait_s):
        if condition():
            return
    raise AssertionError(f"it did not happen within {wait_s} s")


def pauses(wait_s: float) -> Iterator[None]:
    """Yield at once, and then after short pauses until the time is over."""
    deadline = time.monotonic() + wait_s
    yield
    while time.monotonic() < deadline:
        threading.Event().wait(_PAUSE_S)
        yield


@dataclass
class Epoch:
    """The input of one epoch."""

    slices: list[Slice]
    batches: list[list[SourceBatch]]

    @property
    def values(self) -> list[Any]:
        """The records of all slices, in order."""
        return [value for batch in self.all_batches for value in batch.values]

    @property
    def failures(self) -> list[BadRecord]:
        """The undecodable input of all slices, in order."""
        return [failure for batch in self.all_batches for failure in batch.failures]

    @property
    def all_batches(self) -> list[SourceBatch]:
        """The batches of all slices, in order."""
        return [batch for part in self.batches for batch in part]

    @property
    def ends(self) -> dict[str, int]:
        """The furthest offset of each shard."""
        ends: dict[str, int] = {}
        for part, batches in zip(self.slices, self.batches, strict=True):
            assert batches, f"the reader gave no batch for {part}"
            ends[part.shard] = max(ends.get(part.shard, 0), batches[-1].next_offset)
        return ends


@dataclass
class SourceRun:
    """One source.

    ``on_start`` gets each started object.

    With ``is_publishing`` an epoch counts as published as soon as it is sealed.
    """

    spec: ConnectorSpec
    services: DriverServices
    registry: ConnectorRegistry = field(default_factory=default_registry)
    offsets: dict[str, int] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    on_start: Callable[[Source], None] = lambda _: None
    is_publishing: bool = False
    source: Source = field(init=False)
    reader: SourceReader = field(init=False)

    def start(self) -> SourceRun:
        """Start a source from its sealed progress."""
        self.source = self.registry.create_source(self.spec)
        self.source.start(self.services, dict(self.offsets), self.state)
        self.reader = pickle.loads(cloudpickle.dumps(self.source.reader()))
        self.on_start(self.source)
        return self

    def restart(self) -> SourceRun:
        """Forget the live object, as a crash does, and start again."""
        self.stop()
        return self.start()

    def stop(self) -> None:
        """Close the reader and the source."""
        self.reader.close()
        self.source.stop()

    def read(self, budget: Budget) -> Epoch:
        """Plan and read one epoch without sealing it."""
        slices = self.source.plan(budget)
        return Epoch(slices, [list(self.reader.read(part)) for part in slices])

    def seal(self, epoch: Epoch) -> None:
        """Seal it; the state goes through JSON, as in a manifest."""
        if isinstance(self.source, SnapshotsState):
            self.state = json.loads(json.dumps(self.source.snapshot(epoch.slices, epoch.ends)))
        self.offsets.update(epoch.ends)
        self.source.sealed(epoch.ends)
        if self.is_publishing and isinstance(self.source, FollowsPublication):
            self.source.published(dict(self.offsets))

    def poll_for_input(self, wait_s: float = _WAIT_S) -> SourceStatus:
        """Poll until there is input; the clock moves as the source requests."""
        status = self.source.poll()
        for _ in pauses(wait_s):
            if status.has_input:
                break
            if isinstance(self.services.clock, ManualClock):
                self.services.clock.advance(status.next_poll_ms)
            status = self.source.poll()
        return status

    def drain(
        self,
        budget: Budget = PLENTY,
        *,
        restarts: bool = False,
        count: int = 0,
        wait_s: float = _WAIT_S,
    ) -> list[Epoch]:
        """Read and seal epochs until there is no input.

        Args:
            budget: Of each epoch.
            restarts: Whether to restart after each epoch.
            count: Wait until so many records, good and bad, were read.
            wait_s: At most so long, each time.
        """
        epochs: list[Epoch] = []
        read_count = 0
        while self._has_input(count - read_count, wait_s):
            epoch = self.read(budget)
            self.seal(epoch)
            epochs.append(epoch)
            read_count += len(epoch.values) + len(epoch.failures)
            assert len(epochs) < _EPOCHS_MAX, "the source makes no progress"
            assert not count or read_count <= _TIMES_MAX * count, "it returns the same input again"
            if restarts:
                self.restart()
        return epochs

    def _has_input(self, missing_count: int, wait_s: float) -> bool:
        status = self.source.poll()
        if status.has_input or status.is_finished or missing_count <= 0:
            return status.has_input
        return self.poll_for_input(wait_s).has_input


def values_of(epochs: list[Epoch]) -> list[Any]:
    """Return the records of some epochs."""
    return [value for epoch in epochs for value in epoch.values]


@dataclass
class SinkRun:
    """One sink. ``on_start`` is told of each object that was started, before it publishes."""

    spec: ConnectorSpec
    services: DriverServices
    registry: ConnectorRegistry = field(default_factory=default_registry)
    state: dict[str, Any] = field(default_factory=dict)
    epoch: int = -1
    attempt: int = 0
    is_sealed: bool = False
    on_start: Callable[[Sink], None] = lambda _: None
    lost: list[Sink] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)  # Whatever any writer took.
    sealed: list[list[list[Any]]] = field(default_factory=list)  # Epoch, subtask, records.
    sink: Sink = field(init=False)

    def start(self) -> SinkRun:
        """Start a sink from its sealed state, and publish that again, like the engine."""
        self.sink = self.registry.create_sink(self.spec)
        self.sink.start(self.services, self.state)
        self.on_start(self.sink)
        if self.is_sealed:
            self.sink.publish(self.epoch, self.state)
        return self

    def restart(self) -> SinkRun:
        """Forget the live object, as a crash does, and start again."""
        self.sink.stop()
        return self.start()

    def lose(self) -> SinkRun:
        """Start another object while the old one still exists, in ``lost``."""
        self.lost.append(self.sink)
        return self.start()

    def stop(self) -> None:
        """Stop all objects."""
        self.sink.stop()
        for sink in self.lost:
            sink.stop()

    def stage(self, epoch: int, records: list[list[Any]]) -> list[StagedFile]:
        """Write one list of records per subtask."""
        self.attempt += 1
        factory = pickle.loads(cloudpickle.dumps(self.sink.writer()))
        staged: list[StagedFile] = []
        for subtask, values in enumerate(records):
            prefix = f"staged/{epoch}/{subtask}-{self.attempt}"
            writer = factory.open(
                WriterTask(
                    storage=self.services.storage, prefix=prefix, epoch=epoch, subtask=subtask
                )
            )
            self.write(writer, values[: len(values) // 2])
            self.write(writer, values[len(values) // 2 :])
            staged += writer.finish()
        return staged

    def write(self, writer: SinkWriter, values: list[Any]) -> None:
        """Write one batch with a writer, like an operator."""
        self.written += values
        if isinstance(writer, PreparingWriter):
            values = writer.prepare(values, None)
        writer.write(values)

    def seal(self, records: list[list[Any]], *, is_last: bool = False) -> None:
        """Stage and seal the next epoch; the state goes through JSON, as in a manifest."""
        staged = self.stage(self.epoch + 1, records)
        state = self.sink.prepare(self.epoch + 1, staged, is_last=is_last)
        self.state = json.loads(json.dumps(state))
        self.sealed.append(records)
        self.is_sealed = True
        self.epoch += 1

    def publish(self) -> None:
        """Publish the sealed epoch."""
        self.sink.publish(self.epoch, self.state)

    def run_epoch(self, records: list[list[Any]], *, is_last: bool = False) -> None:
        """Seal and publish."""
        self.seal(records, is_last=is_last)
        self.publish()

    def collect(self) -> None:
        """Delete staged files that the sealed epoch does not reference, like the engine."""
        claimed: set[str] = set()
        if isinstance(self.sink, StagedPublication):
            claimed = self.sink.referenced_paths(self.state)
        for path in sorted(set(self.services.storage.list("staged")) - claimed):
            self.services.storage.delete(path)
