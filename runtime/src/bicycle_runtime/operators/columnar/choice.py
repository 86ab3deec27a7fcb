"""The choice of columns: which operators of a chain work on columns, and why the others do not.

``choose`` decides it from code and declared types and calls nothing of the user's, so that
``bicycle plan`` says what workers do. What only data can tell is asked of each batch
(``ChainOnColumns.take``) and of each window that is due (``ColumnMerge``).

A chain works on columns from its source to the step that folds a window, or not at all.

Source: ADR-0030 (one way through windows).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple

from bicycle_runtime.operators.columnar.folded import Folded
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import ChainSpec, OperatorSpec, StagePlan
from bicycle_runtime.records.rows import plain_fields
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.windows import AlignedWindows, Count, Maximum, Minimum, Sum, WindowPlan
from bicycle_sdk.windows.aggregates import sums_of_floats, sums_of_ints

__all__ = [
    "ChainChoice",
    "ColumnSteps",
    "FieldColumn",
    "choose",
    "choose_all",
    "field_columns",
    "field_of",
    "fires_from_columns",
]

Load = Callable[[str], Any]


class FieldColumn(NamedTuple):
    """The accumulators of one aggregate as a column of numbers.

    ``field`` is what it folds, None for the number of records; ``ufunc`` names the function that
    joins two of them; ``accumulators`` makes those that are kept.
    """

    field: str | None
    ufunc: str
    accumulators: Callable[[Folded], Sequence[Any]]

    @property
    def is_sum(self) -> bool:
        """Whether it adds numbers up."""
        return self.ufunc == "add"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSteps:
    """What a chain does with columns.

    ``times`` are the fields of event times, one for each step that assigns them; the last one
    counts. Windows begin at multiples of ``slide_ms`` from ``offset_ms``.
    """

    times: tuple[str, ...]
    key: str
    columns: tuple[FieldColumn, ...]
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
    because: dict[str, str | None] = dict.fromkeys(uids, "no window folds what its chain gives")
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
    for uid in found:
        folding = f"{uid}-combine"
        if found[uid] is None and found.get(folding) is not None:
            found[uid] = f"{folding!r} works on records"
    return found


def fires_from_columns(plan: WindowPlan) -> bool:
    """Tell whether what was merged in columns may fire without being kept before."""
    windows = plan.assigner
    is_tumbling = isinstance(windows, AlignedWindows) and windows.is_tumbling
    return is_tumbling and not plan.lateness_ms and plan.process is None


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


def _choose_folding(
    chain: ChainSpec, load: Load, gives_fields: Callable[[str], bool]
) -> ChainChoice:
    """Choose for a chain whose last step folds a window before the shuffle."""
    source, *steps = chain.operators
    record_type = steps[-1].input_type
    fields = plain_fields(load(record_type) if record_type is not None else None)
    assigns, ends = (
        OperatorKind.ASSIGN_TIMESTAMPS,
        [OperatorKind.KEY_BY, OperatorKind.WINDOW_COMBINE],
    )
    kinds = [*[assigns] * (len(steps) - 2), *ends][-len(steps) :]
    because = {
        spec.uid: _step_reason(spec, kind, fields, load)
        for spec, kind in zip(steps, kinds, strict=True)
    }
    if len(steps) < 3:
        because[source.uid] = "event times are the source's own"
    else:
        because[source.uid] = None if fields else "its records have no type with plain fields"
    blocker = next((uid for uid, reason in because.items() if reason is not None), None)
    if blocker is None and not gives_fields(source.uid):
        blocker, because[source.uid] = source.uid, "its connector gives records"
    if blocker is not None:
        behind = f"{blocker!r} works on records"
        return ChainChoice(because={uid: reason or behind for uid, reason in because.items()})
    *between, key_by, combine = steps
    plan = load(combine.vertex.payload_id("function"))
    return ChainChoice(
        because=because,
        steps=ColumnSteps(
            times=tuple(str(_field(spec, load)) for spec in between),
            key=str(_field(key_by, load)),
            columns=tuple(field_columns(Folding(plan).functions) or ()),
            slide_ms=plan.assigner.slide_ms,
            offset_ms=plan.assigner.offset_ms,
        ),
    )


def _step_reason(
    spec: OperatorSpec, kind: OperatorKind, fields: Mapping[str, type], load: Load
) -> str | None:
    """Return why a step behind the source must see records; only ``kind`` need not at its place."""
    if spec.vertex.kind is not kind:
        return f"{spec.vertex.kind.value.lower()} works record by record"
    if kind is OperatorKind.WINDOW_COMBINE:
        return _fold_reason(load(spec.vertex.payload_id("function")), fields)
    if kind is OperatorKind.KEY_BY:
        return _field_reason(spec, load, fields, (int, str))
    follows = spec.watermarks
    if follows is not None and follows.kind not in ("ascending", "bounded"):
        return "its watermarks are told from each record"
    return _field_reason(spec, load, fields, (int,))


def _field_reason(
    spec: OperatorSpec, load: Load, fields: Mapping[str, type], kinds: tuple[type, ...]
) -> str | None:
    name = _field(spec, load)
    if name is None:
        return "its function does more than look up a field"
    if fields.get(name) in kinds:
        return None
    return f"field {name!r} is not declared as {' or '.join(kind.__name__ for kind in kinds)}"


def _fold_reason(plan: WindowPlan, fields: Mapping[str, type]) -> str | None:
    windows = plan.assigner
    if not isinstance(windows, AlignedWindows):
        return "sessions are folded record by record"
    if windows.size_ms % windows.slide_ms:
        return "the size of its windows is no multiple of their slide"
    columns = field_columns(Folding(plan).functions)
    if columns is None:
        return "it has an aggregate that does more than count, or join a field"
    named = (column.field for column in columns if column.field is not None)
    other = next((name for name in named if fields.get(name) not in (int, float)), None)
    return None if other is None else f"field {other!r} is not declared as int or float"


def _window_reason(spec: OperatorSpec, plan: WindowPlan) -> str | None:
    """Return why a window keeps what it holds key by key before it fires."""
    if not spec.vertex.details.get("is_combined", False):
        return "nothing is folded before the shuffle"
    if not isinstance(plan.assigner, AlignedWindows):
        return "sessions are joined key by key"
    if field_columns(Folding(plan).functions) is None:
        return "it has an aggregate that does more than count, or join a field"
    if not plan.assigner.is_tumbling:
        return "its windows overlap, so that what they hold is kept"
    return None if fires_from_columns(plan) else "late records may come, so that all is kept"


def _gives_rows(plan: WindowPlan) -> bool:
    """Tell whether results are there as rows before anybody makes records of them."""
    is_folded = isinstance(plan.assigner, AlignedWindows) and not plan.is_triggered
    return is_folded and not plan.keeps_records


def _field(spec: OperatorSpec, load: Load) -> str | None:
    """Return the field that the function of a step looks up, None when it does anything else."""
    if "function" not in spec.vertex.payloads:
        return None
    return field_of(load(spec.vertex.payload_id("function")))


def field_of(function: Any) -> str | None:
    """Return the attribute that a function looks up in its argument, if that is all that it does.

    Example:
        >>> field_of(lambda reading: reading.sensor), field_of(attrgetter("sensor"))
        ('sensor', 'sensor')
        >>> field_of(lambda reading: reading.sensor.lower()), field_of(attrgetter("a", "b"))
        (None, None)
    """
    if type(function) is attrgetter:
        names = function.__reduce__()[1]
        return names[0] if len(names) == 1 and names[0].isidentifier() else None
    if not isinstance(function, FunctionType):
        return None
    code, model = function.__code__, _look_up.__code__
    shape = (code.co_code, code.co_argcount, code.co_kwonlyargcount, len(code.co_names))
    if shape != (model.co_code, 1, 0, 1) or code.co_cellvars or code.co_exceptiontable:
        return None
    return code.co_names[0]


def _look_up(record: Any) -> Any:
    return record.name


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
