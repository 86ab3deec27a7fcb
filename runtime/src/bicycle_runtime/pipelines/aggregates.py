"""The aggregates that a pipeline names by a word, and the fields of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.pipelines.record_functions import FieldValue, JsonText, NumberOf
from bicycle_sdk.windows import AggregateFunction, Average, Count, Distinct, Maximum, Minimum, Sum

__all__ = ["aggregate_of", "result_names"]

_AGGREGATES: Mapping[str, Callable[[str], AggregateFunction[Any, Any, Any]]] = {
    "sum": lambda field: Sum(NumberOf(field)),
    "avg": lambda field: Average(NumberOf(field)),
    "min": lambda field: Minimum(FieldValue(field)),
    "max": lambda field: Maximum(FieldValue(field)),
    "distinct": lambda field: Distinct(JsonText(field)),
}
_NAMES: Mapping[str, str] = {"distinct": "distinct_count"}


def aggregate_of(word: str, field: str | None) -> AggregateFunction[Any, Any, Any]:
    """Return the aggregate of a word, over a field where it needs one."""
    if word == "count":
        return Count()
    assert field is not None
    return _AGGREGATES[word](field)


def result_names(spec: Any) -> list[str]:
    """Return the fields of the results of a window, or of a running aggregate."""
    several = getattr(spec, "aggregates", None)
    if several is not None:
        return [each.name for each in several]
    return [_NAMES.get(spec.agg, spec.agg)]
