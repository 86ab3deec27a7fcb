"""Frames: records as columns and objects, each created from the other on access.

A source emits frames where it can read fields without creating records, and a window emits its
results so. Steps that need only fields read the columns, and a writer that needs only the values of
records reads rows. For all other code a frame is a sequence of records.

A frame holds vectors by field. Fields that nobody has read yet come from an origin: decoded rows,
or other frames.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, repeat
from operator import add, attrgetter, itemgetter, methodcaller
from types import MappingProxyType
from typing import Any, overload

import msgspec

from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import (
    ArrowVector,
    Mask,
    Refused,
    TupleVector,
    Vector,
    joined_vectors,
)
from bicycle_sdk.state.frozen import is_frozen_type
from bicycle_sdk.state.separation import separate

Name = str | int | None  # A field, an index in a tuple, or None for a record that is a plain value.
# The value of a row for a field that its record lacks.
MISSING = msgspec.UNSET
_MISSING = type(MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRows:
    """Objects from which the fields of records are read.

    ``objects`` has one per record: an object with its fields, or its number. ``getter`` returns a
    function that reads a field of an object, by its name; an object without the field has
    ``MISSING`` there, or the function raises. ``make`` creates the records; None if the objects are
    the records. ``names`` returns the fields of all records, as dicts in this order; None if they
    are no dicts, or differ. With ``are_written``, objects have the JSON text of the records, if
    ``names`` returns any. ``kinds`` has the types of fields that are equal in all objects, as far
    as they are known. ``values`` returns the fields of an object as a tuple, in the order of
    ``names``; None if reading them one by one is as fast.
    """

    objects: Sequence[Any]
    make: Callable[[], list[Any]] | None
    getter: Callable[[str], Callable[[Any], Any]] = attrgetter
    names: Callable[[], Sequence[str] | None] = lambda: None
    are_written: bool = False
    kinds: Mapping[str, type] = field(default_factory=dict)
    values: Callable[[Any], tuple[Any, ...]] | None = None

    def form(self) -> RecordForm | None:
        """Return the form of the records, or None if it is unknown."""
        names = self.names()
        return None if names is None else RecordForm(dict, tuple(names))

    def vector(self, name: str) -> Vector:
        """Return a field of each record; a record without it has ``MISSING``, or raises."""
        items = list(map(self.getter(name), self.objects))
        kind = self.kinds.get(name)
        return Vector(len(items), items, kinds=None if kind is None else frozenset({kind}))

    def take(self, mask: Mask) -> FieldRows:
        """Return the rows of a mask."""
        make, objects = self.make, list(compress(self.objects, mask.listed))
        makes_some = None if make is None else lambda: list(compress(make(), mask.listed))
        return replace(self, objects=objects, make=makes_some)

    def written(self) -> Iterable[Any] | None:
        """Return objects with the JSON text of the records, if the objects have it."""
        return self.objects if self.are_written else None

    def create(self) -> list[Any]:
        """Return new records, or the objects if these are the records."""
        return list(self.objects) if self.make is None else self.make()


class Frame(Sequence[Any]):
    """Records as columns; the records are created on access, once.

    Args:
        count: The number of records.
        vectors: The known fields, by name. A frame without an origin has all of them.
        form: The form of the records; None if the origin knows it, or nobody.
        origin: The origin of other fields.

    ``notes`` has values that were computed from the fields, by what computed them. A part of a
    frame finds them by ``above``: the frame, and the mask of the part.
    """

    __slots__ = (
        "__weakref__", "_form", "_origin", "_parent", "_records", "_vectors", "above", "count",
        "notes",
    )  # fmt: skip
    count: int  # type: ignore[assignment]  # as of vectors and masks; no code counts equal records

    def __init__(
        self, count: int, vectors: Mapping[Any, Vector] = MappingProxyType({}),
        *, form: RecordForm | None = None, origin: _Origin | None = None,
    ) -> None:  # fmt: skip
        self.count = count
        self._vectors = dict(vectors)
        self._form, self._origin = form, origin
        self._records: list[Any] | None = None
        self._parent: tuple[Frame, Mask] | None = None
        self.notes: dict[Any, Any] = {}
        self.above: tuple[weakref.ref[Frame], Mask] | None = None

    @classmethod
    def of(cls, form: RecordForm, columns: Sequence[Vector], count: int) -> Frame:
        """Return records of a form, with the columns of its names."""
        return cls(count, dict(zip(form.names, columns, strict=True)), form=form)

    @classmethod
    def of_rows(cls, rows: FieldRows) -> Frame:
        """Return records whose fields are read from objects."""
        return cls(len(rows.objects), origin=rows)

    @classmethod
    def of_dicts(cls, records: list[Any], kinds: Mapping[str, type] | None = None) -> Frame:
        """Return existing dicts as a frame; ``kinds`` has the known types of fields."""
        rows = FieldRows(objects=records, make=None, getter=_item_or_missing, kinds=kinds or {})
        return cls.of_rows(rows)

    @classmethod
    def of_arrow(cls, batch: Any) -> Frame:
        """Return the rows of an Arrow record batch as dicts; nothing is converted."""
        form = RecordForm(dict, tuple(batch.schema.names))
        return cls.of(form, list(map(ArrowVector, batch.columns)), batch.num_rows)

    @property
    def form(self) -> RecordForm | None:
        """The form of the records, None if it is unknown."""
        return self._origin.form() if self._form is None and self._origin else self._form

    @property
    def records(self) -> list[Any]:
        """The records."""
        if self._records is None:
            if self._parent is not None:
                parent, mask = self._parent
                self._records = list(compress(parent.records, mask.listed)) if self.count else []
            else:
                self._records = self._create()
        return self._records

    @property
    def has_records(self) -> bool:
        """True if there are records, and not only fields of them."""
        return not isinstance(self._origin, _Repeated)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.records[index]

    def field(self, name: Any) -> Vector:
        """Return a field of each record.

        Args:
            name: The name of the field; in tuples its index, named ones have both.

        Raises:
            Refused: a record has no such field.
        """
        found = self.find(name)
        # hot path: the kinds of an Arrow column, of times for example, may be found value by value.
        if found is None or (not isinstance(found, ArrowVector) and _MISSING in found.kinds):
            raise Refused
        return found

    def field_or(self, name: Any, default: Vector) -> Vector:
        """Return a field of each record, with values of ``default`` where it is missing."""
        found = self.find(name)
        if found is None:
            return default
        if _MISSING not in found.kinds:
            return found
        pairs = zip(found.items, default.each(), strict=True)
        return Vector(self.count, [other if item is MISSING else item for item, other in pairs])

    def find(self, name: Any) -> Vector | None:
        """Return a field of each record, ``MISSING`` where a record lacks it, or None.

        Raises:
            Refused: the field cannot be read from all records.
        """
        found: Vector | None = self._vectors.get(name)
        if found is not None:
            return found
        if self._origin is None:
            return self._at(name)
        try:
            found = self._origin.vector(name)
        except (AttributeError, KeyError, TypeError) as error:
            raise Refused from error
        if found is not None:
            self._vectors[name] = found
        return found

    def columns(self) -> list[Vector]:
        """Return the columns of the form's names."""
        form = self.form
        return [] if form is None else list(map(self.field, form.names))

    def rows(self) -> Iterable[Any]:
        """Return objects with the same JSON text as the records, for one iteration."""
        written = None if self._origin is None else self._origin.written()
        form = self.form
        if form is None:
            return self.records
        return form.written(self._values(form)) if written is None else written

    def take(self, mask: Mask) -> Frame:
        """Return the records of a mask."""
        vectors = {name: vector.take(mask) for name, vector in self._vectors.items()}
        origin = None if self._origin is None else self._origin.take(mask)
        found = Frame(mask.count, vectors, form=self._form, origin=origin)
        if origin is not None and not isinstance(origin, _Updated):
            # Records of several masks are created once.
            found._parent = self, mask
        return found

    def part(self, mask: Mask) -> Frame:
        """Return the records of a mask; they find the notes of this frame by ``above``."""
        found = self.take(mask)
        found.above = weakref.ref(self), mask
        return found

    def repeat(self, rows: Any, vectors: Mapping[Any, Vector]) -> Frame:
        """Return the fields of records at some indexes, and further vectors.

        The result is no sequence of records: it has only fields.
        """
        return Frame(len(rows), vectors, origin=_Repeated(self, rows))

    def update(self, vectors: Mapping[str, Vector]) -> Frame:
        """Return new dicts with the fields of these and others, which replace equal names.

        Args:
            vectors: The other fields, in order; the form of this frame is known.
        """
        assert self.form is not None
        form = RecordForm(dict, tuple(dict.fromkeys([*self.form.names, *vectors])))
        return Frame(self.count, vectors, form=form, origin=_Updated(self, tuple(vectors)))

    def copy(self) -> Frame | None:
        """Return a copy whose records may be changed, or None if objects are the records."""
        if isinstance(self._origin, FieldRows) and self._origin.make is None:
            return None
        return Frame(self.count, form=self._form, origin=_Copied(self))

    def _create(self) -> list[Any]:
        found = None if self._origin is None else self._origin.create()
        if found is not None:
            return found
        form = self.form
        return [] if form is None else form.made(self._values(form))

    def _values(self, form: RecordForm) -> Iterable[Any]:
        """Return the fields of each record in order, as a tuple, or the plain value."""
        origin = self._origin
        if isinstance(origin, _Updated):
            return origin.tuples([self._vectors[name] for name in origin.names])
        if isinstance(origin, FieldRows) and origin.values is not None:
            # hot path: 60 ns a record with six fields, as columns 290.
            return map(origin.values, origin.objects)
        columns: list[Iterable[Any]] = [vector.each() for vector in self.columns()]
        if form.kind is None:
            return columns[0]
        return zip(*columns, strict=True) if columns else repeat((), self.count)

    def _at(self, name: Any) -> Vector | None:
        """Return the field at an index of named tuples, or None."""
        form = self._form
        is_named = form is not None and form.kind is not None and issubclass(form.kind, tuple)
        if not is_named or type(name) is not int or form is None:
            return None
        return self._vectors.get(form.names[name]) if 0 <= name < len(form.names) else None


