"""The choice of columns: the operators of a chain on columns, reasons for others.

``levels`` decides it for all chains of a task, from code and declared types, and calls nothing of
the user's, so that ``bicycle plan`` reports the decisions of workers. Conditions on data are
checked for each batch (``ChainOnColumns.take``) and for each window that is due (``ColumnMerge``).

A chain works on columns from its source to the step that folds a window, or not at all. Behind a
window, and behind a map that makes new records of a source's, it does so as far as it can. The next
chains take its columns as columns: a fork divides no records.

Source: ADR-0030 (one way through windows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bicycle_runtime.base.user_code import is_async
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.map_shapes import (
    flat_mapped_shape,
    mapped_shape,
    with_record_type,
)
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.record_shapes import RecordShape, shape_of
from bicycle_runtime.operators.columnar.folded import Folded, FoldedNumbers, FoldedSets
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import ChainSpec, OperatorSpec
from bicycle_sdk.expressions import Expression
from bicycle_sdk.functions import as_callable
from bicycle_sdk.graph import OperatorKind
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

__all__ = [
    "MAPS",
    "ChainChoice",
    "Choosing",
    "ColumnStep",
    "ColumnSteps",
    "FieldColumn",
    "FoldedForm",
    "accumulators_of",
    "field_columns",
    "fires_from_columns",
    "folds",
    "shape_of_source",
    "window_reason",
]

Load = Callable[[str], Any]
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


class ColumnStep(NamedTuple):
    """The step of one operator between source and fold: the expression it computes.

    ``value`` is None where the times are the source's own.
    """

    kind: OperatorKind
    value: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSteps:
    """The column steps of a chain.

    ``steps`` are the steps behind the first operator, ``key_by`` last if it folds. ``columns`` are
    folded by ``windows``; None for no fold.
    """

    steps: tuple[ColumnStep, ...]
    columns: tuple[FieldColumn, ...]
    windows: AlignedWindows | SessionWindows | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainChoice:
    """The choice for a chain.

    ``because`` has, by operator, why it works on records; None if it works on columns. ``steps``
    are the chain's steps on columns, from the operator at ``first`` on, None without such steps.
    ``gives`` is the shape of its column output, None if it emits records; ``spares_records`` means
    that columns spare it records.
    """

    because: Mapping[str, str | None]
    steps: ColumnSteps | None = None
    first: int = 1
    gives: RecordShape | None = None
    spares_records: bool = False


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


class Choosing:
    """Goes through a chain, step by step.

    Args:
        steps: The operators that may work on columns.
        load: Returns the object of a payload id.
        shape: Shape of the input of the first step; None if that has no plain fields.
    """

    def __init__(
        self, steps: Sequence[OperatorSpec], load: Load, shape: RecordShape | None
    ) -> None:
        self._load = load
        self.steps = steps
        self.because: dict[str, str | None] = {}
        self.found: list[ColumnStep] = []
        self.shape = shape
        self.columns: list[FieldColumn] = []

    def go(self) -> None:
        """Note for each operator why it needs records, None where it does not."""
        for spec in self.steps:
            self.because[spec.uid] = self._reason(spec)

    def go_on_from_columns(self) -> None:
        """Choose columns for a chain without a fold, up to the first blocking operator."""
        blocker = None
        for number, spec in enumerate(self.steps):
            if blocker is not None:
                self.because[spec.uid] = f"{blocker!r} works on records"
                continue
            is_written = spec.vertex.kind is OperatorKind.SINK and number == len(self.steps) - 1
            if is_written and spec.takes_rows:
                self.because[spec.uid] = None
                continue
            reason = "its writer reads records" if is_written else self._reason(spec)
            if spec.vertex.kind is OperatorKind.KEY_BY:
                reason = "records are shuffled by key after it"
            self.because[spec.uid] = reason
            blocker = None if reason is None else spec.uid
        steps = sum(self.because[spec.uid] is None for spec in self.steps)
        del self.found[steps:]
        if blocker is not None:
            self.shape = None

    def _reason(self, spec: OperatorSpec) -> str | None:
        kind = spec.vertex.kind
        if kind is OperatorKind.WINDOW_COMBINE:
            return self._fold_reason(self._load(spec.vertex.payload_id("function")))
        if kind is OperatorKind.UNION:
            self.found.append(ColumnStep(kind, None))
            return None
        if kind not in _STEPS:
            return f"{kind.value.lower()} processes single records"
        follows = spec.watermarks if kind is OperatorKind.ASSIGN_TIMESTAMPS else None
        if follows is not None and follows.kind not in ("ascending", "bounded"):
            return "its watermarks depend on each record"
        return None if self.shape is None else self._step_reason(spec, self.shape)

    def _step_reason(self, spec: OperatorSpec, shape: RecordShape) -> str | None:
        kind = spec.vertex.kind
        if "function" not in spec.vertex.payloads:
            self.found.append(ColumnStep(kind, None))
            return None
        function = as_callable(self._load(spec.vertex.payload_id("function")), _STEPS[kind])
        try:
            # Maps own their records; key selectors, filters and time functions must not change any.
            value = read(function, may_change=kind in MAPS)
            if kind in MAPS:
                value = with_record_type(value, shape.record_type)
        except Reading as reason:
            return str(reason)
        self.found.append(ColumnStep(kind, value))
        if kind in MAPS:
            self.shape, problem = MAPS[kind](value, shape)
            return problem
        return shape.problem(value) or _kind_reason(shape, value, _KINDS.get(kind))

    def _fold_reason(self, plan: WindowPlan) -> str | None:
        if isinstance(plan.assigner, SessionWindows) and plan.assigner.gap_ms is None:
            return "its session gap depends on each record"
        columns = field_columns(Folding(plan).functions)
        if columns is None:
            return "it has an aggregate other than count and joins of values"
        self.columns = columns
        if self.shape is None:
            return None
        problems = (
            self.shape.problem(column.value)
            or _kind_reason(self.shape, column.value, _FOLDED[column.form])
            for column in columns
            if column.value is not None
        )
        return next((problem for problem in problems if problem is not None), None)


_STEPS: dict[OperatorKind, str] = {
    OperatorKind.ASSIGN_TIMESTAMPS: "__call__",
    OperatorKind.FILTER: "filter",
    OperatorKind.MAP: "map",
    OperatorKind.FLAT_MAP: "flat_map",
    OperatorKind.KEY_BY: "get_key",
}
MAPS = {OperatorKind.MAP: mapped_shape, OperatorKind.FLAT_MAP: flat_mapped_shape}
# The possible types of a field; other values are checked as they come.
_KINDS: dict[OperatorKind, tuple[type, ...]] = {
    OperatorKind.ASSIGN_TIMESTAMPS: (int,),
    OperatorKind.KEY_BY: (int, str),
}
_FOLDED: dict[FoldedForm, tuple[type, ...]] = {
    "sum": (int, float),
    "extreme": (int, float, str),
    "set": (int, str),
}


def _kind_reason(
    shape: RecordShape, value: Expression, kinds: tuple[type, ...] | None
) -> str | None:
    if kinds is None or shape.kind_of(value) in (None, *kinds):
        return None
    words = " or ".join(kind.__name__ for kind in kinds)
    name = f"field {value.arguments[0]!r}" if value.arguments else "its record"
    return f"{name} is not declared as {words}"


def folds(chain: ChainSpec) -> bool:
    """Return whether a chain ends in a fold of a window before the shuffle."""
    return chain.operators[-1].vertex.kind is OperatorKind.WINDOW_COMBINE


def shape_of_source(chain: ChainSpec, load: Load) -> RecordShape | None:
    """Return the shape of a source's records, or None without plain fields."""
    vertex = chain.operators[0].vertex
    is_declared = "output_type" in vertex.payloads
    return shape_of(load(vertex.payload_id("output_type")) if is_declared else None)


def window_reason(spec: OperatorSpec, plan: WindowPlan) -> str | None:
    """Return the reason why a window stores its content before it fires, or None."""
    if not spec.vertex.details.get("is_combined", False):
        return "records are not pre-aggregated before the shuffle"
    if not isinstance(plan.assigner, AlignedWindows):
        return "sessions are merged per key"
    if field_columns(Folding(plan).functions) is None:
        return "it has an aggregate other than count and joins of values"
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
