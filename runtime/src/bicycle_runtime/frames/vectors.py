"""Vectors: a value per record, in an array, an Arrow column, or a list.

Arrays of numbers are numpy's; Arrow columns come from other components and may have nulls; other
values are Python's. The choice affects nothing but the speed. A vector knows the exact types of its
values: a bool is no int here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, repeat
from typing import Any

from bicycle_runtime.frames.arrays import (
    arrow,
    bool_array,
    listed_values,
    magnitude,
    number_array,
    numpy,
)
from bicycle_runtime.frames.schemas import ARROW_KINDS, VALUE_TYPES

_KINDS: dict[str, frozenset[type]] = {
    "i": frozenset({int}),
    "f": frozenset({float}),
    "b": frozenset({bool}),
}
_ARRAY_TYPES = {found.python: found.array for found in VALUE_TYPES if found.array}
_NONE_YET = object()


class Refused(Exception):  # nothing is wrong: these records go one by one
    """The signal that columns cannot compute a result equal to Python's."""


class Vector:
    """A value for each record.

    Args:
        count: How many they are.
        items: The values as Python's; None where there is an array.
        array: The values as an array of int64, float64 or bool.
        kinds: Their types, when known.
        is_constant: All values are the single value of ``items`` or ``array``.
    """

    __slots__ = ("_array", "_items", "_kinds", "count", "is_constant")

    def __init__(
        self, count: int, items: list[Any] | None = None, array: Any = _NONE_YET,
        *, kinds: frozenset[type] | None = None, is_constant: bool = False,
    ) -> None:  # fmt: skip
        self.count = count
        self.is_constant = is_constant
        self._items = items
        self._array = array
        self._kinds = kinds

    @classmethod
    def constant(cls, value: Any, count: int) -> Vector:
        """Return the same value for each record."""
        return cls(count, [value], is_constant=True)

    @property
    def kinds(self) -> frozenset[type]:
        """The types of the values."""
        if self._kinds is None:
            if self._items is None:
                self._kinds = _KINDS[self._array.dtype.kind]
            else:
                # hot path: 12 ns a value.
                self._kinds = frozenset(map(type, self._items))
        return self._kinds

    @property
    def array(self) -> Any:
        """The values as an array, of one item if constant, or None.

        That is so unless all are ints of 64 bits, all floats, or all bools.
        """
        if self._array is _NONE_YET:
            assert self._items is not None
            self._array = None
            if len(self.kinds) == 1:
                [kind] = self.kinds
                if kind in (int, float):
                    self._array = number_array(self._items)
                elif kind is bool:
                    self._array = bool_array(self._items)
        return self._array

    @property
    def numbers(self) -> Any:
        """The values as an array of ints or floats, one per record, or None."""
        array = self.array
        if array is None or array.dtype.kind == "b":
            return None
        return numpy().broadcast_to(array, self.count) if self.is_constant else array

    @property
    def items(self) -> list[Any]:
        """The values as Python's."""
        if self.is_constant:
            return [self.value] * self.count
        if self._items is None:
            self._items = self._array.tolist()
        return self._items

    @property
    def as_they_lie(self) -> Any:
        """The values as an array or column if they are in one, else as a list."""
        is_array = self._items is None and not self.is_constant
        return self._array if is_array and self._array is not None else self.items

    @property
    def bools(self) -> list[bool] | None:
        """The values as a list, if they are bools in a list."""
        is_listed = self._items is not None and not self.is_constant
        return self._items if is_listed and self.kinds == _KINDS["b"] else None

    @property
    def value(self) -> Any:
        """The value that all have, where they are constant."""
        assert self._items is not None
        return self._items[0]

    def each(self) -> Any:
        """Return an iterable of the values."""
        return repeat(self.value, self.count) if self.is_constant else self.items

    def take(self, mask: Mask) -> Vector:
        """Return the values of some of the records."""
        if self.is_constant:
            return Vector(mask.count, self._items, kinds=self._kinds, is_constant=True)
        if self._array is not _NONE_YET and self._array is not None:
            return Vector(mask.count, None, self._array[mask.array], kinds=self._kinds)
        return Vector(mask.count, list(compress(self.items, mask.listed)), kinds=self._smaller())

    def pick(self, rows: Any) -> Vector:
        """Return the values of records at some indexes, which may repeat."""
        if self.is_constant:
            return Vector(len(rows), self._items, kinds=self._kinds, is_constant=True)
        if self._array is not _NONE_YET and self._array is not None:
            return Vector(len(rows), None, self._array[rows], kinds=self._kinds)
        items = list(map(self.items.__getitem__, rows.tolist()))
        return Vector(len(rows), items, kinds=self._smaller())

    def magnitude(self) -> int:
        """Return the greatest distance from zero, of an array of ints."""
        return magnitude(self.array)

    def _smaller(self) -> frozenset[type] | None:
        """Return the types that some of the values have, as far as known without a scan."""
        return self._kinds if self._kinds is not None and len(self._kinds) == 1 else None


