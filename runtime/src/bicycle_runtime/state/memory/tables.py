"""The tables of rich functions and of running reduces, per key group.

A table takes sealed change sets over, is changed by the running epoch, and returns the changes as
change sets at the end of the epoch. It neither reads nor writes files (``stores`` do) and calls no
user function but the state hooks of rich functions. If the space does not hold all, a key group is
read at its first use.

The changes in one dict attribute of one key group are found in two ways, and each is right at its
own load. *Noting*: the dict is a ``TrackedDict``, which makes each write slower, and a commit costs
as much as the touched entries. *Comparing*: the dict is a plain one, and a commit compares it with
the last written values one by one. A table that sees more records in an epoch than it has entries
compares; any other notes, so that a commit never costs more than the records did. A dict of which
only a part is in memory notes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from bicycle_runtime.layouts.state import ChangeSet
from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import STATE_TYPE_CHANGED
from bicycle_runtime.state.memory.attributes import SNAPSHOT, Attribute
from bicycle_runtime.state.memory.space import MemorySpace, NotingDict, StateSpace
from bicycle_runtime.state.memory.tracked import TrackedDict, Tracking
from bicycle_runtime.state.memory.undoing import attribute_memo
from bicycle_runtime.state.sealed.changes import emptied_change_set, make_change_set
from bicycle_runtime.state.undo import UndoLog
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk.functions import RichAsyncFunction

_MISSING = object()


class DictState:
    """The entries of a dict attribute; ``entries`` is the function's object.

    Args:
        attribute: How it is stored.
        entries: The dict that notes, with the function's entries from before it was opened.
    """

    __slots__ = ("_attribute", "_is_unwritten", "_written", "entries")

    def __init__(self, attribute: Attribute, entries: NotingDict) -> None:
        self._attribute = attribute
        self._is_unwritten = False
        self._written: dict[Any, Any] | None = None
        self.entries = cast("dict[Any, Any]", entries)

    def begin(self, *, compares: bool) -> dict[Any, Any]:
        """Choose the way for the coming epoch and return the dict for the function.

        Values that may be changed in place cannot be compared; their dicts always note.
        """
        entries = self.entries
        if compares and type(entries) is TrackedDict and not entries.undoes:
            pending = entries.touched
            self._written = {key: value for key, value in entries.items() if key not in pending}
            entries = self.entries = dict(entries)
        elif not compares and self._written is not None:
            tracked = TrackedDict(entries)
            tracked.touched.clear()
            self._written = None
            entries = self.entries = tracked
        return entries

    def change_set(self, group: int, current: Any) -> ChangeSet | None:
        """Return the changes as a change set, or None.

        Args:
            group: The key group.
            current: The current value of the function's attribute.

        Raises:
            STATE_TYPE_CHANGED: it is no dict any more.
        """
        # The function put another dict in its place, or its changes were not noted.
        is_replaced = current is not self.entries or self._is_unwritten
        if is_replaced:
            self._replace(current)
        if self._written is not None:
            kept, gone, is_full = *self._compare(), False
        else:
            kept, gone, is_full = self._noting.take_changes()
        is_full = is_full or is_replaced
        if not kept and not gone and not is_full:
            return None
        values = self._attribute.codec.encode_list(list(kept.values()))
        deleted = _KEYS.encode_list(gone) if gone else None
        keys = _KEYS.encode_list(list(kept))
        return make_change_set(
            group, self._attribute.state_name, keys, values, deleted=deleted, is_full=is_full
        )

    def forget_changes(self) -> None:
        """Forget the changes, which a snapshot has; the next change set is of all entries."""
        self._is_unwritten = True
        if isinstance(self.entries, TrackedDict):
            self.entries.touched.clear()

    def apply(self, change_set: ChangeSet) -> None:
        """Take sealed changes over; the dict notes again afterwards."""
        self.begin(compares=False)
        self._noting.load(change_set, self._attribute.codec)

    @property
    def _noting(self) -> NotingDict:
        return cast("NotingDict", self.entries)

    def _replace(self, current: Any) -> None:
        if not isinstance(current, dict):
            raise STATE_TYPE_CHANGED(
                attribute=self._attribute.name, found=type(current).__qualname__
            )
        noting = self._noting if self._written is None else TrackedDict()
        self._written, self._is_unwritten = None, False
        self.entries = noting.replaced_by(current)

    def _compare(self) -> tuple[dict[Any, Any], list[Any]]:
        written, entries = self._written, self.entries
        assert written is not None
        known = written.get
        # hot path: 40 ns an entry at a commit, instead of 230 ns a record for noting.
        kept = {key: value for key, value in entries.items() if known(key, _MISSING) is not value}
        gone = (
            []
            if written.keys() <= entries.keys()
            else [key for key in written if key not in entries]
        )
        for key in gone:
            del written[key]
        written.update(kept)
        return kept, gone


NAMED = "$named"
# Names the dicts that were written, among dicts that a function begins with entries in: once it has
# deleted them all, nothing else distinguishes such a dict from one that was never used.
BEGUN = "$begun"
_KEYS = AnyCodec()
_NO_KEY = _KEYS.encode_list([None])
_NAMED_ATTRIBUTE = Attribute(NAMED, ValueCodec(), Tracking(), None)
_BEGUN_ATTRIBUTE = Attribute(BEGUN, ValueCodec(), Tracking(), None)


@dataclass(slots=True)
class GroupState:
    """One key group of a rich function: its instance, its dicts and its named values.

    ``begun`` names the dicts that were written; ``known`` are the dicts of ``begun`` that this
    process has recorded.
    """

    instance: Any
    dicts: dict[str, DictState]
    named: DictState
    begun: DictState | None
    written: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)


class FunctionTable:
    """The state of a rich function: a copy of the prototype per key group.

    Args:
        prototype: The opened function.
        attributes: Its state attributes, described *before* it was opened.
        call_hook: Calls a hook of the function, waiting for it when it is ``async``.
        undoes: Whether attempts can be undone.
        space: The location of the entries; None for memory.
    """

    def __init__(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any],
        *, undoes: bool = False, space: StateSpace | None = None,
    ) -> None:  # fmt: skip
        self._prototype = prototype
        self._space = space or MemorySpace()
        hook = getattr(type(prototype), "snapshot_state", None)
        # The dicts of a function that makes its own snapshots are written whole, and in memory.
        is_by_snapshot = hook not in (None, RichAsyncFunction.snapshot_state)
        self._attribute_space = MemorySpace() if is_by_snapshot else self._space
        self._named = _NAMED_ATTRIBUTE
        if undoes:
            attributes = list(map(_undoing, attributes))
            # A named value that was returned counts as changed once it is saved.
            self._named = replace(_NAMED_ATTRIBUTE, tracked=Tracking(undoes=True, copies=True))
        self._dict_attributes = [item for item in attributes if item.tracked is not None]
        self._value_attributes = [
            item for item in attributes if item.tracked is None and item.name != SNAPSHOT
        ]
        snapshots = [item.codec for item in attributes if item.name == SNAPSHOT]
        self._snapshots = snapshots[0] if snapshots else ValueCodec()
        self._values_by_state = {item.state_name: item for item in self._value_attributes}
        self._dicts_by_state = {item.state_name: item.name for item in self._dict_attributes}
        self._seeded = [
            item.state_name for item in self._dict_attributes if getattr(prototype, item.name)
        ]
        self._call_hook = call_hook
        self._initial_hashes = {
            attribute.name: hash(attribute.codec.encode_list([getattr(prototype, attribute.name)]))
            for attribute in self._value_attributes
        }
        self._compares = False
        self.groups: dict[int, GroupState] = {}
        self.touched: set[int] = set()
        # Of key groups whose snapshots were applied: the newest, and the sealed state behind it.
        self._unrestored: dict[int, list[ChangeSet]] = {}

    def group(self, group: int) -> GroupState:
        """Return the state of a key group, which counts as touched until the next commit."""
        state = self._known_group(group)
        if group not in self.touched:
            self.touched.add(group)
            for name, kept in state.dicts.items():
                # Functions that make snapshots may have put something else there.
                if getattr(state.instance, name, None) is kept.entries:
                    setattr(state.instance, name, kept.begin(compares=self._compares))
        return state

    def attribute_memo(self, group: int) -> Callable[[UndoLog], None]:
        """Return a function that saves the attributes of a key group before an attempt."""
        dicts = {item.name: item.tracked for item in self._dict_attributes if item.tracked}
        return attribute_memo(self.groups[group].instance, dicts, self._value_attributes)

    def expect(self, record_count: int) -> None:
        """Take note of the records of an epoch: the next one is expected to have as many."""
        if not self._space.holds_all:
            return  # Entries in memory are not all entries to compare with.
        entry_count = sum(
            len(kept.entries) for state in self.groups.values() for kept in state.dicts.values()
        )
        self._compares = record_count > entry_count

    def key_count(self) -> int:
        states = self.groups.values()
        found = (kept for state in states for kept in (*state.dicts.values(), state.named))
        return sum(len(kept.entries) for kept in found)

    def exported(self, group: int) -> Any:
        """Return a group's state for ``merge_state``: its snapshot, else its attributes."""
        state = self.groups[group]
        snapshot = self._call_hook(state.instance.snapshot_state)
        if snapshot is not None:
            return snapshot
        values = {item.name: getattr(state.instance, item.name) for item in self._value_attributes}
        return values | {name: dict(kept.entries) for name, kept in state.dicts.items()}

    def changes(self) -> list[ChangeSet]:
        change_sets = []
        for group in sorted(self.touched):
            change_sets += self._group_changes(group, self.groups[group])
        self.touched.clear()
        return change_sets

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        for change_set in change_sets:
            if self._space.holds_all or change_set.group in self.groups:
                self._apply_or_wait(change_set)

    def restore_snapshots(self) -> None:
        """Call ``restore_state`` once for each key group with newer snapshots.

        Called when all sealed entries have been applied. A key group that was in use begins again
        with a new instance: a hook may add its argument to existing state.
        """
        waiting, self._unrestored = self._unrestored, {}
        for group, (newest, *behind) in sorted(waiting.items()):
            state = self._known_group(group)
            self._renew(group, state)
            [snapshot] = self._snapshots.decode_list(newest.values)
            self._call_hook(state.instance.restore_state, snapshot)
            for change_set in behind:
                self._apply_one(change_set, state)

    def _apply_or_wait(self, change_set: ChangeSet) -> None:
        """Apply a sealed change, or keep it until its snapshot is restored."""
        if change_set.name == SNAPSHOT:
            self._unrestored[change_set.group] = [change_set]
        elif change_set.group in self._unrestored and change_set.name != NAMED:
            self._unrestored[change_set.group].append(change_set)
        else:
            self._apply_one(change_set, self._known_group(change_set.group))

    def _known_group(self, group: int) -> GroupState:
        state = self.groups.get(group)
        if state is None:
            state = self._new_group(group)
            if not self._space.holds_all:
                self._read_values(group, state)
            self.groups[group] = state
        return state

    def _read_values(self, group: int, state: GroupState) -> None:
        """Load the sealed values of a key group that are not in a dict."""
        snapshot = self._space.read(group, SNAPSHOT, None)
        if snapshot is not None:
            self._call_hook(state.instance.restore_state, self._snapshots.decode_one(snapshot))
        for attribute in self._value_attributes:
            raw = self._space.read(group, attribute.state_name, None)
            if raw is not None:
                setattr(state.instance, attribute.name, attribute.codec.decode_one(raw))
                state.written[attribute.name] = hash(b"\x91" + raw)

    def _new_group(self, group: int) -> GroupState:
        named = _dict_state(self._space, group, self._named)
        begun = _dict_state(self._space, group, _BEGUN_ATTRIBUTE) if self._seeded else None
        state = GroupState(None, {}, named, begun)
        self._renew(group, state)
        return state

    def _renew(self, group: int, state: GroupState) -> None:
        """Create a copy of the opened prototype for a key group."""
        instance = copy.copy(self._prototype)
        dicts = {}
        for attribute in self._dict_attributes:
            initial = copy.deepcopy(getattr(self._prototype, attribute.name))
            if initial and self._is_written(group, attribute.state_name):
                initial = {}
            kept = _dict_state(self._attribute_space, group, attribute, initial)
            dicts[attribute.name] = kept
            setattr(instance, attribute.name, kept.entries)
        for attribute in self._value_attributes:
            setattr(
                instance, attribute.name, copy.deepcopy(getattr(self._prototype, attribute.name))
            )
        state.instance, state.dicts = instance, dicts
        state.written, state.known = {}, set()

    def _is_written(self, group: int, change_set: str) -> bool:
        """Return whether a dict with initial entries was already written to the space."""
        space = self._attribute_space
        is_begun = space.read(group, BEGUN, change_set) is not None
        return is_begun or space.has(change_set, (group,))

    def _group_changes(self, group: int, state: GroupState) -> list[ChangeSet]:
        change_sets = [state.named.change_set(group, state.named.entries)]
        hook = getattr(state.instance, "snapshot_state", None)
        snapshot = self._call_hook(hook) if hook is not None else None
        if snapshot is not None:
            change_sets.append(
                self._whole(group, SNAPSHOT, self._snapshots.encode_list([snapshot]))
            )
            for kept in state.dicts.values():
                kept.forget_changes()
        else:
            for name, kept in state.dicts.items():
                current = getattr(state.instance, name)
                change_sets.append(kept.change_set(group, current))
                setattr(state.instance, name, kept.entries)
            if state.begun is not None:
                change_sets.insert(0, self._begun_change_set(group, state, state.begun))
            change_sets += [
                self._value_change_set(group, state, item) for item in self._value_attributes
            ]
        return [change_set for change_set in change_sets if change_set is not None]

    def _begun_change_set(
        self, group: int, state: GroupState, begun: DictState
    ) -> ChangeSet | None:
        """Return the dicts that count as written; the first changes of a group list all."""
        for change_set in self._seeded:
            if change_set not in begun.entries:
                begun.entries[change_set] = True
        state.known.update(self._seeded)
        return begun.change_set(group, begun.entries)

    def _value_change_set(
        self, group: int, state: GroupState, attribute: Attribute
    ) -> ChangeSet | None:
        data = attribute.codec.encode_list([getattr(state.instance, attribute.name)])
        digest = hash(data)
        known = state.written.get(attribute.name, self._initial_hashes[attribute.name])
        if digest == known:
            return None
        state.written[attribute.name] = digest
        return self._whole(group, attribute.state_name, data)

    def _whole(self, group: int, name: str, data: bytes) -> ChangeSet:
        """Return a change set of one value, which always has the same place."""
        # Where the space has entries by their place, nothing else must go.
        return make_change_set(group, name, _NO_KEY, data, is_full=self._space.holds_all)

    def _apply_one(self, change_set: ChangeSet, state: GroupState) -> None:
        name = change_set.name
        if name == NAMED:
            state.named.apply(change_set)
        elif name == BEGUN:
            if state.begun is not None:
                state.begun.apply(change_set)
            for written in _KEYS.decode_list(bytes(change_set.keys)):
                if written in self._seeded and written not in state.known:
                    self._apply_one(emptied_change_set(change_set.group, written), state)
        elif name in self._dicts_by_state:
            attribute_name = self._dicts_by_state[name]
            kept = state.dicts[attribute_name]
            kept.apply(change_set)
            setattr(state.instance, attribute_name, kept.entries)
            state.known.add(name)
        elif name in self._values_by_state:
            attribute = self._values_by_state[name]
            setattr(
                state.instance, attribute.name, attribute.codec.decode_list(change_set.values)[0]
            )
            state.written[attribute.name] = hash(bytes(change_set.values))


