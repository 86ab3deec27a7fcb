"""The location of a call in user code, for errors of the graph.

Knows frames of the running thread only: the nearest one that is not of this package.
"""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["calling_frame", "calling_location"]

_PACKAGE = __name__.partition(".")[0]


def calling_frame(*packages: str) -> FrameType | None:
    """Return the nearest frame outside this package and further packages, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (_PACKAGE, *packages):
            return frame
        frame = frame.f_back
    return None


def calling_location() -> str | None:
    """Return ``file:line`` of the nearest call outside this package, or None.

    Example:
        >>> calling_location() is None
        False
    """
    frame = calling_frame()
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
