"""Records in columns, which are created only on access.

A source whose records have fields can emit them so (``FieldReader``), and windows emit their
results so: steps that need only fields take the columns, a writer that needs only the values of
records takes rows. Every other operator sees a sequence of records like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from itertools import chain, compress, repeat, starmap
from operator import attrgetter, methodcaller
from types import MappingProxyType
from typing import Any, overload

import msgspec

from bicycle_runtime.frames.vectors import Mask, TupleVector, Vector, joined_vectors
from bicycle_runtime.records.exactness import PLAIN
from bicycle_sdk.state.separation import separate

__all__ = [
    "MISSING",
    "ColumnRecords",
    "DictRecords",
    "FieldRecords",
    "LazyRecords",
    "RecordForm",
    "joined",
]


class LazyRecords(Sequence[Any]):
    """A sequence of records that is made as a whole, once.

    Args:
        count: How many they are.
        make: Makes them.
    """

    def __init__(self, count: int, make: Callable[[], list[Any]]) -> None:
        self._count = count
        self._make = make

    @cached_property
    def records(self) -> list[Any]:
        """The records themselves."""
        return self._make()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.records[index]


class FieldRecords(LazyRecords):
    """Records of one type, in order.

    Args:
        rows: Something for each record by which its fields are found: an object that has them, or
            the record's number.
        make: Makes the records themselves, as many as there are rows.
        getter: Returns a function that looks a field up in a row, by its name; a row without it has
            ``missing`` there, or the look-up raises.
        names: Returns the fields of all records, as dicts in this order; None if they are no dicts,
            or not alike.
        are_written: Whether rows have the JSON text of the records, if ``names`` returns any.
        kinds: The types of fields that are the same in all rows, as far as they are known.

    With ``is_shared`` others read the rows, too: values that are not plain are copied.
    """

    def __init__(
        self, rows: Sequence[Any], make: Callable[[], list[Any]],
        *, getter: Callable[[str], Callable[[Any], Any]] = attrgetter,
        names: Callable[[], Sequence[str] | None] = lambda: None, are_written: bool = False,
        kinds: Mapping[str, type] = MappingProxyType({}), is_shared: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(len(rows), make)
        self.rows = rows
        self.getter = getter
        self.names = names
        self.are_written = are_written
        self.kinds = kinds
        self.is_shared = is_shared

    def column(self, name: str, kind: type | None = None) -> Vector:
        """Return a field of each.

        Args:
            name: Of the field.
            kind: The type of its values, where it is known.

        Raises:
            AttributeError: a row has no such field; or a ``KeyError``, or a ``TypeError``.
        """
        items = list(map(self.getter(name), self.rows))
        kind = kind or self.kinds.get(name)
        vector = Vector(len(items), items, kinds=None if kind is None else frozenset({kind}))
        return separated_vector(vector) if self.is_shared else vector

    def take(self, mask: Mask) -> FieldRecords:
        """Return some of them."""
        rows = list(compress(self.rows, mask.listed))

        def make() -> list[Any]:
            return list(compress(self.records, mask.listed)) if rows else []

        return FieldRecords(
            rows, make, getter=self.getter, names=self.names, are_written=self.are_written,
            kinds=self.kinds, is_shared=self.is_shared,
        )  # fmt: skip

    def copy(self) -> FieldRecords | None:
        """Return a copy for a consumer that may change records, or None if they exist."""
        return FieldRecords(
            self.rows, self._make, getter=self.getter, names=self.names,
            are_written=self.are_written, kinds=self.kinds, is_shared=True,
        )  # fmt: skip

    def as_columns(self) -> ColumnRecords | None:
        """Return the records as columns if they are dicts with equal fields, or None."""
        names = self.names()
        if names is None:
            return None
        form, part = RecordForm(dict, tuple(names)), (len(self), self._columns)
        return (
            _WrittenRows(form, part, rows=self.rows)
            if self.are_written
            else ColumnRecords(form, part)
        )

    def _columns(self) -> list[Vector]:
        return list(map(self.column, self.names() or ()))


class DictRecords(FieldRecords):
    """Records that are there already: dicts, as a rule.

    Args:
        records: The records.
    """

    def __init__(self, records: list[Any]) -> None:
        super().__init__(
            records, lambda: records, getter=lambda name: methodcaller("get", name, MISSING)
        )

    def take(self, mask: Mask) -> DictRecords:
        return DictRecords(list(compress(self.rows, mask.listed)))

    def copy(self) -> None:
        return None


# The value of a row for a field that its record lacks.
MISSING = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The type and names of records in columns.

    ``kind`` is dict, tuple, a named tuple, a dataclass, or None if a record is a plain value;
    ``names`` are the names of its columns: fields, or places.
    """

    kind: type | None
    names: tuple[Any, ...]

    def made(self, columns: Sequence[Vector], count: int) -> list[Any]:
        """Return the records."""
        kind: Any = self.kind
        names = self.names
        if kind is None:
            return list(columns[0].each())
        rows = self._rows(columns, count)
        if kind is dict:
            return [dict(zip(names, row, strict=True)) for row in rows]
        if kind is tuple:
            return list(rows)
        if issubclass(kind, tuple):
            # hot path: 90 ns a record; calling a named tuple takes 250.
            return list(map(partial(tuple.__new__, kind), rows))
        if _is_by_index(kind, names):
            # hot path: 200 ns a record, by keywords 1,300.
            return list(starmap(kind, rows))
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]

    def rows(self, columns: Sequence[Vector], count: int) -> Iterable[Any]:
        """Yield objects with the same JSON text as the records, one at a time.

        hot path: 70 ns a record until it is written; a dict takes 470, a dataclass 200.
        """
        if self.kind is None:
            found: Iterable[Any] = columns[0].each()
            return found
        if issubclass(self.kind, tuple):
            # hot path: zip() returns the same tuple again if it was not kept, so that encoding rows
            # takes 0.4 us, encoding records that were made first 0.9 to 1.6.
            return self._rows(columns, count)
        is_alike = self.kind is dict or _is_in_order(self.kind, self.names)
        row_type = _row_type(self.names) if is_alike else None
        if row_type is None:
            return self.made(columns, count)
        return starmap(row_type, self._rows(columns, count))

    def _rows(self, columns: Sequence[Vector], count: int) -> Iterable[tuple[Any, ...]]:
        if not columns:
            return repeat((), count)
        return zip(*(column.each() for column in columns), strict=True)


