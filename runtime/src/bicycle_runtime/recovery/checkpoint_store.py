"""Where checkpoints of streams are kept: the contract, and a store in memory.

A store keeps the newest checkpoints of each stream, up to a maximum; streams do not touch each
other. What is saved under a sequence that is there already takes its place. The store that survives
its process is in ``durable_store``; which events make a checkpoint is for ``checkpoint_manager``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Protocol

from bicycle_runtime.base.errors import OptionError
from bicycle_runtime.recovery.checkpoint_state import CheckpointState
from bicycle_sdk.errors import BicycleError

__all__ = ["CheckpointStore", "InMemoryCheckpointStore", "StoredCheckpoint", "positive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """One entry of a stream: its state, or what is wrong with it."""

    sequence: int
    state: CheckpointState | None
    damage: BicycleError | None = None


class CheckpointStore(Protocol):
    """Checkpoints of streams; any thread may call, and ``save`` is one step for all readers.

    What is saved and what is returned are copies: a state that is changed later changes nothing
    here.
    """

    def save(self, state: CheckpointState) -> None:
        """Keep a checkpoint in place of one with its stream and sequence.

        Beyond the maximum of the stream the lowest sequence goes, even when it is this one.
        """

    def latest(self, stream_id: str) -> CheckpointState | None:
        """Return the whole checkpoint with the highest sequence; None when none was ever saved.

        Raises:
            NO_CHECKPOINT_READABLE: there are some, and all are damaged.
        """

    def delete_before(self, stream_id: str, sequence: int) -> int:
        """Remove what has a lower sequence, damaged or not; return how many there were."""

    def checkpoint_count(self, stream_id: str) -> int:
        """Return how many whole checkpoints there are."""

    def list(self, stream_id: str) -> list[StoredCheckpoint]:
        """Return the entries of a stream by ascending sequence, damaged ones too."""


class InMemoryCheckpointStore:
    """Checkpoints that end with their process: for tests, and for what can be computed again.

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
