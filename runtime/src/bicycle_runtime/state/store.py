"""A state table and its files: load what is sealed, catch up, write the changes of an epoch.

A store belongs to one operator in one subtask and lives as long as the worker process. Its table
stands at a *label*, the path of the commit that it includes. The driver says which label is
sealed; a table that stands elsewhere (another attempt won, or another worker ran the last epochs)
catches up, or is built anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from zlib import crc32

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.state.changes import Section, decode_sections, encode_sections, merge_sections
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.refs import RangeState, StateRef, fold_start, merge_start
from bicycle_runtime.state.tables import StateTable

__all__ = ["StateStore", "read_sections"]

Table = TypeVar("Table", bound=StateTable)


class StateStore(Generic[Table]):
    """Keeps the table of one operator and subtask at the sealed state.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
        new_table: Makes an empty table.
    """

    def __init__(self, operator: str, storage: Storage, new_table: Callable[[], Table]) -> None:
        self._operator = operator
        self._storage = storage
        self._new_table = new_table
        self._table = new_table()
        self._label: str | None = ""

    def at(self, state: RangeState) -> Table:
        """Return the table as of a sealed state. Until ``commit`` it counts as unsealed.

        Raises:
            StateFileError: a file is missing or damaged.
        """
        label, self._label = self._label, None
        if label == state.label and label != "":
            return self._table
        since = state.epoch_of(label) if label else None
        if since is not None and any(r.is_base and r.last_epoch > since for r in state.files):
            since = None  # a base is complete: what it does not name must be gone
        if since is None:
            self._table = self._new_table()
            since = -1
        groups = range(state.first_group, state.end_group)
        for ref in state.files:
            if ref.last_epoch > since:
                self._table.apply(self._sections(ref, groups))
        return self._table

    def commit(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Write what changed since ``at`` and return the state that includes it.

        An epoch that changed nothing writes nothing. Now and then a commit also folds older files
        into its own: a few of one tier into one of the next, or everything into a base.

        Args:
            state: The sealed state that ``at`` was given.
            epoch: The epoch being run, 1 or more.
            attempt: Unique name of this attempt; makes the path unique.
            is_interval_over: Whether the checkpoint interval has passed since the last base.
        """
        changes = self._table.changes()
        if not changes:
            self._label = state.label
            return state
        groups = range(state.first_group, state.end_group)
        is_base = fold_start(state.files, is_interval_over=is_interval_over)
        start = 0 if is_base else merge_start(state.files)
        if is_base:
            changes = self._table.everything()
        elif start < len(state.files):
            older = [self._sections(ref, groups) for ref in state.files[start:]]
            changes = merge_sections([*older, changes])
        folded = state.files[start:]
        data = encode_sections(changes)
        kind = "base" if is_base else "delta"
        folder = f"state/{self._operator}/{state.first_group:05}-{state.end_group:05}"
        path = f"{folder}/{epoch:012}-{attempt}.{kind}"
        self._storage.write(path, data)
        ref = StateRef(
            path=path,
            is_base=is_base,
            tier=max((old.tier for old in folded), default=-1) + 1 if folded else 0,
            first_epoch=min((old.first_epoch for old in folded), default=epoch),
            last_epoch=epoch,
            byte_count=len(data),
            crc32=crc32(data),
        )
        self._label = path
        return state.committed(ref, state.files[:start])

    def rewrite(self, table: Table) -> None:
        """Put another table in place of what ``at`` returned; its changes are committed next."""
        self._table = table

    def _sections(self, ref: StateRef, groups: range) -> Sequence[Section]:
        return read_sections(self._storage, ref, operator=self._operator, groups=groups)


def read_sections(
    storage: Storage, ref: StateRef, *, operator: str, groups: range
) -> Sequence[Section]:
    """Return what a sealed file says about some key groups, as far as it counts for them.

    Raises:
        StateFileError: it is missing or damaged.
    """
    try:
        data = storage.read(ref.path)
    except ObjectMissingError:
        raise StateFileError(path=ref.path, operator=operator, reason="it is missing") from None
    if len(data) != ref.byte_count or crc32(data) != ref.crc32:
        reason = f"{len(data)} bytes, {ref.byte_count} are recorded, or another checksum"
        raise StateFileError(path=ref.path, operator=operator, reason=reason)
    return decode_sections(data, path=ref.path, operator=operator, groups=ref.groups_in(groups))
