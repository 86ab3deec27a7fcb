"""Dicts on disk that an attempt can be undone in."""

from __future__ import annotations

from bicycle_runtime.state.disk.dicts import DiskDict, TouchDiskDict
from bicycle_runtime.state.memory.tracked import TouchTrackedDict, TrackedDict
from bicycle_runtime.state.memory.undoing import (
    HandingUndoDict,
    UndoDict,
    UndoNamedDict,
    UndoTouchTrackedDict,
    UndoTrackedDict,
)

__all__ = ["DISK_KINDS"]


class UndoDiskDict(UndoDict, DiskDict):
    """A ``DiskDict`` that an attempt can be undone in."""

    __slots__ = ()


class UndoTouchDiskDict(HandingUndoDict, TouchDiskDict):
    """A ``TouchDiskDict`` that an attempt can be undone in."""

    __slots__ = ()


class UndoNamedDiskDict(HandingUndoDict, DiskDict):
    """Named values: one that was handed out counts as changed when it is saved again."""

    __slots__ = ()


# The kind on disk of each kind of dicts in memory.
DISK_KINDS: dict[type[TrackedDict], type[DiskDict]] = {
    TrackedDict: DiskDict,
    TouchTrackedDict: TouchDiskDict,
    UndoTrackedDict: UndoDiskDict,
    UndoTouchTrackedDict: UndoTouchDiskDict,
    UndoNamedDict: UndoNamedDiskDict,
}
