"""The bounds of the difference of two times that a comparison implies.

A time is a *sum* of TIMESTAMP columns and constant intervals. Intervals with months
have no fixed length, so they are not constant here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.expressions.sql.casts import parse_interval, whole_ms
from bicycle_sdk.expressions import Expression

Span = tuple[int | None, int | None]  # In ms, both inclusive; None is without a bound.
# The spans of a difference of which a comparison with 0 is true.
_SPANS: Mapping[str, Span] = {
    "sql.equal": (0, 0), "sql.gte": (0, None), "sql.gt": (1, None), "sql.lte": (None, 0),
    "sql.lt": (None, -1),
}  # fmt: skip


def fields_of(expression: Expression) -> set[str]:
    """Return the fields that an expression reads."""
    if expression.operation == "field":
        return {str(expression.arguments[0])}
    parts = [each for each in expression.arguments if isinstance(each, Expression)]
    return {name for part in parts for name in fields_of(part)}


def sum_of(expression: Expression) -> tuple[dict[str, int], int] | None:
    """Return the factors of the fields and the constant, in ms, of a sum.

    Example:
        >>> from bicycle_runtime.expressions.sql import tree
        >>> at = tree.column("at", "TIMESTAMP")
        >>> sum_of(tree.call("add", at, tree.literal([0, 0, 5_000_000], "INTERVAL")))
        ({'at': 1}, 5)
    """
    operation, (kind, *arguments) = expression.operation, expression.arguments or (None,)
    if operation == "sql.column" and kind == "TIMESTAMP" and arguments[0].operation == "field":
        return {str(arguments[0].arguments[0]): 1}, 0
    if operation in ("sql.add", "sql.subtract") and len(arguments) == 2:
        left, right = sum_of(arguments[0]), sum_of(arguments[1])
        if left is None or right is None:
            return None
        sign = 1 if operation == "sql.add" else -1
        factors = dict(left[0])
        for name, factor in right[0].items():
            factors[name] = factors.get(name, 0) + sign * factor
        return {name: each for name, each in factors.items() if each}, left[1] + sign * right[1]
    length = _interval_ms(operation, kind, arguments)
    return None if length is None else ({}, length)


def _interval_ms(operation: str, kind: Any, arguments: list[Any]) -> int | None:
    if kind != "INTERVAL":
        return None
    if operation == "sql.cast" and arguments[0].operation == "sql.literal":
        try:
            return whole_ms(*parse_interval(str(arguments[0].arguments[1])))
        except ValueError:
            return None
    is_known = operation == "sql.literal" and arguments[0] is not None
    return whole_ms(*arguments[0]) if is_known else None


def span_of(condition: Expression) -> tuple[str, str, Span] | None:
    """Return ``(a, b, span)`` if a condition means that ``b - a`` is in a span.

    ``a`` and ``b`` are fields. None for another condition.
    """
    span = _SPANS.get(condition.operation)
    if span is None:
        return None
    left, right = sum_of(condition.arguments[1]), sum_of(condition.arguments[2])
    if left is None or right is None:
        return None
    factors = dict(left[0])
    for name, factor in right[0].items():
        factors[name] = factors.get(name, 0) - factor
    by_factor = {factor: name for name, factor in factors.items() if factor}
    if set(by_factor) != {1, -1} or sum(map(bool, factors.values())) != 2:
        return None
    constant = left[1] - right[1]
    low, high = (None if bound is None else bound - constant for bound in span)
    return by_factor[-1], by_factor[1], (low, high)


def narrow(first: Span, second: Span) -> Span:
    """Return the span of the values that are in both spans."""
    lows = [each for each in (first[0], second[0]) if each is not None]
    highs = [each for each in (first[1], second[1]) if each is not None]
    return max(lows, default=None), min(highs, default=None)


def shift(span: Span, left: tuple[int, int], right: tuple[int, int]) -> Span:
    """Return the span of the event times of which the span of two fields follows."""
    low, high = span
    return (
        None if low is None else low - right[1] + left[0],
        None if high is None else high - right[0] + left[1],
    )


def show_ms(length: int) -> str:
    """Return a length in ms as text in its largest whole unit.

    Example:
        >>> show_ms(3_600_000), show_ms(-1_500), show_ms(0)
        ('1 h', '-1500 ms', '0 s')
    """
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if length and length % size == 0:
            return f"{length // size} {unit}"
    return f"{length} ms" if length else "0 s"
