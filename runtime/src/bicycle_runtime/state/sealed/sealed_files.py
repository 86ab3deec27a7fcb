"""The sealed files of one operator: read by reference, written per epoch.

A path is unique to an attempt, so that nothing is ever overwritten; files that no manifest names
are garbage. ``refs`` decides which files are merged or folded; ``stores`` know the content of a
database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from bicycle_runtime.base.reading_ahead import objects_ahead
from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.layouts.state import ChangeSet, RangeState, StateRef
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed.changes import (
    decode_change_sets,
    encode_change_sets,
    merge_change_sets,
)
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_runtime.state.sealed.refs import groups_in, merge_start, with_commit


def folder_of_range(operator: str, groups: range) -> str:
    """Return the folder of the files of some key groups."""
    return f"state/{operator}/{groups.start:05}-{groups.stop:05}"


class SealedFiles:
    """Reads and writes the state files of one operator.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
    """

    def __init__(self, operator: str, storage: Storage) -> None:
        self.operator = operator
        self.storage = storage
        self._is_told = True

    def untold(self) -> SealedFiles:
        """Return the same files for a reader whose loading is not reported."""
        other = SealedFiles(self.operator, self.storage)
        other._is_told = False
        return other

    def read(self, ref: StateRef, groups: range) -> Sequence[ChangeSet]:
        """Return the change sets of a file that count for some key groups.

        Raises:
            StateFileError: the file is missing or damaged, or a database.
        """
        [change_sets] = self.read_all([ref], groups)
        return change_sets

    def read_all(self, refs: Sequence[StateRef], groups: range) -> Iterator[Sequence[ChangeSet]]:
        """Yield the result of ``read`` for each file, and fetch the next files meanwhile.

        Raises:
            StateFileError: a file is missing or damaged, or a database.
        """
        objects = [(ref.path, ref.byte_count) for ref in refs]
        for ref, data in zip(refs, self._ahead(objects), strict=True):
            self._require_whole(ref, data)
            counted = groups_in(ref, groups)
            yield decode_change_sets(data, path=ref.path, operator=self.operator, groups=counted)

    def read_deltas(self, paths: Sequence[str], groups: range) -> list[Sequence[ChangeSet]]:
        """Return the change sets of deltas that only their paths are known of.

        Raises:
            StateFileError: one is missing or damaged, or no delta.
        """
        for path in paths:
            if not path.endswith(".delta"):
                raise self.damaged(path, "it is not a delta")
        files = zip(paths, self._ahead([(path, 0) for path in paths]), strict=True)
        return [
            decode_change_sets(data, path=path, operator=self.operator, groups=groups)
            for path, data in files
        ]

    def data_of(self, ref: StateRef) -> bytes:
        """Return the object of a reference as it was written.

        Raises:
            StateFileError: it is missing or damaged.
        """
        [data] = self._ahead([(ref.path, ref.byte_count)])
        self._require_whole(ref, data)
        return data

    def damaged(self, path: str, reason: str) -> StateFileError:
        """Return the error of a file that cannot be used."""
        return StateFileError(path=path, operator=self.operator, reason=reason)

    def write_delta(
        self, state: RangeState, changes: Sequence[ChangeSet], *, epoch: int, attempt: str
    ) -> RangeState:
        """Write the changes of an epoch and return the state that includes them.

        Now and then older files are merged with them, a few of one tier into one of the next.

        Args:
            state: The sealed state they follow.
            changes: The change sets.
            epoch: The epoch being run.
            attempt: Unique name of this attempt; makes the path unique.
        """
        since = 0 if state.making is None else state.making.epoch
        start = merge_start(state.files, since=since)
        kept, merged = state.files[:start], state.files[start:]
        if merged:
            groups = range(state.first_group, state.end_group)
            changes = merge_change_sets([*self.read_all(merged, groups), changes])
        ref = self._write(
            f"{self.folder(state)}/{epoch:012}-{attempt}.delta", changes,
            tier=1 + max((ref.tier for ref in merged), default=-1),
            first_epoch=min((ref.first_epoch for ref in merged), default=epoch), epoch=epoch,
        )  # fmt: skip
        return with_commit(state, ref, kept)

    def write_base(self, path: str, change_sets: Sequence[ChangeSet], *, epoch: int) -> StateRef:
        """Write the state as of an epoch, or a part of it in a separate file."""
        return self._write(path, change_sets, tier=0, first_epoch=0, epoch=epoch)

    def folder(self, state: RangeState) -> str:
        """Return the folder of the files of a range."""
        return folder_of_range(self.operator, range(state.first_group, state.end_group))

    def _ahead(self, objects: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield objects, of which path and expected size are known, several on their way."""
        try:
            yield from objects_ahead(self.storage, objects, come=self._tell)
        except ObjectMissingError as error:
            raise self.damaged(str(error.facts["path"]), "it is missing") from None

    def _tell(self, byte_count: int) -> None:
        if self._is_told:
            LOADING.add(byte_count)

    def _require_whole(self, ref: StateRef, data: bytes) -> None:
        if len(data) != ref.byte_count or crc32(data) != ref.crc32:
            reason = f"{len(data)} bytes instead of {ref.byte_count}, or a wrong checksum"
            raise self.damaged(ref.path, reason)

    def _write(
        self,
        path: str,
        change_sets: Sequence[ChangeSet],
        *,
        tier: int,
        first_epoch: int,
        epoch: int,
    ) -> StateRef:
        data = encode_change_sets(change_sets)
        self.storage.write(path, data)
        return StateRef(
            path=path,
            is_base=path.endswith(".base"),
            tier=tier,
            first_epoch=first_epoch,
            last_epoch=epoch,
            byte_count=len(data),
            crc32=crc32(data),
        )
