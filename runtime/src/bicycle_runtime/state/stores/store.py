"""A state table at the sealed state: loads, catches up, writes an epoch's changes.

A store belongs to one operator in one subtask and lives as long as the worker process. Its table
has a *checkpoint id*, the path of the commit that it includes. The driver sends the sealed
checkpoint id; a table with another one (another attempt won, or another worker ran the last epochs)
catches up, or is built again: by the space of its entries, if that is a database, else from the
files. Bases are made beside the epochs, so no epoch writes all of a state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.layouts.state import BaseIndex, ChangeSet, RangeState, StateRef
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.memory.space import MemorySpace, StateSpace, StateTable
from bicycle_runtime.state.sealed.bases import BaseFolder, Bases, Make
from bicycle_runtime.state.sealed.changes import full_change_sets, merge_change_sets
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_runtime.state.sealed.refs import epoch_of
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.stores.contents import parts_of
from bicycle_runtime.state.values.schema_registry import SchemaRegistry

Table = TypeVar("Table", bound=StateTable)


class StateStore(Generic[Table]):
    """Keeps the table of one operator and subtask at the sealed state.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
        new_table: Makes an empty table.
        registry: Registers the classes of pickled values.
        space: The location of the table's entries; None for memory.
    """

    def __init__(
        self, operator: str, storage: Storage, new_table: Callable[[], Table],
        *, registry: SchemaRegistry | None = None, space: StateSpace | None = None,
    ) -> None:  # fmt: skip
        self.files = SealedFiles(operator, storage)
        self._new_table = new_table
        self._registry = registry or SchemaRegistry(operator)
        self._space = space or MemorySpace()
        self.table = new_table()
        self._checkpoint_id: str | None = "" if self._space.holds_all else None
        self._written: list[ChangeSet] = []
        self._key_count: int | None = None  # None: the current number is not known.
        self.bases = Bases(self.files)

    def at(self, state: RangeState) -> Table:
        """Return the table as of a sealed state. Until ``commit`` it counts as unsealed.

        Raises:
            StateFileError: a file is missing or damaged.
            LOCAL_STATE_UNUSABLE: the local folder cannot be used.
        """
        checkpoint_id, self._checkpoint_id = self._checkpoint_id, None
        written, self._written = self._written, []
        if checkpoint_id != state.checkpoint_id:
            self._key_count = None
        self._space.stand_at(self, state, checkpoint_id, written)
        self.bases.begin(state, partial(self._space.prepare_base, self, state))
        self._space.trim()
        return self.table

    def commit(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Write the changes since ``at``, and return the state that includes them.

        An epoch that changed nothing writes nothing. Now and then a commit also merges older files
        with its own, a few of one tier into one of the next, or takes a base that was made.

        Args:
            state: The sealed state that ``at`` was given.
            epoch: The epoch being run, 1 or more.
            attempt: Unique name of this attempt; makes the path unique.
            is_interval_over: Whether the checkpoint interval has passed since the last base.
        """
        with self._registry.noting_classes():
            changes = self.table.changes()
        if changes:
            self._key_count = None
            state = self.bases.settle(
                state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
            )
            is_announced = state.making is not None and state.making.epoch == epoch
            state = self.files.write_delta(state, changes, epoch=epoch, attempt=attempt)
            if is_announced:
                self._space.announce_base()
        self._checkpoint_id = state.checkpoint_id
        self._written = [] if self._space.holds_all else changes
        return state

    def key_count(self) -> int:
        """Return how many keys have state now; where the state is on disk, about."""
        if self._key_count is None or not self._space.holds_all:
            self._key_count = self._space.key_count(self.table)
        return self._key_count

    def rewrite(self, table: Table) -> None:
        """Replace the table that ``at`` returned; its changes are committed next."""
        self.table = table

    def close(self) -> None:
        """Stop the base in progress, and close the space."""
        self.bases.close()
        self._space.close()
        if not self._space.holds_all:
            self._checkpoint_id = None

    # --- for the space -----------------------------------------------------------------------

    def renew(self) -> None:
        """Replace the table by an empty one."""
        self.table = self._new_table()

    def read_files(self, state: RangeState, checkpoint_id: str | None) -> None:
        """Bring the table from a checkpoint id to a sealed state, from its files."""
        if checkpoint_id == state.checkpoint_id and checkpoint_id != "":
            return
        since = epoch_of(state, checkpoint_id) if checkpoint_id else None
        if since is not None and any(r.is_base and r.last_epoch > since for r in state.files):
            if self._replay(state, since):
                return
            since = None  # A base is complete: entries that it does not name must be deleted.
        if since is None:
            self.renew()
            since = -1
            if state.files:
                LOADING.begin_range(self.files.operator, state.byte_count)
        groups = range(state.first_group, state.end_group)
        newer = [ref for ref in state.files if ref.last_epoch > since]
        for part in parts_of(self.files, newer, groups):
            self.table.apply(part)

    def fold(self, state: RangeState) -> Make:
        """Return a function that writes a base from the files of a sealed state."""
        return compact_files(state)

    def _replay(self, state: RangeState, since: int) -> bool:
        """Apply deltas that were folded into a base meanwhile, if all files still exist."""
        groups = range(state.first_group, state.end_group)
        paths = [path for epoch, path in state.recent if epoch > since]
        try:
            files = self.files.read_deltas(paths, groups)
        except StateFileError:
            return False
        for change_sets in files:
            self.table.apply(change_sets)
        return True


# Folding sealed files into a base, without types and without the table that works with them.  It
# runs in a thread beside the epochs. Python runs one thread at a time, so it works on one key group
# at a time and rests in between: an epoch beside it takes a little longer, but does not wait.

_FILE_BYTES = 32 << 20  # The files of a base have about this size.
_REST = 3.0  # It rests so many times as long as it works.


def compact_files(state: RangeState) -> Make:
    """Return a function that writes the base of a sealed state.

    Its files remain while the state names them.
    """
    return partial(_fold, state.files)


def _fold(refs: Sequence[StateRef], folder: BaseFolder) -> None:
    by_group: dict[int, list[ChangeSet]] = {}
    for ref in refs:
        for part in parts_of(folder.files, [ref], folder.groups):
            for change_set in part:
                by_group.setdefault(change_set.group, []).append(change_set)
            folder.pause()
    written: list[StateRef] = []
    for change_sets in _gather(by_group, folder):
        path = f"{folder.path}/{len(written):04}.base"
        written.append(folder.files.write_base(path, change_sets, epoch=folder.epoch))
        folder.note_file()
    groups = (folder.groups.start, folder.groups.stop)
    folder.finish(BaseIndex(epoch=folder.epoch, groups=groups, refs=tuple(written)))


def _gather(by_group: dict[int, list[ChangeSet]], folder: BaseFolder) -> Iterator[list[ChangeSet]]:
    """Yield the remaining change sets of all groups, one file's worth at a time."""
    gathered: list[ChangeSet] = []
    size = 0
    for group in sorted(by_group):
        began = time.perf_counter()
        change_sets = full_change_sets(merge_change_sets([by_group.pop(group)]))
        gathered += change_sets
        size += sum(len(bytes(s.keys)) + len(bytes(s.values)) for s in change_sets)
        folder.pause(_REST * (time.perf_counter() - began))
        if size > _FILE_BYTES:
            yield gathered
            gathered, size = [], 0
    yield gathered
