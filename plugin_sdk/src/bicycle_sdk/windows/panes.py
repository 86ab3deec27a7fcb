"""Values that leave a window: the interval, a result with key, a late record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from bicycle_sdk.errors import InvalidWindowError

__all__ = ["LateRecord", "Window", "WindowResult"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The times ``start <= t < end``, in ms; windows sort by start, then by end.

    Raises:
        InvalidWindowError: the start is not before the end.

    Example:
        >>> window = Window(0, 10)
        >>> window.contains(9), window.contains(10), window.max_timestamp
        (True, False, 9)
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise InvalidWindowError(start=self.start, end=self.end)

    @property
    def max_timestamp(self) -> int:
        """The last time that belongs to the window; results carry it as their event time."""
        return self.end - 1

    def contains(self, timestamp: int) -> bool:
        """Return whether a time belongs to the window."""
        return self.start <= timestamp < self.end

    def overlaps(self, other: Window) -> bool:
        """Return whether some time belongs to both."""
        return self.start < other.end and other.start < self.end

    def touches(self, other: Window) -> bool:
        """Return whether two windows overlap or touch, so that sessions merge."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: Window) -> Window:
        """Return the smallest window that holds both."""
        return Window(min(self.start, other.start), max(self.end, other.end))


class WindowResult(NamedTuple, Generic[K, V]):
    """The result of an aggregated window: key, bounds in ms (``[start, end)``), value.

    Its event time is ``end - 1``, so that a later window assigns it to the same interval.
    """

    key: K
    start: int
    end: int
    value: V


class LateRecord(NamedTuple, Generic[T]):
    """A record whose windows had all closed, as ``late_to`` sends it to a side output.

    ``window`` is its last window, ``watermark`` the watermark that made it late, ``lateness_ms``
    how far its ``timestamp`` was behind that watermark.
    """

    value: T
    timestamp: int
    window: Window
    watermark: int
    lateness_ms: int
