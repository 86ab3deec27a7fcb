"""The sealed files from which the subtasks of a run start, by key groups.

``restore_ranges`` is a pure function of a sealed state and a parallelism. No file is read, written
or copied: a new subtask lists the files of all old subtasks whose key groups it overlaps and reads
its own groups from them. Parts of one file that meet again are one entry again, so that lists stay
short however often the parallelism changes. States without keys are passed on whole, old subtask i
to new subtask ``i * new // old``; workers divide the lists of such subtasks, and get the files of
all for that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import RangeState, StateRef
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.records.keys import range_of
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.state.sealed.refs import groups_in, with_lists, with_mark


def restore_ranges(
    state: OperatorState | None,
    *,
    scope: StateScope,
    group_count: int,
    parallelism: int,
    owner: tuple[str, str],
    divides_lists: bool = False,
) -> tuple[RangeState, ...]:
    """Return the state that each of ``parallelism`` subtasks starts from.

    Args:
        state: Sealed state of the operator; None when it never had any.
        scope: How its state is divided in this run.
        group_count: Its key groups in this run.
        parallelism: Its subtasks in this run.
        owner: Job and operator, for errors.
        divides_lists: Whether the lists of its subtasks are divided.

    Raises:
        STATE_LOST: scope or number of key groups differ from the sealed state.
    """
    if state is None:
        return _empty(scope, group_count, parallelism)
    if (state.scope, state.group_count) != (scope.value, group_count):
        job, operator = owner
        lost = (
            f"operator {operator!r} ({state.scope}, {state.group_count} groups; "
            f"this run has {scope.value}, {group_count} groups)"
        )
        raise STATE_LOST(job=job, lost=lost, instead="")
    lists = tuple(ref for old in state.ranges for ref in old.files) if divides_lists else ()
    if len(state.ranges) == parallelism:
        # A base in the making is abandoned: its maker may be dead, and its files are swept.
        return tuple(with_lists(with_mark(old, None), lists) for old in state.ranges)
    if scope is StateScope.SUBTASK:
        found = _handed_over(state.ranges, parallelism)
        return tuple(with_lists(new, lists) for new in found)
    return tuple(
        _overlapping(
            state.ranges, range_of(subtask, group_count=group_count, parallelism=parallelism)
        )
        for subtask in range(parallelism)
    )


def _empty(scope: StateScope, group_count: int, parallelism: int) -> tuple[RangeState, ...]:
    if scope is StateScope.SUBTASK:
        return tuple(
            RangeState(first_group=task, end_group=task + 1) for task in range(parallelism)
        )
    owned = [
        range_of(task, group_count=group_count, parallelism=parallelism)
        for task in range(parallelism)
    ]
    return tuple(RangeState(first_group=groups.start, end_group=groups.stop) for groups in owned)


def _overlapping(olds: Iterable[RangeState], groups: range) -> RangeState:
    """Return a state over some key groups, each as its old owner left it."""
    parts = [
        _within(
            ref, old, range(max(old.first_group, groups.start), min(old.end_group, groups.stop))
        )
        for old in olds
        if old.first_group < groups.stop and groups.start < old.end_group
        for ref in old.files
    ]
    files = _join(ref for ref in parts if ref.first_group != ref.end_group)
    return RangeState(
        first_group=groups.start, end_group=groups.stop, files=tuple(files), recent=_marker(files)
    )


def _within(ref: StateRef, owner: RangeState, groups: range) -> StateRef:
    """Return a file that counts for some key groups only."""
    counted = groups_in(ref, groups)
    range_groups = ref.range_groups
    if range_groups is None:
        range_groups = owner.end_group - owner.first_group
    return msgspec.structs.replace(
        ref, first_group=counted.start, end_group=counted.stop, written_groups=range_groups
    )


def _join(parts: Iterable[StateRef]) -> list[StateRef]:
    """Return one entry for adjacent parts of a file, in the order of epochs.

    Within one key group the files of a range are in that order anyway, and files say nothing about
    each other's groups. Entries copied to every subtask are the same in all files of an epoch.
    """
    joined: list[StateRef] = []
    for ref in sorted(parts, key=lambda ref: (ref.path, ref.first_group or 0)):
        last = joined[-1] if joined else None
        if last is not None and (last.path, last.end_group) == (ref.path, ref.first_group):
            joined[-1] = msgspec.structs.replace(last, end_group=ref.end_group)
        else:
            joined.append(ref)
    return sorted(joined, key=lambda ref: (ref.last_epoch, not ref.is_base, ref.path))


def _marker(files: list[StateRef]) -> tuple[tuple[int, str], ...]:
    """Return a unique label for a state merged from several, for caches."""
    if not files:
        return ()
    newest = max(files, key=lambda ref: (ref.last_epoch, ref.path))
    return ((newest.last_epoch, f"rescaled:{newest.path}"),)


def _handed_over(olds: tuple[RangeState, ...], parallelism: int) -> tuple[RangeState, ...]:
    old_count = len(olds)
    states = []
    for task in range(parallelism):
        mine = [
            old
            for index, old in enumerate(olds)
            if old.files and index * parallelism // old_count == task
        ]
        if not mine:
            states.append(RangeState(first_group=task, end_group=task + 1))
            continue
        files = [ref for old in mine for ref in old.files]
        states.append(
            RangeState(
                # State passed on before and not merged yet may have lower numbers.
                first_group=min(old.first_group for old in mine),
                end_group=max(old.end_group for old in mine),
                files=tuple(files),
                recent=_marker(files),
                old_parallelism=old_count,
            )
        )
    return tuple(states)
