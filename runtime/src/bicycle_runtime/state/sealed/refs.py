"""Which files make up the state of a subtask: references with sizes and checksums, as plain data.

A *range state* lists files oldest first: an optional base, merged deltas, deltas. Applying all of
them in order gives the state. Files are shared and never changed; a rescaled subtask simply lists
the files of the ranges it overlaps and keeps the key groups it owns. Files are merged in tiers, so
that the list stays short while the cost of a commit stays proportional to what was touched.

A base is made beside the epochs. While it is, the range state carries its *mark*: so everybody who
seals the range knows of it, and a worker that finds it made takes it in place of the files it
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

__all__ = [
    "BASE_INDEX",
    "BaseMark",
    "RangeState",
    "SstRef",
    "StateRef",
    "fold_start",
    "merge_start",
]

TIER_FILES = 8  # files of one tier that are merged into one file of the next
MERGE_BYTES_MAX = 256 << 10  # hot path: merging costs 150 ms a MiB, in the epoch's own time
DELTA_FILES_MAX = 256  # so many deltas are folded into a base whatever their size
BASE_BYTES_MIN = 4 << 20  # below this much delta, folding into a base is never worth it
RECENT_COMMITS_MAX = 64  # how many commits back a worker may catch up instead of loading again
BASE_INDEX = "index"  # The object that is written last into the folder of a base.


class SstRef(msgspec.Struct, frozen=True, kw_only=True):
    """One file of sorted entries of a base that RocksDB made; bases may share it.

    ``name`` is what the database calls it. ``path`` is where it lies in the storage, under a name
    made of its content.
    """

    name: str
    path: str
    byte_count: int
    crc32: int

    @property
    def digest(self) -> str:
        """The name that its content has."""
        return self.path.rpartition("/")[2]


class StateRef(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable file of state: a base (complete) or a delta of the epochs first to last.

    A base that RocksDB made is the index of a database, whose entries lie in ``ssts``.

    It counts for the key groups ``first_group <= g < end_group`` only: after a change of the
    parallelism, other files know better about the other groups in it. None sets no bound. Where
    there is one, ``range_groups`` says how many key groups the range had that wrote the file.
    """

    path: str
    is_base: bool
    tier: int
    first_epoch: int
    last_epoch: int
    byte_count: int
    crc32: int
    first_group: int | None = None
    end_group: int | None = None
    # Not written where there are none: so most references look as they always have.
    written_groups: int | msgspec.UnsetType | None = msgspec.field(
        default=msgspec.UNSET, name="range_groups"
    )
    sst_refs: tuple[SstRef, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="ssts"
    )

    @property
    def range_groups(self) -> int | None:
        """How many key groups the range had that wrote the file; None where no bound is set."""
        return None if self.written_groups is msgspec.UNSET else self.written_groups

    @property
    def ssts(self) -> tuple[SstRef, ...]:
        """The files of its entries; none unless it is a database."""
        return () if self.sst_refs is msgspec.UNSET else self.sst_refs

    @property
    def is_database(self) -> bool:
        """Whether it is the index of a database, and not a file of change sets."""
        return self.path.endswith(f"/{BASE_INDEX}")

    @property
    def objects(self) -> tuple[StateRef | SstRef, ...]:
        """All that lies in the storage for it; each has ``path``, ``byte_count`` and ``crc32``."""
        return (self, *self.ssts)

    @property
    def total_bytes(self) -> int:
        """Size of all its objects."""
        return self.byte_count + sum(sst.byte_count for sst in self.ssts)

    @property
    def counted_bytes(self) -> int:
        """About how many of its bytes count: all, or its share of the key groups."""
        written = self.range_groups
        if written is None or self.first_group is None or self.end_group is None:
            return self.total_bytes
        return self.total_bytes * (self.end_group - self.first_group) // written

    def groups_in(self, groups: range) -> range:
        """Return those of some key groups for which the file counts."""
        start = groups.start if self.first_group is None else max(groups.start, self.first_group)
        stop = groups.stop if self.end_group is None else min(groups.stop, self.end_group)
        return range(start, max(start, stop))


class BaseMark(msgspec.Struct, frozen=True, kw_only=True):
    """A base in the making: the epoch that announced it, and the folder that gets its files."""

    epoch: int
    folder: str

    @property
    def index(self) -> str:
        """The path of the object that tells that it is made."""
        return f"{self.folder}/{BASE_INDEX}"


class RangeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subtask as of a sealed epoch.

    ``files`` are applied in order, restricted to the key groups ``first_group <= g < end_group``.
    ``recent`` are the paths of the last commits with their epochs, newest last: a worker whose
    table stands at one of them only applies files that end later. States of functions without keys
    are kept per subtask: the "group" is the subtask index, and ``old_parallelism`` is set while a
    change of parallelism has not yet been merged (the groups are then old subtasks). ``making`` is
    carried from epoch to epoch while a base is being made, and not written where none is. ``lists``
    are the files of all subtasks, of an operator whose lists are about to be divided.
    """

    first_group: int
    end_group: int
    files: tuple[StateRef, ...] = ()
    recent: tuple[tuple[int, str], ...] = ()
    old_parallelism: int | None = None
    mark: BaseMark | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="making")
    list_files: tuple[StateRef, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="lists"
    )

    @property
    def lists(self) -> tuple[StateRef, ...]:
        """The files from which lists are divided; none where they stay as they are."""
        return () if self.list_files is msgspec.UNSET else self.list_files

    def with_lists(self, files: tuple[StateRef, ...]) -> RangeState:
        """Return this state with the files from which lists are divided."""
        value = files or msgspec.UNSET
        return self if value == self.list_files else msgspec.structs.replace(self, list_files=value)

    @property
    def checkpoint_id(self) -> str:
        """The path of the newest commit, the identity of this state; empty without any."""
        return self.recent[-1][1] if self.recent else ""

    @property
    def making(self) -> BaseMark | None:
        """The mark of the base that is being made."""
        return None if self.mark is msgspec.UNSET else self.mark

    def with_mark(self, mark: BaseMark | None) -> RangeState:
        """Return this state with the mark of a base that is being made; None for no base."""
        value = msgspec.UNSET if mark is None else mark
        return self if value == self.mark else msgspec.structs.replace(self, mark=value)

    @property
    def epoch(self) -> int:
        """The epoch of the newest commit; 0 without any."""
        return self.recent[-1][0] if self.recent else 0

    @property
    def byte_count(self) -> int:
        """Size of all files."""
        return sum(item.byte_count for item in self.objects())

    def objects(self) -> Iterator[StateRef | SstRef]:
        """Yield all that lies in the storage for this state; bases may share some."""
        for ref in self.files:
            yield from ref.objects

    def epoch_of(self, checkpoint_id: str) -> int | None:
        """Return the epoch whose commit has this checkpoint id, if it is recent."""
        for epoch, path in reversed(self.recent):
            if path == checkpoint_id:
                return epoch
        return None

    def committed(self, ref: StateRef, kept: Sequence[StateRef]) -> RangeState:
        """Return this state after a commit that keeps some files and adds one."""
        recent = (*self.recent, (ref.last_epoch, ref.path))[-RECENT_COMMITS_MAX:]
        return msgspec.structs.replace(self, files=(*kept, ref), recent=recent)

    def based_on(self, base: Sequence[StateRef]) -> RangeState:
        """Return this state with a base in place of the files that it holds, the mark gone.

        A delta that was merged over the end of the base stays: applying again what the base has
        changes nothing.
        """
        newer = [ref for ref in self.files if ref.last_epoch > base[0].last_epoch]
        return msgspec.structs.replace(self, files=(*base, *newer), mark=msgspec.UNSET)


def merge_start(files: Sequence[StateRef], *, since: int = 0) -> int:
    """Return the index from which files are merged with a new delta; ``len(files)`` when none are.

    The newest ``TIER_FILES - 1`` files of one tier join the new file and form a file of the next
    tier; that may complete the next tier, and so on. A base is never merged, nor what is large:
    that waits for the next base.

    Args:
        files: The files of the sealed state.
        since: The epoch of a base in the making, which replaces what is as old.
    """
    start, tier = len(files), 0
    while True:
        same = 0
        while (
            start - same > 0
            and files[start - same - 1].tier == tier
            and not files[start - same - 1].is_base
            and files[start - same - 1].first_epoch > since
        ):
            same += 1
        merged_bytes = sum(ref.byte_count for ref in files[start - same :])
        if same < TIER_FILES - 1 or merged_bytes > MERGE_BYTES_MAX:
            return start
        start -= same
        tier += 1


def fold_start(files: Sequence[StateRef], *, is_interval_over: bool) -> bool:
    """Tell whether it is time for a base.

    It is when there are very many deltas, when they outgrow the base (so that the total cost of
    bases is proportional to what was written), or when the checkpoint interval is over and the
    deltas are a quarter of the base. Of files that several ranges share since a change of the
    parallelism, the share counts: so none of them is in haste to write a base of its own, and none
    puts it off for ever.
    """
    base_bytes = sum(ref.counted_bytes for ref in files if ref.is_base)
    delta_bytes = sum(ref.counted_bytes for ref in files if not ref.is_base)
    delta_count = sum(1 for ref in files if not ref.is_base)
    if delta_count > DELTA_FILES_MAX or delta_bytes > max(base_bytes, BASE_BYTES_MIN):
        return True
    return is_interval_over and delta_bytes > 0 and delta_bytes * 4 > base_bytes
