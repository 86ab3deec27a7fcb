"""Plans of queries: nodes with columns, and expressions over these columns.

The columns of a node have a name, which queries use, and a field, which is unique in its records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.located import offsets, with_arguments
from bicycle_runtime.expressions.sql.python_calls import PythonFunction
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.catalog import Table
from bicycle_runtime.tables.dialect import WindowCall
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.moments import fields_of, sum_of
from bicycle_runtime.tables.python_functions import UserFunction
from bicycle_sdk.expressions import Expression

CLOCK = "PROCTIME()"
_DIGEST = 8
HIDDEN = " "  # Begins the names of columns by which rows are sorted only.
WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column of a plan: its name in queries, its field in records, and its type."""

    name: str
    field: str
    type: SqlType

    def read(self) -> Expression:
        """Return the expression of its value. JSON values are texts in the records of a plan."""
        stored = tree.column(self.field, self.type.replace("JSON", "VARCHAR"))
        return tree.cast(stored, self.type)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A node of a plan.

    Args:
        columns: The columns of its rows.
        time: The field with the event time of the records, or None.
        spans: Further fields that differ from the event time by least to most ms. A join needs
            them: bounds of any of these fields are bounds of the event time.
        latest: Fields of which the latest is the event time, after an interval join.
    """

    columns: tuple[PlanColumn, ...]
    time: str | None = None
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    latest: frozenset[str] = frozenset()

    def span(self, name: str) -> tuple[int, int] | None:
        """Return how much a field differs from the event time, in ms, or None."""
        return (0, 0) if name == self.time else self.spans.get(name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scan(Plan):
    """The rows of a table; ``values`` compute its columns from records.

    The rows of a table that ``is_lookup`` are found by key, in a join only.
    """

    table: Table
    values: tuple[Expression, ...]
    is_lookup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneRow(Plan):
    """One row without columns: the input of a query without FROM."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilterRows(Plan):
    """The rows for which a condition is true; ``text`` is the condition as SQL."""

    input: Plan
    condition: Expression
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Project(Plan):
    """Computed columns; ``values`` has an expression for each of ``columns``."""

    input: Plan
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnionAll(Plan):
    """The rows of several inputs, which have the same fields."""

    inputs: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unnest(Plan):
    """A row for each item of an array, and with ``is_outer`` one for an empty array.

    The columns are those of the input, the item, and perhaps its number.
    """

    input: Plan
    value: Expression
    is_outer: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallRows(Plan):
    """The rows that a function in Python returns for each row, beside its columns.

    The columns are those of the input, and those of the rows of the function. With ``is_outer`` a
    call without rows leads to a row.
    """

    input: Plan
    function: UserFunction
    call: PythonFunction
    arguments: tuple[Expression, ...]
    is_outer: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AggregateCall:
    """An aggregate of a window: the word of its function, and its argument or None."""

    function: str
    value: Expression | None
    type: SqlType
    is_distinct: bool = False
    python: UserFunction | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowAggregate(Plan):
    """Aggregates per key and window.

    Its columns are the keys, the bounds of the window (``WINDOW_COLUMNS``), and the aggregates.
    """

    input: Plan
    window: WindowCall
    keys: tuple[Expression, ...]
    aggregates: tuple[AggregateCall, ...]
    lateness_ms: int = 0
    late_readers: list[LateRows] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LateRows(Plan):
    """Input rows that came too late for a window, with the bounds of the window."""

    view: str
    window: WindowAggregate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClockRows(Plan):
    """Rows whose event time is the recorded clock of their epoch, in a column."""

    input: Plan


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field by which rows are sorted."""

    field: str
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SortRows(Plan):
    """The first rows of an input that ends, in an order.

    The input may have further columns. Without ``keys``, the order is that of the rows as text, or
    of the input if it ``is_sorted``.
    """

    input: Plan
    keys: tuple[SortKey, ...]
    limit: int | None
    offset: int
    text: str
    is_sorted: bool = False


JoinKind = Literal["interval", "window", "as_of", "latest", "lookup", "unbounded"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowRows(Plan):
    """The rows of a window function before they are grouped or joined.

    Its columns are those of ``input``, and the bounds of the window (``WINDOW_COLUMNS``), which no
    record has before that. A query can read it; it has no rows of its own.
    """

    input: Plan
    window: WindowCall


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinRows(Plan):
    """Pairs of rows with equal keys.

    Args:
        kind: ``interval`` with ``bounds`` of the right event time minus the left one, ``window``
            with ``window``, ``as_of`` the left event time, ``latest`` version, or ``lookup`` of
            the row by key. The lowering refuses an ``unbounded`` one, whose rows change later, with
            its ``problem``.
        how: The sides whose rows without a match are results, too.
        left, right: The inputs.
        left_values, right_values: For each column of the side, by its field in the result, its
            value over the input. ``stamps`` are fields of bounds of the window, and their distance
            from its end, by side.
        left_keys, right_keys: The keys, over the inputs.
        text: The condition as SQL.
    """

    kind: JoinKind
    how: Literal["inner", "left", "right", "full"]
    left: Plan
    right: Plan
    left_values: Mapping[str, Expression]
    right_values: Mapping[str, Expression]
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    text: str
    bounds: tuple[int, int] = (0, 0)
    window: WindowCall | None = None
    stamps: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
    problem: SqlProblem | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changing(Plan):
    """Rows that change later, which the lowering refuses.

    Args:
        operator: The word of the operator.
        inputs: The plans whose rows it reads.
        parts: Expressions over the inputs, texts and aggregates, by the word of their clause.
        problem: The reason of the refusal, at the position of the clause.
    """

    operator: str
    inputs: tuple[Plan, ...]
    parts: Mapping[str, tuple[Any, ...]]
    problem: SqlProblem


def require_append_only(plan: Plan) -> None:
    """Reject a plan with rows that change later.

    Raises:
        SqlProblem: it has some; of several, the one that is computed first.
    """
    is_changing = isinstance(plan, Changing)  # Its further inputs are queries in expressions.
    for each in inputs_of(plan)[: 1 if is_changing else None]:
        require_append_only(each)
    if isinstance(plan, Changing | JoinRows) and plan.problem is not None:
        raise plan.problem


def inputs_of(plan: Plan) -> list[Plan]:
    """Return the plans whose rows a node reads."""
    found = [getattr(plan, name, None) for name in ("input", "left", "right", "window")]
    return [each for each in [*found, *getattr(plan, "inputs", ())] if isinstance(each, Plan)]


def offset_in(plan: Plan) -> int | None:
    """Return the offset of a node's text, as far as it has one."""
    if isinstance(plan, Scan):
        return plan.table.definition.name.at
    if isinstance(plan, WindowAggregate):
        return plan.window.at
    found = [getattr(plan, name, ()) for name in ("values", "condition", "value")]
    return min(offsets(found), default=None)


