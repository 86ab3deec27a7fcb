"""Which files make up the state of a subtask: references with sizes and checksums, as plain data.

A *range state* lists files oldest first: an optional base, merged deltas, deltas. Applying all of
them in order gives the state. Files are shared and never changed; a rescaled subtask simply lists
the files of the ranges it overlaps and keeps the key groups it owns. Files are merged in tiers, so
that the list stays short while the cost of a commit stays proportional to what was touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["RangeState", "StateRef", "fold_start", "merge_start"]

TIER_FILES = 8  # files of one tier that are merged into one file of the next
BASE_BYTES_MIN = 4 << 20  # below this much delta, folding into a base is never worth it
RECENT_COMMITS_MAX = 64  # how many commits back a worker may catch up instead of loading anew


class StateRef(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable file of state: a base (complete) or a delta of the epochs first to last.

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
    range_groups: int | None = None

    @property
    def counted_bytes(self) -> int:
        """About how many of its bytes count: all, or its share of the key groups."""
        if self.range_groups is None or self.first_group is None or self.end_group is None:
            return self.byte_count
        return self.byte_count * (self.end_group - self.first_group) // self.range_groups

    def groups_in(self, groups: range) -> range:
        """Return those of some key groups for which the file counts."""
        start = groups.start if self.first_group is None else max(groups.start, self.first_group)
        stop = groups.stop if self.end_group is None else min(groups.stop, self.end_group)
        return range(start, max(start, stop))


class RangeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subtask as of a sealed epoch.

    ``files`` are applied in order, restricted to the key groups ``first_group <= g < end_group``.
    ``recent`` are the paths of the last commits with their epochs, newest last: a worker whose
    table stands at one of them only applies files that end later. States of functions without keys
    are kept per subtask: the "group" is the subtask index, and ``old_parallelism`` is set while a
    change of parallelism has not yet been merged (the groups are then old subtasks).
    """

    first_group: int
    end_group: int
    files: tuple[StateRef, ...] = ()
    recent: tuple[tuple[int, str], ...] = ()
    old_parallelism: int | None = None

    @property
    def label(self) -> str:
        """The path of the newest commit, the identity of this state; empty without any."""
        return self.recent[-1][1] if self.recent else ""

    @property
    def byte_count(self) -> int:
        """Size of all files."""
        return sum(ref.byte_count for ref in self.files)

    def epoch_of(self, label: str) -> int | None:
        """Return the epoch whose commit has this label, if it is recent."""
        for epoch, path in reversed(self.recent):
            if path == label:
                return epoch
        return None

    def committed(self, ref: StateRef, kept: Sequence[StateRef]) -> RangeState:
        """Return this state after a commit that keeps some files and adds one."""
        recent = (*self.recent, (ref.last_epoch, ref.path))[-RECENT_COMMITS_MAX:]
        return msgspec.structs.replace(self, files=(*kept, ref), recent=recent)


def merge_start(files: Sequence[StateRef]) -> int:
    """Return the index from which files are merged with a new delta; ``len(files)`` when none are.

    The newest ``TIER_FILES - 1`` files of one tier join the new file and form a file of the next
    tier; that may complete the next tier, and so on. A base is never merged.
    """
    start, tier = len(files), 0
    while True:
        same = 0
        while (
            start - same > 0
            and files[start - same - 1].tier == tier
            and not files[start - same - 1].is_base
        ):
            same += 1
        if same < TIER_FILES - 1:
            return start
        start -= same
        tier += 1


def fold_start(files: Sequence[StateRef], *, is_interval_over: bool) -> bool:
    """Tell whether a commit should write a base instead of a delta.

    It does when the deltas outgrow the base (so that the total cost of bases is proportional to
    what was written), or when the checkpoint interval is over and the deltas are a quarter of the
    base. Of files that several ranges share since a change of the parallelism, the share counts:
    so none of them is in haste to write a base of its own, and none puts it off for ever.
    """
    base_bytes = sum(ref.counted_bytes for ref in files if ref.is_base)
    delta_bytes = sum(ref.counted_bytes for ref in files if not ref.is_base)
    if delta_bytes > max(base_bytes, BASE_BYTES_MIN):
        return True
    return is_interval_over and delta_bytes > 0 and delta_bytes * 4 > base_bytes
