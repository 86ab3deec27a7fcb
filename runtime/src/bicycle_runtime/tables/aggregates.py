"""The functions of the SDK that compute the aggregates of windows."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import NoneType
from typing import Any

from bicycle_runtime.expressions.sql.types import SqlType, decimal_digits
from bicycle_runtime.tables.functions import DecimalAverage, LeastNumber, python_aggregate
from bicycle_runtime.tables.plans import AggregateCall, PlanColumn
from bicycle_runtime.tables.records import python_type
from bicycle_sdk.expressions import col
from bicycle_sdk.windows.aggregates import Average, Count, Distinct, Maximum, Minimum, Sum


def function_of(aggregate: AggregateCall, column: PlanColumn | None) -> Any:
    """Return the function of an aggregate; ``column`` has its argument, if any."""
    if column is None:
        return Count()
    selector = col(column.field)
    if aggregate.python is not None and aggregate.python.aggregate is not None:
        [takes_null] = aggregate.python.python.takes_null
        return python_aggregate(aggregate.python.aggregate, selector, takes_null=takes_null)
    word, is_distinct = aggregate.function, aggregate.is_distinct
    if word == "count" and not is_distinct:
        return Count(selector)
    made: Any
    if word == "count":
        made = Distinct(selector, skips_none=True)
    elif word == "avg" and (digits := decimal_digits(aggregate.type)):
        made = DecimalAverage(selector, scale=digits[1])
    elif word == "min" and column.type == "DOUBLE":
        made = LeastNumber(selector, skips_none=True)
    else:
        made = _FUNCTIONS[word](selector, skips_none=True)
    kind = _kept_type(word, column.type)
    if kind is not None:
        made.accumulator_type = kind  # State with a type is faster, and needs no pickles.
    return made


def _kept_type(word: str, kind: SqlType) -> Any:
    """Return the type of an accumulator of values of a type; None for the default."""
    value: Any = python_type(kind)
    if value in (NoneType, bytes):
        return None
    if word == "avg" and value is Decimal:
        return tuple[value | None, tuple[float, ...], int]
    if word in ("sum", "avg"):
        return tuple[value | None, tuple[float, ...]] if value is Decimal else None
    return set[value] if word == "count" else tuple[value, ...]


_FUNCTIONS: Mapping[str, Any] = {"sum": Sum, "avg": Average, "min": Minimum, "max": Maximum}
