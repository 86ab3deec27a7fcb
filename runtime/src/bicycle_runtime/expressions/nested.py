"""The items of lists as columns, for comprehensions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any

from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.vectors import Mask, Refused, Vector

if TYPE_CHECKING:  # It would make the chain of imports longer.
    from bicycle_runtime.expressions.evaluation import Columns

_ITERATED = frozenset({list, tuple})
_ABSENT = object()


class Elements:
    """The items of a list of each record, one after another.

    Args:
        variable: The name of an item in the expression.
        items: The items.
        rows: By item, the index of its record, as an array.
        outer: The columns of the records.
        outer_element: Returns the items of an outer comprehension, by its variable.
    """

    def __init__(
        self, variable: object, items: Vector, rows: Any, *, outer: Columns,
        outer_element: Callable[[object], Vector],
    ) -> None:  # fmt: skip
        self.count = items.count
        self.rows = rows
        self._variable, self._items = variable, items
        self._outer, self._outer_element = outer, outer_element

    def element(self, variable: object) -> Vector:
        """Return the items of this comprehension, or of an outer one."""
        if variable is self._variable:
            return self._items
        return self._outer_element(variable).pick(self.rows)

    def field(self, name: Any) -> Vector:
        """Return a field of the record of each item."""
        return self._outer.field(name).pick(self.rows)

    def field_or(self, name: Any, default: Vector) -> Vector:
        """Return a field of the record of each item, ``default`` where it is missing."""
        absent = Vector.constant(_ABSENT, self._outer.count)
        found = self._outer.field_or(name, absent).pick(self.rows)
        pairs = zip(found.each(), default.each(), strict=True)
        return Vector(self.count, [other if item is _ABSENT else item for item, other in pairs])

    def take(self, mask: Mask) -> Elements:
        """Return some of the items."""
        return Elements(
            self._variable, self._items.take(mask), self.rows[mask.array], outer=self._outer,
            outer_element=self._outer_element,
        )  # fmt: skip


def elements_of(
    lists: Vector, variable: object, outer: Columns, outer_element: Callable[[object], Vector]
) -> Elements:
    """Return the items of lists.

    Args:
        lists: A list or tuple of each record.
        variable: The name of an item in the expression.
        outer: The columns of the records.
        outer_element: Returns the items of an outer comprehension, by its variable.

    Raises:
        Refused: a value is neither a list nor a tuple.
    """
    if not lists.kinds <= _ITERATED:
        raise Refused
    np, values = numpy(), lists.items
    items = list(chain.from_iterable(values))
    rows = np.repeat(np.arange(outer.count), np.fromiter(map(len, values), np.int64, outer.count))
    vector = Vector(len(items), items)
    return Elements(variable, vector, rows, outer=outer, outer_element=outer_element)


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
