"""State tables: what the operators of one subtask hold in memory, per key group.

A table is filled by applying sealed sections, changed by the running epoch, and gives the changes
as sections at the end of the epoch. It neither reads nor writes files (``store`` does) and calls
no user function but the state hooks of rich functions.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.changes import Section, make_section
from bicycle_runtime.state.errors import StateTypeError
from bicycle_runtime.state.tracked import TouchTrackedDict, TrackedDict
from bicycle_runtime.state.values import ValueCodec

__all__ = ["AccumulatorTable", "FunctionTable", "GroupState", "StateTable", "describe_attributes"]

SNAPSHOT = "$snapshot"
NAMED = "$named"
_KEYS = AnyCodec()
_NO_KEY = _KEYS.encode_list([None])
_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None), complex})


class StateTable(Protocol):
    """The state of one operator in one subtask."""

    def changes(self) -> list[Section]:
        """Return what changed since the last call, and regard it as written."""

    def everything(self) -> list[Section]:
        """Return the whole state as full sections, and regard all changes as written."""

    def apply(self, sections: Iterable[Section]) -> None:
        """Put sealed changes in, oldest first."""


@dataclass(slots=True)
class Attribute:
    """One state attribute of a rich function: how it is stored."""

    name: str
    codec: ValueCodec
    tracked: type[TrackedDict] | None
    declared: Any


def describe_attributes(function: Any) -> list[Attribute]:
    """Return the state attributes of a function instance: what it holds now.

    In order of their names.

    A plain ``dict`` annotated ``dict[K, V]`` is stored entry by entry, anything else as one value.
    """
    hints = _hints(type(function))
    return [
        _attribute(name, value, hints.get(name))
        for name, value in sorted(_instance_values(function).items())
    ]


def _attribute(name: str, value: Any, declared: Any) -> Attribute:
    arguments = typing.get_args(declared)
    if type(value) is dict:
        value_type = (
            arguments[1] if typing.get_origin(declared) is dict and len(arguments) == 2 else None
        )  # key and value
        tracked = TrackedDict if _is_immutable(value_type) else TouchTrackedDict
        return Attribute(name, ValueCodec(value_type), tracked, declared)
    origin = typing.get_origin(declared) or declared
    is_faithful = isinstance(origin, type) and type(value) is origin
    return Attribute(name, ValueCodec(declared if is_faithful else None), None, declared)


def _is_immutable(declared: Any) -> bool:
    if typing.get_origin(declared) is tuple:
        return all(
            _is_immutable(part) for part in typing.get_args(declared) if part is not Ellipsis
        )
    return declared in _IMMUTABLE


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {}  # an annotation that can not be resolved here: the values are stored undeclared


def _instance_values(function: Any) -> dict[str, Any]:
    values = dict(vars(function)) if hasattr(function, "__dict__") else {}
    for cls in type(function).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(function, name):
                values[name] = getattr(function, name)
    for name in _hints(type(function)):
        if name not in values and hasattr(function, name) and _is_users(type(function), name):
            values[name] = getattr(function, name)
    return {name: value for name, value in values.items() if not name.startswith("__")}


def _is_users(cls: type, name: str) -> bool:
    """Tell whether a class field is a default of the user's class: not a ClassVar.

    Not one of the SDK's.
    """
    for owner in cls.__mro__:
        declared = inspect.get_annotations(owner).get(name)
        if declared is not None:
            return not owner.__module__.startswith("bicycle_sdk") and "ClassVar" not in str(
                declared
            )
    return False


@dataclass(slots=True)
class GroupState:
    """One key group of a rich function: the instance that serves it and its named values."""

    instance: Any
    named: TrackedDict = field(default_factory=TrackedDict)
    written: dict[str, int] = field(default_factory=dict)


class FunctionTable:
    """State of a rich function: one copy of the prototype per key group, made when first needed.

    Args:
        prototype: The opened function.
        attributes: Its state attributes, described *before* it was opened.
        call_hook: Calls a hook of the function, waiting for it when it is ``async``.
    """

    def __init__(
        self, prototype: Any, attributes: list[Attribute], call_hook: Callable[..., Any]
    ) -> None:
        self._prototype = prototype
        self._attributes = attributes
        self._by_name = {attribute.name: attribute for attribute in attributes}
        self._call_hook = call_hook
        self._initial_hashes = {
            attribute.name: hash(attribute.codec.encode_list([getattr(prototype, attribute.name)]))
            for attribute in attributes
            if attribute.tracked is None
        }
        self.groups: dict[int, GroupState] = {}
        self.touched: set[int] = set()

    def group(self, group: int) -> GroupState:
        """Return the state of a key group.

        Which counts as touched from now on until the next commit.
        """
        self.touched.add(group)
        state = self.groups.get(group)
        if state is None:
            state = self.groups[group] = self._new_group()
        return state

    def exported(self, group: int) -> Any:
        """Return the state of a group as a user's ``merge_state`` gets it: a snapshot.

        Else its attributes.
        """
        instance = self.groups[group].instance
        snapshot = self._call_hook(instance.snapshot_state)
        if snapshot is not None:
            return snapshot
        values = (
            (attribute.name, getattr(instance, attribute.name)) for attribute in self._attributes
        )
        return {
            name: dict(value) if isinstance(value, TrackedDict) else value for name, value in values
        }

    def changes(self) -> list[Section]:
        sections = []
        for group in sorted(self.touched):
            sections += self._group_changes(group, self.groups[group], is_full=False)
        self.touched.clear()
        return sections

    def everything(self) -> list[Section]:
        sections = []
        for group, state in sorted(self.groups.items()):
            sections += self._group_changes(group, state, is_full=True)
        self.touched.clear()
        return sections

    def apply(self, sections: Iterable[Section]) -> None:
        for section in sections:
            state = self.groups.get(section.group)
            if state is None:
                state = self.groups[section.group] = self._new_group()
            self._apply_one(section, state)

    def _new_group(self) -> GroupState:
        instance = copy.copy(self._prototype)
        for attribute in self._attributes:
            initial = copy.deepcopy(getattr(self._prototype, attribute.name))
            setattr(
                instance,
                attribute.name,
                attribute.tracked(initial) if attribute.tracked else initial,
            )
        return GroupState(instance)

    def _group_changes(self, group: int, state: GroupState, *, is_full: bool) -> list[Section]:
        sections = [_dict_section(group, NAMED, state.named, ValueCodec(), is_full=is_full)]
        hook = getattr(state.instance, "snapshot_state", None)
        snapshot = self._call_hook(hook) if hook is not None else None
        if snapshot is not None:
            value = _KEYS.encode_list([snapshot])
            sections.append(make_section(group, SNAPSHOT, _NO_KEY, value, is_full=True))
        else:
            sections += [
                self._attribute_section(group, state, item, is_full=is_full)
                for item in self._attributes
            ]
        return [section for section in sections if section is not None]

    def _attribute_section(
        self, group: int, state: GroupState, attribute: Attribute, *, is_full: bool
    ) -> Section | None:
        value = getattr(state.instance, attribute.name)
        if attribute.tracked is not None:
            if not isinstance(value, dict):
                function, found = type(state.instance).__qualname__, type(value).__qualname__
                raise StateTypeError(attribute=attribute.name, function=function, found=found)
            if not isinstance(value, TrackedDict):  # the function put a new dict in its place
                value = attribute.tracked(value)
                setattr(state.instance, attribute.name, value)
                is_full = True
            return _dict_section(group, attribute.name, value, attribute.codec, is_full=is_full)
        data = attribute.codec.encode_list([value])
        digest = hash(data)
        known = state.written.get(attribute.name, self._initial_hashes.get(attribute.name))
        if digest == known and not (is_full and attribute.name in state.written):
            return None
        state.written[attribute.name] = digest
        return make_section(group, attribute.name, _NO_KEY, data, is_full=True)

    def _apply_one(self, section: Section, state: GroupState) -> None:
        name = section.name
        if name == SNAPSHOT:
            self._call_hook(
                state.instance.restore_state, _KEYS.decode_list(bytes(section.values))[0]
            )
        elif name == NAMED:
            _apply_dict(section, state.named, ValueCodec())
        elif name in self._by_name:
            attribute = self._by_name[name]
            if attribute.tracked is not None:
                _apply_dict(section, getattr(state.instance, name), attribute.codec)
            else:
                setattr(state.instance, name, attribute.codec.decode_list(section.values)[0])
                state.written[name] = hash(bytes(section.values))


class AccumulatorTable:
    """One value per key: the accumulators of a running reduce.

    The operator reads and writes ``groups`` directly and reports each change through ``touched`` as
    ``(group, key)``.
    """

    NAME = "$accumulator"

    def __init__(self, value_type: Any = None) -> None:
        self._codec = ValueCodec(value_type)
        self.groups: dict[int, dict[Any, Any]] = {}
        self.touched: dict[tuple[int, Any], None] = {}

    def changes(self) -> list[Section]:
        by_group: dict[int, list[Any]] = {}
        for group, key in self.touched:
            by_group.setdefault(group, []).append(key)
        self.touched.clear()
        return [
            self._section(group, keys, is_full=False) for group, keys in sorted(by_group.items())
        ]

    def everything(self) -> list[Section]:
        self.touched.clear()
        return [
            self._section(group, list(table), is_full=True)
            for group, table in sorted(self.groups.items())
        ]

    def apply(self, sections: Iterable[Section]) -> None:
        for section in sections:
            table = self.groups.setdefault(section.group, {})
            if section.is_full:
                table.clear()
            keys = _KEYS.decode_list(bytes(section.keys))
            table.update(zip(keys, self._codec.decode_list(section.values), strict=True))

    def _section(self, group: int, keys: list[Any], *, is_full: bool) -> Section:
        table = self.groups[group]
        values = self._codec.encode_list([table[key] for key in keys])
        return make_section(group, self.NAME, _KEYS.encode_list(keys), values, is_full=is_full)


def _dict_section(
    group: int, name: str, entries: TrackedDict, codec: ValueCodec, *, is_full: bool
) -> Section | None:
    touched, entries.touched = entries.touched, {}
    if is_full:
        kept, gone = list(entries), []
        if not kept and not touched:
            return None
    else:
        if not touched:
            return None
        kept = [key for key in touched if key in entries]
        gone = [key for key in touched if key not in entries]
    values = codec.encode_list([dict.__getitem__(entries, key) for key in kept])
    deleted = _KEYS.encode_list(gone) if gone else None
    return make_section(
        group, name, _KEYS.encode_list(kept), values, deleted=deleted, is_full=is_full
    )


def _apply_dict(section: Section, entries: TrackedDict, codec: ValueCodec) -> None:
    if section.is_full:
        dict.clear(entries)
    keys = _KEYS.decode_list(bytes(section.keys))
    entries.load(keys, codec.decode_list(section.values), _KEYS.decode_list(bytes(section.deleted)))
    entries.touched.clear()
