"""Rows: plain objects with a record's fields, faster to create than the record.

Rows replace records where code only reads fields. So a row must have the same values as the
attributes of the record. A type whose attributes could differ from its fields has no rows.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DataclassType,
    Field,
    FloatType,
    IntType,
    StrType,
    StructType,
    TypedDictType,
    UnionType,
)

_KINDS: tuple[tuple[type, type], ...] = ((IntType, int), (FloatType, float), (StrType, str))


def row_type_of(record_type: Any) -> type[msgspec.Struct] | None:
    """Return a type whose objects are decoded and checked as records of a type are.

    Args:
        record_type: Any type; dataclasses and ``msgspec.Struct`` without code of their own that
            runs when a record is made or a field is looked up have rows, others give None.

    Example:
        >>> @dataclasses.dataclass
        ... class Reading:
        ...     sensor: str
        ...     value: int = 0
        >>> msgspec.json.decode(b'{"sensor": "a"}', type=row_type_of(Reading)).value
        0
    """
    fields, declared = _fields(record_type), field_types(record_type)
    if not fields:
        return None
    parts = [(field.name, declared[field.name], _default(field)) for field in fields]
    # Decoded objects form no cycles, so the collector need not follow them.
    return msgspec.defstruct("Row", parts, kw_only=True, gc=False)


def plain_fields(record_type: Any) -> Mapping[str, type]:
    """Return the fields whose values are all ints, floats or strings, perhaps empty.

    Example:
        >>> @dataclasses.dataclass
        ... class Reading:
        ...     sensor: str
        ...     value: int
        ...     notes: list[str]
        >>> plain_fields(Reading)
        {'sensor': <class 'str'>, 'value': <class 'int'>}
    """
    return {
        field.name: plain
        for field in _fields(record_type)
        for kind, plain in _KINDS
        if type(field.type) is kind
        and (field.required or type(field.default) is plain)
        and _keeps_names((field,))
    }


def other_fields(record_type: Any) -> frozenset[str]:
    """Return the fields that hold no ints, floats, bools or strings."""
    return frozenset(field.name for field in _fields(record_type) if not _may_be_plain(field.type))


def _may_be_plain(declared: Any) -> bool:
    if isinstance(declared, UnionType):
        return any(map(_may_be_plain, declared.types))
    return isinstance(declared, AnyType | BoolType | FloatType | IntType | StrType)


def field_names(record_type: Any) -> frozenset[str] | None:
    """Return the field names of a type with rows or a ``TypedDict``, or None."""
    fields = _fields(record_type)
    return frozenset(field.name for field in fields) if fields else None


def field_types(record_type: Any) -> dict[str, Any]:
    """Return the declared type of each field of a type with rows, else an empty dict."""
    fields = _fields(record_type)
    hints = typing.get_type_hints(record_type, include_extras=True) if fields else {}
    return {field.name: _without_mark(hints[field.name]) for field in fields}


def is_mapping(record_type: Any) -> bool:
    """Return whether records of a type are dicts, or would be if they had fields.

    Example:
        >>> is_mapping(None), is_mapping(dict[str, int]), is_mapping(str)
        (True, True, False)
    """
    found = typing.get_origin(record_type) or record_type
    return record_type in (None, Any) or found is dict or typing.is_typeddict(record_type)


def is_open_mapping(record_type: Any) -> bool:
    """Return whether any document is a valid record, with any fields and values."""
    return record_type in (None, Any, dict, dict[str, Any])


class OpenRows:
    """A decoder of JSON objects to rows, whose fields are taken from one document.

    A row is quicker to make than a dict. Documents with another field, or without any, have none:
    so what is good and what is bad is the same as for dicts.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], OpenRow] = {}

    def like(self, document: bytes) -> OpenRow | None:
        """Return the rows for documents with the fields of one, or None.

        That is so when it has no such fields, or when documents like it were not in one order.
        """
        try:
            first = msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not isinstance(first, dict) or not 0 < len(first) <= _OPEN_FIELDS_MAX:
            return None
        names = tuple(first)
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= _OPEN_TYPES_MAX:
                return None
            try:
                found = self._known[names] = OpenRow(first)
            except ValueError:  # a name that needs an escape
                return None
        return None if found.is_needless else found


