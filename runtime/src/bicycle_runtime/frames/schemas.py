"""Schemas: the names, types and nullability of the fields of records.

One table has all types of values, with their names in pipelines, SQL expressions and options of
sinks, and the types of Python, Arrow and numpy that hold them. All other lists of types are derived
from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from bicycle_runtime.frames.arrays import arrow
from bicycle_sdk.option_values import decimal_digits


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """A type of values.

    ``word`` is its name in pipelines, ``sql`` in SQL. ``python`` is the type of the values, or None
    if they have several types. ``arrow`` returns the Arrow type of a column, ``arrows`` are
    the names of all Arrow types with values of ``python``, and ``array`` is the numpy type of a
    column without nulls. With ``in_fields`` a pipeline can declare fields of the type, whose values
    need no conversion if they have one of the types in ``takes`` (None: any type). With
    ``in_columns`` a sink can declare columns of it.
    """

    word: str
    python: type | None
    arrow: Callable[[Any], Any]
    arrows: tuple[str, ...] = ()
    array: str | None = None
    sql: str = ""
    takes: frozenset[type] | None = None
    in_fields: bool = False
    in_columns: bool = True

    @property
    def column_word(self) -> str:
        """The name in options of sinks: the name of the Python type."""
        return self.word if self.python is None else self.python.__name__.lower()


def _plain(word: str, python: type, sql: str, *arrows: str, array: str | None = None) -> ValueType:
    """Return a type of which Python, Arrow and JSON have values."""
    return ValueType(
        word=word, python=python, sql=sql, arrow=lambda pa: pa.type_for_alias(arrows[0]),
        arrows=arrows, array=array, takes=frozenset({python}), in_fields=True,
    )  # fmt: skip


_INTS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
VALUE_TYPES: tuple[ValueType, ...] = (
    _plain("string", str, "VARCHAR", "string", "large_string"),
    _plain("int", int, "BIGINT", "int64", *_INTS, array="int64"),
    _plain("float", float, "DOUBLE", "double", "float", array="float64"),
    _plain("bool", bool, "BOOLEAN", "bool", array="bool"),
    ValueType(
        word="bytes", python=bytes, arrow=lambda pa: pa.binary(), sql="BLOB",
        arrows=("binary", "large_binary"),
    ),
    ValueType(word="datetime", python=datetime, arrow=lambda pa: pa.timestamp("us", "UTC")),
    ValueType(
        word="date", python=date, arrow=lambda pa: pa.date32(), arrows=("date32[day]",), sql="DATE"
    ),
    ValueType(word="time", python=time, arrow=lambda pa: pa.time64("us"), arrows=("time64[us]",)),
    ValueType(
        word="duration", python=timedelta, arrow=lambda pa: pa.duration("us"),
        arrows=("duration[us]",), in_columns=False,
    ),
    # A conversion checks the digits of each value.
    ValueType(
        word="decimal", python=Decimal, arrow=lambda pa: pa.decimal128(38, 9), takes=frozenset(),
        in_fields=True,
    ),
    # A time as events have it: RFC 3339 text, or ms since 1970.
    ValueType(
        word="timestamp", python=None, arrow=lambda pa: pa.timestamp("ms", "UTC"), sql="TIMESTAMP",
        takes=frozenset({str, int, float, datetime}), in_fields=True, in_columns=False,
    ),
    ValueType(word="json", python=None, arrow=lambda pa: pa.string(), sql="JSON", in_fields=True),
)  # fmt: skip
_BY_WORD: Mapping[str, ValueType] = {
    **{found.column_word: found for found in VALUE_TYPES},
    **{found.word: found for found in VALUE_TYPES},
}
# The Python type of the values of an Arrow column, by the name of its type.
ARROW_KINDS: Mapping[str, type] = {
    name: found.python for found in VALUE_TYPES if found.python for name in found.arrows
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of records: its name, its Arrow type, and whether it may be null."""

    name: str
    type: Any
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of records, in order.

    Example:
        >>> schema = Schema.of_words({"user": "string", "cents": "int?", "price": "decimal(12,2)"})
        >>> [(field.name, str(field.type), field.is_nullable) for field in schema]
        [('user', 'string', False), ('cents', 'int64', True), ('price', 'decimal128(12, 2)', False)]
    """

    fields: tuple[Field, ...]

    @classmethod
    def of_words(cls, words: Mapping[str, str]) -> Schema:
        """Return the schema of fields by their words; ``int?`` may be null.

        Raises:
            ValueError: a word is no type.
        """
        found = [
            Field(name=name, type=_require_type(word), is_nullable=word.endswith("?"))
            for name, word in words.items()
        ]
        return cls(tuple(found))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)


@cache
def arrow_type(word: str) -> Any:
    """Return the Arrow type of a word, as ``decimal(12,2)``, or None."""
    plain = word.removesuffix("?")
    if digits := decimal_digits(plain):
        return arrow().decimal128(*digits)
    found = _BY_WORD.get(plain)
    return None if found is None else found.arrow(arrow())


def _require_type(word: str) -> Any:
    found = arrow_type(word)
    if found is None:
        words = ", ".join(found.word for found in VALUE_TYPES)
        raise ValueError(f"{word!r} is not a type of fields; the types are {words}")
    return found
