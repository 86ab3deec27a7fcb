"""The choice of columns: which operators of a chain work on columns, and why the others do not.

``choose`` decides it from code and declared types and calls nothing of the user's, so that
``bicycle plan`` says what workers do. What only data can tell is asked of each batch
(``ChainOnColumns.take``) and of each window that is due (``ColumnMerge``).

A chain works on columns from its source to the step that folds a window, or not at all.

Source: ADR-0030 (one way through windows).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bicycle_runtime.operators.columnar import EXPRESSION_KINDS, NO_WINDOW
from bicycle_runtime.operators.columnar.folded import Folded
from bicycle_runtime.operators.columnar.kernel import has_expression
from bicycle_runtime.operators.columnar.reading import Reading, read
from bicycle_runtime.operators.columnar.shapes import Shape, mapped_shape, shape_of
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import ChainSpec, OperatorSpec, StagePlan
from bicycle_sdk.expressions import Expression
from bicycle_sdk.functions import as_callable
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.windows import AlignedWindows, Count, Maximum, Minimum, Sum, WindowPlan
from bicycle_sdk.windows.aggregates import sums_of_floats, sums_of_ints

__all__ = [
    "ChainChoice",
    "ColumnStep",
    "ColumnSteps",
    "FieldColumn",
    "choose",
    "choose_all",
    "field_columns",
    "fires_from_columns",
]

Load = Callable[[str], Any]


class FieldColumn(NamedTuple):
    """The accumulators of one aggregate as a column of numbers.

    ``value`` is what it folds, None for the number of records; ``ufunc`` names the function that
    joins two of them; ``accumulators`` makes those that are kept.
    """

    value: Expression | None
    ufunc: str
    accumulators: Callable[[Folded], Sequence[Any]]

    @property
    def is_sum(self) -> bool:
        """Whether it adds numbers up."""
        return self.ufunc == "add"


class ColumnStep(NamedTuple):
    """What one operator between source and fold does: the value that it computes of each record."""

    kind: OperatorKind
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSteps:
    """What a chain does with columns.

    ``steps`` are those behind the source, ``key_by`` last. ``kinds`` has the types of fields that
    the source checks. Windows begin at multiples of ``slide_ms`` from ``offset_ms``.
    """

    steps: tuple[ColumnStep, ...]
    columns: tuple[FieldColumn, ...]
    kinds: Mapping[str, type]
    slide_ms: int
    offset_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainChoice:
    """What was chosen for a chain.

    ``because`` has, by operator, why it works on records; None where it works on columns.
    ``steps`` is what the chain does with columns from its source on, None when it does not.
    """

    because: Mapping[str, str | None]
    steps: ColumnSteps | None = None


def choose(
    chain: ChainSpec,
    load: Load,
    *,
    gives_fields: Callable[[str], bool],
    takes_rows: Collection[str] = (),
) -> ChainChoice:
    """Choose for one chain.

    Args:
        chain: The chain.
        load: Returns the object of a payload id.
        gives_fields: Tells whether a source gives ``FieldRecords``; asked when nothing else needs
            records, so that it may begin to.
        takes_rows: The sinks that write the results of windows from columns.
    """
    first, last = chain.operators[0], chain.operators[-1]
    uids = [spec.uid for spec in chain.operators]
    if last.vertex.kind is OperatorKind.WINDOW_COMBINE:
        if first.vertex.kind is not OperatorKind.SOURCE:
            return ChainChoice(because=dict.fromkeys(uids, "its input comes through an exchange"))
        return _choose_folding(chain, load, gives_fields)
    because: dict[str, str | None] = dict.fromkeys(uids, NO_WINDOW)
    if first.vertex.kind is OperatorKind.WINDOW:
        plan = load(first.vertex.payload_id("function"))
        because = dict.fromkeys(uids, "it takes the results of a window as records")
        because[first.uid] = _window_reason(first, plan)
        if len(uids) == 2 and last.vertex.kind is OperatorKind.SINK and _gives_rows(plan):
            because[last.uid] = None if last.uid in takes_rows else "its writer takes records"
    return ChainChoice(because=because)


def choose_all(
    plan: StagePlan,
    load: Load,
    *,
    gives_fields: Callable[[str], bool],
    takes_rows: Collection[str],
) -> dict[str, str | None]:
    """Return for all operators of a job why they work on records; None for those on columns.

    Args: as of ``choose``.
    """
    found: dict[str, str | None] = {}
    for chain in plan.chains:
        found |= choose(chain, load, gives_fields=gives_fields, takes_rows=takes_rows).because
        found |= dict.fromkeys(_expressions(chain, load))
    for uid in found:
        folding = f"{uid}-combine"
        if found[uid] is None and found.get(folding) is not None:
            found[uid] = f"{folding!r} works on records"
    return found


def _expressions(chain: ChainSpec, load: Load) -> Iterator[str]:
    """Yield the operators that compute an expression: they make columns where there are none."""
    for spec in chain.operators:
        kind = spec.vertex.kind
        if kind in EXPRESSION_KINDS and has_expression(load(spec.vertex.payload_id("function"))):
            yield spec.uid


def fires_from_columns(plan: WindowPlan) -> bool:
    """Tell whether what was merged in columns may fire without being kept before."""
    windows = plan.assigner
    is_tumbling = isinstance(windows, AlignedWindows) and windows.is_tumbling
    return is_tumbling and not plan.lateness_ms and plan.process is None


def field_columns(functions: Sequence[Any]) -> list[FieldColumn] | None:
    """Return the columns of aggregates; None when one of them does more than fold a value.

    Args:
        functions: Aggregates as they are carried out; an average is a sum and a count.
    """
    columns = []
    for function in functions:
        found = _COLUMNS.get(type(function))
        if found is None:
            return None
        value = None
        if type(function) is not Count:
            try:
                value = read(function.selector)
            except Reading:
                return None
        columns.append(FieldColumn(value, *found))
    return columns


class _Choosing:
    """Goes through a chain that folds a window, step by step.

    Args:
        chain: The chain.
        load: Returns the object of a payload id.
    """

    def __init__(self, chain: ChainSpec, load: Load) -> None:
        self._load = load
        self.source, *self.steps = chain.operators
        self.because: dict[str, str | None] = {}
        self.found: list[ColumnStep] = []
        declared = "output_type" in self.source.vertex.payloads
        payload = self.source.vertex.payload_id("output_type") if declared else None
        self.shape: Shape | None = shape_of(None if payload is None else load(payload))
        known = {} if self.shape is None else self.shape.kinds
        self.kinds = {name: kind for name, kind in known.items() if kind is not object}
        self.columns: list[FieldColumn] = []

    def go(self) -> None:
        """Note for each operator why it needs records, None where it does not."""
        no_fields = "its records have no type with plain fields"
        self.because[self.source.uid] = no_fields if self.shape is None else None
        for spec in self.steps:
            self.because[spec.uid] = self._reason(spec)

    def _reason(self, spec: OperatorSpec) -> str | None:
        kind = spec.vertex.kind
        if kind is OperatorKind.WINDOW_COMBINE:
            return self._fold_reason(self._load(spec.vertex.payload_id("function")))
        if kind not in _STEPS:
            return f"{kind.value.lower()} works record by record"
        follows = spec.watermarks if kind is OperatorKind.ASSIGN_TIMESTAMPS else None
        if follows is not None and follows.kind not in ("ascending", "bounded"):
            return "its watermarks are told from each record"
        return None if self.shape is None else self._step_reason(spec, self.shape)

    def _step_reason(self, spec: OperatorSpec, shape: Shape) -> str | None:
        kind = spec.vertex.kind
        if "function" not in spec.vertex.payloads:
            return "event times are the source's own"
        try:
            value = read(as_callable(self._load(spec.vertex.payload_id("function")), _STEPS[kind]))
        except Reading as reason:
            return str(reason)
        self.found.append(ColumnStep(kind, value))
        if kind is OperatorKind.MAP:
            self.shape, problem = mapped_shape(value, shape)
            return problem
        return shape.problem(value) or _kind_reason(shape, value, _KINDS.get(kind))

    def _fold_reason(self, plan: WindowPlan) -> str | None:
        windows = plan.assigner
        if not isinstance(windows, AlignedWindows):
            return "sessions are folded record by record"
        if windows.size_ms % windows.slide_ms:
            return "the size of its windows is no multiple of their slide"
        columns = field_columns(Folding(plan).functions)
        if columns is None:
            return "it has an aggregate that does more than count, or join a value of fields"
        self.columns = columns
        if self.shape is None:
            return None
        values = [column.value for column in columns if column.value is not None]
        problems = (
            self.shape.problem(value) or _kind_reason(self.shape, value, (int, float))
            for value in values
        )
        return next((problem for problem in problems if problem is not None), None)


_STEPS: dict[OperatorKind, str] = {
    OperatorKind.ASSIGN_TIMESTAMPS: "__call__",
    OperatorKind.FILTER: "filter",
    OperatorKind.MAP: "map",
    OperatorKind.KEY_BY: "get_key",
}
# What types of field there may be; other values than those of fields are looked at as they come.
_KINDS: dict[OperatorKind, tuple[type, ...]] = {
    OperatorKind.ASSIGN_TIMESTAMPS: (int,),
    OperatorKind.KEY_BY: (int, str),
}


def _kind_reason(shape: Shape, value: Expression, kinds: tuple[type, ...] | None) -> str | None:
    if kinds is None or shape.kind_of(value) in (None, *kinds):
        return None
    words = " or ".join(kind.__name__ for kind in kinds)
    name = f"field {value.arguments[0]!r}" if value.arguments else "its record"
    return f"{name} is not declared as {words}"


def _choose_folding(
    chain: ChainSpec, load: Load, gives_fields: Callable[[str], bool]
) -> ChainChoice:
    """Choose for a chain whose last step folds a window before the shuffle."""
    choosing = _Choosing(chain, load)
    choosing.go()
    because, source = choosing.because, choosing.source.uid
    blocker = next((uid for uid, reason in because.items() if reason is not None), None)
    if blocker is None and OperatorKind.ASSIGN_TIMESTAMPS not in [
        step.kind for step in choosing.found
    ]:
        blocker, because[source] = source, "event times are the source's own"
    if blocker is None and not gives_fields(source):
        blocker, because[source] = source, "its connector gives records"
    if blocker is not None:
        behind = f"{blocker!r} works on records"
        return ChainChoice(because={uid: reason or behind for uid, reason in because.items()})
    plan = load(chain.operators[-1].vertex.payload_id("function"))
    return ChainChoice(
        because=because,
        steps=ColumnSteps(
            steps=tuple(choosing.found),
            columns=tuple(choosing.columns),
            kinds=choosing.kinds,
            slide_ms=plan.assigner.slide_ms,
            offset_ms=plan.assigner.offset_ms,
        ),
    )


def _window_reason(spec: OperatorSpec, plan: WindowPlan) -> str | None:
    """Return why a window keeps what it holds key by key before it fires."""
    if not spec.vertex.details.get("is_combined", False):
        return "nothing is folded before the shuffle"
    if not isinstance(plan.assigner, AlignedWindows):
        return "sessions are joined key by key"
    if field_columns(Folding(plan).functions) is None:
        return "it has an aggregate that does more than count, or join a value of fields"
    if not plan.assigner.is_tumbling:
        return "its windows overlap, so that what they hold is kept"
    return None if fires_from_columns(plan) else "late records may come, so that all is kept"


def _gives_rows(plan: WindowPlan) -> bool:
    """Tell whether results are there as rows before anybody makes records of them."""
    is_folded = isinstance(plan.assigner, AlignedWindows) and not plan.is_triggered
    return is_folded and not plan.keeps_records


def _sums(folded: Folded) -> list[Any]:
    return (
        sums_of_floats(folded.floats()) if folded.kind == "sum" else sums_of_ints(folded.numbers())
    )


def _extremes(folded: Folded) -> list[tuple[Any]]:
    return list(zip(folded.numbers(), strict=True))


_COLUMNS: dict[type, tuple[str, Callable[[Folded], Sequence[Any]]]] = {
    Count: ("add", Folded.numbers),
    Sum: ("add", _sums),
    Minimum: ("minimum", _extremes),
    Maximum: ("maximum", _extremes),
}