def _item_or_missing(name: str) -> Callable[[Any], Any]:
    return methodcaller("get", name, MISSING)


@dataclass(frozen=True, slots=True)
class _Copied:
    """The fields of a frame, for another consumer: mutable values are copied."""

    frame: Frame

    def form(self) -> RecordForm | None:
        return self.frame.form

    def vector(self, name: Any) -> Vector | None:
        found = self.frame.find(name)
        return None if found is None else separated_vector(found)

    def take(self, mask: Mask) -> _Copied:
        return _Copied(self.frame.take(mask))

    def written(self) -> Iterable[Any]:
        return self.frame.rows()

    def create(self) -> list[Any] | None:
        origin = self.frame._origin
        # Frames that are joined create records that share the values of their vectors.
        return None if origin is None or isinstance(origin, _Joined) else origin.create()


@dataclass(frozen=True, slots=True)
class _Joined:
    """The fields of several frames of one form, in order."""

    frames: Sequence[Frame]

    def form(self) -> RecordForm | None:
        return self.frames[0].form

    def vector(self, name: Any) -> Vector | None:
        several = [frame.find(name) for frame in self.frames]
        found = [vector for vector in several if vector is not None]
        return joined_vectors(found) if len(found) == len(several) else None

    def take(self, mask: Mask) -> _Joined:
        taken, first = [], 0
        for frame in self.frames:
            taken.append(frame.take(Mask(mask.array[first : first + frame.count])))
            first += frame.count
        return _Joined(taken)

    def written(self) -> Iterable[Any]:
        return chain.from_iterable(frame.rows() for frame in self.frames)

    def create(self) -> list[Any]:
        return list(chain.from_iterable(frame._create() for frame in self.frames))


