"""Window assigners: the windows of a record, by its time.

*Aligned* windows (tumbling, sliding, cumulative) begin at multiples of a step, the same for all
keys. *Session* windows grow with the records of a key. *Global* and *count* windows do not look at
time.
All times and lengths are whole milliseconds; times before 1970 are negative and count like others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows.panes import Window

__all__ = [
    "AlignedWindows",
    "CountWindows",
    "CumulativeWindows",
    "Duration",
    "GlobalWindows",
    "SessionWindows",
    "WindowAssigner",
    "count_windows",
    "cumulative_windows",
    "duration_ms",
    "session_windows",
    "sliding_windows",
    "tumbling_windows",
    "whole_count",
]

Duration = int | timedelta
_LENGTH_MS_MAX = 366 * 100 * 86_400_000
_COUNT_MAX = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindows:
    """Windows ``[start, start + size)`` with ``start = offset + n * slide`` for all n.

    With ``slide == size`` they tumble; with a larger slide there are gaps, and a record in a gap
    belongs to no window.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @property
    def period_ms(self) -> int:
        """Return the distance of two starts."""
        return self.slide_ms

    @property
    def is_tumbling(self) -> bool:
        """Return whether each time belongs to exactly one window."""
        return self.size_ms == self.slide_ms

    def ends_of(self, timestamp: int) -> range:
        """Return the ends of the windows that hold a time, the earliest first.

        Example:
            >>> list(sliding_windows(60, 25).ends_of(100))
            [110, 135, 160]
        """
        last = timestamp - (timestamp - self.offset_ms) % self.slide_ms + self.size_ms
        count = (last - timestamp - 1) // self.slide_ms + 1
        return range(last - (count - 1) * self.slide_ms, last + 1, self.slide_ms)

    def windows_of(self, timestamp: int) -> list[Window]:
        """Return the windows that hold a time, the earliest first.

        Example:
            >>> sliding = sliding_windows(60, 25)
            >>> [(w.start, w.end) for w in sliding.windows_of(100)]
            [(50, 110), (75, 135), (100, 160)]
        """
        return [Window(end - self.size_ms, end) for end in self.ends_of(timestamp)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeWindows(AlignedWindows):
    """Windows that begin together and end after each ``slide``, up to ``size``.

    They are ``[start, start + n * slide)`` with ``start = offset + m * size``: each has the content
    of the one before it, and the records of one ``slide`` more. The size is a multiple of the
    slide.
    """

    @property
    def period_ms(self) -> int:
        """Return the distance of two starts."""
        return self.size_ms

    def ends_of(self, timestamp: int) -> range:
        """Return the ends of the windows that hold a time, the earliest first.

        Example:
            >>> list(cumulative_windows(20, 60).ends_of(70))
            [80, 100, 120]
        """
        first = timestamp - (timestamp - self.offset_ms) % self.slide_ms + self.slide_ms
        return range(first, self.start_of(timestamp) + self.size_ms + 1, self.slide_ms)

    def start_of(self, timestamp: int) -> int:
        """Return the start of all windows that hold a time."""
        return timestamp - (timestamp - self.offset_ms) % self.size_ms

    def windows_of(self, timestamp: int) -> list[Window]:
        """Return the windows that hold a time, the earliest end first.

        Example:
            >>> [(w.start, w.end) for w in cumulative_windows(20, 60).windows_of(70)]
            [(60, 80), (60, 100), (60, 120)]
        """
        start = self.start_of(timestamp)
        return [Window(start, end) for end in self.ends_of(timestamp)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Windows that end when a key has had no record for a gap.

    A record at ``t`` opens ``[t, t + gap)``; windows of a key that overlap or touch are one. So a
    record exactly one gap after the last belongs to the same session.

    Args:
        gap_ms: The gap; None when ``gap_of`` returns the gap of a record.
        gap_of: Returns the gap that a record opens, in ms or as a timedelta.
        min_records: Sessions with fewer records have no result.
        max_duration_ms: Longer sessions are split, see ``KeyedStream.session_window``.
    """

    gap_ms: int | None
    gap_of: Callable[[Any], Duration] | None = None
    min_records: int = 1
    max_duration_ms: int | None = None

    def window_of(self, timestamp: int, value: Any) -> Window:
        """Return the window that a record opens."""
        if self.gap_of is None:
            assert self.gap_ms is not None
            return Window(timestamp, timestamp + self.gap_ms)
        return Window(timestamp, timestamp + duration_ms("gap", self.gap_of(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalWindows:
    """One window for all records of a key; a trigger decides when it fires.

    In results it spans the times of the records it holds.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CountWindows:
    """The last ``size`` records of a key in the order of arrival, every ``slide``."""

    size: int
    slide: int


WindowAssigner = AlignedWindows | SessionWindows | GlobalWindows | CountWindows


def tumbling_windows(size: Duration, *, offset: Duration = 0) -> AlignedWindows:
    """Return adjacent windows.

    Args:
        size: Their length, at least 1 ms.
        offset: Where one of them begins; negative values too.
    """
    size_ms = duration_ms("size", size)
    return AlignedWindows(size_ms=size_ms, slide_ms=size_ms, offset_ms=_offset_ms(offset, size_ms))


def sliding_windows(size: Duration, slide: Duration, *, offset: Duration = 0) -> AlignedWindows:
    """Return windows of one length that start every ``slide``."""
    slide_ms = duration_ms("slide", slide)
    return AlignedWindows(
        size_ms=duration_ms("size", size),
        slide_ms=slide_ms,
        offset_ms=_offset_ms(offset, slide_ms),
    )


def cumulative_windows(
    step: Duration, size: Duration, *, offset: Duration = 0
) -> CumulativeWindows:
    """Return windows that start every ``size`` and end after each ``step``.

    Raises:
        StreamDefinitionError: the size is not a multiple of the step.
    """
    step_ms, size_ms = duration_ms("step", step), duration_ms("size", size)
    if size_ms % step_ms:
        raise StreamDefinitionError(
            call="size",
            problem=f"{size_ms} ms is not a multiple of the step of {step_ms} ms",
            hint="give a size that is a whole number of steps",
        )
    return CumulativeWindows(
        size_ms=size_ms, slide_ms=step_ms, offset_ms=_offset_ms(offset, size_ms)
    )


def session_windows(
    gap: Duration | Callable[[Any], Duration],
    *,
    min_records: int = 1,
    max_duration: Duration | None = None,
) -> SessionWindows:
    """Return windows that end after a gap, which may depend on the record."""
    return SessionWindows(
        gap_ms=None if callable(gap) else duration_ms("gap", gap),
        gap_of=gap if callable(gap) else None,
        min_records=whole_count("min_records", min_records),
        max_duration_ms=None if max_duration is None else duration_ms("max_duration", max_duration),
    )


def count_windows(size: int, slide: int | None = None) -> CountWindows:
    """Return windows of ``size`` records, one every ``slide`` records (default: size)."""
    size = whole_count("size", size)
    return CountWindows(size=size, slide=size if slide is None else whole_count("slide", slide))


def duration_ms(name: str, duration: Duration, *, low: int | None = 1) -> int:
    """Return a length in whole milliseconds.

    Args:
        name: The name of the length in errors.
        duration: Milliseconds or a timedelta.
        low: The least length; None permits negative lengths.

    Raises:
        StreamDefinitionError: it is shorter than ``low`` or longer than a hundred years, or not a
            whole number of milliseconds.
    """
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, timedelta(milliseconds=1))
        is_whole = not rest
    else:
        whole, is_whole = duration, type(duration) is int
    least = -_LENGTH_MS_MAX if low is None else low
    if not is_whole or not least <= whole <= _LENGTH_MS_MAX:
        raise StreamDefinitionError(
            call=name,
            problem=f"{duration!r}, expected {least}..{_LENGTH_MS_MAX} whole milliseconds",
            hint="give an int (milliseconds) or a timedelta within the bounds",
        )
    return whole


def whole_count(name: str, count: int) -> int:
    """Return a number of records.

    Raises:
        StreamDefinitionError: it is less than 1 or over a billion.
    """
    if type(count) is not int or not 1 <= count <= _COUNT_MAX:
        raise StreamDefinitionError(
            call=name,
            problem=f"{count!r}, expected 1..{_COUNT_MAX} records",
            hint="give an int within the bounds",
        )
    return count


def _offset_ms(offset: Duration, step_ms: int) -> int:
    return duration_ms("offset", offset, low=None) % step_ms
