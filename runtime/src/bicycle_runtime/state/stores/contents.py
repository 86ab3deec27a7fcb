"""The content of any file that a sealed state names: of sections, or of a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bicycle_runtime.state.sealed.changes import Section
from bicycle_runtime.state.sealed.files import SealedFiles
from bicycle_runtime.state.sealed.refs import StateRef

__all__ = ["parts_of"]


def parts_of(files: SealedFiles, ref: StateRef, groups: range) -> Iterator[Sequence[Section]]:
    """Yield the sections of a file that count for some key groups.

    Those of a database come one key group at a time, those of other files all at once.

    Raises:
        StateFileError: the file is missing or damaged.
    """
    if not ref.is_database:
        yield files.read(ref, groups)
        return
    # A library of 11 MB, which jobs with state in memory do not need.
    from bicycle_runtime.state.rocksdb.bases import sections_of

    yield from sections_of(files, ref, ref.groups_in(groups))
