"""The local folder of a state space, and the sealed files: open or heal, catch up.

The folder has a checkpoint id, like the table in memory:

- Files written by this process and sealed by the driver are put in as they are.
- Entries sealed by others since are read from their files and put in.
- A folder that is missing, foreign, damaged or at a checkpoint id that is not among the last ones
  is built again from the files. A log event reports this, never an error: the folder is a cache.

Nothing that is not sealed ever reaches the folder. So a base is a checkpoint of the folder at the
beginning of an epoch; its files are written beside the epochs (``rocksdb.bases``).

The database of a range is built from the bases that a sealed state names. The largest base is taken
as it is, and loses the key groups of others by a range of deletions. The entries of the other bases
are copied into it one by one, without decoding. A base of which only a small part is needed is
copied from as well.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bicycle_runtime.layouts.state import (
    EVERYWHERE,
    BaseIndex,
    ChangeSet,
    RangeState,
    SstRef,
    StateRef,
)
from bicycle_runtime.state.disk.cache import DiskCache
from bicycle_runtime.state.errors import LOCAL_STATE_UNUSABLE, StateFileError
from bicycle_runtime.state.memory.space import StateTable, Store
from bicycle_runtime.state.rocksdb.bases import bring, damage_of, index_of, mount, upload, watch
from bicycle_runtime.state.rocksdb.claimed_folders import (
    ClaimedFolder,
    claim_folder,
    folder_of,
    identity_of,
)
from bicycle_runtime.state.rocksdb.indexes import INDEX_MARK
from bicycle_runtime.state.rocksdb.space import RocksSpace, SpaceError, UnreadableError
from bicycle_runtime.state.sealed.bases import BaseFolder, Make
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_runtime.state.sealed.refs import epoch_of, groups_in
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOGGER = logging.getLogger(__name__)


class LocalFolder:
    """Keeps a database, and the table over it, at the sealed state.

    Args:
        store: Has the table.
        cache: The cache that the parts of the table share.
    """

    def __init__(self, store: Store, cache: DiskCache) -> None:
        self._store = store
        self._files = store.files
        self._cache = cache
        self._sealed: RangeState | None = None
        self._claimed: ClaimedFolder | None = None
        self._space: RocksSpace | None = None
        self._identity = ""
        self._known: dict[str, SstRef] = {}  # The space's files in the storage, by name.

    def stand_at(
        self, state: RangeState, checkpoint_id: str | None, written: list[ChangeSet]
    ) -> None:
        """Bring the database and the table to a sealed state.

        Args:
            state: The sealed state.
            checkpoint_id: Their checkpoint id, or None.
            written: The changes that lead there and are not put in yet.

        Raises:
            StateFileError: a sealed file is missing or damaged.
            LOCAL_STATE_UNUSABLE: the local folder cannot be used.
        """
        is_known = (
            checkpoint_id is not None
            and self._space is not None
            and (checkpoint_id == state.checkpoint_id or epoch_of(state, checkpoint_id) is not None)
            and self._groups_of(state) == self._cache.groups
        )
        self._sealed = state
        try:
            if is_known and checkpoint_id is not None:
                self._settle(written, checkpoint_id)
            else:
                self._renew_table()
                self._open(state)
            self._catch_up(state, is_table_current=is_known)
            self._complete()
        except SpaceError as error:
            self._tell("state_folder_damaged", error=error)
            self._start_over(state)

    def close(self) -> None:
        """Write the entries in memory to the folder, and release it."""
        self._cache.let_go()
        self._close_space()
        if self._claimed is not None:
            self._claimed.release()
            self._claimed = None

    def _renew_table(self) -> None:
        self._cache.forget()
        self._store.renew()

    # --- the folder --------------------------------------------------------------------------

    def _open(self, state: RangeState) -> None:
        """Open the folder of the state's key groups, if it is not open."""
        groups = self._groups_of(state)
        if self._space is not None and groups == self._cache.groups:
            return
        self.close()
        identity = identity_of(self._cache.job_url, self._files.operator, groups)
        folder = self._cache.settings.folder
        assert folder is not None, "the executor names a folder before it starts"
        self._claimed = claim_folder(folder_of(folder, identity))
        if self._claimed.number:
            self._tell("state_folder_held_by_another", level=logging.INFO)
        self._claimed.discard_scratch()
        self._identity = identity
        try:
            self._space = self._open_space(self._claimed.current())
            is_foreign = self._space.is_foreign
        except SpaceError as error:
            self._tell("state_folder_damaged", error=error)
            is_foreign = True
        if is_foreign:
            if self._space is not None:
                self._tell("state_folder_foreign")
            self._anew()
        assert self._space is not None
        self._cache.stand_on(self._space, groups, self._heal)

    def _open_space(self, path: Path) -> RocksSpace:
        return RocksSpace.open_space(path, self._identity, self._cache.settings)

    def _anew(self, bases: Sequence[StateRef] = ()) -> None:
        """Replace the space by a new one with the entries of the bases."""
        assert self._claimed is not None
        groups = self._groups_of(self._sealed) if self._sealed is not None else range(0)
        self._close_space()
        self._known = {}
        try:
            path = self._claimed.renew()
            if bases:
                self._space, self._known = restore(
                    self._files, bases, groups, path=path, open_space=self._open_space
                )
            else:
                self._space = self._open_space(path)
        except (SpaceError, OSError) as error:
            raise self._local_error(error) from error

    def _close_space(self) -> None:
        space, self._space = self._space, None
        if space is None:
            return
        try:
            space.close()
        except SpaceError as error:
            self._tell("state_folder_not_written", level=logging.INFO, error=error)

    def _heal(self, error: BaseException) -> RocksSpace:
        """Build the space of the running epoch again, in the middle of it."""
        assert self._sealed is not None
        self._tell("state_folder_damaged", error=error)
        self._rebuild(self._sealed)
        assert self._space is not None
        return self._space

    def _tell(
        self, event: str, *, level: int = logging.WARNING, error: BaseException | None = None
    ) -> None:
        assert self._claimed is not None
        log_event(
            _LOGGER, event, level=level, operator=self._files.operator,
            folder=str(self._claimed.path), reason="" if error is None else str(error),
        )  # fmt: skip

    # --- sealed changes ----------------------------------------------------------------------

    def _settle(self, changes: list[ChangeSet], checkpoint_id: str) -> None:
        """Apply the changes that this process wrote and the driver sealed."""
        assert self._space is not None
        if changes:
            self._space.apply([changes], checkpoint_id, self._cache.indexes)
        self._cache.settle()

    def _catch_up(self, state: RangeState, *, is_table_current: bool) -> None:
        """Bring the space and the table to a sealed state.

        Args:
            state: The sealed state.
            is_table_current: Whether the table has the checkpoint id of the space.
        """
        assert self._space is not None
        checkpoint_id = self._space.checkpoint_id
        since = epoch_of(state, checkpoint_id) if checkpoint_id else None
        newer = [] if since is None else [ref for ref in state.files if ref.last_epoch > since]
        if checkpoint_id == state.checkpoint_id:
            newer = []
        elif since is None:
            self._start_over(state)
            return
        elif any(ref.is_base for ref in newer):
            # A base is complete: entries that it does not name must be deleted. The deltas in it
            # confirm this.
            if not self._replay(state, since, is_table_current=is_table_current):
                self._start_over(state)
                return
            newer = []
        if newer:
            self._apply(newer, state, self._store.table if is_table_current else None)
        if not is_table_current:
            self._load_residents()

    def _replay(self, state: RangeState, since: int, *, is_table_current: bool) -> bool:
        """Apply deltas that were folded into a base meanwhile, if all files still exist."""
        assert self._space is not None
        groups = self._groups_of(state)
        paths = [path for epoch, path in state.recent if epoch > since]
        try:
            files = self._files.read_deltas(paths, groups)
        except StateFileError:
            return False
        for change_sets in files if is_table_current else ():
            self._store.table.apply(change_sets)
        self._space.apply_of_others(files, state.checkpoint_id, self._cache.indexes)
        self._cache.marks = self._space.marks()
        return True

    def _start_over(self, state: RangeState) -> None:
        """Build the space and the table again from sealed files."""
        if state.files:
            LOADING.begin_range(self._files.operator, state.byte_count)
        self._renew_table()
        self._rebuild(state)
        try:
            self._load_residents()
        except SpaceError as error:
            raise self._local_error(error) from error

    def _rebuild(self, state: RangeState) -> None:
        self._anew([ref for ref in state.files if ref.is_database])
        assert self._space is not None
        groups = self._groups_of(state)
        self._cache.stand_on(self._space, groups, self._heal)
        try:
            self._apply([ref for ref in state.files if not ref.is_database], state, None)
            self._complete()
        except SpaceError as error:
            raise self._local_error(error) from error

    def _apply(self, refs: Sequence[StateRef], state: RangeState, table: StateTable | None) -> None:
        assert self._space is not None
        groups = self._groups_of(state)

        def files() -> Iterator[Sequence[ChangeSet]]:
            for change_sets in self._files.read_all(refs, groups):
                if table is not None:
                    table.apply(change_sets)
                yield change_sets

        self._space.apply_of_others(files(), state.checkpoint_id, self._cache.indexes)
        self._cache.marks = self._space.marks()

    def _complete(self) -> None:
        """Build the indexes that the table requires."""
        assert self._space is not None
        indexes = self._cache.indexes
        found = {mark for mark in self._cache.marks if mark.startswith(INDEX_MARK)}
        if found != {index.mark for index in indexes}:
            self._space.complete(indexes, self._cache.groups)
            self._cache.marks = self._space.marks()

    def _load_residents(self) -> None:
        """Load the resident entries of the table: data of which all subtasks have a copy."""
        assert self._space is not None
        space = self._space
        self._store.table.apply(
            [space.change_set(EVERYWHERE, name) for name in space.names(EVERYWHERE)]
        )

    def _local_error(self, error: BaseException) -> BicycleError:
        assert self._claimed is not None
        return LOCAL_STATE_UNUSABLE(folder=str(self._claimed.path), reason=str(error))

    # --- bases -------------------------------------------------------------------------------

    def write_soon(self) -> None:
        """Write buffered entries early, so that the next epoch's checkpoint is small."""
        assert self._space is not None
        with contextlib.suppress(SpaceError):  # The next epoch finds out, and heals.
            self._space.write_soon()

    def checkpoint(self, state: RangeState, folder: BaseFolder) -> Make | None:
        """Link the space at a sealed state; return a function that writes a base of it."""
        assert self._space is not None
        assert self._claimed is not None
        path = self._claimed.scratch(f"{folder.epoch}")
        try:
            self._space.checkpoint(path)
        except SpaceError as error:
            self._tell("base_not_begun", error=error)
            return None
        return upload(state, path, self._known)

    @staticmethod
    def _groups_of(state: RangeState) -> range:
        return range(state.first_group, state.end_group)