def _is_in_order(kind: Any, names: tuple[Any, ...]) -> bool:
    """Return whether names are the fields of a dataclass in its order, as in JSON."""
    return names == tuple(field.name for field in fields(kind))


def _is_by_index(kind: Any, names: tuple[Any, ...]) -> bool:
    """Return whether a dataclass accepts these fields as positional arguments."""
    return _is_in_order(kind, names) and not any(field.kw_only for field in fields(kind))


@cache
def _row_type(names: tuple[str, ...]) -> Any:
    """Return a type with the JSON text of dicts with these names, or None."""
    attributes = [f"f{number}" for number in range(len(names))]
    try:
        return msgspec.defstruct(
            "Row", attributes, rename=dict(zip(attributes, names, strict=True)), gc=False
        )
    except ValueError:  # a name that needs an escape
        return None


Part = tuple[int, Callable[[], Sequence[Vector]]]


class ColumnRecords(LazyRecords):
    """Records of one form in columns.

    Args:
        form: The form of the records.
        parts: For each part the number of its records, and a function that returns the columns of
            the form's names; called at each access.
    """

    def __init__(self, form: RecordForm, *parts: Part) -> None:
        # Their maker must not hold them: a cycle keeps a whole epoch until it is collected.
        super().__init__(sum(count for count, _ in parts), partial(_make_records, form, parts))
        self.form = form
        self.parts = parts

    def rows(self) -> Iterator[Any]:
        """Yield objects with the same JSON text as the records, one at a time."""
        return chain.from_iterable(self.form.rows(columns(), n) for n, columns in self.parts)

    def columns(self) -> list[Vector]:
        """Return the columns of the form's names."""
        parts = zip(*(columns() for _, columns in self.parts), strict=True)
        return list(map(joined_vectors, parts))

    def copy(self) -> ColumnRecords:
        """Return a copy for a consumer that may change the records."""
        parts = ((n, partial(_separated_columns, columns)) for n, columns in self.parts)
        return ColumnRecords(self.form, *parts)


def _make_records(form: RecordForm, parts: Iterable[Part]) -> list[Any]:
    return list(chain.from_iterable(form.made(columns(), count) for count, columns in parts))


def _separated_columns(columns: Callable[[], Sequence[Vector]]) -> list[Vector]:
    return list(map(separated_vector, columns()))


def separated_vector(vector: Vector) -> Vector:
    """Return equal values, with mutable ones copied."""
    if isinstance(vector, TupleVector):
        return TupleVector(vector.count, list(map(separated_vector, vector.parts)))
    if vector.kinds <= PLAIN:
        return vector
    return Vector(vector.count, list(map(separate, vector.each())), kinds=vector.kinds)


class _WrittenRows(ColumnRecords):
    """Records of one part whose rows are there.

    Args:
        form: The form of the records.
        part: As of ``ColumnRecords``.
        rows: Objects with the JSON text of the records.
    """

    def __init__(
        self, form: RecordForm, part: Part,
        *, rows: Sequence[Any],
    ) -> None:  # fmt: skip
        super().__init__(form, part)
        self._rows = rows

    def rows(self) -> Iterator[Any]:
        return iter(self._rows)


def joined(several: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the records of several sequences, in order: on columns where all are."""
    alike = [records for records in several if isinstance(records, ColumnRecords)]
    if not alike or len(alike) < len(several) or len({records.form for records in alike}) > 1:
        return list(chain.from_iterable(several))
    return ColumnRecords(alike[0].form, *(part for records in alike for part in records.parts))
