"""Paged dicts that an attempt can be undone in."""

from __future__ import annotations

from bicycle_runtime.state.memory.tracked import TouchTrackedDict, TrackedDict
from bicycle_runtime.state.memory.undoing import (
    HandingUndoDict,
    UndoDict,
    UndoNamedDict,
    UndoTouchTrackedDict,
    UndoTrackedDict,
)
from bicycle_runtime.state.paged.dicts import PagedDict, TouchPagedDict

__all__ = ["PAGED_KINDS"]


class UndoPagedDict(UndoDict, PagedDict):
    """A ``PagedDict`` that an attempt can be undone in."""

    __slots__ = ()


class UndoTouchPagedDict(HandingUndoDict, TouchPagedDict):
    """A ``TouchPagedDict`` that an attempt can be undone in."""

    __slots__ = ()


class UndoNamedPagedDict(HandingUndoDict, PagedDict):
    """Named values: one that was handed out counts as changed when it is saved again."""

    __slots__ = ()


# The paged kind of each kind of dicts in memory.
PAGED_KINDS: dict[type[TrackedDict], type[PagedDict]] = {
    TrackedDict: PagedDict,
    TouchTrackedDict: TouchPagedDict,
    UndoTrackedDict: UndoPagedDict,
    UndoTouchTrackedDict: UndoTouchPagedDict,
    UndoNamedDict: UndoNamedPagedDict,
}