class OpenRow:
    """Rows with the fields of a document, first with its value types, then with any.

    Args:
        document: One that has these fields.

    With ``is_needless`` somebody asked for the documents themselves, so that they are decoded
    twice.

    Raises:
        ValueError: a name needs an escape in JSON.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        attributes = {name: f"f{number}" for number, name in enumerate(document)}
        by_attribute = {attribute: name for name, attribute in attributes.items()}
        kinds = {name: type(value) for name, value in document.items() if type(value) in _ALONE}

        def decoder(kinds: Mapping[str, type], *default: Any) -> msgspec.json.Decoder[Any]:
            parts: list[Any] = [
                (attribute, kinds.get(name, Any), *default)
                for attribute, name in by_attribute.items()
            ]
            return msgspec.json.Decoder(
                msgspec.defstruct(
                    "Row", parts, rename=by_attribute, forbid_unknown_fields=True, gc=False
                )
            )

        self._names, self._attributes, self._kinds = tuple(document), attributes, kinds
        self._decoders = decoder(kinds), decoder({}), decoder({}, msgspec.UNSET)
        self._first = 0  # of the decoders that are tried
        self.is_needless = False

    def decode(self, decode: Callable[[msgspec.json.Decoder[Any]], list[Any]]) -> list[Any]:
        """Return rows, with fewer assumptions once a value was missing or of another type.

        Args:
            decode: Decodes documents by a decoder.

        Raises:
            msgspec.DecodeError: a document is none, has other fields, or is no object.
        """
        *others, last = range(self._first, len(self._decoders))
        for number in others:
            try:
                rows = decode(self._decoders[number])
            except msgspec.ValidationError:
                continue
            self._first = number
            return rows
        rows = decode(self._decoders[last])
        self._first = last
        return rows

    def kinds(self, rows: Sequence[Any]) -> Mapping[str, type]:
        """Return the types of fields that are equal in all rows, as far as known.

        hot path: 17 ns a value are spared, and checking it while it is decoded costs 2.
        """
        return self._kinds if rows and type(rows[0]) is self._decoders[0].type else {}

    def getter(self, name: str) -> Callable[[Any], Any]:
        """Return a function that reads a field of a row."""
        attribute = self._attributes.get(name)
        return (lambda _: msgspec.UNSET) if attribute is None else attrgetter(attribute)

    def names_in(self, rows: Sequence[Any], documents: bytes) -> tuple[str, ...] | None:
        """Return the fields of all documents, in order; None if documents differ.

        hot path: 0.15 us a document with three fields; to make a dict of it takes 0.4, and to write
        that one 0.25.

        Args:
            rows: The rows of the documents.
            documents: The documents, one per line.
        """
        is_whole = bool(rows) and type(rows[0]) is not self._decoders[-1].type
        # Text that is the same but for spaces has its fields in the same order, unless a name has
        # spaces itself.
        if is_whole and all(name.split() == [name] for name in self._names):
            written, given = _to_lines(rows), documents
            if not given.endswith(b"\n"):
                given += b"\n"
            if written == given or _without_spaces(written) == _without_spaces(given):
                return self._names
        self.is_needless = True
        return None


_to_lines = msgspec.json.Encoder().encode_lines


def _without_spaces(documents: bytes) -> bytes:
    return documents.translate(None, b" \t\r")


_OPEN_FIELDS_MAX, _OPEN_TYPES_MAX = 64, 32
_ALONE = frozenset({int, str, bool})  # A decoder of floats takes ints, too.


def _fields(record_type: Any) -> tuple[Field, ...]:
    if typing.is_typeddict(record_type):
        return _fields_of(record_type)
    if not isinstance(record_type, type) or not is_plain(record_type):
        return ()
    return _fields_of(record_type)


def _fields_of(record_type: Any) -> tuple[Field, ...]:
    try:
        return _read_fields(record_type)
    except (NameError, TypeError):  # a name that only its own module can resolve
        return ()


@lru_cache(maxsize=64)
def _read_fields(record_type: Any) -> tuple[Field, ...]:
    typing.get_type_hints(record_type)
    info = msgspec.inspect.type_info(record_type)
    if isinstance(info, StructType):
        is_told = info.tag is None and not info.array_like and not info.forbid_unknown_fields
        return info.fields if is_told and _keeps_names(info.fields) else ()
    return info.fields if isinstance(info, DataclassType | TypedDictType) else ()


def is_plain(record_type: type) -> bool:
    """Return whether creating a record or reading a field runs no code of the type."""
    if hasattr(record_type, "__post_init__"):
        return False
    if vars(object)["__getattribute__"] is not inspect.getattr_static(
        record_type, "__getattribute__"
    ):
        return False
    if not dataclasses.is_dataclass(record_type):
        return issubclass(record_type, msgspec.Struct)
    fields = dataclasses.fields(record_type)
    return all(field.init and not _is_computed(record_type, field.name) for field in fields)


def _is_computed(record_type: type, name: str) -> bool:
    found = inspect.getattr_static(record_type, name, None)
    return hasattr(found, "__get__") and not isinstance(found, types.MemberDescriptorType)


def _keeps_names(fields: tuple[Field, ...]) -> bool:
    return all(field.encode_name == field.name for field in fields)


def _without_mark(hint: Any) -> Any:
    """Return the type of a field without the word that a dict need not have it."""
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        return typing.get_args(hint)[0]
    return hint


def _default(field: Field) -> Any:
    if not field.required and field.default is field.default_factory is msgspec.NODEFAULT:
        return msgspec.UNSET  # an optional field of a TypedDict
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)
