"""A state table and its files: load what is sealed, catch up, write the changes of an epoch.

Bases are folded from the files beside the epochs (``folding``), so no epoch writes all of a state.

A store belongs to one operator in one subtask and lives as long as the worker process. Its table
stands at a *label*, the path of the commit that it includes. The driver says which label is
sealed; a table that stands elsewhere (another attempt won, or another worker ran the last epochs)
catches up, or is built anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.memory.tables import StateTable
from bicycle_runtime.state.sealed.bases import Bases
from bicycle_runtime.state.sealed.files import SealedFiles
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_runtime.state.sealed.refs import RangeState
from bicycle_runtime.state.stores.contents import parts_of
from bicycle_runtime.state.stores.folding import fold_files
from bicycle_runtime.state.values.reading import StateBook

__all__ = ["StateStore"]

Table = TypeVar("Table", bound=StateTable)


class StateStore(Generic[Table]):
    """Keeps the table of one operator and subtask at the sealed state.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
        new_table: Makes an empty table.
        book: Is told of the classes of what is pickled.
    """

    def __init__(
        self, operator: str, storage: Storage, new_table: Callable[[], Table],
        *, book: StateBook | None = None,
    ) -> None:  # fmt: skip
        self._files = SealedFiles(operator, storage)
        self._new_table = new_table
        self._book = book or StateBook(operator)
        self._table = new_table()
        self._label: str | None = ""
        self.bases = Bases(self._files)

    def at(self, state: RangeState) -> Table:
        """Return the table as of a sealed state. Until ``commit`` it counts as unsealed.

        Raises:
            StateFileError: a file is missing or damaged.
        """
        label, self._label = self._label, None
        self.bases.begin(state, lambda _: fold_files(state))
        if label == state.label and label != "":
            return self._table
        since = state.epoch_of(label) if label else None
        if since is not None and any(r.is_base and r.last_epoch > since for r in state.files):
            if self._replay(state, since):
                return self._table
            since = None  # A base is complete: what it does not name must be gone.
        if since is None:
            self._table = self._new_table()
            since = -1
            if state.files:
                LOADING.begin_range(self._files.operator, state.byte_count)
        groups = range(state.first_group, state.end_group)
        newer = [ref for ref in state.files if ref.last_epoch > since]
        for part in parts_of(self._files, newer, groups):
            self._table.apply(part)
        return self._table

    def _replay(self, state: RangeState, since: int) -> bool:
        """Apply the deltas that a base has taken in meanwhile, if all of them are still there."""
        groups = range(state.first_group, state.end_group)
        paths = [path for epoch, path in state.recent if epoch > since]
        try:
            files = self._files.read_deltas(paths, groups)
        except StateFileError:
            return False
        for sections in files:
            self._table.apply(sections)
        return True

    def commit(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Write what changed since ``at`` and return the state that includes it.

        An epoch that changed nothing writes nothing. Now and then a commit also merges older files
        with its own, a few of one tier into one of the next, or takes a base that was made.

        Args:
            state: The sealed state that ``at`` was given.
            epoch: The epoch being run, 1 or more.
            attempt: Unique name of this attempt; makes the path unique.
            is_interval_over: Whether the checkpoint interval has passed since the last base.
        """
        with self._book.noting_classes():
            changes = self._table.changes()
        if not changes:
            self._label = state.label
            return state
        state = self.bases.settled(
            state, epoch=epoch, attempt=attempt, is_interval_over=is_interval_over
        )
        committed = self._files.write_delta(state, changes, epoch=epoch, attempt=attempt)
        self._label = committed.label
        return committed

    def rewrite(self, table: Table) -> None:
        """Put another table in place of what ``at`` returned; its changes are committed next."""
        self._table = table

    def close(self) -> None:
        """Give up the base that is in the making; the table is in memory."""
        self.bases.close()
