"""Queries on sealed state: its content, the entries of a key, and differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from bicycle_runtime.jobs.checkpoints.sealed_states import LocatedEntry, SealedEpoch, file_sizes
from bicycle_runtime.layouts.state import EVERYWHERE, ChangeSet
from bicycle_runtime.operators.spec import StateScope
from bicycle_runtime.records.errors import KeyEncodingError
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.records.opaque import Opaque, is_pickled
from bicycle_runtime.state.stores.sealed_entries import SealedEntry

_SAMPLE_COUNT = 100
_ITEM_KINDS = ("list", "records")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedState:
    """One state of one operator.

    ``types`` and ``codec`` (msgpack, pickle or mixed) are from the first hundred entries.
    ``byte_count`` is the size of encoded keys and values.
    """

    name: str
    kind: str
    types: tuple[str, ...]
    codec: str
    entry_count: int
    byte_count: int
    group_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedOperator:
    """The state of one operator: how it is divided, its files, its states.

    ``group_count`` is how many key groups there are, 0 where state is kept per subtask.
    """

    operator: str
    kind: str
    scope: str
    group_count: int
    task_count: int
    file_count: int
    base_bytes: int
    delta_bytes: int
    states: tuple[SealedState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of entries; None means all.

    ``key`` is a key as a person writes it, see ``keys_meant``. ``prefix`` is how a text key
    begins, or the first part of a key that is a tuple.
    """

    operator: str | None = None
    state: str | None = None
    key: str | None = None
    prefix: str | None = None


ChangeWord = Literal["added", "removed", "changed"]


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry that is not the same in two epochs; an absent side is None."""

    word: ChangeWord
    before: LocatedEntry | None
    after: LocatedEntry | None


@dataclass(slots=True)
class OperatorDiff:
    """The differences of an operator between epochs: totals, and the first changes."""

    operator: str
    counts: dict[ChangeWord, int] = field(
        default_factory=lambda: {"added": 0, "removed": 0, "changed": 0}
    )
    changes: list[EntryChange] = field(default_factory=list)


def keys_meant(text: str) -> list[Any]:
    """Return the possible keys for a text: a JSON value, lists as tuples, or the text.

    Example:
        >>> keys_meant("ada"), keys_meant("42"), keys_meant('["ada", 1]')
        (['ada'], [42, '42'], [('ada', 1), '["ada", 1]'])
    """
    try:
        value = _as_key(json.loads(text))
    except ValueError:
        return [text]
    return [value] if value == text else [value, text]


def select(sealed: SealedEpoch, selection: Selection) -> Iterator[LocatedEntry]:
    """Yield the selected entries by operator, in the order of key groups and keys.

    Raises:
        OPERATOR_UNKNOWN: the operator has no state.
        StateFileError: a file is damaged.
        EpochGoneError: the job collected the epoch meanwhile.
    """
    is_meant = _test_of(selection)
    for operator in sealed.operators(selection.operator):
        wants = _wanted_states(sealed, operator, selection)
        found = (
            sealed.entries(operator, wants)
            if selection.key is None
            else sealed.entries_of_keys(operator, keys_meant(selection.key), wants)
        )
        for located in found:
            if is_meant(located.entry):
                yield located


def summarize_operator(sealed: SealedEpoch, operator: str) -> SealedOperator:
    """Return the summary of an operator's state. All its entries are read."""
    state = sealed.manifest.states[operator]
    sizes = file_sizes([state])
    tallies: dict[tuple[str, str], _Tally] = {}
    for located in sealed.entries(operator):
        entry = located.entry
        tallies.setdefault((entry.state, entry.kind), _Tally()).add(entry)
    return SealedOperator(
        operator=operator,
        kind=sealed.kind_of(operator),
        scope=state.scope,
        group_count=state.group_count if state.scope == StateScope.KEY_GROUPS.value else 0,
        task_count=len(state.ranges),
        file_count=len(sizes),
        base_bytes=sum(size for size, is_base in sizes if is_base),
        delta_bytes=sum(size for size, is_base in sizes if not is_base),
        states=tuple(tally.summary(*group) for group, tally in sorted(tallies.items())),
    )


