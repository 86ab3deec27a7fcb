"""The replay of one epoch: the same input, state, time and random numbers.

Nothing visible to others is touched: tasks write to a scratch storage, sources are read and not
started, sinks are not started either; their writers only note their input. So a replay may run
while the job does. The inputs of an epoch are in its ``ReplayRecord``; all else is in the manifest
of the epoch before.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from bicycle_runtime.base.storage import ObjectExistsError, Storage
from bicycle_runtime.engine.epoch.failures import raise_first_failure
from bicycle_runtime.engine.epoch.merging import (
    merge_ends,
    merge_feedback,
    merge_offsets,
    merge_state_metadata,
    merge_states,
    merge_turns,
)
from bicycle_runtime.engine.epoch.orders import epoch_orders
from bicycle_runtime.engine.epoch.replay_record import ReplayRecord
from bicycle_runtime.engine.epoch.stats import read_counts, total_counts
from bicycle_runtime.engine.epoch.watermarks import Timeline
from bicycle_runtime.engine.errors import REPLAY_GRAPH_CHANGED
from bicycle_runtime.engine.local import LocalExecutor
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.replay.recording import RecordingFactory, SinkInput
from bicycle_runtime.engine.replay.rereading import rereaders, within
from bicycle_runtime.engine.resuming.operator_ids import renumbered_loops
from bicycle_runtime.engine.resuming.restoring import restored_states
from bicycle_runtime.engine.resuming.state_metadata import initial_state_metadata
from bicycle_runtime.layouts.state import OperatorStateMetadata
from bicycle_runtime.operators.metrics import OperatorCounts
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk.clock import ManualClock
from bicycle_sdk.errors import BicycleError

_RUN_ID = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The settings of a replay.

    ``shown_count`` records of each sink are kept; ``adapt`` changes each program before it runs;
    ``state`` is the backend.
    """

    shown_count: int = 10
    adapt: Callable[[Program], None] | None = None
    state: StateSettings = field(default_factory=StateSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    ``manifest`` is the manifest that would be sealed, as far as tasks decide it; its state files
    are in ``storage``. It is None when the epoch fails, with ``error``.
    """

    storage: ScratchStorage
    sinks: Mapping[str, SinkInput]
    manifest: Manifest | None = None
    counts: Mapping[str, OperatorCounts] = field(default_factory=dict)
    error: BicycleError | None = None


def replay_epoch(
    setup: JobSetup,
    record: ReplayRecord,
    before: Manifest,
    *,
    ends: Mapping[str, Mapping[str, int]],
    settings: ReplaySettings,
) -> Replayed:
    """Run an epoch once more.

    Args:
        setup: The job, as wide as it was then; nothing of it is started.
        record: How the epoch was run.
        before: The manifest of the epoch before it.
        ends: How far the epoch came in each shard of each source; empty when it failed.
        settings: How to run.

    Raises:
        REPLAY_GRAPH_CHANGED: a source of the epoch is not in the graph.
        BicycleError: state cannot be read, or a function cannot be loaded.
    """
    missing = sorted(record.slices.keys() - setup.sources.keys())
    if missing:
        known = ", ".join(sorted(setup.sources))
        raise REPLAY_GRAPH_CHANGED(epoch=record.epoch, missing=", ".join(missing), known_text=known)
    storage = ScratchStorage(setup.storage)
    sinks = {uid: SinkInput() for uid in setup.sinks}
    state_metadata = initial_state_metadata(
        before, setup.plan, setup.bundle.payloads, job=setup.job_id, allows_dropped=True
    )
    image = _image(setup, storage, sinks, settings, state_metadata=state_metadata)
    feedback = renumbered_loops(before, setup.graph, job=setup.job_id)
    before = replace(before, state_metadata=state_metadata, feedback=feedback)
    before = replace(
        before,
        states=restored_states(before, setup.plan, job=setup.job_id, is_start=record.is_start),
    )
    slices = {uid: within(parts, ends.get(uid, {})) for uid, parts in record.slices.items()}
    orders = epoch_orders(
        setup.plan,
        before,
        epoch=record.epoch,
        now_ms=record.now_ms,
        is_interval_over=record.is_interval_over,
        slices=slices,
        time=record.time,
        letters=record.letters,
    )
    executor = LocalExecutor(settings.adapt)
    try:
        executor.start(image)
        reports = executor.run(orders)
        raise_first_failure(reports, setup.sources)
    except BicycleError as error:
        return Replayed(storage=storage, sinks=sinks, error=error)
    finally:
        executor.stop()
    return Replayed(
        storage=storage,
        sinks=sinks,
        manifest=_manifest(setup, record, before, reports),
        counts=total_counts(reports),
    )


def _image(
    setup: JobSetup,
    storage: ScratchStorage,
    sinks: Mapping[str, SinkInput],
    settings: ReplaySettings,
    *,
    state_metadata: Mapping[str, OperatorStateMetadata],
) -> JobImage:
    return replace(setup, storage=storage).image(
        _RUN_ID,
        state=settings.state,
        state_metadata=state_metadata,
        readers=rereaders(setup),
        writers={
            uid: RecordingFactory(sink.writer(), sinks[uid], settings.shown_count)
            for uid, sink in setup.sinks.items()
        },
    )


def _manifest(
    setup: JobSetup,
    record: ReplayRecord,
    before: Manifest,
    reports: list[TaskReport],
) -> Manifest:
    timeline = Timeline(setup.plan, ManualClock())
    timeline.take(before.time)
    return Manifest(
        epoch=record.epoch,
        plan=before.plan,
        event_count=before.event_count + sum(read_counts(reports).values()),
        offsets={
            uid: merge_offsets(before.offsets.get(uid, {}), merge_ends(reports, uid))
            for uid in setup.sources
        },
        states=merge_states(before.states, reports),
        state_metadata=merge_state_metadata(before.state_metadata, reports),
        feedback=merge_feedback(reports),
        turns=merge_turns(before.turns, reports, setup.plan.edges_with_turns()),
        time=timeline.sealed_after(record.time, reports),
    )


# A storage that reads another one and keeps its own writes in memory.  A replay runs on it: the
# checkpoint stays as it is, whatever the tasks write. Deletions here only affect objects written
# here; the other storage is only ever read.


class ScratchStorage:
    """Writes go to memory, reads find them first. For one process.

    Args:
        below: The storage that is read and never changed.
    """

    def __init__(self, below: Storage) -> None:
        self._below = below
        self._written: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        """The location of the storage below."""
        return self._below.url

    def read(self, path: str) -> bytes:
        written = self._written.get(path)
        return self._below.read(path) if written is None else written

    def write(self, path: str, data: bytes) -> None:
        self._written[path] = bytes(data)

    def create(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise ObjectExistsError(url=self.url, path=path)
        self.write(path, data)

    @contextlib.contextmanager
    def open_write(self, path: str) -> Iterator[BinaryIO]:
        stream = io.BytesIO()
        yield stream
        self.write(path, stream.getvalue())

    def open_read(self, path: str) -> BinaryIO:
        written = self._written.get(path)
        return self._below.open_read(path) if written is None else io.BytesIO(written)

    def exists(self, path: str) -> bool:
        return path in self._written or self._below.exists(path)

    def size(self, path: str) -> int:
        written = self._written.get(path)
        return self._below.size(path) if written is None else len(written)

    def list(self, prefix: str) -> list[str]:
        folder = f"{prefix}/" if prefix else ""
        mine = {path for path in self._written if path.startswith(folder)}
        return sorted(mine.union(self._below.list(prefix)))

    def delete(self, path: str) -> None:
        self._written.pop(path, None)

    def delete_tree(self, prefix: str) -> None:
        for path in [path for path in self._written if path.startswith(f"{prefix}/")]:
            self.delete(path)

    def discard_unfinished(self, prefix: str) -> int:  # noqa: ARG002 - contract
        return 0
