"""One dict attribute of one key group, and what changed in it since the last commit.

There are two ways to know, and each is right at its own load. *Noting*: the dict is a
``TrackedDict``, which makes each write dearer, and a commit costs what was touched. *Comparing*:
the dict is a plain one, and a commit compares it with what was last written, value by value. A
table that sees more records in an epoch than it has entries compares; any other notes, so that a
commit never costs more than the records did. A dict of which only a part is in memory notes.
"""

from __future__ import annotations

from typing import Any, cast

from bicycle_runtime.records.codecs import AnyCodec
from bicycle_runtime.state.errors import STATE_TYPE_CHANGED
from bicycle_runtime.state.memory.attributes import Attribute
from bicycle_runtime.state.memory.space import NotingDict
from bicycle_runtime.state.memory.tracked import TrackedDict
from bicycle_runtime.state.sealed.changes import ChangeSet, make_change_set

__all__ = ["DictState"]

_KEYS = AnyCodec()
_MISSING = object()


class DictState:
    """The entries of a dict attribute; ``entries`` is the object that the function holds.

    Args:
        attribute: How it is stored.
        entries: The dict that notes, with what the function had before it was opened.
    """

    __slots__ = ("_attribute", "_written", "entries")

    def __init__(self, attribute: Attribute, entries: NotingDict) -> None:
        self._attribute = attribute
        self._written: dict[Any, Any] | None = None
        self.entries = cast("dict[Any, Any]", entries)

    def begin(self, *, compares: bool) -> dict[Any, Any]:
        """Choose the way for the coming epoch and return the dict for the function.

        Values that may be changed in place cannot be compared; their dicts always note.
        """
        entries = self.entries
        if compares and type(entries) is TrackedDict:
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
        """Return what changed as a change set; None when nothing did.

        Args:
            group: The key group.
            current: What the function's attribute holds now.

        Raises:
            STATE_TYPE_CHANGED: it is no dict any more.
        """
        is_replaced = current is not self.entries  # the function put another dict in its place
        if is_replaced:
            self._replace(current)
        if self._written is not None:
            kept, gone, is_full = *self._compared(), False
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
        self._written = None
        self.entries = noting.replaced_by(current)

    def _compared(self) -> tuple[dict[Any, Any], list[Any]]:
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