@dataclass(frozen=True, slots=True)
class _Updated:
    """The fields of a frame of dicts, some of which a later frame replaces.

    So fields that no function reads stay in their objects.

    Args:
        frame: A frame with a form.
        names: The fields with new values, and new fields.
    """

    frame: Frame
    names: tuple[str, ...]

    def form(self) -> None:
        return None  # The later frame has its own.

    def vector(self, name: Any) -> Vector | None:
        return self.frame.find(name)

    def take(self, mask: Mask) -> _Updated:
        return _Updated(self.frame.take(mask), self.names)

    def written(self) -> None:
        return None

    def create(self) -> None:
        return None  # They are created from the form.

    def tuples(self, vectors: Sequence[Vector]) -> Iterable[tuple[Any, ...]]:
        """Return all fields of each record, in the order of the later frame's form.

        Args:
            vectors: The values of ``names``.
        """
        form = self.frame.form
        assert form is not None
        if not self.names:
            return self.frame._values(form)
        changed = zip(*(vector.each() for vector in vectors), strict=True)
        # A name has the index of its last value, at the place of its first.
        indexes = {name: index for index, name in enumerate([*form.names, *self.names])}
        if len(indexes) == 1:
            return changed
        whole = map(add, self.frame._values(form), changed)
        is_replaced = len(indexes) < len(form.names) + len(self.names)
        return map(itemgetter(*indexes.values()), whole) if is_replaced else whole


@dataclass(frozen=True, slots=True)
class _Repeated:
    """The fields of a frame at some indexes, which may repeat; there are no records."""

    frame: Frame
    rows: Any

    def form(self) -> None:
        return None

    def vector(self, name: Any) -> Vector | None:
        found = self.frame.find(name)
        return None if found is None else found.pick(self.rows)

    def take(self, mask: Mask) -> _Repeated:
        return _Repeated(self.frame, self.rows[mask.array])

    def written(self) -> None:
        return None

    def create(self) -> list[Any]:
        raise Refused


def joined(several: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the records of several sequences: in a frame if all have one form."""
    frames = [records for records in several if isinstance(records, Frame)]
    forms = {frame.form for frame in frames}
    if not frames or len(frames) < len(several) or len(forms) > 1 or None in forms:
        return list(chain.from_iterable(several))
    return Frame(sum(frame.count for frame in frames), origin=_Joined(frames))


def separated_vector(vector: Vector) -> Vector:
    """Return equal values, with mutable ones copied."""
    if isinstance(vector, TupleVector):
        return TupleVector(vector.count, list(map(separated_vector, vector.parts)))
    if isinstance(vector, ArrowVector):
        # hot path: the kinds of some columns, such as times, are known only by their values.
        return ArrowVector(vector.column)  # It creates values of its own.
    if all(map(is_frozen_type, vector.kinds)):
        return vector
    return Vector(vector.count, list(map(separate, vector.each())), kinds=vector.kinds)


# Of the fields of a frame that were not read yet.
_Origin = FieldRows | _Copied | _Joined | _Updated | _Repeated
