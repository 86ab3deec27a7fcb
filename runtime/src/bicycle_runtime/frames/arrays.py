"""Arrays of 64-bit ints: how their rows are grouped, and how they travel. They are numpy's.

The encoding of a column has as few bytes as its values need. Counts, lengths and starts of windows
differ by little, and one or two bytes suffice for each. On the exchange of a window of 100,000 keys
Java spends 0.2 us a record so, and 0.3 with eight bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

PackedInts = tuple[int, str, bytes]  # The offset to add, the type of the items, and the items.

TOTAL_MAX = 1 << 62  # the limit of a sum of ints: half of the range of an item
_SPAN_MAX = 1 << 20
_NARROW_MAX = (1 << 32) - 1
_ZERO = datetime.fromtimestamp(0, UTC)
_TIMES: Mapping[str, tuple[str, Any]] = {
    "date32[day]": ("D", _ZERO.date()),
    **{f"timestamp[{unit}]": (unit, _ZERO.replace(tzinfo=None)) for unit in ("s", "ms", "us")},
    **{f"timestamp[{unit}, tz=UTC]": (unit, _ZERO) for unit in ("s", "ms", "us")},
}


def numpy() -> Any:
    """Return the library."""
    # A slow import (100 ms): only jobs that fold by field wait for it.
    import numpy as np

    return np


def arrow() -> Any:
    """Return the library of columns that hold more than numbers."""
    # A slow import (150 ms), as above.
    import pyarrow as pa
    import pyarrow.compute

    return pa


def listed_values(column: Any) -> list[Any]:
    """Return the values of an Arrow column; a time in UTC has ``datetime.UTC``.

    hot path: 0.25 us a time and a date; to_pylist() takes 5.4 us (1.7 without a zone) and 1.9 us.
    """
    unit, epoch = _TIMES.get(str(column.type), ("", None))
    if epoch is not None:
        spans = column.to_numpy(zero_copy_only=False).view(f"m8[{unit}]").tolist()
        if int not in set(map(type, spans)):  # They are too long for Python.
            return [None if span is None else epoch + span for span in spans]
    found: list[Any] = column.to_pylist()
    return found


def number_array(column: Sequence[int] | Sequence[float]) -> Any:
    """Return numbers as an array, of 64 bits each; None when an int has more.

    Args:
        column: At least one; all of them ints, or all of them floats.
    """
    np = numpy()
    kind = np.float64 if type(column[0]) is float else np.int64
    try:
        # hot path: 20 ns an int, np.array() takes 35.
        return np.fromiter(column, kind, len(column))
    except OverflowError:
        return None


def bool_array(column: Sequence[bool]) -> Any:
    """Return bools as an array, which cannot be changed.

    hot path: 6 ns a value, numpy's own conversion takes 15.
    """
    return numpy().frombuffer(bytes(column), numpy().bool_)


class Runs:
    """Rows in the order of a number that each has; a run is the rows with one number.

    Args:
        numbers: By row, from 0 on; at least one.
        times: By row: then a run also ends where the next of these is later by more than
            ``gap_ms``.
        gap_ms: See there.

    ``firsts`` has the first row of each run.
    """

    def __init__(self, numbers: Any, times: Any = None, *, gap_ms: int = 0) -> None:
        np = numpy()
        if times is None:
            self._order = _order(numbers)
            self._begins = _begins(numbers[self._order])
        else:
            ranks, count = as_numbers(times, 1)
            self._order = _order(numbers * count + ranks)
            is_later = np.diff(times[self._order]) > gap_ms
            is_other = np.diff(numbers[self._order]) != 0
            self._begins = np.flatnonzero(np.concatenate(([True], is_other | is_later)))
        self.firsts = self._order[self._begins]

    def __len__(self) -> int:
        return len(self._begins)

    def of(self, column: Any) -> Any:
        """Return the first item of a column in each streak."""
        return column[self.firsts]

    def numbers(self) -> Any:
        """Return for each row in which run it is."""
        np = numpy()
        found = np.empty(len(self._order), np.int64)
        found[self._order] = np.repeat(np.arange(len(self)), self.lengths())
        return found

    def lengths(self) -> Any:
        """Return how many rows each run has."""
        return numpy().diff(self._begins, append=len(self._order))

    def joined(self, column: Any, ufunc: str) -> Any:
        """Return the items of a column joined run by run.

        Args:
            column: By row.
            ufunc: Name of a function of two numbers: ``add``, ``minimum``, ``maximum``.
        """
        return getattr(numpy(), ufunc).reduceat(column[self._order], self._begins)


def as_numbers(column: Any, step: int) -> tuple[Any, int]:
    """Return small numbers in the order of a column's items, and their upper bound.

    Args:
        column: By row; items differ by multiples of ``step``.
        step: At least 1.
    """
    least = int(column.min())
    span = (int(column.max()) - least) // step
    if span < _SPAN_MAX:
        return (column - least) // step, span + 1
    known, numbers = numpy().unique(column, return_inverse=True)
    return numbers, len(known)


def magnitude(column: Any) -> int:
    """Return the greatest distance of an item from zero; 0 when there is no item."""
    return max(-int(column.min()), int(column.max())) if len(column) else 0


def steps(column: Any) -> list[int]:
    """Return the positions at which a column's item changes, and its end."""
    return [*_begins(column).tolist(), len(column)]


class NarrowInts:
    """A column as a base and small offsets.

    Args:
        column: An array of ints of 64 bits, of at least one.
    """

    def __init__(self, column: Any) -> None:
        least, greatest = int(column.min()), int(column.max())
        is_narrow = greatest - least <= _NARROW_MAX
        self._base = least if is_narrow else 0
        self._numbers = (
            (column - least).astype(numpy().min_scalar_type(greatest - least))
            if is_narrow
            else column
        )

    def pack(self, first: int, end: int) -> PackedInts:
        """Return the items from ``first`` to before ``end`` as plain data."""
        numbers = self._numbers[first:end]
        return self._base, numbers.dtype.str, numbers.tobytes()


def unpack(several: Iterable[PackedInts]) -> Any:
    """Return one array of values that ``NarrowInts`` packed, of at least one part."""
    np = numpy()
    return np.concatenate(
        [np.add(np.frombuffer(data, kind), base, dtype=np.int64) for base, kind, data in several]
    )


def _order(numbers: Any) -> Any:
    """Return the sorting positions of numbers, all at least 0."""
    np = numpy()
    # hot path: 12 ns a row for each 16 bits, which are sorted by counting; argsort() takes 80.
    order = numbers.astype(np.uint16).argsort(kind="stable")
    for shift in range(16, int(numbers.max()).bit_length(), 16):
        digits = (numbers >> shift).astype(np.uint16)
        order = order[digits[order].argsort(kind="stable")]
    return order


def _begins(column: Any) -> Any:
    np = numpy()
    return np.flatnonzero(np.concatenate(([True], column[1:] != column[:-1])))
