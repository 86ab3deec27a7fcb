"""Tables of which only a part is in memory: running reduces, and attributes of rich functions.

They have the methods of the tables in memory. ``apply`` forgets what others have sealed: it is read
again when it is needed. Attributes that are one value are read when their key group is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import StateTypeError
from bicycle_runtime.state.memory.attributes import SNAPSHOT, Attribute
from bicycle_runtime.state.memory.dicts import DictState
from bicycle_runtime.state.memory.tables import BEGUN, AccumulatorTable, FunctionTable, GroupState
from bicycle_runtime.state.paged.dicts import PagedDict, Shelf
from bicycle_runtime.state.paged.pages import Pages
from bicycle_runtime.state.paged.undoing import PAGED_KINDS
from bicycle_runtime.state.rocksdb.places import (
    behind,
    key_bytes,
    section_start,
    value_in,
)
from bicycle_runtime.state.sealed.changes import Section, make_section
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_sdk.functions import RichAsyncFunction

__all__ = ["PagedAccumulatorTable", "PagedFunctionTable"]

_KEYS = AnyCodec()
_NO_KEY = key_bytes(None)


class PagedAccumulatorTable(AccumulatorTable):
    """One value per key.

    Args:
        pages: The operator's.
        value_type: Type of the accumulators when known.
        codec: How they are encoded; None goes by their type.
    """

    def __init__(
        self, pages: Pages, value_type: Any = None, codec: ValueCodec | None = None
    ) -> None:
        super().__init__(value_type, codec)
        # A function may change its accumulator in place, but it always returns one.
        self.groups = _Groups(lambda group: self._new_dict(pages, group))

    def apply(self, sections: Iterable[Section]) -> None:
        for section in sections:
            table = self.groups[section.group]
            assert isinstance(table, PagedDict)
            if section.is_full:
                table.forget()
            table.drop(_KEYS.decode_list(bytes(section.keys)))

    def _new_dict(self, pages: Pages, group: int) -> PagedDict:
        return PagedDict(Shelf(pages, self.NAME, self._codec, group=group))


class _Groups(dict[int, dict[Any, Any]]):
    """The dict of each key group, made when first asked for."""

    def __init__(self, make: Callable[[int], PagedDict]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, group: int) -> dict[Any, Any]:
        made = self[group] = self._make(group)
        return made

    def get(self, group: int, default: Any = None) -> Any:  # noqa: ARG002  # there is always one
        """Return the dict of a key group."""
        return self[group]

    def setdefault(self, group: int, default: Any = None) -> Any:  # noqa: ARG002  # as above
        """Return the dict of a key group."""
        return self[group]


class PagedDictState(DictState):
    """A dict attribute of one key group over a shelf. It always notes what is written.

    Args:
        attribute: How it is stored.
        initial: What the function had before it was opened, if the group has not been written.
        pages: The operator's.
        group: The key group.
    """

    __slots__ = ("_group", "_pages", "paged")

    def __init__(
        self, attribute: Attribute, initial: dict[Any, Any], *, pages: Pages, group: int
    ) -> None:
        self._attribute = attribute
        self._written = None
        self._pages = pages
        self._group = group
        self.paged = self._new_dict()
        self.paged.update(initial)
        self.entries = self.paged

    def begin(self, *, compares: bool) -> dict[Any, Any]:  # noqa: ARG002  # a part can not be compared
        return self.entries

    def section(self, group: int, current: Any) -> Section | None:
        paged = self.paged
        if current is not paged:  # The function put another dict in its place.
            if not isinstance(current, dict):
                found = type(current).__qualname__
                raise StateTypeError(attribute=self._attribute.name, found=found)
            fresh = dict(current)
            paged.clear()
            paged.update(fresh)
        is_full = paged.is_emptied
        keys = list(paged) if is_full else list(paged.touched)
        missing = object()
        found_values = [(key, dict.get(paged, key, missing)) for key in keys]
        kept = [entry for entry in found_values if entry[1] is not missing]
        if not keys and not is_full:
            return None
        gone = [] if is_full else [key for key, value in found_values if value is missing]
        return make_section(
            group,
            self._attribute.section,
            _KEYS.encode_list([key for key, _ in kept]),
            self._attribute.codec.encode_list([value for _, value in kept]),
            deleted=_KEYS.encode_list(gone) if gone else None,
            is_full=is_full,
        )

    def apply(self, section: Section) -> None:
        if section.is_full:
            self.paged.forget()
        self.paged.drop(_KEYS.decode_list(bytes(section.keys)))
        self.paged.drop(_KEYS.decode_list(bytes(section.deleted)))

    def _new_dict(self) -> PagedDict:
        assert self._attribute.tracked is not None
        kind = PAGED_KINDS[self._attribute.tracked]
        name, codec = self._attribute.section, self._attribute.codec
        return kind(Shelf(self._pages, name, codec, group=self._group))


class PagedFunctionTable(FunctionTable):
    """State of a rich function behind ``key_by``; its dicts are paged.

    A function that makes its own snapshots has its dicts in memory: they are written whole.

    Args:
        pages: The operator's.
        prototype: The opened function.
        attributes: Its state attributes, described *before* it was opened.
        call_hook: Calls a hook of the function, waiting for it when it is ``async``.
        undoes: Whether attempts can be undone.
    """

    def __init__(
        self,
        pages: Pages,
        prototype: Any,
        attributes: list[Attribute],
        call_hook: Callable[..., Any],
        *,
        undoes: bool = False,
    ) -> None:
        super().__init__(prototype, attributes, call_hook, undoes=undoes)
        self._pages = pages
        hook = getattr(type(prototype), "snapshot_state", None)
        self._is_by_snapshot = hook not in (None, RichAsyncFunction.snapshot_state)

    def expect(self, record_count: int) -> None:
        """Take no note: a dict of which only a part is in memory can not be compared."""

    def changes(self) -> list[Section]:
        # An attribute that is one value always has the same place; nothing else must go.
        return [
            msgspec.structs.replace(section, is_full=False)
            if section.name in self._values_by_section or section.name == SNAPSHOT
            else section
            for section in super().changes()
        ]

    def apply(self, sections: Iterable[Section]) -> None:
        for section in sections:
            if section.group in self.groups:
                self._apply_or_wait(section)

    def _known(self, group: int) -> GroupState:
        is_new = group not in self.groups
        state = super()._known(group)
        if is_new:
            try:
                self._read_values(group, state)
            except BaseException:
                del self.groups[group]  # It is not at its state: whoever asks again reads again.
                raise
        return state

    def _dict_state(self, group: int, attribute: Attribute, initial: dict[Any, Any]) -> DictState:
        if self._is_by_snapshot and attribute.name in {a.name for a in self._dict_attributes}:
            return super()._dict_state(group, attribute, initial)
        if initial and self._is_written(group, attribute.section):
            initial = {}
        return PagedDictState(attribute, initial, pages=self._pages, group=group)

    def _is_written(self, group: int, section: str) -> bool:
        """Tell whether a dict that a function begins with entries in was written before."""
        if self._pages.read(section_start(group, BEGUN) + key_bytes(section)) is not None:
            return True
        start = section_start(group, section)
        return next(self._pages.scan(start, behind(start)), None) is not None

    def _read_values(self, group: int, state: GroupState) -> None:
        snapshot = self._pages.read(section_start(group, SNAPSHOT) + _NO_KEY)
        if snapshot is not None:
            restored = self._snapshots.decode_one(value_in(snapshot))
            self._call_hook(state.instance.restore_state, restored)
        for attribute in self._value_attributes:
            data = self._pages.read(section_start(group, attribute.section) + _NO_KEY)
            if data is not None:
                raw = value_in(data)
                setattr(state.instance, attribute.name, attribute.codec.decode_one(raw))
                state.written[attribute.name] = hash(b"\x91" + raw)
