"""The state of a job as of one sealed epoch, and differences between epochs.

It is read from the checkpoint files alone: neither the plugin nor the graph is needed. The files of
one range, and the entries of one key group, are in memory at a time. A running job may collect the
epoch meanwhile, which raises ``EpochGoneError``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.jobs.errors import OPERATOR_UNKNOWN
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.layouts.state import EVERYWHERE, ChangeSet, OperatorStateMetadata, RangeState
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.recovery.history import EpochHistory
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.recovery.savepoints import job_facts
from bicycle_runtime.state.sealed.refs import groups_in
from bicycle_runtime.state.sealed.sealed_files import SealedFiles
from bicycle_runtime.state.stores.contents import Contents
from bicycle_runtime.state.stores.sealed_entries import (
    SealedEntry,
    entries_of_keys,
    infer_kind,
    sealed_entries,
)

_WINDOW = "Window"
Wants = Callable[[ChangeSet], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedEntry:
    """An entry and its location.

    ``key_group`` is None for state without keys, ``task`` for entries copied to every task.
    """

    operator: str
    entry: SealedEntry
    key_group: int | None
    task: int | None


@dataclass(frozen=True, slots=True)
class SealedEpoch:
    """One sealed epoch of one job.

    ``kinds`` are the kinds of operators in the job's file; inferred kinds join them. ``contents``
    reads files for look-ups of keys, and may keep them.
    """

    storage: Storage
    manifest: Manifest
    kinds: dict[str, str] = field(default_factory=dict)
    contents: Contents = field(default_factory=Contents)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.manifest.epoch

    def operators(self, wanted: str | None = None) -> list[str]:
        """Return the uids of operators with state, or only the requested operator's.

        Raises:
            OPERATOR_UNKNOWN: there is no such operator.
        """
        known = sorted(self.manifest.states)
        if wanted is None:
            return known
        if wanted not in known:
            raise OPERATOR_UNKNOWN(
                operator=wanted,
                epoch=self.epoch,
                known=known,
                known_text=", ".join(known) or "none",
            )
        return [wanted]

    def kind_of(self, operator: str) -> str:
        """Return the kind of an operator, such as ``Reduce``, ``Window`` and ``Process``."""
        if operator not in self.kinds:
            self.kinds[operator] = self._inferred_kind(operator)
        return self.kinds[operator]

    def entries(self, operator: str, wants: Wants = lambda _: True) -> Iterator[LocatedEntry]:
        """Yield the entries of an operator, range by range, in order within each.

        Args:
            operator: Its uid.
            wants: Leaves change sets out before they are decoded.

        Raises:
            StateFileError: a file is damaged.
            EpochGoneError: the job collected the epoch meanwhile.
        """
        test = wants
        for part in self._ranges(operator):
            yield from self._locate(operator, self._read(operator, part, None, test))
            if part.files:
                test = _without_copies(wants)

    def entries_of_keys(
        self, operator: str, keys: Collection[Any], wants: Wants
    ) -> Iterator[LocatedEntry]:
        """Yield the entries of an operator that may belong to some keys, range by range.

        Args:
            operator: Its uid.
            keys: The keys; an entry in which one is only the part of a key may be there, too.
            wants: Leaves change sets out before they are looked at.

        Raises:
            StateFileError: a file is damaged.
            EpochGoneError: the job collected the epoch meanwhile.
        """
        files, test = SealedFiles(operator, self.storage), wants
        is_window = self.kind_of(operator) == _WINDOW
        for part in self._ranges(operator):
            groups = range(part.first_group, part.end_group)
            with EpochHistory(self.storage).reading(self.manifest):
                change_sets = self.contents.change_sets(files, part.files, groups, test)
                found = list(entries_of_keys(change_sets, keys, is_window=is_window))
            yield from self._locate(operator, found)
            if part.files:
                test = _without_copies(wants)

    def entries_within(self, operator: str, groups: range) -> Iterator[LocatedEntry]:
        """Yield the entries of some key groups; without groups, the copies of each task.

        Raises:
            StateFileError: a file is damaged.
            EpochGoneError: the job collected the epoch meanwhile.
        """
        wants_copies = not groups

        def is_wanted(change_set: ChangeSet) -> bool:
            return (change_set.group == EVERYWHERE) == wants_copies

        for part in self._ranges_within(operator, groups):
            yield from self._locate(operator, self._read(operator, part, groups, is_wanted))

    def files_within(self, operator: str, groups: range) -> list[tuple[str, range]]:
        """Return the files with entries of some key groups, and which groups they contain."""
        return [
            (ref.path, groups_in(ref, groups))
            for part in self._ranges_within(operator, groups)
            for ref in part.files
        ]

    def bounds(self, operator: str) -> set[int]:
        """Return where the ranges of an operator begin and end."""
        return {
            bound for part in self._ranges(operator) for bound in (part.first_group, part.end_group)
        }

    def state_of(self, operator: str) -> OperatorState | None:
        """Return the state of an operator in the manifest."""
        return self.manifest.states.get(operator)

    def _names(self, operator: str) -> dict[tuple[str, str], str]:
        """Return the current names of renamed states, by space and stored name."""
        state_metadata = self.manifest.state_metadata.get(operator, OperatorStateMetadata())
        return {
            (state.space, state.stored_name): state.name
            for state in state_metadata.states
            if state.stored_name != state.name and not state.stored_name.startswith("$")
        }

    def _inferred_kind(self, operator: str) -> str:
        part = next((each for each in self._ranges(operator) if each.files), None)
        if part is None:
            return infer_kind(())
        groups = range(part.first_group, part.end_group)
        files = SealedFiles(operator, self.storage)
        with EpochHistory(self.storage).reading(self.manifest):
            found = self.contents.change_sets(files, part.files, groups, lambda _: True)
            return infer_kind(change_set.name for change_set in found)

    def _ranges(self, operator: str) -> tuple[RangeState, ...]:
        state = self.state_of(operator)
        return () if state is None else state.ranges

    def _ranges_within(self, operator: str, groups: range) -> list[RangeState]:
        parts = self._ranges(operator)
        if not groups:
            return [part for part in parts if part.files][:1]
        return [p for p in parts if p.first_group < groups.stop and groups.start < p.end_group]

    def _read(
        self, operator: str, part: RangeState, groups: range | None, wants: Wants
    ) -> Iterator[SealedEntry]:
        with EpochHistory(self.storage).reading(self.manifest):
            yield from sealed_entries(
                self.storage,
                part,
                operator=operator,
                groups=groups,
                is_window=self.kind_of(operator) == _WINDOW,
                wants=wants,
            )

    def _locate(self, operator: str, entries: Iterable[SealedEntry]) -> Iterator[LocatedEntry]:
        state = self.manifest.states[operator]
        names = self._names(operator)
        has_keys = state.scope == StateScope.KEY_GROUPS.value
        for entry in entries:
            group = entry.group
            yield LocatedEntry(
                operator=operator,
                entry=_rename(entry, names),
                key_group=group if has_keys and group != EVERYWHERE else None,
                task=None if group == EVERYWHERE else _task_of(state.ranges, group),
            )


def open_epoch(
    storage: Storage, epoch: int | None = None, *, contents: Contents | None = None
) -> SealedEpoch:
    """Return a sealed epoch, the newest without a number.

    Args:
        storage: Checkpoint storage of the job.
        epoch: Its number.
        contents: Reads files for look-ups of keys; None reads them each time.

    Raises:
        CHECKPOINT_MISSING: no epoch was ever sealed.
        EPOCH_UNKNOWN: this one is not there.
        ManifestError: it is damaged.
    """
    manifest, kinds = EpochHistory(storage).manifest(epoch), _noted_kinds(storage)
    return SealedEpoch(storage, manifest, kinds, contents or Contents())


def file_sizes(states: Iterable[OperatorState]) -> Collection[tuple[int, bool]]:
    """Return size and base flag of each state file, with shared files once."""
    return {
        item.path: (item.byte_count, ref.is_base)
        for state in states
        for part in state.ranges
        for ref in part.files
        for item in ref.objects
    }.values()


def _rename(entry: SealedEntry, names: dict[tuple[str, str], str]) -> SealedEntry:
    space = "attribute" if entry.kind == "attribute" else "state"
    name = names.get((space, entry.state))
    return entry if name is None else replace(entry, state=name)


def _without_copies(wants: Wants) -> Wants:
    """Return a test that also excludes entries copied to each task: one is enough."""
    return lambda change_set: change_set.group != EVERYWHERE and wants(change_set)


def _noted_kinds(storage: Storage) -> dict[str, str]:
    """Return the kinds of operators in the job's file; others are inferred."""
    kinds = job_facts(storage).get("operators")
    return kinds if isinstance(kinds, dict) else {}


def _task_of(ranges: tuple[RangeState, ...], group: int) -> int | None:
    owners = (i for i, part in enumerate(ranges) if part.first_group <= group < part.end_group)
    return next(owners, None)
