"""A paged table, its local folder and its sealed files: open or heal, catch up, write an epoch.

It is a ``Store``. The folder stands at a label, as the table in memory does:

- What this process wrote and the driver sealed is put in as it is.
- What others have sealed since is read from their files and put in.
- A folder that is missing, foreign, damaged or at a label that is not among the last ones is built
  anew from the files. That is told by a log event, never by an error: the folder is a cache.

Nothing that is not sealed ever reaches the folder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from bicycle_runtime.base.logging import log_event
from bicycle_runtime.base.storage import Storage
from bicycle_runtime.state.changes import EVERYWHERE, Section, merge_sections
from bicycle_runtime.state.errors import LocalStateError, StateFileError
from bicycle_runtime.state.files import SealedFiles
from bicycle_runtime.state.loading import LOADING
from bicycle_runtime.state.refs import RangeState, StateRef, fold_start, merge_start
from bicycle_runtime.state.rocksdb.pages import Pages
from bicycle_runtime.state.rocksdb.slots import Slot, claim_slot, folder_of
from bicycle_runtime.state.rocksdb.space import RocksSpace, SpaceError
from bicycle_runtime.state.tables import StateTable

__all__ = ["PagedStore"]

Table = TypeVar("Table", bound=StateTable)

_LOGGER = logging.getLogger(__name__)
_MERGE_BYTES_MAX = 64 << 20  # More than this is not merged in memory; the next base takes it.
_BASE_FILE_BYTES = 32 << 20  # A base lies in files of about this size.


class PagedStore(Generic[Table]):
    """Keeps the paged table of one operator and subtask at the sealed state.

    Args:
        operator: Operator uid, for paths and errors.
        storage: Checkpoint storage of the job.
        new_table: Makes an empty table over ``pages``.
        pages: What the parts of the table share.
        is_resident: Tells by the name of a section whether the table holds it in memory.
    """

    def __init__(
        self, operator: str, storage: Storage, new_table: Callable[[], Table],
        *, pages: Pages, is_resident: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._files = SealedFiles(operator, storage)
        self._new_table = new_table
        self._pages = pages
        self._is_resident = is_resident
        self._table = new_table()
        self._label: str | None = None
        self._pending: tuple[list[Section], str] | None = None
        self._sealed: RangeState | None = None
        self._slot: Slot | None = None
        self._space: RocksSpace | None = None
        self._identity = ""

    # --- as a store --------------------------------------------------------------------------

    def at(self, state: RangeState) -> Table:
        """Return the table as of a sealed state. Until ``commit`` it counts as unsealed.

        Raises:
            StateFileError: a sealed file is missing or damaged.
            LocalStateError: the local folder can not be used.
        """
        label, self._label = self._label, None
        pending, self._pending = self._pending, None
        is_known = (
            label is not None
            and self._space is not None
            and (label == state.label or state.epoch_of(label) is not None)
            and self._groups_of(state) == self._pages.groups
        )
        self._sealed = state
        try:
            if is_known and pending is not None:
                self._settle(*pending)
            else:
                self._pages.forget()
                self._table = self._new_table()
                self._open(state)
            self._catch_up(state, is_table_current=is_known)
        except SpaceError as error:
            self._tell("state_folder_damaged", error=error)
            self._start_over(state)
        self._pages.trim()
        return self._table

    def commit(
        self, state: RangeState, *, epoch: int, attempt: str, is_interval_over: bool
    ) -> RangeState:
        """Write what changed since ``at`` and return the state that includes it.

        Args:
            state: The sealed state that ``at`` was given.
            epoch: The epoch being run, 1 or more.
            attempt: Unique name of this attempt; makes the path unique.
            is_interval_over: Whether the checkpoint interval has passed since the last base.
        """
        changes = self._table.changes()
        if not changes:
            self._label = state.label
            self._pending = ([], state.label)
            return state
        name = f"{epoch:012}-{attempt}"
        if fold_start(state.files, is_interval_over=is_interval_over):
            # A base of what was sealed before, and a delta: who lags by one reads that alone.
            kept = self._write_base(state, name, epoch - 1)
            ref = self._files.write_delta(state, changes, name, epoch=epoch, start=len(state.files))
        else:
            start = self._merge_start(state)
            groups = self._groups_of(state)
            older = [self._files.read(old, groups) for old in state.files[start:]]
            written = merge_sections([*older, changes]) if older else changes
            ref = self._files.write_delta(state, written, name, epoch=epoch, start=start)
            kept = list(state.files[:start])
        committed = state.committed(ref, kept)
        self._label = ref.path
        self._pending = (changes, ref.path)
        return committed

    def close(self) -> None:
        """Let go of the folder; what is in memory is written to it first."""
        self._pages.let_go()
        self._close_space()
        if self._slot is not None:
            self._slot.release()
            self._slot = None
        self._label = None

    # --- the folder --------------------------------------------------------------------------

    def _open(self, state: RangeState) -> None:
        """Open the folder of the state's key groups, if it is not open."""
        groups = self._groups_of(state)
        if self._space is not None and groups == self._pages.groups:
            return
        self.close()
        identity = f"{self._pages.job_url}\n{self._files.operator}\n{groups.start}-{groups.stop}"
        folder = self._pages.settings.folder
        assert folder is not None, "the executor names a folder before it starts"
        self._slot = claim_slot(folder_of(folder, identity))
        if self._slot.number:
            self._tell("state_folder_held_by_another", level=logging.INFO)
        self._identity = identity
        try:
            self._space = self._opened(self._slot.current())
            is_foreign = self._space.is_foreign
        except SpaceError as error:
            self._tell("state_folder_damaged", error=error)
            is_foreign = True
        if is_foreign:
            if self._space is not None:
                self._tell("state_folder_foreign")
            self._anew()
        assert self._space is not None
        self._pages.stand_on(self._space, groups, self._heal)

    def _opened(self, place: Path) -> RocksSpace:
        return RocksSpace.open_space(place, self._identity, self._pages.settings)

    def _anew(self) -> None:
        """Have an empty space in place of what lies in the folder."""
        assert self._slot is not None
        self._close_space()
        try:
            self._space = self._opened(self._slot.renew())
        except (SpaceError, OSError) as error:
            raise LocalStateError(folder=str(self._slot.path), reason=str(error)) from error

    def _close_space(self) -> None:
        space, self._space = self._space, None
        if space is None:
            return
        try:
            space.close()
        except SpaceError as error:
            self._tell("state_folder_not_written", level=logging.INFO, error=error)

    def _heal(self, error: BaseException) -> RocksSpace:
        """Build the space of the running epoch anew, in the middle of it."""
        assert self._sealed is not None
        self._tell("state_folder_damaged", error=error)
        self._rebuild(self._sealed)
        assert self._space is not None
        return self._space

    def _tell(
        self, event: str, *, level: int = logging.WARNING, error: BaseException | None = None
    ) -> None:
        assert self._slot is not None
        log_event(
            _LOGGER, event, level=level, operator=self._files.operator,
            folder=str(self._slot.path), reason="" if error is None else str(error),
        )  # fmt: skip

    # --- sealed changes ----------------------------------------------------------------------

    def _settle(self, changes: list[Section], label: str) -> None:
        """Put in what this process wrote and the driver sealed."""
        assert self._space is not None
        if changes:
            self._space.apply([changes], label)
        self._pages.settle()

    def _catch_up(self, state: RangeState, *, is_table_current: bool) -> None:
        """Let the space stand at a sealed state, and the table with it.

        Args:
            state: The sealed state.
            is_table_current: Whether the table stands where the space does.
        """
        assert self._space is not None
        label = self._space.label
        since = state.epoch_of(label) if label else None
        newer = [] if since is None else [ref for ref in state.files if ref.last_epoch > since]
        if label == state.label:
            newer = []
        elif since is None:
            self._start_over(state)
            return
        elif any(ref.is_base for ref in newer):
            # A base is complete: what it does not name must be gone. The deltas in it say so too.
            if not self._replay(state, since, is_table_current=is_table_current):
                self._start_over(state)
                return
            newer = []
        if newer:
            self._apply(newer, state, self._table if is_table_current else None)
        if not is_table_current:
            self._load_residents()

    def _replay(self, state: RangeState, since: int, *, is_table_current: bool) -> bool:
        """Put in the deltas that were folded into a base meanwhile, if all are still there."""
        assert self._space is not None
        groups = self._groups_of(state)
        paths = [path for epoch, path in state.recent if epoch > since]
        try:
            files = [self._files.read_delta(path, groups) for path in paths]
        except StateFileError:
            return False
        for sections in files if is_table_current else ():
            self._table.apply(sections)
        self._space.apply(files, state.label)
        return True

    def _start_over(self, state: RangeState) -> None:
        """Build the space and the table anew from sealed files."""
        if state.files:
            LOADING.begin_range(self._files.operator, state.byte_count)
        self._pages.forget()
        self._table = self._new_table()
        self._rebuild(state)
        try:
            self._load_residents()
        except SpaceError as error:
            raise self._local_error(error) from error

    def _rebuild(self, state: RangeState) -> None:
        self._anew()
        assert self._space is not None
        groups = self._groups_of(state)
        self._pages.stand_on(self._space, groups, self._heal)
        try:
            self._apply(list(state.files), state, None)
        except SpaceError as error:
            raise self._local_error(error) from error

    def _apply(self, refs: Sequence[StateRef], state: RangeState, table: Table | None) -> None:
        assert self._space is not None
        groups = self._groups_of(state)

        def files() -> Iterator[Sequence[Section]]:
            for ref in refs:
                sections = self._files.read(ref, groups)
                if table is not None:
                    table.apply(sections)
                yield sections

        self._space.apply(files(), state.label)

    def _load_residents(self) -> None:
        """Give the table what it holds in memory."""
        assert self._space is not None
        for group in (EVERYWHERE, *self._pages.groups):
            names = [name for name in self._space.names(group) if self._is_resident(name)]
            self._table.apply([self._space.section(group, name) for name in names])

    def _local_error(self, error: BaseException) -> LocalStateError:
        assert self._slot is not None
        return LocalStateError(folder=str(self._slot.path), reason=str(error))

    # --- folding -----------------------------------------------------------------------------

    def _merge_start(self, state: RangeState) -> int:
        start = merge_start(state.files)
        merged_bytes = sum(ref.byte_count for ref in state.files[start:])
        return start if merged_bytes <= _MERGE_BYTES_MAX else len(state.files)

    def _write_base(self, state: RangeState, name: str, epoch: int) -> list[StateRef]:
        """Write all that is sealed into files of bounded size, a few key groups at a time."""
        assert self._space is not None
        refs: list[StateRef] = []
        gathered: list[Section] = []
        size = 0
        groups = (EVERYWHERE, *self._pages.groups)
        for group in groups:
            sections = [self._space.section(group, name) for name in self._space.names(group)]
            size += sum(len(bytes(s.keys)) + len(bytes(s.values)) for s in sections)
            gathered += sections
            if size > _BASE_FILE_BYTES or (group == groups[-1] and gathered):
                part = f"{name}.{len(refs):04}"
                refs.append(self._files.write_base(state, gathered, part, epoch=epoch))
                gathered, size = [], 0
        return refs

    @staticmethod
    def _groups_of(state: RangeState) -> range:
        return range(state.first_group, state.end_group)
