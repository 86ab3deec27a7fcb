"""The types of SQL expressions, as words, and the conversions that need no CAST.

A type is a word: ``BIGINT``, ``DECIMAL(18,2)``, ``VARCHAR[]`` for an array. Ints have 64 bits and
floats are doubles; timestamps are milliseconds since 1970 in UTC. JSON values are JSON text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow

from bicycle_runtime.expressions.sql import functions
from bicycle_runtime.frames.schemas import VALUE_TYPES

SqlType = str
DECIMAL_DIGITS_MAX = functions.DECIMAL_DIGITS_MAX
decimal_digits, decimal_type = functions.decimal_digits, functions.decimal_type

_ARROW: Mapping[SqlType, Any] = {
    **{found.sql: found.arrow(pyarrow) for found in VALUE_TYPES if found.sql},
    "NULL": pyarrow.null(),
    "TIME": pyarrow.time32("ms"),
    "INTERVAL": pyarrow.month_day_nano_interval(),
}
# Further names of types in SQL texts.
_NAMES: Mapping[str, SqlType] = {
    **dict.fromkeys(("INT", "INTEGER", "SMALLINT", "TINYINT", "INT8", "INT4", "INT2"), "BIGINT"),
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE PRECISION", "FLOAT8", "FLOAT4"), "DOUBLE"),
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "CHARACTER VARYING", "BPCHAR"), "VARCHAR"),
    **dict.fromkeys(("TIMESTAMPTZ", "DATETIME", "TIMESTAMP WITH TIME ZONE"), "TIMESTAMP"),
    **dict.fromkeys(("TIMESTAMP_LTZ", "TIMESTAMPLTZ", "TIMESTAMP WITHOUT TIME ZONE"), "TIMESTAMP"),
    **dict.fromkeys(("TIMESTAMP_NTZ", "TIMESTAMP WITH LOCAL TIME ZONE"), "TIMESTAMP"),
    "TIME WITHOUT TIME ZONE": "TIME",
    **dict.fromkeys(("BYTEA", "VARBINARY", "BINARY", "BYTES"), "BLOB"),
    **dict.fromkeys(("JSONB", "VARIANT"), "JSON"),
    "BOOL": "BOOLEAN",
    "NUMERIC": "DECIMAL",
}
# From a type to the types that its values become without a CAST, nearest first.
_IMPLICIT: Mapping[SqlType, tuple[SqlType, ...]] = {
    "BIGINT": ("DECIMAL", "DOUBLE"),
    "DECIMAL": ("DOUBLE",),
    "DATE": ("TIMESTAMP",),
    "JSON": ("VARCHAR",),
}


def arrow_type(word: SqlType) -> Any:
    """Return the Arrow type of columns of a type.

    Example:
        >>> arrow_type("DECIMAL(10,2)"), arrow_type("BIGINT[]")
        (Decimal128Type(decimal128(10, 2)), ListType(list<item: int64>))
    """
    if word.endswith("[]"):
        return pyarrow.list_(arrow_type(word.removesuffix("[]")))
    digits = decimal_digits(word)
    return _ARROW[word] if digits is None else pyarrow.decimal128(*digits)


def type_named(text: str) -> SqlType:
    """Return the type that a name in an SQL text means.

    Raises:
        ValueError: no type has this name.

    Example:
        >>> type_named("varchar(20)"), type_named("numeric(8, 2)"), type_named("int[]")
        ('VARCHAR', 'DECIMAL(8,2)', 'BIGINT[]')
    """
    given = text.strip().upper()
    if given.endswith("[]"):
        return f"{type_named(given[:-2])}[]"
    name, *numbers = re.findall(r"[A-Z_][A-Z_0-9 ]*[A-Z_0-9]|\d+", given) or [""]
    found: SqlType = _NAMES.get(name, name)
    if found == "DECIMAL":
        return decimal_type(*map(int, [*(numbers or [18, 3]), 0][:2]))
    if found not in _ARROW or found == "NULL":
        near = difflib.get_close_matches(name, [*_ARROW.keys() - {"NULL"}, *_NAMES], 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no type {text}; {hint}types are {', '.join(TYPE_NAMES)}")
    return found


TYPE_NAMES = (*sorted(set(_ARROW) - {"NULL"}), "DECIMAL(p, s)", "T[]")


def type_of_arrow(kind: Any) -> SqlType:
    """Return the type of expressions that read a column of an Arrow type.

    Raises:
        ValueError: SQL has no type for it.
    """
    checks = pyarrow.types
    for check, word in _OF_ARROW:
        if check(kind):
            return word
    if checks.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX:
        return decimal_type(kind.precision, kind.scale)
    if checks.is_list(kind) or checks.is_large_list(kind) or checks.is_fixed_size_list(kind):
        return f"{type_of_arrow(kind.value_type)}[]"
    raise ValueError(f"SQL has no type for {kind}")


_OF_ARROW: tuple[tuple[Callable[[Any], bool], SqlType], ...] = (
    (pyarrow.types.is_boolean, "BOOLEAN"), (pyarrow.types.is_integer, "BIGINT"),
    (pyarrow.types.is_floating, "DOUBLE"), (pyarrow.types.is_string, "VARCHAR"),
    (pyarrow.types.is_large_string, "VARCHAR"),
    (lambda kind: str(kind) == "string_view", "VARCHAR"),
    (pyarrow.types.is_timestamp, "TIMESTAMP"), (pyarrow.types.is_date, "DATE"),
    (pyarrow.types.is_time, "TIME"), (pyarrow.types.is_interval, "INTERVAL"),
    (pyarrow.types.is_binary, "BLOB"), (pyarrow.types.is_large_binary, "BLOB"),
    (pyarrow.types.is_null, "NULL"),
)  # fmt: skip


def implicit_distance(given: SqlType, wanted: SqlType) -> int | None:
    """Return how far a type is from another that it becomes without a CAST, else None.

    Args:
        given: The type of a value.
        wanted: A type, or ``DECIMAL`` for any of them.

    Example:
        >>> [implicit_distance("BIGINT", word) for word in ("BIGINT", "DOUBLE", "VARCHAR")]
        [0, 2, None]
    """
    if given == wanted or (wanted == "DECIMAL" and given.startswith("DECIMAL(")):
        return 0
    if given == "NULL":
        return 1
    if given.endswith("[]") and wanted.endswith("[]"):
        return implicit_distance(given[:-2], wanted[:-2])
    if _is_wider(wanted, given):
        return 1
    following = _IMPLICIT.get(given.partition("(")[0], ())
    word = "DECIMAL" if wanted.startswith("DECIMAL(") else wanted
    return following.index(word) + 1 if word in following else None


def _is_wider(word: SqlType, other: SqlType) -> bool:
    """Return whether a DECIMAL has each value of another one."""
    digits, others = decimal_digits(word), decimal_digits(other)
    if digits is None or others is None:
        return False
    return digits[1] >= others[1] and digits[0] - digits[1] >= others[0] - others[1]


def common_type(words: list[SqlType]) -> SqlType | None:
    """Return the type that values of all types become without a CAST, or None.

    Example:
        >>> common_type(["BIGINT", "NULL", "DOUBLE"]), common_type(["BIGINT", "VARCHAR"])
        ('DOUBLE', None)
    """
    found = "NULL"
    for word in words:
        if decimal_digits(found) and (decimal_digits(word) or word == "BIGINT"):
            found = _wider(found, word)
        elif decimal_digits(word) and found == "BIGINT":
            found = _wider(word, found)
        elif implicit_distance(found, word) is not None:
            found = word
        elif implicit_distance(word, found) is None:
            return None
    return found


def as_decimal(word: SqlType) -> SqlType:
    """Return the DECIMAL that holds each value of a DECIMAL or BIGINT."""
    return "DECIMAL(19,0)" if word == "BIGINT" else word


def _wider(first: SqlType, second: SqlType) -> SqlType:
    digits = [decimal_digits(as_decimal(word)) or (0, 0) for word in (first, second)]
    scale = max(scale for _, scale in digits)
    whole = max(precision - scale for precision, scale in digits)
    return decimal_type(min(DECIMAL_DIGITS_MAX, whole + scale), scale)
