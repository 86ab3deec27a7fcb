"""Which aggregates can be folded by field, and what their accumulators are as columns of ints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bicycle_runtime.operators.fields import field_of
from bicycle_sdk.windows import Count, Maximum, Minimum, Sum
from bicycle_sdk.windows.aggregates import sums_of_ints

__all__ = ["FieldColumn", "field_columns"]


class FieldColumn(NamedTuple):
    """The accumulators of one aggregate as a column of ints.

    ``field`` is what it folds, None for the number of records; ``ufunc`` names the function that
    joins two of them; ``accumulators`` makes those that are kept.
    """

    field: str | None
    ufunc: str
    accumulators: Callable[[list[int]], Sequence[Any]]


def field_columns(functions: Sequence[Any]) -> list[FieldColumn] | None:
    """Return the columns of aggregates; None when one of them does more than fold a field.

    Args:
        functions: Aggregates as they are carried out; an average is a sum and a count.
    """
    columns = []
    for function in functions:
        kind = type(function)
        field = None if kind is Count else field_of(getattr(function, "selector", None))
        if kind not in _COLUMNS or (field is None and kind is not Count):
            return None
        columns.append(FieldColumn(field, *_COLUMNS[kind]))
    return columns


def _extremes(values: list[int]) -> list[tuple[int]]:
    return list(zip(values, strict=True))


_COLUMNS: dict[type, tuple[str, Callable[[list[int]], Sequence[Any]]]] = {
    Count: ("add", list),
    Sum: ("add", sums_of_ints),
    Minimum: ("minimum", _extremes),
    Maximum: ("maximum", _extremes),
}
