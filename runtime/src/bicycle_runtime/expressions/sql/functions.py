"""The form of a row in the table of SQL functions, and tools for computing.

A row declares a function once: its names, the types of arguments and result, the computation, what
it returns for NULL, and examples that are its test and its documentation. The room's other modules
hold the rows by subject; ``table`` joins them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context
from functools import cache
from typing import Any, Literal

import pyarrow
import pyarrow.compute as pc

DECIMAL_DIGITS_MAX = 38
WIDE_DECIMALS = Context(prec=2 * DECIMAL_DIGITS_MAX)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
Group = Literal[
    "comparison", "logic", "arithmetic", "mathematics", "text", "time", "condition", "json", "array"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """A function of values of one record, without effects.

    Args:
        names: The name in trees (after ``sql.``), then further names in SQL texts and plans.
        group: The subject, for the reference.
        signatures: Types of arguments and result; see ``Signature``.
        compute: Returns the result for columns: an Arrow array, or a list of Python's values. Each
            argument is an array or a scalar, at least one is an array. It raises if a row fails.
        takes_nulls: The function has its own rule for NULL; otherwise a NULL argument leads to
            NULL.
        decimal: Returns the DECIMAL of the result from the DECIMALs of the arguments.
        examples: SQL texts, with their values in Python; at least one.
        symbol: How the reference writes an operator, such as ``a + b``.
    """

    names: tuple[str, ...]
    group: Group
    signatures: tuple[Signature, ...]
    compute: Callable[..., Any]
    takes_nulls: bool = False
    decimal: Callable[..., str] | None = None
    examples: tuple[tuple[str, Any], ...]
    symbol: str = ""

    @property
    def name(self) -> str:
        """The name in trees."""
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of arguments and the type of the result.

    ``T`` is the same type in all positions, ``DECIMAL`` is any DECIMAL, ``ANY`` is any type, and
    ``TEXT`` is a value of any type that is converted to VARCHAR. The last ``optional``
    arguments may be absent; with ``is_repeated``, the last one may be given any number of times.
    """

    arguments: tuple[str, ...]
    result: str
    optional: int = 0
    is_repeated: bool = False

    @classmethod
    def read(cls, text: str) -> Iterator[Signature]:
        """Yield the signatures that a text declares.

        Example:
            >>> [found] = Signature.read("VARCHAR BIGINT? -> VARCHAR")
            >>> found.arguments, found.optional, found.result
            (('VARCHAR', 'BIGINT'), 1, 'VARCHAR')
        """
        for each in text.split("|"):
            given, _, result = each.partition("->")
            words = given.split()
            optional = sum(word.endswith("?") for word in words)
            arguments = tuple(word.rstrip("?*") for word in words)
            yield cls(arguments, result.strip(), optional, bool(words) and words[-1].endswith("*"))

    def __str__(self) -> str:
        marks = ["*" if self.is_repeated else "?"] * len(self.arguments)
        required = len(self.arguments) - max(self.optional, int(self.is_repeated))
        marks[:required] = [""] * required
        return " ".join(map("".join, zip(self.arguments, marks, strict=True)))

    def expected(self, count: int) -> list[str] | None:
        """Return the expected type of each of some arguments, or None if there are others."""
        words = list(self.arguments)
        if self.is_repeated:
            words += words[-1:] * (count - len(words))
        required = len(self.arguments) - self.optional
        return words[:count] if required <= count <= len(words) else None


def function(
    names: str, signatures: str, compute: Callable[..., Any], *examples: tuple[str, Any],
    group: Group, takes_nulls: bool = False, decimal: Callable[..., str] | None = None,
    symbol: str = "",
) -> SqlFunction:  # fmt: skip
    """Return a row of the table."""
    return SqlFunction(
        names=tuple(names.split()), group=group, signatures=tuple(Signature.read(signatures)),
        compute=compute, takes_nulls=takes_nulls, decimal=decimal, examples=examples, symbol=symbol,
    )  # fmt: skip


def each(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a computation that calls a Python function for the rows without a NULL."""

    def compute(*columns: Any) -> list[Any]:
        rows = zip(*as_lists(*columns), strict=True)
        return [None if None in row else function(*row) for row in rows]

    return compute


def as_lists(*columns: Any) -> list[list[Any]]:
    """Return columns and constants as lists of equal length."""
    count = next(len(one) for one in columns if isinstance(one, pyarrow.Array))
    return [
        [one.as_py()] * count if isinstance(one, pyarrow.Scalar) else one.to_pylist()
        for one in columns
    ]


def without_zone(column: Any) -> Any:
    """Return timestamps in UTC without their zone."""
    return column.cast(pyarrow.timestamp("ms"))


@cache
def decimal_digits(word: str) -> tuple[int, int] | None:
    """Return the precision and the scale of a DECIMAL, else None."""
    found = _DECIMAL.fullmatch(word)
    return None if found is None else (int(found[1]), int(found[2]))


def decimal_type(precision: int, scale: int) -> str:
    """Return the word of a DECIMAL with at most 38 digits.

    Raises:
        ValueError: there are more digits after the point than digits.
    """
    if not 0 <= scale <= precision or not 1 <= precision <= DECIMAL_DIGITS_MAX:
        raise ValueError(
            f"DECIMAL({precision}, {scale}) must have 1 to {DECIMAL_DIGITS_MAX} digits, and not "
            "more after the point"
        )
    return f"DECIMAL({precision},{scale})"


def rounded_decimal(column: Any, digits: tuple[int, int]) -> Any:
    """Return decimals rounded half away from zero; too many digits are an error."""
    if column.type.scale > digits[1]:
        column = pc.round(wide_decimal(column), digits[1], "half_towards_infinity")
    # Arrow checks the digits of decimals of the same scale only when they are converted.
    return column.cast(pyarrow.decimal256(76, digits[1])).cast(pyarrow.decimal128(*digits))


def wide_decimal(column: Any) -> Any:
    """Return numbers; decimals have room for the digit that rounding adds."""
    is_decimal = pyarrow.types.is_decimal(column.type)
    return column.cast(pyarrow.decimal256(76, column.type.scale)) if is_decimal else column
