"""The sealed files of one operator: reading them by reference, and writing those of an epoch.

A path is unique to an attempt, so that nothing is ever overwritten; what no manifest names is
garbage. Which files are merged or folded is decided by ``refs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.state.changes import Section, decode_sections, encode_sections
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.loading import LOADING
from bicycle_runtime.state.refs import RangeState, StateRef

__all__ = ["SealedFiles"]


class SealedFiles:
    """Reads and writes the state files of one operator.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
    """

    def __init__(self, operator: str, storage: Storage) -> None:
        self.operator = operator
        self.storage = storage

    def read(self, ref: StateRef, groups: range) -> Sequence[Section]:
        """Return the sections of a file that count for some key groups.

        Raises:
            StateFileError: the file is missing or damaged.
        """
        data = self._read(ref.path)
        if len(data) != ref.byte_count or crc32(data) != ref.crc32:
            reason = f"{len(data)} bytes, {ref.byte_count} are recorded, or another checksum"
            raise StateFileError(path=ref.path, operator=self.operator, reason=reason)
        return decode_sections(
            data, path=ref.path, operator=self.operator, groups=ref.groups_in(groups)
        )

    def read_delta(self, path: str, groups: range) -> Sequence[Section]:
        """Return the sections of a delta that only its path is known of.

        Raises:
            StateFileError: it is missing or damaged, or no delta.
        """
        if not path.endswith(".delta"):
            raise StateFileError(path=path, operator=self.operator, reason="it is no delta")
        return decode_sections(self._read(path), path=path, operator=self.operator, groups=groups)

    def write_delta(
        self, state: RangeState, changes: Sequence[Section], name: str, *, epoch: int, start: int
    ) -> StateRef:
        """Write changes, in which the files from ``start`` on are merged already.

        Args:
            state: The sealed state they follow.
            changes: The sections.
            name: Name of the file without its ending, unique to the attempt.
            epoch: The epoch being run.
            start: Index of the first file that the changes include.
        """
        folded = state.files[start:]
        return self._write(
            state, changes, f"{name}.delta",
            tier=max((old.tier for old in folded), default=-1) + 1 if folded else 0,
            first_epoch=min((old.first_epoch for old in folded), default=epoch), epoch=epoch,
        )  # fmt: skip

    def write_base(
        self, state: RangeState, everything: Sequence[Section], name: str, *, epoch: int
    ) -> StateRef:
        """Write the whole state, or a part of it that lies in a file of its own."""
        tier = max((old.tier for old in state.files), default=-1) + 1
        first = min((old.first_epoch for old in state.files), default=epoch)
        return self._write(
            state, everything, f"{name}.base", tier=tier, first_epoch=first, epoch=epoch
        )

    def _read(self, path: str) -> bytes:
        try:
            data = self.storage.read(path)
        except ObjectMissingError:
            raise StateFileError(
                path=path, operator=self.operator, reason="it is missing"
            ) from None
        LOADING.add(len(data))
        return data

    def _write(
        self, state: RangeState, sections: Sequence[Section], name: str,
        *, tier: int, first_epoch: int, epoch: int,
    ) -> StateRef:  # fmt: skip
        data = encode_sections(sections)
        folder = f"state/{self.operator}/{state.first_group:05}-{state.end_group:05}"
        path = f"{folder}/{name}"
        self.storage.write(path, data)
        return StateRef(
            path=path,
            is_base=name.endswith(".base"),
            tier=tier,
            first_epoch=first_epoch,
            last_epoch=epoch,
            byte_count=len(data),
            crc32=crc32(data),
        )
