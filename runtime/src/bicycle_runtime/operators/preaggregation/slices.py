"""Slices of aligned windows: the intervals between adjacent bounds of windows.

All records of a slice belong to the same windows, so each record is kept or folded once, however
many windows overlap. A slide has one slice, or two when the size is no multiple of it.

Source: S. Krishnamurthy and others, "On-the-fly sharing for streamed aggregation", 2006 (paired
windows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

from bicycle_sdk.windows import AlignedWindows, Window


class WindowSlices:
    """Arithmetic of the slices of one kind of aligned windows.

    Args:
        windows: Size, slide and offset.
    """

    def __init__(self, windows: AlignedWindows) -> None:
        self.size_ms, self.slide_ms = windows.size_ms, windows.slide_ms
        self._offset, self._period = windows.offset_ms, windows.period_ms
        self._has_gaps = self.slide_ms > self.size_ms
        # From here on in a slide, a record is no longer in the oldest of its windows.
        self._second = self.size_ms if self._has_gaps else self.size_ms % self.slide_ms
        self.is_tumbling = windows.is_tumbling
        self.step_ms = gcd(self.slide_ms, self._second)  # starts differ by multiples of it

    def starts(self, times: Sequence[int]) -> list[int]:
        """Return the start of the slice of each time."""
        slide, offset, second = self.slide_ms, self._offset, self._second
        # hot path: 35 ns a record.
        if not second:
            if not offset:
                return [time - time % slide for time in times]
            return [time - (time - offset) % slide for time in times]
        steps = [(time - offset) % slide for time in times]
        return [
            time - step if step < second else time - step + second
            for time, step in zip(times, steps, strict=True)
        ]

    def starts_in_windows(self, times: Any) -> tuple[Any, Any]:
        """Return the start of the slice of each time, and which of them are in windows.

        Args:
            times: An array of ints, of numpy.

        Returns:
            An array of ints, and one of bools; None in its place where all times are.
        """
        steps = (times - self._offset) % self.slide_ms
        starts = times - steps
        if not self._second:
            return starts, None
        is_second = steps >= self._second
        if self._has_gaps:
            return starts, ~is_second
        return starts + is_second * self._second, None

    def outside(self, starts: Sequence[int]) -> list[int]:
        """Return the positions of starts that are in a gap between windows."""
        if not self._has_gaps:
            return []
        return [i for i, start in enumerate(starts) if (start - self._offset) % self.slide_ms]

    def last_end(self, start: int) -> int:
        """Return the end of the last window that holds a slice."""
        return start - (start - self._offset) % self._period + self.size_ms

    def windows_of(self, start: int) -> Iterator[Window]:
        """Yield the windows that hold a slice, the latest first."""
        last = end = self.last_end(start)
        while end > start:
            yield Window((end if self._period == self.slide_ms else last) - self.size_ms, end)
            end -= self.slide_ms

    def windows_between(self, start: int, after: int, until: int) -> Iterator[Window]:
        """Yield the windows of a slice that end after ``after`` and at most at ``until``."""
        end, last = self.first_end_after(start, after), self.last_end(start)
        while end is not None and end <= min(last, until):
            yield Window((end if self._period == self.slide_ms else last) - self.size_ms, end)
            end += self.slide_ms

    def first_end_after(self, start: int, moment: int) -> int | None:
        """Return the least end after ``moment`` among the windows of a slice, or None."""
        last = self.last_end(start)
        if last <= moment:
            return None
        earliest = max(moment, start)
        return last - (last - earliest - 1) // self.slide_ms * self.slide_ms

    def least_open(self, closed: int) -> int:
        """Return the start of the earliest window that ends after ``closed``.

        WindowSlices that begin before it belong to windows that ended by then only.
        """
        start = closed - self.size_ms + 1
        return start + (self._offset - start) % self._period
