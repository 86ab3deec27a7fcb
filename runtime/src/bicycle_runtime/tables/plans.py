"""Plans of queries: nodes with columns, and expressions over these columns.

The columns of a node have a name, which queries use, and a field, which is unique in its records.
Names of a query are replaced by fields before it is compiled, so that equal expressions are equal
trees: GROUP BY and SELECT are compared in this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.compiling import Translation, check
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.catalog import Table, no_such
from bicycle_runtime.tables.dialect import StatementDialect, WindowCall, offset_of
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_sdk.expressions import Expression

WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
_POSITION = re.compile(r" \(line \d+, column \d+\)")


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column of a plan: its name in queries, its field in records, and its type."""

    name: str
    field: str
    type: SqlType

    def read(self) -> Expression:
        """Return the expression of its value. JSON values are texts in the records of a plan."""
        if self.type == "JSON":
            return tree.cast(tree.column(self.field, "VARCHAR"), "JSON")
        return tree.column(self.field, self.type)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A node of a plan.

    Args:
        columns: The columns of its rows.
        time: The field with the event time of the records, or None.
    """

    columns: tuple[PlanColumn, ...]
    time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scan(Plan):
    """The rows of a table; ``values`` compute its columns from records."""

    table: Table
    values: tuple[Expression, ...]


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
class AggregateCall:
    """An aggregate of a window: the word of its function, and its argument or None."""

    function: str
    value: Expression | None
    type: SqlType
    is_distinct: bool = False


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


@dataclass(slots=True)
class Relation:
    """A table of FROM: its alias, its plan, and its columns by the names of the query."""

    alias: str
    plan: Plan
    columns: tuple[PlanColumn, ...]
    window: WindowCall | None = None


@dataclass(slots=True)
class NameScope:
    """The names that a query sees."""

    relations: list[Relation] = field(default_factory=list)

    @property
    def columns(self) -> list[PlanColumn]:
        """The columns of all tables."""
        return [column for each in self.relations for column in each.columns]

    def named(self, alias: str, at: int) -> list[Relation]:
        """Return the tables with an alias; all for an empty alias.

        Raises:
            SqlProblem: no table has this alias.
        """
        found = [each for each in self.relations if alias.lower() in ("", each.alias.lower())]
        if not found:
            problem = no_such("table", alias, [each.alias for each in self.relations])
            if any(column.name.lower() == alias.lower() for column in self.columns):
                problem = (
                    f"{alias} is a column; write {alias} ->> 'name' for a part of a JSON value"
                )
            raise SqlProblem(at, problem)
        return found

    def resolve(self, node: exp.Column, default: int) -> PlanColumn:
        """Return the column that a name means.

        Raises:
            SqlProblem: no column has this name, or several have it.
        """
        at, name = offset_of(node, default), node.name
        columns = [column for each in self.named(node.table, at) for column in each.columns]
        found = [column for column in columns if column.name == name]
        if not found:
            found = [column for column in columns if column.name.lower() == name.lower()]
        if len(found) > 1:
            raise SqlProblem(at, f"column {name!r} is ambiguous; write table.{name}")
        if not found:
            raise SqlProblem(at, no_such("column", name, [column.name for column in columns]))
        return found[0]


def inputs_of(plan: Plan) -> list[Plan]:
    """Return the plans whose rows a node reads."""
    found = [getattr(plan, name, None) for name in ("input", "left", "right")]
    return [each for each in [*found, *getattr(plan, "inputs", ())] if each is not None]


def name_nodes(plan: Plan, name: str, names: dict[int, str]) -> None:
    """Name the nodes of a view by identity, down to tables and named nodes.

    A query over the view may read the input of its projection instead.
    """
    if id(plan) not in names and inputs_of(plan):
        names[id(plan)] = name
        for each in inputs_of(plan):
            name_nodes(each, name, names)


# --- expressions ---------------------------------------------------------------------------------


class _Translation(Translation):
    """The translation of expressions, whose errors have positions."""

    def __init__(self, columns: Mapping[str, Expression], at: int) -> None:
        super().__init__(columns)
        self._at = at

    def tree(self, node: exp.Expr) -> Expression:
        try:
            return super().tree(node)
        except ValueError as error:
            problem = _POSITION.sub("", str(error))
            raise SqlProblem(offset_of(node, self._at), problem) from error


def compile_fields(node: exp.Expr, columns: Iterable[PlanColumn], at: int) -> Expression:
    """Return the tree of an expression whose names are fields.

    Raises:
        SqlProblem: a type does not fit, or a function is unknown.
    """
    found = _Translation({column.field: column.read() for column in columns}, at).tree(node)
    try:
        check(found)
    except ValueError as error:
        raise SqlProblem(offset_of(node, at), str(error)) from error
    return found


def compile_in(scope: NameScope, node: exp.Expr, at: int) -> Expression:
    """Return the tree of an expression over the columns of a scope.

    Raises:
        SqlProblem: a name is unknown, or a type does not fit.
    """
    return compile_fields(with_fields(node, scope, at), scope.columns, at)


def with_fields(node: exp.Expr, scope: NameScope, at: int) -> exp.Expr:
    """Return an expression whose names are fields.

    Raises:
        SqlProblem: a name is unknown or ambiguous.
    """

    def replace_name(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            return field_node(scope.resolve(part, at).field, part)
        return part

    found: exp.Expr = node.copy().transform(replace_name)
    return found


def field_node(name: str, written: exp.Expr) -> exp.Column:
    """Return the node of a field, at the position of a part of a query."""
    identifier = exp.Identifier(this=name, quoted=not name.isidentifier())
    starts = [part.meta for part in written.walk() if "start" in part.meta]
    if starts:
        identifier.meta.update(min(starts, key=lambda meta: int(meta["start"])))
    return exp.Column(this=identifier)


def sql_of(node: exp.Expr) -> str:
    """Return an expression as text in one line, with names of columns without quotes."""
    plain = node.copy()
    for identifier in plain.find_all(exp.Identifier):
        identifier.set("quoted", not identifier.name.isidentifier())
    return " ".join(plain.sql(StatementDialect).split())


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
        return Expression(part.operation, *arguments)

    return visit(expression)


def field_read(expression: Expression) -> str | None:
    """Return the field that an expression is, or None for another expression."""
    if expression.operation == "sql.cast" and expression.arguments[0] == "JSON":
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
    if [(column.field, field_read(value)) for column, value in pairs] == [
        (column.field, column.field) for column in plan.columns
    ]:
        return plan
    time = next(
        (column.field for column, value in pairs if plan.time and field_read(value) == plan.time),
        None,
    )
    if not isinstance(plan, Project):
        return Project(columns=tuple(columns), time=time, input=plan, values=tuple(values))
    inner = {column.field: value for column, value in zip(plan.columns, plan.values, strict=True)}
    found = tuple(substitute(value, inner) for value in values)
    return Project(columns=tuple(columns), time=time, input=plan.input, values=found)


def unique_field(name: str, columns: Iterable[PlanColumn]) -> str:
    """Return a name that no column has as its field."""
    taken = {column.field for column in columns}
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
