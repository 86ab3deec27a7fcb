"""Columns of record types, and records of rows, for streams as tables.

Columns follow from annotations, in both directions by the same rule. Workers import this module;
it imports no parser.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from types import GenericAlias, NoneType, UnionType
from typing import Any

from bicycle_runtime.expressions.calls import is_plain_dataclass
from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_runtime.expressions.sql import types as sql_types
from bicycle_runtime.expressions.sql.types import SqlType, implicit_distance
from bicycle_runtime.frames.schemas import VALUE_TYPES
from bicycle_sdk.expressions import Expression, col
from bicycle_sdk.record_types import annotations_of, type_name

_DECIMAL = "DECIMAL(38,9)"
WORDS: Mapping[Any, SqlType] = {
    **{found.python: found.sql for found in VALUE_TYPES if found.python not in (None, bytes)},
    **{Decimal: _DECIMAL, datetime: "TIMESTAMP", time: "TIME"},
}
_PYTHON = {**{word: kind for kind, word in WORDS.items()}, "JSON": str, "BLOB": bytes}
_TYPES = "str, int, float, bool, Decimal, datetime, date, time, dict, and lists of these"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumn:
    """A column of a record type; ``is_optional`` if records can be created without it."""

    name: str
    type: SqlType
    is_nullable: bool
    is_optional: bool = False


def record_columns(kind: Any) -> list[RecordColumn]:
    """Return the columns of a dataclass, a NamedTuple or a TypedDict.

    Raises:
        ValueError: it is another type, or the type of a field cannot be a column.
    """
    origin: Any = typing.get_origin(kind) or kind
    is_typed_dict = typing.is_typeddict(origin)
    is_named_tuple = isinstance(origin, type) and issubclass(origin, tuple)
    if dataclasses.is_dataclass(origin):
        names = {f.name: f.default is not f.default_factory for f in dataclasses.fields(origin)}
    elif is_typed_dict:
        names = {name: name in origin.__optional_keys__ for name in origin.__annotations__}
    elif is_named_tuple and hasattr(origin, "_fields"):
        names = {name: name in origin._field_defaults for name in origin._fields}
    else:
        shown = "an unknown type" if kind is None else type_name(kind)
        raise ValueError(f"{shown} has no columns; expected a dataclass, NamedTuple or TypedDict")
    hints = annotations_of(kind, include_extras=True)
    found = []
    for name, is_optional in names.items():
        try:
            word, is_nullable = type_of_hint(hints[name])
        except ValueError as error:
            raise ValueError(f"field {name}: {error}") from error
        is_missing = is_typed_dict and is_optional
        found.append(
            RecordColumn(
                name=name, type=word, is_nullable=is_nullable or is_missing, is_optional=is_optional
            )
        )
    return found


def type_of_hint(hint: Any, words: Mapping[Any, SqlType] = WORDS) -> tuple[SqlType, bool]:
    """Return the type of the values of an annotation, and whether None is one of them.

    Args:
        hint: The annotation.
        words: The types of plain annotations.

    Raises:
        ValueError: it has none.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inner, texts = getattr(hint, "__supertype__", None), list[str]()  # Of a NewType.
    if origin is typing.Annotated:
        texts = [each for each in arguments[1:] if isinstance(each, str)]
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        inner = arguments[0]
    elif origin is typing.Literal and len({type(each) for each in arguments}) == 1:
        inner = type(arguments[0])
    if texts:
        return sql_types.type_named(texts[0]), NoneType in typing.get_args(inner)
    if inner is not None:
        return type_of_hint(inner, words)
    rest = [each for each in arguments if each is not NoneType]
    if origin in (typing.Union, UnionType) and len(rest) == 1:
        return type_of_hint(rest[0], words)[0], True
    word = words.get(hint, "") if isinstance(hint, type) else ""
    if origin is list:
        word = f"{type_of_hint(arguments[0], words)[0]}[]"
    elif (origin or hint) is dict or typing.is_typeddict(hint):
        word = "JSON"
    if not word:
        raise ValueError(f"{type_name(hint)} is not the type of a column; expected {_TYPES}")
    return word, hint is Any


def python_type(word: SqlType) -> Any:
    """Return the type of the values of a column in rows; JSON values are texts there."""
    if word.endswith("[]"):
        return GenericAlias(list, (python_type(word[:-2]) | None,))
    return Decimal if word.startswith("DECIMAL(") else _PYTHON.get(word, NoneType)


def differences(
    fields: Sequence[RecordColumn], columns: Mapping[str, SqlType], nullable: frozenset[str]
) -> list[str]:
    """Return the differences between fields of records and columns of a table.

    Args:
        fields: The fields.
        columns: The types of the columns.
        nullable: The columns that may be NULL.
    """
    found = []
    for field in fields:
        name, word = field.name, columns.get(field.name)
        if word is None:
            if not field.is_optional:
                found.append(f"field {name} has no column")
        elif _fit(word, field.type) is None:
            found.append(f"column {name} is {word}, the field is {field.type}")
        elif name in nullable and not field.is_nullable:
            found.append(
                f"column {name} may be NULL, the field may not be None; use coalesce or WHERE "
                f"{name} IS NOT NULL, or annotate the field with | None"
            )
    names = {field.name for field in fields}
    return [*found, *(f"column {name} is not a field" for name in columns if name not in names)]


def _fit(word: SqlType, wanted: SqlType) -> int | None:
    """Return the distance of a column's type from a field's; None if it does not fit."""
    if wanted == _DECIMAL and word.startswith("DECIMAL("):
        return 0  # Python has one type for all digits.
    return implicit_distance(word, wanted)


def record_type(word: SqlType, wanted: SqlType) -> SqlType:
    """Return the type of the values that a field gets from a column."""
    return word if wanted == _DECIMAL and word.startswith("DECIMAL(") else wanted


class TypedRecords:
    """Records of a type from rows, whose fields are the fields of the type."""

    def __init__(self, kind: Any, names: Sequence[str]) -> None:
        self.kind, self.names = kind, tuple(names)

    def __call__(self, row: Any) -> Any:
        return self.kind(**{name: row[name] for name in self.names})


class PlainRecords(TypedRecords, HasExpression):
    """Records of a plain dataclass, which are made of columns."""

    def expression(self) -> Expression:
        return Expression("make", self.kind, self.names, *map(col, self.names))


def records_of(kind: Any, names: Sequence[str]) -> TypedRecords:
    """Return the function that makes records of rows."""
    return (PlainRecords if is_plain_dataclass(kind) else TypedRecords)(kind, names)
