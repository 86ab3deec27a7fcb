"""Grouping rows of arrays: what folding by field and joining what was folded have in common.

Arrays are those of numpy, of 64-bit ints.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Runs", "as_numbers", "magnitude", "numpy", "steps"]

_SPAN_MAX = 1 << 20


def numpy() -> Any:
    """Return the library."""
    # A slow import (100 ms): only jobs that fold by field wait for it.
    import numpy as np

    return np


class Runs:
    """Rows in the order of a number that each has; a run is the rows with one number.

    Args:
        numbers: By row.
    """

    def __init__(self, numbers: Any) -> None:
        self._np = np = numpy()
        # hot path: sorting takes 30 to 60 ns a row, half of all that is done in arrays.
        self._order = numbers.argsort()
        ordered = numbers[self._order]
        self._begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        self._firsts = self._order[self._begins]

    def of(self, column: Any) -> Any:
        """Return one item of a column for each run, where all rows of a run have the same."""
        return column[self._firsts]

    def lengths(self) -> Any:
        """Return how many rows each run has."""
        return self._np.diff(self._begins, append=len(self._order))

    def joined(self, column: Any, ufunc: str) -> Any:
        """Return the items of a column joined run by run.

        Args:
            column: By row.
            ufunc: Name of a function of two numbers: ``add``, ``minimum``, ``maximum``.
        """
        return getattr(self._np, ufunc).reduceat(column[self._order], self._begins)


def as_numbers(column: Any) -> tuple[Any, int]:
    """Return small numbers that have the order of a column's items, and a bound above them all."""
    least, greatest = int(column.min()), int(column.max())
    if greatest - least < _SPAN_MAX:
        return column - least, greatest - least + 1
    known, numbers = numpy().unique(column, return_inverse=True)
    return numbers, len(known)


def magnitude(column: Any) -> int:
    """Return the greatest distance of an item from zero; 0 when there is no item."""
    return max(-int(column.min()), int(column.max())) if len(column) else 0


def steps(column: Any) -> list[int]:
    """Return the positions at which a column's item is another than the one before, and its end."""
    np = numpy()
    changes = np.flatnonzero(column[1:] != column[:-1]) + 1
    return [0, *changes.tolist(), len(column)]
