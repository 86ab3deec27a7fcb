"""References to the files of a subtask's state: sizes and checksums as plain data.

A *range state* lists files oldest first: an optional base, merged deltas, deltas. Applying all of
them in order results in the state. Files are shared and never changed; a rescaled subtask simply
lists the files of the ranges it overlaps and keeps the key groups it owns. Files are merged in
tiers, so that the list stays short while the cost of a commit stays proportional to the touched
entries.

A base is made beside the epochs. While it is, the range state carries its *mark*: so every task
that seals the range knows of it, and a worker that finds it made takes it in place of the files it
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bicycle_runtime.layouts.state import BaseMark, RangeState, SstRef, StateRef

TIER_FILES = 8  # files of one tier that are merged into one file of the next
MERGE_BYTES_MAX = 256 << 10  # hot path: merging costs 150 ms a MiB, in the epoch's own time
DELTA_FILES_MAX = 256  # so many deltas are folded into a base whatever their size
BASE_BYTES_MIN = 4 << 20  # below this much delta, folding into a base is never worth it
RECENT_COMMITS_MAX = 64  # how many commits back a worker may catch up instead of loading again


def groups_in(ref: StateRef, groups: range) -> range:
    """Return the key groups, of some, for which a file is valid."""
    start = groups.start if ref.first_group is None else max(groups.start, ref.first_group)
    stop = groups.stop if ref.end_group is None else min(groups.stop, ref.end_group)
    return range(start, max(start, stop))


def objects_of(state: RangeState) -> Iterator[StateRef | SstRef]:
    """Yield all stored objects of a state; bases may share some."""
    for ref in state.files:
        yield from ref.objects


def epoch_of(state: RangeState, checkpoint_id: str) -> int | None:
    """Return the epoch whose commit has a checkpoint id, if it is recent."""
    for epoch, path in reversed(state.recent):
        if path == checkpoint_id:
            return epoch
    return None


def with_lists(state: RangeState, files: tuple[StateRef, ...]) -> RangeState:
    """Return a state with the files from which lists are divided."""
    value = files or msgspec.UNSET
    return state if value == state.list_files else msgspec.structs.replace(state, list_files=value)


def with_mark(state: RangeState, mark: BaseMark | None) -> RangeState:
    """Return a state with the mark of a base that is being made; None for no base."""
    value = msgspec.UNSET if mark is None else mark
    return state if value == state.mark else msgspec.structs.replace(state, mark=value)


def with_commit(state: RangeState, ref: StateRef, kept: Sequence[StateRef]) -> RangeState:
    """Return a state after a commit that keeps some files and adds one."""
    recent = (*state.recent, (ref.last_epoch, ref.path))[-RECENT_COMMITS_MAX:]
    return msgspec.structs.replace(state, files=(*kept, ref), recent=recent)


def with_base(state: RangeState, base: Sequence[StateRef]) -> RangeState:
    """Return a state with a base in place of the files that it holds, the mark gone.

    A delta that was merged over the end of the base stays: applying changes of the base again
    changes nothing.
    """
    newer = [ref for ref in state.files if ref.last_epoch > base[0].last_epoch]
    return msgspec.structs.replace(state, files=(*base, *newer), mark=msgspec.UNSET)


def merge_start(files: Sequence[StateRef], *, since: int = 0) -> int:
    """Return the index from which files merge with a new delta, or ``len(files)``.

    The newest ``TIER_FILES - 1`` files of one tier join the new file and form a file of the next
    tier; that may complete the next tier, and so on. A base is never merged, nor are large files:
    they wait for the next base.

    Args:
        files: The files of the sealed state.
        since: The epoch of a base in the making, which replaces files of this age.
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
    """Return whether a base is due.

    It is when there are very many deltas, when they outgrow the base (so that the total cost of
    bases is proportional to the written bytes), or when the checkpoint interval is over and the
    deltas are a quarter of the base. Of files that several ranges share since a change of the
    parallelism, the share counts: so no range writes a base of its own too early, or puts it off
    forever.
    """
    base_bytes = sum(ref.counted_bytes for ref in files if ref.is_base)
    delta_bytes = sum(ref.counted_bytes for ref in files if not ref.is_base)
    delta_count = sum(1 for ref in files if not ref.is_base)
    if delta_count > DELTA_FILES_MAX or delta_bytes > max(base_bytes, BASE_BYTES_MIN):
        return True
    return is_interval_over and delta_bytes > 0 and delta_bytes * 4 > base_bytes