def diff_operator(
    before: SealedEpoch, after: SealedEpoch, operator: str, *, selection: Selection, limit: int
) -> OperatorDiff:
    """Compare the state of an operator in two epochs of one job.

    Args:
        before: The epoch to compare with.
        after: The other one.
        operator: Its uid; it may have state in one of them only.
        selection: Which entries count.
        limit: How many changes are returned beside the totals.
    """
    diff = OperatorDiff(operator)
    is_meant = _test_of(selection)
    bounds = sorted(before.bounds(operator) | after.bounds(operator))
    stretches = [range(0), *(range(start, end) for start, end in pairwise(bounds))]
    for groups in stretches:
        if before.files_within(operator, groups) == after.files_within(operator, groups):
            continue
        for change in _changes(
            _by_identity(before, operator, groups, is_meant),
            _by_identity(after, operator, groups, is_meant),
        ):
            diff.counts[change.word] += 1
            if len(diff.changes) < limit:
                diff.changes.append(change)
    return diff


def _as_key(value: Any) -> Any:
    return tuple(map(_as_key, value)) if isinstance(value, list) else value


def _test_of(selection: Selection) -> Callable[[SealedEntry], bool]:
    keys = None if selection.key is None else keys_meant(selection.key)

    def is_meant(entry: SealedEntry) -> bool:
        if selection.state is not None and entry.state != selection.state:
            return False
        if keys is not None and not any(_is_same_key(entry.key, key) for key in keys):
            return False
        return selection.prefix is None or _begins(entry.key, selection.prefix)

    return is_meant


def _is_same_key(one: Any, other: Any) -> bool:
    return not isinstance(one, Opaque) and bool(one == other)


def _begins(key: Any, prefix: str) -> bool:
    first = key[0] if isinstance(key, tuple) and key else key
    return isinstance(first, str) and first.startswith(prefix)


def _wanted_states(
    sealed: SealedEpoch, operator: str, selection: Selection
) -> Callable[[ChangeSet], bool]:
    """Return a test that leaves out key groups in which a key cannot be.

    A dict that is an attribute of a function has keys of its own, which may be in any group.
    """
    state = sealed.manifest.states[operator]
    if selection.key is None or state.scope != StateScope.KEY_GROUPS.value:
        return lambda _: True
    groups = {EVERYWHERE}
    for key in keys_meant(selection.key):
        try:
            groups.add(key_group(encode_key(key), group_count=state.group_count))
        except KeyEncodingError:
            continue  # Such a value can be a key of a dict only.
    has_own_keys = sealed.kind_of(operator) not in ("Window", "Reduce")
    return lambda s: s.group in groups or (has_own_keys and not s.name.startswith("$"))


@dataclass(slots=True)
class _Tally:
    """Counts the entries of a state."""

    entry_count: int = 0
    byte_count: int = 0
    groups: set[int] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    pickled_count: int = 0
    sample_count: int = 0

    def add(self, entry: SealedEntry) -> None:
        self.entry_count += 1
        self.byte_count += entry.size
        self.groups.add(entry.group)
        if self.sample_count < _SAMPLE_COUNT and entry.kind != "timer":
            self.sample_count += 1
            self.types.update(_types_in(entry))
            self.pickled_count += is_pickled(b"\x91" + entry.data)

    def summary(self, name: str, kind: str) -> SealedState:
        is_mixed = 0 < self.pickled_count < self.sample_count
        return SealedState(
            name=name,
            kind=kind,
            types=tuple(sorted(self.types)),
            codec="mixed" if is_mixed else "pickle" if self.pickled_count else "msgpack",
            entry_count=self.entry_count,
            byte_count=self.byte_count,
            group_count=len(self.groups - {EVERYWHERE}),
        )


def _types_in(entry: SealedEntry) -> set[str]:
    """Return the types of an entry's values; of a list, the types of its items."""
    value = entry.value()
    values: Iterable[Any] = value if entry.kind in _ITEM_KINDS else (value,)
    if entry.kind == "records":
        values = [each.get("value", each.get("values")) for each in value]
    return {each.type_name if isinstance(each, Opaque) else type(each).__name__ for each in values}


def _by_identity(
    sealed: SealedEpoch, operator: str, groups: range, is_meant: Callable[[SealedEntry], bool]
) -> dict[tuple[Any, ...], LocatedEntry]:
    return {
        located.entry.identity: located
        for located in sealed.entries_within(operator, groups)
        if is_meant(located.entry)
    }


def _changes(
    before: dict[tuple[Any, ...], LocatedEntry], after: dict[tuple[Any, ...], LocatedEntry]
) -> Iterator[EntryChange]:
    for identity, located in after.items():
        former = before.get(identity)
        if former is None:
            yield EntryChange("added", None, located)
        elif former.entry.data != located.entry.data:
            yield EntryChange("changed", former, located)
    for identity, located in before.items():
        if identity not in after:
            yield EntryChange("removed", located, None)