def _dict_state(
    space: StateSpace, group: int, attribute: Attribute, initial: dict[Any, Any] | None = None
) -> DictState:
    return DictState(attribute, space.attribute_dict(attribute, group, initial or {}))


def _undoing(attribute: Attribute) -> Attribute:
    tracked = attribute.tracked
    return attribute if tracked is None else replace(attribute, tracked=tracked.undoing())


class AccumulatorTable:
    """One value per key: the accumulators of a running reduce.

    The operator reads and writes ``groups`` directly and reports each change through ``touched`` as
    ``(group, key)``.
    """

    NAME = "$accumulator"

    def __init__(
        self, value_type: Any = None, codec: ValueCodec | None = None,
        *, space: StateSpace | None = None,
    ) -> None:  # fmt: skip
        self._codec = codec or ValueCodec(value_type)
        self._space = space or MemorySpace()
        # A function may change its accumulator in place, but it always returns one.
        self.groups = self._space.dicts(self.NAME, self._codec)
        self.touched: dict[tuple[int, Any], None] = {}

    def changes(self) -> list[ChangeSet]:
        by_group: dict[int, list[Any]] = {}
        for group, key in self.touched:
            by_group.setdefault(group, []).append(key)
        self.touched.clear()
        return [self._change_set(group, keys) for group, keys in sorted(by_group.items())]

    def apply(self, change_sets: Iterable[ChangeSet]) -> None:
        for change_set in change_sets:
            table = self.groups.setdefault(change_set.group, {})
            self._space.load(table, change_set, self._codec)

    def key_count(self) -> int:
        return sum(map(len, self.groups.values()))

    def _change_set(self, group: int, keys: list[Any]) -> ChangeSet:
        table = self.groups[group]
        values = self._codec.encode_list([table[key] for key in keys])
        return make_change_set(group, self.NAME, _KEYS.encode_list(keys), values)
