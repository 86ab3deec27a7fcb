"""The store of checkpoints of streams: the contract, and a store in memory.

A store keeps the newest checkpoints of each stream, up to a maximum; streams do not touch each
other. A checkpoint with an existing sequence replaces the old one. The store that survives its
process is in ``durable_store``.

``CheckpointManager`` decides when a stream gets a checkpoint: every so many events, counted for
each stream on its own. Events of a stream have growing sequence numbers. The first event at or
behind the threshold of its stream makes a checkpoint, and the threshold moves to an interval behind
that event, so a jump over several intervals makes one. A stream that has checkpoints already
continues from its newest one. The manager keeps nothing that the store does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from bicycle_runtime.recovery.checkpoint_state import CheckpointId, CheckpointState
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.errors import BicycleError, OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """An entry of a stream: its state, or its damage."""

    sequence: int
    state: CheckpointState | None
    damage: BicycleError | None = None


class CheckpointStore(Protocol):
    """A store of streams' checkpoints, thread-safe; ``save`` is atomic for readers.

    Saved and returned states are copies: a state that is changed later changes nothing here.
    """

    def save(self, state: CheckpointState) -> None:
        """Keep a checkpoint in place of one with its stream and sequence.

        Beyond the maximum of the stream the lowest sequence goes, even when it is this one.
        """

    def latest(self, stream_id: str) -> CheckpointState | None:
        """Return the intact checkpoint with the highest sequence, or None without any.

        Raises:
            NO_CHECKPOINT_READABLE: there are some, and all are damaged.
        """

    def delete_before(self, stream_id: str, sequence: int) -> int:
        """Remove checkpoints with a lower sequence; return their number."""

    def checkpoint_count(self, stream_id: str) -> int:
        """Return how many whole checkpoints there are."""

    def list(self, stream_id: str) -> list[StoredCheckpoint]:
        """Return the entries of a stream by ascending sequence, damaged ones too."""


class InMemoryCheckpointStore:
    """A store in memory: for tests, and for data that can be computed again.

    Args:
        max_per_stream: How many checkpoints of a stream are kept, 1 or more.
    """

    def __init__(self, max_per_stream: int) -> None:
        self._max_per_stream = positive(
            max_per_stream, name="max_per_stream", group="InMemoryCheckpointStore"
        )
        self._streams: dict[str, dict[int, CheckpointState]] = {}
        self._lock = threading.Lock()

    def save(self, state: CheckpointState) -> None:
        with self._lock:
            kept = self._streams.setdefault(state.id.stream_id, {})
            kept[state.id.sequence] = replace(state)
            if len(kept) > self._max_per_stream:
                del kept[min(kept)]

    def latest(self, stream_id: str) -> CheckpointState | None:
        with self._lock:
            kept = self._streams.get(stream_id)
            return replace(kept[max(kept)]) if kept else None

    def delete_before(self, stream_id: str, sequence: int) -> int:
        with self._lock:
            kept = self._streams.get(stream_id, {})
            old = [each for each in kept if each < sequence]
            for each in old:
                del kept[each]
            return len(old)

    def checkpoint_count(self, stream_id: str) -> int:
        with self._lock:
            return len(self._streams.get(stream_id, {}))

    def list(self, stream_id: str) -> list[StoredCheckpoint]:
        with self._lock:
            kept = sorted(self._streams.get(stream_id, {}).items())
        return [
            StoredCheckpoint(sequence=sequence, state=replace(state)) for sequence, state in kept
        ]


def positive(value: int, *, name: str, group: str) -> int:
    """Return a number of 1 or more.

    Raises:
        OptionError: it is less.
    """
    if value < 1:
        raise OptionError(name=name, group=group, found=value, expected="1 or more")
    return value


_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The data that a stream needs besides its position to resume from a checkpoint."""

    operator_states: Mapping[str, bytes] = field(default_factory=dict)
    source_offsets: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def _capture_nothing(_: str) -> Capture:
    return Capture()


class CheckpointManager:
    """Saves checkpoints of streams as their events come; used by one thread.

    Args:
        store: Where checkpoints are kept.
        interval: Events from one checkpoint of a stream to the next, 1 or more.
        capture: Called with the stream whenever a checkpoint is due, after the event that makes it
            due was processed; returns the content of the checkpoint. When it raises, nothing is
            saved.
        clock: Returns the time of creation.

    Example:
        >>> from bicycle_runtime.recovery import InMemoryCheckpointStore
        >>> manager = CheckpointManager(InMemoryCheckpointStore(max_per_stream=3), 100)
        >>> [n for n in range(250) if manager.on_event("orders", n, watermark_ns=n)]
        [100, 200]
        >>> manager.recover("orders")
        200
    """

    def __init__(
        self,
        store: CheckpointStore,
        interval: int,
        *,
        capture: Callable[[str], Capture] = _capture_nothing,
        clock: Clock = _CLOCK,
    ) -> None:
        self._store = store
        self._interval = positive(interval, name="interval", group="CheckpointManager")
        self._capture = capture
        self._clock = clock
        self._thresholds: dict[str, int] = {}
        self._total_checkpoints = 0

    @property
    def store(self) -> CheckpointStore:
        """The checkpoint store; its ``latest`` returns the state to resume from."""
        return self._store

    @property
    def total_checkpoints(self) -> int:
        """The number of checkpoints that this manager saved, over all streams."""
        return self._total_checkpoints

    def on_event(self, stream_id: str, sequence: int, watermark_ns: int) -> bool:
        """Take note of an event that was processed; save a checkpoint when one is due.

        The checkpoint counts ``sequence`` events. When saving fails the error passes, and the next
        event tries again.

        Returns:
            Whether a checkpoint was saved.

        Raises:
            NO_CHECKPOINT_READABLE: the stream's checkpoints are all damaged (first event only).
            CHECKPOINT_VALUE_UNFIT: a number is out of bounds.
        """
        threshold = self._thresholds.get(stream_id)
        if threshold is None:
            self.recover(stream_id)
            threshold = self._thresholds[stream_id]
        if sequence < threshold:
            return False
        self._save(stream_id, sequence, watermark_ns)
        self._thresholds[stream_id] = sequence + self._interval
        self._total_checkpoints += 1
        return True

    def recover(self, stream_id: str) -> int | None:
        """Return the sequence of the newest intact checkpoint, or None without any.

        The next checkpoint is due an interval behind it.

        Raises:
            NO_CHECKPOINT_READABLE: the stream's checkpoints are all damaged.
        """
        latest = self._store.latest(stream_id)
        sequence = None if latest is None else latest.id.sequence
        self._thresholds[stream_id] = (sequence or 0) + self._interval
        return sequence

    def _save(self, stream_id: str, sequence: int, watermark_ns: int) -> None:
        captured = self._capture(stream_id)
        created_at_ms = self._clock.now_ms()
        self._store.save(
            CheckpointState(
                CheckpointId(stream_id, sequence, created_at_ms=created_at_ms),
                operator_states=dict(captured.operator_states),
                source_offsets=dict(captured.source_offsets),
                watermark_ns=watermark_ns,
                event_count=sequence,
                metadata=captured.metadata,
            )
        )
