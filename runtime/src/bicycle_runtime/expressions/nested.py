"""The items of lists as columns, for comprehensions."""

from __future__ import annotations

from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.vectors import Refused, Vector

if TYPE_CHECKING:  # It would make the chain of imports longer.
    from bicycle_runtime.frames.frame import Frame

_ITERATED = frozenset({list, tuple})


def elements_of(lists: Vector, variable: object, outer: Frame) -> tuple[Frame, Any]:
    """Return the items of lists as a frame, and the index of the record of each.

    Args:
        lists: A list or tuple of each record.
        variable: The name of an item in the expression; it is the field of the items.
        outer: The records.

    Raises:
        Refused: a value is neither a list nor a tuple.
    """
    if not lists.kinds <= _ITERATED:
        raise Refused
    np, values = numpy(), lists.items
    items = list(chain.from_iterable(values))
    rows = np.repeat(np.arange(outer.count), np.fromiter(map(len, values), np.int64, outer.count))
    return outer.repeat(rows, {variable: Vector(len(items), items)}), rows


def regroup(results: Vector, rows: Any, count: int, skipped: type) -> Vector:
    """Return a list for each record with the results for its items.

    Args:
        results: By item.
        rows: By item, the index of its record, in ascending order.
        count: The number of records.
        skipped: The type of results that are left out.
    """
    items = results.items
    if skipped in results.kinds:
        is_kept = [type(item) is not skipped for item in items]
        rows = rows[numpy().array(is_kept, bool)]
        items = [item for item in items if type(item) is not skipped]
    lengths = numpy().bincount(rows, minlength=count).tolist()
    ends = accumulate(lengths, initial=0)
    found = [items[start:end] for start, end in pairwise(ends)]
    return Vector(count, found, kinds=frozenset({list}))
