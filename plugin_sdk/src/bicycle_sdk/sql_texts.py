"""SQL texts of names, constants and expressions of ``col``.

Expressions have the semantics of SQL there: the runtime binds the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.expressions import Expression
from bicycle_sdk.windows.assigners import Duration, duration_ms

__all__ = [
    "expression_text",
    "interval_text",
    "item_text",
    "named_items",
    "quote_name",
    "refusal",
    "shift_time",
]


def refusal(call: str, problem: str, hint: str) -> StreamDefinitionError:
    """Return the error of a call."""
    return StreamDefinitionError(call=call, problem=problem, hint=hint)


def quote_name(name: str) -> str:
    """Return the name of a table or column as SQL text.

    Example:
        >>> print(quote_name('a "b" c'))
        "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def item_text(column: Any) -> str:
    """Return a column of SELECT."""
    return "*" if isinstance(column, str) and column == "*" else expression_text(column)


def named_items(columns: Mapping[str, Any]) -> list[str]:
    """Return columns of SELECT with names."""
    return [f"{expression_text(value)} AS {quote_name(name)}" for name, value in columns.items()]


def expression_text(value: Any) -> str:
    """Return an expression as SQL text: of ``col``, or a text that is one already."""
    if isinstance(value, str):
        is_name = value.isidentifier() and value.upper() not in ("TRUE", "FALSE", "NULL")
        return quote_name(value) if is_name else f"({value}\n)"  # It may end in a comment.
    return _render(value)


def _render(value: Any) -> str:
    """Return an expression of ``col`` as SQL text.

    Raises:
        StreamDefinitionError: SQL has no counterpart.

    Example:
        >>> from bicycle_sdk import col
        >>> print(_render((col("price") * 2 > 10) & ~col("kind").is_in(["gift"])))
        ((("price" * 2) > 10) AND (NOT ("kind" IN ('gift'))))
    """
    if not isinstance(value, Expression) or value.operation == "literal":
        return _literal(value.arguments[0] if isinstance(value, Expression) else value)
    operation, arguments = value.operation, value.arguments
    if operation == "field":
        return quote_name(arguments[0])
    if operation in ("==", "!=") and _is_null(arguments):
        raise refusal(repr(value), "a comparison with None is never true in SQL", "use is_null()")
    if operation == "is_in":
        items = ", ".join(map(_literal, arguments[1]))
        return f"({_render(arguments[0])} IN ({items}))" if items else "FALSE"
    given = [_render(each) for each in arguments if each is not None]
    if operation == "+" and any(map(_is_text, arguments)):
        return f"({given[0]} || {given[1]})"
    name = _FUNCTIONS.get(operation)
    if operation not in _SYNTAX and name is None:
        raise refusal(
            repr(value), f"{operation} has no counterpart in SQL",
            "pass an SQL text instead, such as \"split_part(name, '-', 1)\"",
        )  # fmt: skip
    return _SYNTAX[operation](*given) if name is None else f"{name}({', '.join(given)})"


def _is_null(arguments: Sequence[Any]) -> bool:
    return any(each.operation == "literal" and each.arguments[0] is None for each in arguments)


def _is_text(value: Expression) -> bool:
    is_constant = value.operation == "literal" and isinstance(value.arguments[0], str)
    is_sum = value.operation == "+" and any(map(_is_text, value.arguments))
    return is_constant or is_sum or value.operation in _TEXTS


def _literal(value: Any) -> str:
    write = _LITERALS.get(type(value))
    is_finite = not isinstance(value, Decimal) or value.is_finite()
    if write is None or not is_finite or repr(value) in ("nan", "inf", "-inf"):
        raise refusal("lit", f"{value!r} has no constant in SQL", "use a number, text or time")
    return write(value)


def interval_text(call: str, length: Duration) -> str:
    """Return a duration as SQL text."""
    return f"INTERVAL '{duration_ms(call, length, low=1)}' MILLISECOND"


def shift_time(time: str, by: Duration) -> str:
    """Return a time, later or earlier by a duration."""
    length = duration_ms("within", by, low=None)
    return f"{time} {'-' if length < 0 else '+'} INTERVAL '{abs(length)}' MILLISECOND"


def _infix(symbol: str) -> Callable[..., str]:
    return lambda left, right: f"({left} {symbol} {right})"


def _cast(kind: str) -> Callable[..., str]:
    return lambda value: f"CAST({value} AS {kind})"


def _text_as(kind: str) -> Callable[[Any], str]:
    return lambda value: f"CAST('{value}' AS {kind})"


def _decimal(value: Decimal) -> str:
    """Return an exact constant: a number with a point is a DOUBLE in SQL."""
    _, digits, power = value.as_tuple()
    scale = max(0, -int(power))
    precision = max(len(digits) + max(0, int(power)), scale)
    return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"


_LITERALS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: str(value).upper(),
    int: lambda value: str(value) if value >= 0 else f"({value})",
    Decimal: _decimal,
    float: repr,
    str: lambda value: "'" + value.replace("'", "''") + "'",
    datetime: lambda value: f"CAST('{value.isoformat()}' AS TIMESTAMP)",
    date: _text_as("DATE"),
    timedelta: lambda value: interval_text("lit", value),
}
_SYNTAX: Mapping[str, Callable[..., str]] = {
    **{symbol: _infix(symbol) for symbol in ("+", "-", "*", "/", "%", "<", "<=", ">", ">=")},
    "==": _infix("="), "!=": _infix("<>"), "&": _infix("AND"), "|": _infix("OR"),
    "~": lambda value: f"(NOT {value})", "negative": lambda value: f"(- {value})",
    "is_null": lambda value: f"({value} IS NULL)",
    "int": _cast("BIGINT"), "float": _cast("DOUBLE"), "bool": _cast("BOOLEAN"),
    "str": _cast("VARCHAR"), "text": _cast("VARCHAR"),
}  # fmt: skip
_TEXTS = frozenset({"lower", "upper", "replace", "strip", "lstrip", "rstrip", "str", "text"})
# Functions and aggregates of SQL, by the operations of expressions with the same meaning.
_FUNCTIONS: Mapping[str, str] = {
    **{name: name for name in (
        "lower", "upper", "round", "floor", "ceil", "sqrt", "log10", "exp", "isnan", "replace",
        "year", "month", "day", "hour", "minute", "second", "sum", "min", "max", "count",
    )},
    "absolute": "abs", "len": "length", "strip": "trim", "lstrip": "ltrim", "rstrip": "rtrim",
    "startswith": "starts_with", "endswith": "ends_with", "log": "ln", "ord": "ascii",
}  # fmt: skip
