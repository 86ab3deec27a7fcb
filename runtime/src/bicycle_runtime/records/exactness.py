"""Values of a declared type that MessagePack keeps exactly, in value and type.

A type is examined once, when its codec is created. The resulting *fit* checks in each value only
the properties that the type does not determine: a subclass, an int where a float is declared, the
zone of a time, the content of ``Any``. A type whose values cannot be checked in this way, such as a
class whose ``__post_init__`` would run again, has no exact values.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as declared_types

PLAIN: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
Check = Callable[[Sequence[Any]], bool]
Made = TypeVar("Made")

_HEAP_TYPE = 1 << 9  # of ``__flags__``: made by a class statement
_SCALARS: dict[type[declared_types.Type], type] = {
    declared_types.NoneType: type(None),
    declared_types.BoolType: bool,
    declared_types.IntType: int,
    declared_types.FloatType: float,
    declared_types.StrType: str,
    declared_types.BytesType: bytes,
    declared_types.ByteArrayType: bytearray,
    declared_types.DateType: datetime.date,
    declared_types.TimeDeltaType: datetime.timedelta,
    declared_types.DecimalType: Decimal,
}
_CONTAINERS: dict[type[declared_types.Type], type] = {
    declared_types.ListType: list,
    declared_types.CollectionType: list,
    declared_types.VarTupleType: tuple,
    declared_types.SetType: set,
    declared_types.FrozenSetType: frozenset,
}
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_OWN = attrgetter("__dict__")
_UNFIT = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """The values of one type, or part of a type, that are kept exactly.

    Args:
        types: The classes that such values have; of no other class is any kept, subclasses or not.
        check: What must hold of values of these classes beside; None when nothing must.
        is_never: Whether no value is kept, or only those in which some container is empty.
        is_partial: Whether more values may be kept, of which only reading back would tell.
    """

    types: frozenset[type]
    check: Check | None = None
    is_never: bool = False
    is_partial: bool = False

    def holds(self, values: Sequence[Any]) -> bool:
        """Return whether all of the values are kept exactly."""
        try:
            return self.fits(values)
        except _UNFIT:  # An attribute or key is missing, or values contain each other without end.
            return False

    def fits(self, values: Sequence[Any]) -> bool:
        """Return whether all of the values are kept exactly.

        Raise an error for a malformed object.
        """
        if not values:
            return True
        if len(self.types) == 1:
            # hot path: 6 ns a value instead of 12 for a set.
            (only,) = self.types
            if [*map(type, values)].count(only) != len(values):
                return False
        elif not self.types.issuperset(map(type, values)):
            return False
        return self.check is None or self.check(values)

    def fits_within(self, containers: Iterable[Iterable[Any]]) -> bool:
        """Return whether all values in containers are kept exactly."""
        if self.check is not None:
            return self.fits([*chain.from_iterable(containers)])
        # hot path: a quarter less than with a list of the values before that of their types.
        found = [*map(type, chain.from_iterable(containers))]
        if len(self.types) == 1:
            (only,) = self.types
            return found.count(only) == len(found)
        return self.types.issuperset(found)


_NEVER = Fit(frozenset(), is_never=True, is_partial=True)
_TYPES_MAX = 256


def once_a_type(unknown: Any) -> Callable[[Callable[[Any], Made]], Callable[[Any], Made]]:
    """Cache the results for declared types, for as many types as a job has.

    An epoch makes some codecs for each part of state, and looking through a type takes 0.2 ms.

    Args:
        unknown: What follows from a type that names what is not defined yet: it is not remembered.
    """

    def decorated(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
        remembered = functools.lru_cache(_TYPES_MAX)(make)

        @functools.wraps(make)
        def made(declared: Any) -> Made:
            try:
                return remembered(declared) if _has_hash(declared) else make(declared)
            except NameError:
                answer: Made = unknown
                return answer

        return made

    return decorated


def _has_hash(declared: Any) -> bool:
    try:
        hash(declared)
    except TypeError:  # As of an annotation that holds a list.
        return False
    return True


@once_a_type(_NEVER)
def fit_of(declared: Any) -> Fit | None:
    """Return the values of an msgspec type that are kept exactly.

    None if values must not be decoded by the type at all, because one of its classes derives from a
    built-in class such as ``Exception`` or ``dict``: decoded objects would be incomplete, and using
    them can crash the interpreter.

    Example:
        >>> fit = fit_of(tuple[str, float])
        >>> fit.holds([("a", 1.0)]), fit.holds([("a", 1)]), fit.holds([["a", 1.0]])
        (True, False, False)
    """
    try:
        fits = _Fits()
        fit = dataclasses.replace(
            fits.of(declared_types.type_info(declared)), is_partial=fits.is_partial
        )
        return fit if all(map(_is_whole, fits.classes())) else None
    except (TypeError, RuntimeError):
        return _NEVER


class _Fits:
    """A builder of the fit of a type, with a cache for recursive records."""

    def __init__(self) -> None:
        self._records: dict[Any, Fit | None] = {}
        self.is_partial = False  # of any part so far

    def classes(self) -> list[type]:
        """Return the classes of the records that were found."""
        return [_class_of(declared) for declared in self._records]

    def of(self, info: Any) -> Fit:
        """Return the fit of a type."""
        fit = self._of(info)
        self.is_partial |= fit.is_partial
        return fit

    def _of(self, info: Any) -> Fit:  # noqa: PLR0911  # one return for each kind of type
        if any(getattr(info, bound, None) is not None for bound in _BOUNDS):
            return _NEVER  # Only the decoder can check the bounds of a value.
        kind: type[declared_types.Type] = type(info)
        if kind in _SCALARS:
            return Fit(frozenset({_SCALARS[kind]}))
        if kind in _CONTAINERS:
            return _all_of(_CONTAINERS[kind], self.of(info.item_type))
        match info:
            case declared_types.Metadata():
                return self.of(info.type)
            case declared_types.UnionType():
                return _any_of([self.of(each) for each in info.types])
            case declared_types.TupleType():
                parts = [self.of(each) for each in info.item_types]
                return _record(tuple, parts, _tuple_check(parts))
            case declared_types.DictType():
                return _dict_of(self.of(info.key_type), self.of(info.value_type))
            case declared_types.EnumType():
                return _enum(info.cls)
            case declared_types.LiteralType():
                return _literal(info.values)
            case declared_types.CustomType():
                return _ANY if info.cls is object else _NEVER
            case _ if kind in _RECORDS:
                return self._record_of(info)
            case _:
                return _SPECIAL.get(kind, _NEVER)

    def _record_of(self, info: Any) -> Fit:
        if info.cls in self._records:
            return self._records[info.cls] or self._again(info.cls)
        self._records[info.cls] = None
        fields = {field.name: self.of(field.type) for field in info.fields}
        fit = self._records[info.cls] = _RECORDS[type(info)](info, fields)
        return fit

    def _again(self, declared: Any) -> Fit:
        """Return the fit of a record within itself."""

        def check(values: Sequence[Any]) -> bool:
            fit = self._records[declared]
            # Each only once: a value that contains itself twice would double at each level.
            return fit is not None and fit.fits([*{id(value): value for value in values}.values()])

        return Fit(frozenset({_class_of(declared)}), check)


def _any_of(members: Sequence[Fit]) -> Fit:
    types_ = frozenset(chain.from_iterable(member.types for member in members))
    checked = [member for member in members if member.check is not None]

    def check(values: Sequence[Any]) -> bool:
        return all(
            member.fits([value for value in values if type(value) in member.types])
            for member in checked
        )

    is_never = all(member.is_never for member in members)
    return Fit(types_, check if checked else None, is_never=is_never)


def _all_of(container: type, item: Fit) -> Fit:
    return Fit(
        frozenset({container}),
        item.fits_within,
        is_never=item.is_never,
    )


def _dict_of(key: Fit, value: Fit) -> Fit:
    return Fit(
        frozenset({dict}),
        lambda values: key.fits_within(values) and value.fits_within(map(dict.values, values)),
        is_never=key.is_never or value.is_never,
    )


def _enum(cls: type[enum.Enum]) -> Fit:
    if not issubclass(cls, enum.Flag):
        return Fit(frozenset({cls}))
    # Several flags at once are no member that every decoder finds.
    members = {id(member) for member in cls}
    return Fit(
        frozenset({cls}), lambda values: members.issuperset(map(id, values)), is_partial=True
    )


def _literal(members: Collection[Any]) -> Fit:
    known = frozenset(members)
    return Fit(frozenset(map(type, members)), known.issuperset)


def _is_data(values: Iterable[Any]) -> bool:
    """Return whether values are data that MessagePack keeps without a declared type."""
    seen: dict[int, Any] = {}
    while True:
        inner = [value for value in values if type(value) not in PLAIN]
        if not inner:
            return True
        if not {list, dict}.issuperset(map(type, inner)):
            return False
        fresh = {id(value): value for value in inner if id(value) not in seen}
        seen |= fresh
        dicts = [value for value in fresh.values() if type(value) is dict]
        if not PLAIN.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        lists = (value for value in fresh.values() if type(value) is list)
        values = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]


def _is_kept_time(value: Any) -> bool:
    """Return whether a time is in UTC or without a zone, and not in a repeated hour."""
    return not value.fold and (value.tzinfo is None or value.tzinfo is datetime.UTC)


_ANY = Fit(PLAIN | {list, dict}, _is_data)
_SPECIAL: dict[type[declared_types.Type], Fit] = {
    declared_types.AnyType: _ANY,
    declared_types.MemoryViewType: Fit(
        frozenset({memoryview}),
        lambda values: all(value.format == "B" and value.ndim == 1 for value in values),
    ),
    declared_types.DateTimeType: Fit(
        frozenset({datetime.datetime}), lambda values: all(map(_is_kept_time, values))
    ),
    declared_types.TimeType: Fit(
        frozenset({datetime.time}), lambda values: all(map(_is_kept_time, values)), is_partial=True
    ),
    declared_types.UUIDType: Fit(
        frozenset({uuid.UUID}),
        lambda values: all(value.is_safe is uuid.SafeUUID.unknown for value in values),
    ),
}


def _record(cls: type, parts: Collection[Fit], check: Check) -> Fit:
    if not all(part.types for part in parts):
        return _NEVER
    return Fit(frozenset({cls}), check, is_never=any(part.is_never for part in parts))


def _tuple_check(parts: Sequence[Fit]) -> Check:
    names = [f"part_{index}" for index in range(len(parts))]
    return _looking_at(dict(zip(names, parts, strict=True)), each=f"[{', '.join(names)}]")


def _looking_at(
    parts: Mapping[str, Fit],
    *,
    each: str = "value",
    first: Sequence[str] = (),
    names: Iterable[str] = (),
) -> Check:
    """Make a check that looks at each part of each value in one pass.

    Args:
        parts: The fit of each part, by the expression that gives it.
        each: What the loop calls a value, or its parts.
        first: Statements for each value, before its parts are looked at.
        names: What is called ``names`` in them.
    """
    # hot path: 15 ns a part; without code made for the type it is 60.
    known: dict[str, Any] = {"names": frozenset(names)}
    before, loop, behind = [], [*first], []
    for index, (part, fit) in enumerate(parts.items()):
        if fit.check is None:
            known[f"types_{index}"], test = (
                (next(iter(fit.types)), "is not") if len(fit.types) == 1 else (fit.types, "not in")
            )
            loop.append(f"if type({part}) {test} types_{index}: return False")
        else:
            known[f"fits_{index}"] = fit.fits
            before.append(f"column_{index} = []")
            loop.append(f"column_{index}.append({part})")
            behind.append(f"fits_{index}(column_{index})")
    body = [*before, f"for {each} in values:", *(f"    {line}" for line in loop or ["pass"])]
    lines = ["def check(values):", *body, f"return {' and '.join(behind) or 'True'}"]
    exec("\n    ".join(lines), known)  # made of names of fields alone
    made: Check = known["check"]
    return made


def _dataclass(info: declared_types.DataclassType, fields: Mapping[str, Fit]) -> Fit:
    cls = _class_of(info.cls)
    if not hasattr(cls, "__dataclass_fields__") or not _is_only_fields(cls, fields):
        return _NEVER  # One of attrs, or one with code.
    if fields.keys() != {field.name for field in dataclasses.fields(cls)}:
        return _NEVER
    slots = _slots_of(cls)
    if not slots <= fields.keys():
        return _NEVER
    own_count = len(fields.keys() - slots) if cls.__dictoffset__ else None
    return _record(cls, fields.values(), _attribute_check(fields, own_count=own_count))


def _struct(info: declared_types.StructType, fields: Mapping[str, Fit]) -> Fit:
    cls = _class_of(info.cls)
    if not _is_only_fields(cls, fields):
        return _NEVER
    own_count = 0 if cls.__dictoffset__ else None
    return _record(cls, fields.values(), _attribute_check(fields, own_count=own_count))


def _named_tuple(info: declared_types.NamedTupleType, fields: Mapping[str, Fit]) -> Fit:
    cls = _class_of(info.cls)
    root = next(base for base in cls.__mro__ if "_fields" in vars(base))
    has_own_code = cls.__new__ is not root.__new__ or cls.__iter__ is not tuple.__iter__
    if cls.__dictoffset__ or has_own_code or cls._fields != tuple(fields):
        return _NEVER
    return _record(cls, fields.values(), _tuple_check(list(fields.values())))


def _typed_dict(info: declared_types.TypedDictType, fields: Mapping[str, Fit]) -> Fit:
    required = {field.name for field in info.fields if field.required}
    optional = [name for name in fields if name not in required]
    first = [f"if len(value) != {len(fields)}: return False"]
    if optional:
        first = ["if not names.issuperset(value): return False"]
    parts = {f"value[{name!r}]": fields[name] for name in fields if name in required}
    present = _looking_at(parts, first=first, names=fields)

    def check(values: Sequence[Any]) -> bool:
        return present(values) and all(
            fields[name].fits([value[name] for value in values if name in value])
            for name in optional
        )

    return _record(dict, [fields[name] for name in required], check)


_RECORDS: dict[type[declared_types.Type], Callable[[Any, Mapping[str, Fit]], Fit]] = {
    declared_types.DataclassType: _dataclass,
    declared_types.StructType: _struct,
    declared_types.NamedTupleType: _named_tuple,
    declared_types.TypedDictType: _typed_dict,
}


def _attribute_check(fields: Mapping[str, Fit], *, own_count: int | None) -> Check:
    """Return a check of fields that are attributes.

    Args:
        fields: Their fits.
        own_count: How many attributes an object has beside those in slots; None when it has no
            place for any.
    """
    look = _looking_at({f"value.{name}": fit for name, fit in fields.items()})
    if own_count is None:
        return look
    # hot path: after the fields, which are slower to read once an object has made its dict.
    return lambda values: (
        look(values) and [*map(len, map(_OWN, values))].count(own_count) == len(values)
    )


def _class_of(declared: Any) -> Any:
    return typing.get_origin(declared) or declared


def _is_only_fields(cls: type, names: Iterable[str]) -> bool:
    """Return whether an object consists of its fields, without code on access."""
    if hasattr(cls, "__post_init__"):
        return False
    getter = inspect.getattr_static(cls, "__getattribute__")
    if getter is not vars(object)["__getattribute__"]:
        return False
    found = (inspect.getattr_static(cls, name, None) for name in names)
    return not any(
        hasattr(each, "__set__") and not isinstance(each, types.MemberDescriptorType)
        for each in found
    )


def _is_whole(cls: type) -> bool:
    """Return whether an object of a class is only its fields to the interpreter."""
    known = (tuple, dict) if typing.is_typeddict(cls) or hasattr(cls, "_fields") else ()
    known = (*known, typing.Generic, *msgspec.Struct.__mro__)
    return all(base in known or base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _slots_of(cls: type) -> set[str]:
    slots: set[str] = set()
    for base in cls.__mro__:
        named = vars(base).get("__slots__", ())
        slots |= {named} if isinstance(named, str) else {*named}
    return slots - {"__dict__", "__weakref__"}
