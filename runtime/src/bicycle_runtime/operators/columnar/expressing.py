"""Operators whose function is an expression, computed over columns of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, Protocol

from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.frames.frame import MISSING, FieldRows, Frame
from bicycle_runtime.frames.rows import is_plain
from bicycle_runtime.frames.vectors import Refused
from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.columnar import EXPRESSION_KINDS
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.transform import FilterOperator, KeyByOperator, MapOperator
from bicycle_sdk.expressions import Expression
from bicycle_sdk.graph import OperatorKind


class _HasFunction(Protocol):
    function: Any
    on_columns: int


def _values(operator: _HasFunction, records: Sequence[Any]) -> list[Any] | None:
    """Return an expression's value for each record, or None if it needs single calls."""
    getter = _getter(set(map(type, records)))
    if getter is None or not records:
        return None
    listed = list(records)
    frame = Frame.of_rows(FieldRows(objects=listed, make=None, getter=getter))
    try:
        found = _compute(read(operator.function), frame)
    except Refused:
        return None
    operator.on_columns += len(listed)
    return found


def _compute(expression: Expression, frame: Frame) -> list[Any]:
    if expression.operation != "record":
        return evaluate(expression, frame).items
    names, *values = expression.arguments
    columns = [evaluate(value, frame).each() for value in values]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _getter(kinds: set[type]) -> Callable[[str], Callable[[Any], Any]] | None:
    """Return a field getter for records of some types, or None if it may run code."""
    if kinds == {dict}:
        return lambda name: methodcaller("get", name, MISSING)
    return attrgetter if len(kinds) == 1 and is_plain(*kinds) else None


class _MapColumns(MapOperator):
    """A map to the value of an expression."""

    def results(self, batch: Batch) -> list[Any]:
        found = _values(self, batch.values)
        return super().results(batch) if found is None else found


class _FilterColumns(FilterOperator):
    """A filter by an expression."""

    def results(self, batch: Batch) -> list[Any]:
        found = _values(self, batch.values)
        return super().results(batch) if found is None else found


class _KeyByColumns(KeyByOperator):
    """A key that is the value of an expression."""

    def keys_of(self, values: Sequence[Any]) -> Iterable[Any]:
        found = _values(self, values)
        return super().keys_of(values) if found is None else found


EXPRESSION_OPERATORS: dict[OperatorKind, Callable[..., Operator]] = dict(
    zip(EXPRESSION_KINDS, (_MapColumns, _FilterColumns, _KeyByColumns), strict=True)
)
