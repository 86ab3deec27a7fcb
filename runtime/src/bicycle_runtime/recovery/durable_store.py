"""Checkpoints of streams that survive their process, on a disk or behind a URL.

Each checkpoint is one file, ``checkpoints/<stream>/<sequence>.checkpoint``, as ``checkpoint_file``
describes it. It appears as one step, flushed to the disk, and older ones are removed only after it:
a crash at any point leaves either the former checkpoints or the new ones. Damaged files are logged,
listed, passed over, and never counted as kept checkpoints.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from urllib.parse import quote

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.recovery.checkpoint_file import decode_checkpoint, encode_checkpoint
from bicycle_runtime.recovery.checkpoint_state import CheckpointState
from bicycle_runtime.recovery.checkpoint_store import StoredCheckpoint, positive
from bicycle_runtime.recovery.errors import (
    CHECKPOINT_DAMAGED,
    NO_CHECKPOINT_READABLE,
    CheckpointFormatError,
)
from bicycle_runtime.recovery.fields import utf8
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_ROOT = "checkpoints"
_SEQUENCE_DIGITS = 20
_FILE_NAME = re.compile(r"(\d{20})\.checkpoint")
_QUOTED_LENGTH_MAX = 180
_LISTINGS_MAX = 10


class DurableCheckpointStore:
    """Checkpoints in a storage. A stream has one writer; readers may come and go.

    Two writers of one sequence do no harm: the file is that of one of them.

    Args:
        storage: The location of the folder ``checkpoints``.
        max_per_stream: How many whole checkpoints of a stream are kept, 1 or more.
    """

    def __init__(self, storage: Storage, max_per_stream: int) -> None:
        self._storage = storage
        self._max_per_stream = positive(
            max_per_stream, name="max_per_stream", group="DurableCheckpointStore"
        )
        self._damaged_paths: set[str] = set()

    def save(self, state: CheckpointState) -> None:
        stream_id = state.id.stream_id
        path = _path(stream_id, state.id.sequence)
        self._storage.write(path, encode_checkpoint(state))
        self._damaged_paths.discard(path)
        self._retain(stream_id)

    def latest(self, stream_id: str) -> CheckpointState | None:
        for _ in range(_LISTINGS_MAX):
            sequences = self._sequences(stream_id)
            damaged = []
            for entry in self._read(stream_id, sequences[::-1]):
                if entry.damage is None:
                    return entry.state
                damaged.append(entry.damage)
            if len(damaged) == len(sequences):
                self._refuse(stream_id, damaged)
                return None
            # A writer has replaced listed files by newer ones: look again.
        raise ObjectMissingError(url=self._storage.url, path=_path(stream_id, sequences[-1]))

    def delete_before(self, stream_id: str, sequence: int) -> int:
        old = [each for each in self._sequences(stream_id) if each < sequence]
        self._delete(stream_id, old)
        return len(old)

    def checkpoint_count(self, stream_id: str) -> int:
        entries = self._read(stream_id, self._sequences(stream_id))
        return sum(entry.damage is None for entry in entries)

    def discard_unfinished(self) -> int:
        """Remove unfinished files of killed writers; return their number.

        Called before the first ``save``, when no writer of this storage is at work.
        """
        return self._storage.discard_unfinished(_ROOT)

    def list(self, stream_id: str) -> list[StoredCheckpoint]:
        return [*self._read(stream_id, self._sequences(stream_id))]

    def _read(self, stream_id: str, sequences: Sequence[int]) -> Iterator[StoredCheckpoint]:
        """Read and check files in turn, without ones that were removed meanwhile."""
        for sequence in sequences:
            entry = self._entry(stream_id, sequence)
            if entry is not None:
                yield entry

    def _entry(self, stream_id: str, sequence: int) -> StoredCheckpoint | None:
        """Read and check one file; None when it has been removed."""
        path = _path(stream_id, sequence)
        try:
            state = decode_checkpoint(self._storage.read(path))
        except ObjectMissingError:
            return None
        except CheckpointFormatError as error:
            return self._note_damage(stream_id, sequence, reason=error.facts["detail"])
        found = (state.id.stream_id, state.id.sequence)
        if found != (stream_id, sequence):
            reason = f"it is checkpoint {found[1]} of stream {found[0]!r}"
            return self._note_damage(stream_id, sequence, reason=reason)
        self._damaged_paths.discard(path)
        return StoredCheckpoint(sequence=sequence, state=state)

    def _note_damage(self, stream_id: str, sequence: int, *, reason: str) -> StoredCheckpoint:
        path = _path(stream_id, sequence)
        damage = CHECKPOINT_DAMAGED(path=path, stream=stream_id, reason=reason)
        if path not in self._damaged_paths:
            self._damaged_paths.add(path)
            log_event(
                _LOG,
                "checkpoint_damaged",
                level=logging.WARNING,
                error=damage,
                stream=stream_id,
                sequence=sequence,
            )
        return StoredCheckpoint(sequence=sequence, state=None, damage=damage)

    def _refuse(self, stream_id: str, damaged: Sequence[BicycleError]) -> None:
        if damaged:
            raise NO_CHECKPOINT_READABLE(
                count=len(damaged),
                stream=stream_id,
                url=self._storage.url,
                reason=damaged[0].facts["reason"],
            )

    def _retain(self, stream_id: str) -> None:
        """Remove files older than the retained checkpoints.

        Known damage does not count, so that it never drives a whole checkpoint out.
        """
        sequences = self._sequences(stream_id)
        whole = [s for s in sequences if _path(stream_id, s) not in self._damaged_paths]
        if len(whole) >= self._max_per_stream:
            lowest = whole[-self._max_per_stream]
            self._delete(stream_id, [s for s in sequences if s < lowest])

    def _delete(self, stream_id: str, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            path = _path(stream_id, sequence)
            self._storage.delete(path)
            self._damaged_paths.discard(path)

    def _sequences(self, stream_id: str) -> Sequence[int]:
        names = (path.rpartition("/")[2] for path in self._storage.list(_folder(stream_id)))
        found = map(_FILE_NAME.fullmatch, names)
        return sorted(int(match[1]) for match in found if match is not None)


def _path(stream_id: str, sequence: int) -> str:
    return f"{_folder(stream_id)}/{sequence:0{_SEQUENCE_DIGITS}}.checkpoint"


def _folder(stream_id: str) -> str:
    """Return a distinct folder for a text: readable if short, never ``.`` or empty."""
    raw = utf8(stream_id, field="stream_id")
    quoted = quote(raw, safe="")
    if len(quoted) > _QUOTED_LENGTH_MAX:
        return f"{_ROOT}/digest-{sha256(raw).hexdigest()}"
    return f"{_ROOT}/stream-{quoted}"
