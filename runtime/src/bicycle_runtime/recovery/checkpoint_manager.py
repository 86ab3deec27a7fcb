"""When a stream gets a checkpoint: every so many events, counted for each stream on its own.

Events of a stream have growing sequence numbers. The first event at or behind the threshold of its
stream makes a checkpoint, and the threshold moves to an interval behind that event, so a jump over
several intervals makes one. A stream that has checkpoints already goes on from its newest one. This
module keeps nothing that the store does not: the checkpoints and where they lie are the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bicycle_runtime.base.clock import Clock, SystemClock
from bicycle_runtime.recovery.checkpoint_state import CheckpointId, CheckpointState
from bicycle_runtime.recovery.checkpoint_store import CheckpointStore, positive

__all__ = ["Capture", "CheckpointManager"]

_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a stream needs besides its position to go on from a checkpoint."""

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
            due was processed; returns what belongs into it. When it raises, nothing is saved.
        clock: Gives the time of creation.

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
        """Where the checkpoints are; its ``latest`` gives the state to go on from."""
        return self._store

    @property
    def total_checkpoints(self) -> int:
        """How many checkpoints this manager has saved, of all streams."""
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
        """Return the sequence of the newest whole checkpoint, None when there never was one.

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