_SHARE_MIN = 0.25  # A base of which less is needed is copied from, not taken whole.


def restore(
    files: SealedFiles, bases: Sequence[StateRef], groups: range,
    *, path: Path, open_space: Callable[[Path], RocksSpace],
) -> tuple[RocksSpace, dict[str, SstRef]]:  # fmt: skip
    """Return a space with some key groups of bases, not yet at a checkpoint id.

    Args:
        files: The operator's.
        bases: All databases among the files of a sealed state.
        groups: The key groups.
        path: An empty place for the folder.
        open_space: Opens a folder.

    Returns:
        The space, and its files in the storage by their names.

    Raises:
        StateFileError: a file is missing or damaged.
        SpaceError: the folder cannot be used.
    """
    indexes = {ref.path: index_of(files, ref) for ref in bases}
    seed = _seed(bases, indexes, groups)
    known: dict[str, SstRef] = {}
    with watch(files.operator, sum(ref.total_bytes for ref in bases)) as progress:
        if seed is not None:
            index = indexes[seed.path]
            bring(files, index, path, progress=progress, is_linked=False)
            known = {sst.name: sst for sst in index.ssts}
        space = open_space(path)
        if seed is not None and groups_in(seed, groups) != range(*indexes[seed.path].groups):
            space.keep_only(groups_in(seed, groups))
        for number, ref in enumerate(ref for ref in bases if ref is not seed):
            index = indexes[ref.path]
            with mount(files, ref, index, progress=progress) as other:
                if seed is None and number == 0:
                    space.set_marks(other.marks())
                try:
                    space.absorb(other, groups_in(ref, groups))
                except UnreadableError as error:
                    raise damage_of(files, ref, error) from error
    return space, known


def _seed(
    bases: Sequence[StateRef], indexes: Mapping[str, BaseIndex], groups: range
) -> StateRef | None:
    """Return the base with the most requested key groups, if its share is sufficient."""

    def share(ref: StateRef) -> float:
        first, end = indexes[ref.path].groups
        return len(groups_in(ref, groups)) / max(1, end - first)

    wanted = [ref for ref in bases if share(ref) >= _SHARE_MIN]
    return max(wanted, key=lambda ref: share(ref) * ref.total_bytes, default=None)
