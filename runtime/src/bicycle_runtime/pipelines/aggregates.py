"""The aggregates that a pipeline names by a word, and the fields of their results.

As in SQL, a null or missing field does not take part, and counts in ``count`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bicycle_runtime.pipelines.record_functions import EqualText, FieldValue, FloatOf, NumberOf
from bicycle_sdk.windows import AggregateFunction, Average, Count, Distinct, Maximum, Minimum, Sum

_AGGREGATES: Mapping[str, Callable[[str], AggregateFunction[Any, Any, Any]]] = {
    "sum": lambda field: Sum(NumberOf(field), skips_none=True),
    "avg": lambda field: Average(FloatOf(field), skips_none=True),
    "min": lambda field: Minimum(FieldValue(field), skips_none=True),
    "max": lambda field: Maximum(FieldValue(field), skips_none=True),
    "distinct": lambda field: Distinct(EqualText(field), skips_none=True),
}
_NAMES: Mapping[str, str] = {"distinct": "distinct_count"}


def aggregate_of(word: str, field: str | None) -> AggregateFunction[Any, Any, Any]:
    """Return the aggregate of a word, over a field where it needs one."""
    if word == "count":
        return Count()
    assert field is not None
    return _AGGREGATES[word](field)


def wanted_aggregates(spec: Any) -> list[tuple[str, str, str | None]]:
    """Return result field, aggregate word and field of each aggregate."""
    if spec.aggregates is not None:
        return [(each.name, each.agg, each.field) for each in spec.aggregates]
    return [(_NAMES.get(spec.agg, spec.agg), spec.agg, spec.agg_field)]


def result_names(spec: Any) -> list[str]:
    """Return the fields of the results of a window, or of a running aggregate."""
    return [name for name, _, _ in wanted_aggregates(spec)]


class AggregateTuple(AggregateFunction[Any, Any, tuple[Any, ...]]):
    """An aggregate of several aggregates, with tuples of results in their order.

    Args:
        functions: The aggregates.
    """

    def __init__(self, functions: Sequence[AggregateFunction[Any, Any, Any]]) -> None:
        self.functions = tuple(functions)

    def create_accumulator(self) -> Any:
        return tuple(each.create_accumulator() for each in self.functions)

    def add(self, accumulator: Any, value: Any) -> Any:
        pairs = zip(self.functions, accumulator, strict=True)
        return tuple(each.add(part, value) for each, part in pairs)

    def get_result(self, accumulator: Any) -> tuple[Any, ...]:
        pairs = zip(self.functions, accumulator, strict=True)
        return tuple(each.get_result(part) for each, part in pairs)

    def merge(self, a: Any, b: Any) -> Any:
        parts = zip(self.functions, a, b, strict=True)
        return tuple(each.merge(one, other) for each, one, other in parts)