class ArrowVector(Vector):
    """Values in an Arrow column, with its nulls; they are converted on access.

    Args:
        column: An array of any type.
    """

    __slots__ = ("column",)

    def __init__(self, column: Any) -> None:
        super().__init__(len(column))
        self.column = column

    @property
    def kinds(self) -> frozenset[type]:
        if self._kinds is None:
            kind = ARROW_KINDS.get(str(self.column.type))
            nulls = self.column.null_count
            if kind is None:
                self._kinds = frozenset(map(type, self.items))
            else:
                found = {kind} if nulls < self.count else set()
                self._kinds = frozenset(found | {type(None)} if nulls else found)
        return self._kinds

    @property
    def array(self) -> Any:
        if self._array is _NONE_YET:
            self._array = _array_of(self.column) if len(self.kinds) == 1 else None
        return self._array

    @property
    def items(self) -> list[Any]:
        if self._items is None:
            # hot path: 15 ns a number; the column itself takes 100.
            known = str(self.column.type) in ARROW_KINDS
            array = self.array if known else None
            self._items = listed_values(self.column) if array is None else array.tolist()
        return self._items

    @property
    def as_they_lie(self) -> Any:
        return self.column

    def each(self) -> Any:
        return self.items

    def take(self, mask: Mask) -> Vector:
        return ArrowVector(self.column.filter(arrow().array(mask.array)))

    def pick(self, rows: Any) -> Vector:
        return ArrowVector(self.column.take(arrow().array(rows)))


def _array_of(column: Any) -> Any:
    """Return an Arrow column as an array of ints, floats or bools, or None."""
    pa = arrow()
    word = _ARRAY_TYPES.get(ARROW_KINDS.get(str(column.type), str))
    if word is None or column.null_count:
        return None
    try:
        return column.cast(word).to_numpy(zero_copy_only=word != "bool")
    except pa.ArrowInvalid:  # an int that 64 bits with a sign do not hold
        return None


class TupleVector(Vector):
    """A tuple for each record, whose parts are vectors.

    Args:
        count: How many they are.
        parts: At least one.
    """

    __slots__ = ("parts",)

    def __init__(self, count: int, parts: Sequence[Vector]) -> None:
        super().__init__(count, None, None, kinds=frozenset({tuple}))
        self.parts = tuple(parts)

    @property
    def items(self) -> list[Any]:
        if self._items is None:
            self._items = list(zip(*(part.each() for part in self.parts), strict=True))
        return self._items

    def each(self) -> Any:
        # hot path: zip() returns the same tuple again if it was not kept.
        return zip(*(part.each() for part in self.parts), strict=True)

    def take(self, mask: Mask) -> Vector:
        return TupleVector(mask.count, [part.take(mask) for part in self.parts])

    def pick(self, rows: Any) -> Vector:
        return TupleVector(len(rows), [part.pick(rows) for part in self.parts])


def joined_vectors(several: Sequence[Vector]) -> Vector:
    """Return the values of several vectors, one behind the other."""
    if len(several) == 1:
        return several[0]
    count = sum(vector.count for vector in several)
    parts = [vector.parts for vector in several if isinstance(vector, TupleVector)]
    if len(parts) == len(several) and len(set(map(len, parts))) == 1:
        return TupleVector(count, list(map(joined_vectors, zip(*parts, strict=True))))
    columns = [vector.column for vector in several if isinstance(vector, ArrowVector)]
    if len(columns) == len(several) and len({column.type for column in columns}) == 1:
        return ArrowVector(arrow().concat_arrays(columns))
    return Vector(count, list(chain.from_iterable(vector.each() for vector in several)))


class Mask:
    """The selection of some records.

    Args:
        array: A bool for each.
        listed: The same as a list, where there is one.
    """

    __slots__ = ("_listed", "array", "count")

    def __init__(self, array: Any, listed: list[bool] | None = None) -> None:
        self.array = array
        self.count = int(array.sum())
        self._listed = listed

    @property
    def listed(self) -> list[bool]:
        """The same as a list."""
        if self._listed is None:
            self._listed = self.array.tolist()
        return self._listed

    def others(self) -> Mask:
        """Return the records that are not meant."""
        return Mask(~self.array)