def name_nodes(plan: Plan, name: str, names: dict[int, str]) -> None:
    """Name the nodes of a view by identity, down to tables and named nodes.

    A query over the view may read the input of its projection instead.
    """
    if id(plan) not in names and inputs_of(plan):
        names[id(plan)] = name
        for each in inputs_of(plan):
            name_nodes(each, name, names)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Return an expression with the fields that it reads replaced by values.

    Parts that are one object stay one object, and are computed once.
    """
    known: dict[int, Expression] = {}

    def visit(part: Expression) -> Expression:
        found = known.get(id(part))
        if found is None:
            found = known[id(part)] = _visit(part)
        return found

    def _visit(part: Expression) -> Expression:
        name = field_read(part)
        if name is not None:
            return values.get(name, part)
        if not any(isinstance(each, Expression) for each in part.arguments):
            return part
        arguments: list[Any] = [
            visit(each) if isinstance(each, Expression) else each for each in part.arguments
        ]
        return with_arguments(part, arguments)

    return visit(expression)


def field_read(expression: Expression) -> str | None:
    """Return the field that an expression is, or None for another expression."""
    if expression.operation == "sql.cast" and "JSON" in expression.arguments[0]:
        expression = expression.arguments[1]  # As ``PlanColumn.read`` does.
    if expression.operation != "sql.column":
        return None
    source: Expression = expression.arguments[1]
    return str(source.arguments[0]) if source.operation == "field" else None


def compose(plan: Plan, columns: Sequence[PlanColumn], values: Sequence[Expression]) -> Plan:
    """Return a plan with computed columns; projections of projections become one.

    A projection that changes nothing is left out.
    """
    pairs = list(zip(columns, values, strict=True))
    spans = _spans(plan, pairs)
    if [(column, field_read(value)) for column, value in pairs] == [
        (column, column.field) for column in plan.columns
    ]:
        return plan
    time = next((name for name, span in spans.items() if span == (0, 0)), None)
    fields = {field_read(value): column.field for column, value in reversed(pairs)}
    latest = [fields[name] for name in plan.latest if name in fields]
    found, rest = tuple(values), plan
    if isinstance(plan, Project) and not any(map(is_random, plan.values)):
        inner = {each.field: value for each, value in zip(plan.columns, plan.values, strict=True)}
        found, rest = tuple(substitute(value, inner) for value in values), plan.input
    return Project(
        columns=tuple(columns), time=time, spans=spans, input=rest, values=found,
        latest=frozenset(latest if len(latest) == len(plan.latest) else ()),
    )  # fmt: skip


def is_random(expression: Expression) -> bool:
    """Return whether a second computation may have another result."""
    return any(
        not part.is_deterministic
        if isinstance(part, PythonFunction)
        else isinstance(part, Expression) and is_random(part)
        for part in expression.arguments
    )


def _spans(
    plan: Plan, pairs: Sequence[tuple[PlanColumn, Expression]]
) -> dict[str, tuple[int, int]]:
    """Return how much computed columns differ from the event time of a plan."""
    found = {}
    for column, value in pairs:
        factors, constant = sum_of(value) or ({}, 0)
        names = [field_read(part) for part in value.arguments[1:] if isinstance(part, Expression)]
        if value.operation == "sql.greatest" and plan.latest and plan.latest == {*names}:
            found[column.field] = 0, 0
        elif list(factors.values()) == [1] and (span := plan.span(*factors)) is not None:
            found[column.field] = span[0] + constant, span[1] + constant
    return found


def prune(plan: Plan, needed: set[str], inputs: set[int]) -> Plan:
    """Return a plan whose joins store only the fields that are needed.

    Args:
        plan: Filters and joins.
        needed: The fields that are read.
        inputs: The identities of plans that are not changed: other queries may read them.
    """
    if id(plan) in inputs or not isinstance(plan, FilterRows | JoinRows):
        return plan
    if isinstance(plan, FilterRows):
        rows = prune(plan.input, needed | fields_of(plan.condition), inputs)
        return replace(plan, columns=rows.columns, input=rows)
    sides: dict[str, Any] = {}
    for side, keys in (("left", plan.left_keys), ("right", plan.right_keys)):
        every: Mapping[str, Expression] = getattr(plan, f"{side}_values")
        values = {name: value for name, value in every.items() if name in needed}
        read = {name for value in (*values.values(), *keys) for name in fields_of(value)}
        sides[f"{side}_values"] = values
        sides[side] = prune(getattr(plan, side), read, inputs)
    columns = tuple(column for column in plan.columns if column.field in needed)
    left, right = (
        {name: distance for name, distance in stamps.items() if name in needed}
        for stamps in plan.stamps
    )
    return replace(plan, columns=columns, stamps=(left, right), **sides)


def with_clock(plan: Plan) -> ClockRows:
    """Return the rows of a plan with the column ``PROCTIME()`` as event time."""
    clock = PlanColumn(CLOCK, unique_field("proctime", plan.columns), "TIMESTAMP")
    return ClockRows(columns=(*plan.columns, clock), time=clock.field, input=plan)


def require_rows(plan: Plan) -> None:
    """Reject a plan whose rows are neither grouped nor joined by their windows.

    Raises:
        SqlProblem: it is one.
    """
    if isinstance(plan, WindowRows):
        kind = plan.window.kind
        raise SqlProblem(plan.window.at, f"{kind} needs GROUP BY window_start, window_end")


def require_stream(plan: Plan, at: int) -> None:
    """Reject a table whose rows are found by key, where its rows are read.

    Raises:
        SqlProblem: it is one.
    """
    if isinstance(plan, Scan) and plan.is_lookup:
        raise SqlProblem(
            at, f"rows of {plan.table.name} are found by key: write JOIN {plan.table.name} FOR "
            "SYSTEM_TIME AS OF PROCTIME(), or set the option column to read new rows",
        )  # fmt: skip


def filter_rows(plan: Plan, condition: Expression, text: str) -> FilterRows:
    """Return the rows of a plan for which a condition is true; ``text`` is its SQL."""
    return FilterRows(
        columns=plan.columns, time=plan.time, spans=plan.spans, latest=plan.latest, input=plan,
        condition=tree.cast(condition, "BOOLEAN"), text=text,
    )  # fmt: skip


def has_order(plan: Plan) -> bool:
    """Return whether the rows of a plan come in an order, from one subtask."""
    while isinstance(plan, FilterRows | Project):
        plan = plan.input
    return isinstance(plan, SortRows)


def digest_of(parts: Iterable[str]) -> str:
    """Return a digest of the parts of a plan on which a state depends."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGEST]


def unique_field(name: str, columns: Iterable[PlanColumn]) -> str:
    """Return a name that no column has as its field."""
    taken = {column.field for column in columns}
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
