"""The content of any files that a sealed state names: of change sets, or of a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from bicycle_runtime.state.sealed.changes import ChangeSet
from bicycle_runtime.state.sealed.files import SealedFiles
from bicycle_runtime.state.sealed.refs import StateRef

__all__ = ["parts_of"]


def parts_of(
    files: SealedFiles, refs: Sequence[StateRef], groups: range
) -> Iterator[Sequence[ChangeSet]]:
    """Yield the change sets of files, in their order, that count for some key groups.

    Those of a database come one key group at a time, those of other files all at once.

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
            yield from change_sets_of(files, ref, ref.groups_in(groups))
