"""The aggregates of a window as columns of numbers, texts or sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.operators.columnar.folded import Folded, FoldedNumbers, FoldedSets
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_sdk.expressions import Expression
from bicycle_sdk.windows import (
    AlignedWindows,
    Count,
    Distinct,
    Maximum,
    Minimum,
    SessionWindows,
    Sum,
    WindowPlan,
)
from bicycle_sdk.windows.aggregates import sums_of_floats, sums_of_ints

FoldedForm = Literal["sum", "extreme", "set"]


class FieldColumn(NamedTuple):
    """The accumulators of one aggregate as a column of numbers.

    ``selects`` is the place of the first aggregate with the same selector, None for the number of
    records, and ``value`` the expression of the selector, None if it must be called. ``form`` is
    the form of the column; ``ufunc`` names the function that joins two values; ``accumulators``
    makes the kept ones.
    """

    selects: int | None
    value: Expression | None
    form: FoldedForm
    ufunc: str
    accumulators: Callable[[Any], Iterable[Any]]


def fires_from_columns(plan: WindowPlan) -> bool:
    """Return whether a merge in columns may fire without being stored first."""
    windows = plan.assigner
    is_tumbling = isinstance(windows, AlignedWindows) and windows.is_tumbling
    return is_tumbling and not plan.lateness_ms and plan.process is None


def field_columns(functions: Sequence[Any]) -> list[FieldColumn] | None:
    """Return the columns of aggregates, or None if one does more than fold a value.

    Selectors behind one that must be called are called, too: it may change the fields that they
    read.

    Args:
        functions: Aggregates as they are carried out; an average is a sum and a count.
    """
    columns: list[FieldColumn] = []
    selectors: dict[int, Any] = {}  # by the place of the first aggregate that has it
    values: dict[int, Expression | None] = {}
    for index, function in enumerate(functions):
        found = _COLUMNS.get(type(function))
        if found is None:
            return None
        if type(function) is Count:
            # Columns that a sum takes hold no None.
            if function.selector is not None and not _is_summed(function.selector, functions):
                return None
            columns.append(FieldColumn(None, None, *found))
            continue
        selector = function.selector
        selects = next((at for at, known in selectors.items() if known is selector), index)
        if selects == index:
            if is_async(selector):
                return None
            selectors[index] = selector
            is_called = any(value is None for value in values.values())
            values[index] = None if is_called else _read(selector)
        columns.append(FieldColumn(selects, values[selects], *found))
    return columns


def _is_summed(selector: Any, functions: Sequence[Any]) -> bool:
    return any(type(each) is Sum and each.selector is selector for each in functions)


def _read(selector: Any) -> Expression | None:
    try:
        return read(selector)
    except Reading:
        return None


def accumulators_of(
    columns: Sequence[FieldColumn], contents: Sequence[Folded]
) -> Iterator[tuple[Any, ...]]:
    """Return the accumulators of each content, as they are kept."""
    folded = zip(columns, contents, strict=True)
    return zip(*(column.accumulators(content) for column, content in folded), strict=True)


_FOLDED: dict[FoldedForm, tuple[type, ...]] = {
    "sum": (int, float),
    "extreme": (int, float, str),
    "set": (int, str),
}
_OTHER_AGGREGATE = "it has an aggregate other than count and joins of values"


def fold_problem(plan: WindowPlan, shape: RecordShape | None) -> str | None:
    """Return why a window is not aggregated on columns before the shuffle, or None.

    Args:
        plan: The window.
        shape: The shape of its records, None if it is unknown.
    """
    if isinstance(plan.assigner, SessionWindows) and plan.assigner.gap_ms is None:
        return "its session gap depends on each record"
    columns = field_columns(Folding(plan).functions)
    if columns is None:
        return _OTHER_AGGREGATE
    if shape is None:
        return None
    problems = (
        shape.problem(column.value) or shape.kind_problem(column.value, _FOLDED[column.form])
        for column in columns
        if column.value is not None
    )
    return next((problem for problem in problems if problem is not None), None)


def window_problem(plan: WindowPlan, *, is_combined: bool) -> str | None:
    """Return why a window stores its content before it fires, or None.

    Args:
        plan: The window.
        is_combined: Whether its records are aggregated before the shuffle.
    """
    if not is_combined:
        return "records are not pre-aggregated before the shuffle"
    if not isinstance(plan.assigner, AlignedWindows):
        return "sessions are merged per key"
    if field_columns(Folding(plan).functions) is None:
        return _OTHER_AGGREGATE
    if not plan.assigner.is_tumbling:
        return "its windows overlap, so that their records are kept"
    return (
        None
        if fires_from_columns(plan)
        else "late records may arrive, so that all records are kept"
    )


def _sums(folded: FoldedNumbers) -> list[Any]:
    return (
        sums_of_floats(folded.floats()) if folded.kind == "sum" else sums_of_ints(folded.results())
    )


def _extremes(folded: Folded) -> Iterable[tuple[Any]]:
    return zip(folded.results(), strict=True)


_COLUMNS: dict[type, tuple[FoldedForm, str, Callable[[Any], Iterable[Any]]]] = {
    Count: ("sum", "add", FoldedNumbers.results),
    Sum: ("sum", "add", _sums),
    Minimum: ("extreme", "minimum", _extremes),
    Maximum: ("extreme", "maximum", _extremes),
    Distinct: ("set", "add", FoldedSets.sets),
}
