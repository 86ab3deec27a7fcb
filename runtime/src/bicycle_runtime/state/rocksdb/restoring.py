"""Building the local database of a range from the bases that a sealed state names.

The largest base is taken as it is, and loses the key groups of others by a range of deletions.
What the rest of the bases have is copied into it, entry by entry but without decoding any. A base
of which only a small part is wanted is copied from as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bicycle_runtime.state.rocksdb.bases import bring, index_of, mounted, watched
from bicycle_runtime.state.rocksdb.space import RocksSpace, UnreadableError
from bicycle_runtime.state.sealed.bases import BaseIndex
from bicycle_runtime.state.sealed.files import SealedFiles
from bicycle_runtime.state.sealed.refs import SstRef, StateRef

__all__ = ["restore"]

_SHARE_MIN = 0.25  # A base of which less is wanted is copied from: else all of it lies here, too.


def restore(
    files: SealedFiles, bases: Sequence[StateRef], groups: range,
    *, place: Path, open_space: Callable[[Path], RocksSpace],
) -> tuple[RocksSpace, dict[str, SstRef]]:  # fmt: skip
    """Return a space with what bases have of some key groups; it stands at no checkpoint id.

    Args:
        files: The operator's.
        bases: All databases among the files of a sealed state.
        groups: The key groups.
        place: An empty place for the folder.
        open_space: Opens a folder.

    Returns:
        The space, and what the storage has of its files by their names.

    Raises:
        StateFileError: a file is missing or damaged.
        SpaceError: the folder cannot be used.
    """
    indexes = {ref.path: index_of(files, ref) for ref in bases}
    seed = _seed(bases, indexes, groups)
    known: dict[str, SstRef] = {}
    with watched(files.operator, sum(ref.total_bytes for ref in bases)) as progress:
        if seed is not None:
            index = indexes[seed.path]
            bring(files, index, place, progress=progress, is_linked=False)
            known = {sst.name: sst for sst in index.ssts}
        space = open_space(place)
        if seed is not None and seed.groups_in(groups) != range(*indexes[seed.path].groups):
            space.keep_only(seed.groups_in(groups))
        for number, ref in enumerate(ref for ref in bases if ref is not seed):
            index = indexes[ref.path]
            with mounted(files, index, path=ref.path, progress=progress) as other:
                if seed is None and number == 0:
                    space.set_marks(other.marks())
                try:
                    space.absorb(other, ref.groups_in(groups))
                except UnreadableError as error:
                    raise files.damaged(ref.path, str(error)) from error
    return space, known


def _seed(
    bases: Sequence[StateRef], indexes: Mapping[str, BaseIndex], groups: range
) -> StateRef | None:
    """Return the base of which most is wanted, if that is a good part of it."""

    def share(ref: StateRef) -> float:
        first, end = indexes[ref.path].groups
        return len(ref.groups_in(groups)) / max(1, end - first)

    wanted = [ref for ref in bases if share(ref) >= _SHARE_MIN]
    return max(wanted, key=lambda ref: share(ref) * ref.total_bytes, default=None)
