"""Placements: to which window of its key each record of an epoch goes, and what is folded there.

The step before the shuffle and the window behind it put records alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from bicycle_runtime.operators.preaggregation.accumulators import (
    Session,
    SessionAccumulators,
    WindowAccumulators,
)
from bicycle_runtime.operators.preaggregation.gathering import Contents
from bicycle_runtime.operators.preaggregation.intervals import session_ends
from bicycle_runtime.operators.preaggregation.rows import Rows
from bicycle_runtime.operators.user_calls.policy import RecordPolicy
from bicycle_runtime.operators.windows.blocks import Partials
from bicycle_sdk.windows import AlignedWindows, SessionWindows, Window, WindowPlan

__all__ = [
    "Placement",
    "SessionPlacement",
    "SlicePlacement",
    "WindowSlices",
    "divide",
    "place_records",
]


class Placement(ABC):
    """Places the records of an epoch, and gathers them in ``accumulators``."""

    accumulators: WindowAccumulators | SessionAccumulators

    @abstractmethod
    def placed(self, rows: Rows) -> Rows:
        """Return the rows with their namespaces, without those that no window holds."""

    @abstractmethod
    def least_open(self, closed: int) -> int:
        """Return the least place of records whose windows end after ``closed``."""

    @abstractmethod
    def blocks(self) -> list[tuple[int, Partials]]:
        """Return what was folded, a block per key group, and forget it."""


class SlicePlacement(Placement):
    """Places records into slices of time: tumbling and sliding windows.

    Args:
        windows: Size, slide and offset.
        contents: Where the records go.
    """

    def __init__(self, windows: AlignedWindows, contents: Contents) -> None:
        self.slices = WindowSlices(windows)
        self.accumulators: WindowAccumulators = WindowAccumulators(contents)

    def placed(self, rows: Rows) -> Rows:
        rows.namespaces = starts = self.slices.starts(rows.times)
        outside = set(self.slices.outside(starts))
        if not outside:
            return rows
        return rows.picked([i for i in range(len(starts)) if i not in outside])

    def least_open(self, closed: int) -> int:
        return self.slices.least_open(closed)

    def blocks(self) -> list[tuple[int, Partials]]:
        parts: dict[int, list[Any]] = {}
        for start, group, keys, contents in self.accumulators.take():
            parts.setdefault(group, []).append((start, keys, contents))
        return [(group, Partials(found)) for group, found in sorted(parts.items())]


class SessionPlacement(Placement):
    """Places records into sessions, by the ends of the intervals that they open.

    Args:
        windows: The gap.
        contents: Where the records go.
        policy: Settles records whose gap cannot be told.
    """

    def __init__(self, windows: SessionWindows, contents: Contents, policy: RecordPolicy) -> None:
        self._windows, self._policy = windows, policy
        self.accumulators: SessionAccumulators = SessionAccumulators(contents)

    def placed(self, rows: Rows) -> Rows:
        return session_ends(rows, self._windows, self._policy)

    def least_open(self, closed: int) -> int:
        return closed + 1

    def blocks(self) -> list[tuple[int, Partials]]:
        parts: dict[int, list[Session]] = {}
        for session in self.accumulators.take():
            parts.setdefault(session.group, []).append(session)
        return [(group, _of_sessions(found)) for group, found in sorted(parts.items())]


def place_records(plan: WindowPlan, contents: Contents, policy: RecordPolicy) -> Placement:
    """Return the placement of a window that fires by the watermark.

    Args:
        plan: The window.
        contents: Where the records go.
        policy: Settles records whose namespace cannot be told.
    """
    if isinstance(plan.assigner, AlignedWindows):
        return SlicePlacement(plan.assigner, contents)
    assert isinstance(plan.assigner, SessionWindows)
    return SessionPlacement(plan.assigner, contents, policy)


def divide(rows: Rows, least: int) -> tuple[Rows, Rows]:
    """Divide rows by whether their namespace is at least ``least``."""
    namespaces: Sequence[int] = rows.namespaces
    # hot path: min() costs 15 ns a record and saves a comparison of each.
    if not namespaces or min(namespaces) >= least:
        return rows, rows.picked([])
    return (
        rows.picked([i for i, namespace in enumerate(namespaces) if namespace >= least]),
        rows.picked([i for i, namespace in enumerate(namespaces) if namespace < least]),
    )


def _of_sessions(sessions: list[Session]) -> Partials:
    starts = [session.start for session in sessions]
    ends = [session.end for session in sessions]
    keys = [session.key for session in sessions]
    return Partials([((starts, ends), keys, [session.content for session in sessions])])


# Slices of aligned windows: the stretches of time between any two bounds of windows.
#
# All records of a slice belong to the same windows, so each record is kept or folded once, however
# many windows overlap. A slide has one slice, or two when the size is no multiple of it.
#
# Source: S. Krishnamurthy and others, "On-the-fly sharing for streamed aggregation", 2006 (paired
# windows).


class WindowSlices:
    """Arithmetic of the slices of one kind of aligned windows.

    Args:
        windows: Size, slide and offset.
    """

    def __init__(self, windows: AlignedWindows) -> None:
        self._size, self.slide_ms = windows.size_ms, windows.slide_ms
        self._offset = windows.offset_ms
        self._has_gaps = self.slide_ms > self._size
        # From here on in a slide, a record is no longer in the oldest of its windows.
        self._second = self._size if self._has_gaps else self._size % self.slide_ms
        self.is_tumbling = windows.is_tumbling

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

    def outside(self, starts: Sequence[int]) -> list[int]:
        """Return the positions of starts that lie in a gap between windows."""
        if not self._has_gaps:
            return []
        return [i for i, start in enumerate(starts) if (start - self._offset) % self.slide_ms]

    def last_end(self, start: int) -> int:
        """Return the end of the last window that holds a slice."""
        return start - (start - self._offset) % self.slide_ms + self._size

    def windows_of(self, start: int) -> Iterator[Window]:
        """Yield the windows that hold a slice, the latest first."""
        first = start - (start - self._offset) % self.slide_ms
        while first + self._size > start:
            yield Window(first, first + self._size)
            first -= self.slide_ms

    def first_end_after(self, start: int, moment: int) -> int | None:
        """Return the least end over ``moment`` among the windows of a slice; None for none."""
        last = self.last_end(start)
        if last <= moment:
            return None
        earliest = max(moment, start)
        return last - (last - earliest - 1) // self.slide_ms * self.slide_ms

    def least_open(self, closed: int) -> int:
        """Return the start of the earliest window that ends after ``closed``.

        WindowSlices that begin before it belong to windows that ended by then only.
        """
        start = closed - self._size + 1
        return start + (self._offset - start) % self.slide_ms

    def parts(self, window: Window) -> Iterator[int]:
        """Yield the starts of the slices of a window, in order."""
        for start in range(window.start, window.end, self.slide_ms):
            yield start
            if self._second and not self._has_gaps and start + self._second < window.end:
                yield start + self._second
