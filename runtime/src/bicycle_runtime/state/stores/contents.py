"""The content of any files that a sealed state names: change sets or a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import chain, groupby
from typing import TYPE_CHECKING

from bicycle_runtime.layouts.state import EVERYWHERE, ChangeSet, StateRef
from bicycle_runtime.state.errors import StateFileError
from bicycle_runtime.state.sealed.changes import decode_change_sets, emptied_change_set
from bicycle_runtime.state.sealed.refs import groups_in
from bicycle_runtime.state.sealed.sealed_files import SealedFiles

if TYPE_CHECKING:
    from bicycle_runtime.state.rocksdb.space import RocksSpace

_KEPT_BYTES_MAX = 192 << 20
_DATABASES_MAX = 8
Wants = Callable[[ChangeSet], bool]


def parts_of(
    files: SealedFiles, refs: Sequence[StateRef], groups: range
) -> Iterator[Sequence[ChangeSet]]:
    """Yield the change sets of files, in their order, that count for some key groups.

    Parts of a database come one key group at a time, parts of other files all at once.

    Raises:
        StateFileError: a file is missing or damaged.
    """
    for is_database, alike in groupby(refs, lambda ref: ref.is_database):
        if not is_database:
            yield from files.read_all(list(alike), groups)
            continue
        # A library of 11 MB, which jobs with state in memory do not need.
        from bicycle_runtime.state.rocksdb.bases import change_sets_of

        for ref in alike:
            yield from change_sets_of(files, ref, groups_in(ref, groups))


class Contents:
    """A reader that opens files each time, for single queries."""

    def change_sets(
        self, files: SealedFiles, refs: Sequence[StateRef], groups: range, wants: Wants
    ) -> Iterator[ChangeSet]:
        """Yield the change sets of files, oldest first, for some key groups.

        Args:
            files: The operator's.
            refs: The files.
            groups: The key groups; entries copied to all subtasks are included.
            wants: Leaves change sets out. Of a database it is asked before they are read, with
                change sets that are empty except for their names.

        Raises:
            StateFileError: a file is missing or damaged.
        """
        for is_database, alike in groupby(refs, lambda ref: ref.is_database):
            if not is_database:
                found = self._read(files, list(alike), groups)
                yield from filter(wants, chain.from_iterable(found))
                continue
            for ref in alike:
                yield from self._rows(files, ref, groups_in(ref, groups), wants)

    def _read(
        self, files: SealedFiles, refs: Sequence[StateRef], groups: range
    ) -> Iterator[Sequence[ChangeSet]]:
        return files.read_all(refs, groups)

    def _rows(
        self, files: SealedFiles, ref: StateRef, groups: range, wants: Wants
    ) -> Iterator[ChangeSet]:
        with _mount(files, ref) as space:
            yield from _wanted_rows(files, ref, space, groups, wants=wants)


class KeptContents(Contents):
    """A reader that caches files for later queries, since a file never changes.

    At most 192 MiB of files and 8 open databases are kept; the least recently used are dropped
    first. The files must be in one storage. The object is not thread-safe.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, Sequence[ChangeSet]]] = {}
        self._databases: dict[str, tuple[RocksSpace, ExitStack]] = {}

    def close(self) -> None:
        """Forget everything, and close databases."""
        self._kept.clear()
        for path in list(self._databases):
            self._forget(path)

    def _read(
        self, files: SealedFiles, refs: Sequence[StateRef], groups: range
    ) -> Iterator[Sequence[ChangeSet]]:
        for ref in refs:
            counted = groups_in(ref, groups)
            kept = self._kept.pop(ref.path, None)
            if kept is None:
                change_sets = decode_change_sets(
                    files.data_of(ref), path=ref.path, operator=files.operator
                )
                kept = (ref.byte_count, change_sets)
            self._kept[ref.path] = kept  # As the database used last.
            self._make_room()
            yield [s for s in kept[1] if s.group in counted or s.group == EVERYWHERE]

    def _make_room(self) -> None:
        total = sum(size for size, _ in self._kept.values())
        while total > _KEPT_BYTES_MAX and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            total -= self._kept.pop(oldest)[0]

    def _rows(
        self, files: SealedFiles, ref: StateRef, groups: range, wants: Wants
    ) -> Iterator[ChangeSet]:
        found = self._databases.pop(ref.path, None)
        if found is None:
            opened = ExitStack()
            found = (opened.enter_context(_mount(files, ref)), opened)
        self._databases[ref.path] = found
        while len(self._databases) > _DATABASES_MAX:
            self._forget(next(iter(self._databases)))
        try:
            yield from _wanted_rows(files, ref, found[0], groups, wants=wants)
        except StateFileError:  # It may have been collected below the open database.
            self._forget(ref.path)
            raise

    def _forget(self, path: str) -> None:
        self._databases.pop(path)[1].close()


def _mount(files: SealedFiles, ref: StateRef) -> AbstractContextManager[RocksSpace]:
    # A library of 11 MB, which jobs with state in memory do not need.
    from bicycle_runtime.state.rocksdb.bases import index_of, mount

    return mount(files, ref, index_of(files, ref))


def _wanted_rows(
    files: SealedFiles, ref: StateRef, space: RocksSpace, groups: range, *, wants: Wants
) -> Iterator[ChangeSet]:
    # A library of 11 MB, which jobs with state in memory do not need.
    from bicycle_runtime.state.rocksdb.bases import damage_of
    from bicycle_runtime.state.rocksdb.space import SpaceError

    for group in (EVERYWHERE, *groups):
        try:
            names = [n for n in space.names(group) if wants(emptied_change_set(group, n))]
            change_sets = [space.change_set(group, name) for name in names]
        except SpaceError as error:
            raise damage_of(files, ref, error) from error
        yield from change_sets
