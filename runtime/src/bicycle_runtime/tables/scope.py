"""The names that a query sees, and its expressions over the columns of plans.

Names are replaced by fields before an expression is compiled, so that equal expressions are equal
trees: GROUP BY and SELECT are compared in this form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.compiling import Translation, check
from bicycle_runtime.expressions.sql.located import locate
from bicycle_runtime.tables.catalog import find_name, no_such
from bicycle_runtime.tables.dialect import StatementDialect, WindowCall, offset_of
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.functions import convert_stored
from bicycle_runtime.tables.moments import fields_of
from bicycle_runtime.tables.plans import (
    WINDOW_COLUMNS,
    Plan,
    PlanColumn,
    Scan,
    WindowRows,
    compose,
    field_read,
    filter_rows,
    unique_field,
)
from bicycle_runtime.tables.python_functions import called
from bicycle_runtime.tables.statements import ColumnDefinition
from bicycle_sdk.expressions import Expression, col, lit

OUTER = "outer."  # The beginning of fields of the query around a query.
_POSITION = re.compile(r" \(line \d+, column \d+\)")


@dataclass(slots=True)
class Relation:
    """A table of FROM: its alias, its plan, and its columns by the names of the query.

    ``merged`` are columns of USING, which are read by the other table if no table is named.
    """

    alias: str
    plan: Plan
    columns: tuple[PlanColumn, ...]
    window: WindowCall | None = None
    merged: frozenset[str] = frozenset()

    def visible(self, alias: str) -> tuple[PlanColumn, ...]:
        """Return the columns that a name with this alias, or without one, may mean."""
        return tuple(column for column in self.columns if alias or column.field not in self.merged)


@dataclass(slots=True)
class NameScope:
    """The names that a query sees; ``outer`` has the names of the query around it."""

    relations: list[Relation] = field(default_factory=list)
    outer: NameScope | None = None

    @property
    def columns(self) -> list[PlanColumn]:
        """The columns of all tables."""
        around = [] if self.outer is None else map(_outer_column, self.outer.columns)
        return [*(column for each in self.relations for column in each.columns), *around]

    def has_name(self, node: exp.Column) -> bool:
        """Return whether a name means a column, perhaps of the query around it."""
        alias, name = node.table.lower(), node.name.lower()
        return (self.outer is not None and self.outer.has_name(node)) or any(
            alias in ("", each.alias.lower())
            and any(name == column.name.lower() for column in each.visible(alias))
            for each in self.relations
        )

    def named(self, alias: str, at: int) -> list[Relation]:
        """Return the tables with an alias; all for an empty alias.

        Raises:
            SqlProblem: no table has this alias.
        """
        found = [each for each in self.relations if alias.lower() in ("", each.alias.lower())]
        if not found:
            problem = no_such("table", alias, [each.alias for each in self.relations])
            if find_name(alias, (column.name for column in self.columns)) is not None:
                problem = self._nested_problem([alias, "name"])
            raise SqlProblem(at, problem)
        return found

    def _nested_problem(self, parts: list[str]) -> str:
        """Return the problem of a name such as ``details.a.b``."""
        is_table = len(parts) > 2 and any(parts[0] == each.alias for each in self.relations)
        first, *keys, last = parts[is_table:]
        types = {column.name: column.type for column in self.columns}
        name = find_name(first, types)
        if name is None:
            return no_such("column", first, types)
        if types[name] not in ("JSON", "VARCHAR"):
            return f"{name} is {types[name]}, which has no parts"
        path = "".join(f" -> '{key}'" for key in keys)
        value = ".".join([*parts[:is_table], name])
        return f"{name} is a column; write {value}{path} ->> '{last}' for a part of a JSON value"

    def resolve(self, node: exp.Column, default: int) -> PlanColumn:
        """Return the column that a name means.

        Raises:
            SqlProblem: no column has this name, or several have it.
        """
        at, name = offset_of(node, default), node.name
        if node.args.get("db"):
            raise SqlProblem(at, self._nested_problem([part.name for part in node.parts]))
        own, outer = NameScope(self.relations), self.outer
        aliases = ("", *(each.alias.lower() for each in self.relations))
        is_outer = outer and (node.table.lower() not in aliases or outer.has_name(node))
        if outer and is_outer and not own.has_name(node):
            return _outer_column(outer.resolve(node, default))
        named = self.named(node.table, at)
        columns = [column for each in named for column in each.visible(node.table)]
        found = [column for column in columns if column.name == name]
        if not (found and node.this.quoted):
            found = [column for column in columns if column.name.lower() == name.lower()]
        if len(found) > 1:
            raise SqlProblem(at, f"column {name!r} is ambiguous; write table.{name}")
        if not found and name.lower() in tree.CLOCKS:
            raise SqlProblem(at, f"{name} is not supported; {tree.OF_OTHERS[name.lower()]}")
        if not found:
            raise SqlProblem(at, no_such("column", name, [column.name for column in columns]))
        return found[0]


def _outer_column(column: PlanColumn) -> PlanColumn:
    return replace(column, field=OUTER + column.field)


def split_and(node: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that AND connects; BETWEEN is two of them."""
    todo, found = [node], list[exp.Expr]()
    while todo:
        part = todo.pop()
        if isinstance(part, exp.Paren):
            todo.append(part.this)
        elif isinstance(part, exp.And):
            todo += [part.right, part.left]
        elif isinstance(part, exp.Between) and not part.args.get("symmetric"):
            found.append(exp.GTE(this=part.this, expression=part.args["low"]))
            found.append(exp.LTE(this=part.this, expression=part.args["high"]))
        else:
            found.append(part)
    return found


def filter_all(plan: Plan, conditions: Sequence[tuple[Expression, exp.Expr]]) -> Plan:
    """Return the rows for which all conditions, with their nodes, are true."""
    if not conditions:
        return plan
    values, nodes = zip(*conditions, strict=True)
    return filter_rows(plan, tree.all_of(values), sql_of(exp.and_(*nodes)))


def is_known(node: exp.Expr, scope: NameScope) -> bool:
    """Return whether a scope has all names of a condition, which reads columns."""
    try:
        with_fields(node, scope, 0)
    except SqlProblem:
        return False
    return any(node.find_all(exp.Column))


def connects(table: Relation, scope: NameScope, conditions: list[exp.Expr]) -> bool:
    """Return whether an equality, or a window, connects a table with a scope."""
    if any(each.window or table.window for each in scope.relations):
        return True
    own, every = NameScope([table]), NameScope([*scope.relations, table])
    return any(
        isinstance(part, exp.EQ) and [is_known(part, each) for each in (every, own, scope)]
        == [True, False, False]
        for part in conditions
    )  # fmt: skip


class _Translation(Translation):
    """The translation of expressions, whose errors have positions."""

    def __init__(self, columns: Mapping[str, Expression], at: int) -> None:
        super().__init__(columns)
        self._at = at

    def tree(self, node: exp.Expr) -> Expression:
        try:
            function = called(node)
            if function is None:
                found = super().tree(node)
            else:
                found = function.call([self.tree(each) for each in node.expressions])
        except ValueError as error:
            problem = _POSITION.sub("", str(error))
            raise SqlProblem(offset_of(node, self._at), problem) from error
        if found.operation == "sql.literal" or field_read(found) is not None:
            return found  # It cannot fail, and a column that is one object is read once.
        return locate(found, offset_of(node, self._at))


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
    named = with_fields(node, scope, at)
    try:
        return compile_fields(named, scope.columns, at)
    except SqlProblem as problem:  # It names fields.
        text = str(problem)
        for part in node.find_all(exp.Column):
            name = scope.resolve(part, at).field
            if name != part.name:
                text = re.sub(rf"\b{re.escape(name)}\b", sql_of(part), text)
        raise SqlProblem(problem.at, text) from problem


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


def window_columns(plan: Plan, window: WindowCall) -> tuple[PlanColumn, ...]:
    """Return the columns of a table in a window function.

    Raises:
        SqlProblem: the time column is not the event time, or a key is unknown.
    """
    names = [column.name for column in plan.columns]
    found = find_name(window.time.text, names)
    if found is None:
        raise SqlProblem(window.time.at, no_such("column", window.time.text, names))
    column = next(each for each in plan.columns if each.name == found)
    if plan.time != column.field:
        time = next((each.name for each in plan.columns if each.field == plan.time), None)
        hint = (
            f"; its event time is {time}"
            if time
            else "; after an interval join, rows have the later time of both sides: select "
            "greatest(a.at, b.at) AS at"
            if plan.spans
            else f": {_time_hint(plan, found)}"
        )
        raise SqlProblem(
            window.time.at, f"{found} is not the event time of {window.table.text}{hint}"
        )
    for key in window.keys:
        if find_name(key.text, names) is None:
            raise SqlProblem(key.at, no_such("column", key.text, names))
    for name in WINDOW_COLUMNS:
        if find_name(name, names):
            raise SqlProblem(window.at, f"{window.table.text} already has a column {name}")
    return (*plan.columns, *(PlanColumn(name, name, "TIMESTAMP") for name in WINDOW_COLUMNS))


def window_rows(
    plan: Plan, window: WindowCall, columns: Sequence[PlanColumn], values: Sequence[Expression]
) -> WindowRows:
    """Return computed columns of a window function, also of its bounds.

    Raises:
        SqlProblem: a column computes with the bounds.
    """
    kept: list[PlanColumn] = [PlanColumn(name, name, "TIMESTAMP") for name in WINDOW_COLUMNS]
    found, inner = [], []
    for column, value in zip(columns, values, strict=True):
        name = field_read(value)
        if name not in WINDOW_COLUMNS:
            if fields_of(value) & {*WINDOW_COLUMNS}:
                problem = f"column {column.name} computes with the window; group by it first"
                raise SqlProblem(window.at, problem)
            name = unique_field(column.field, kept)
            kept.append(replace(column, field=name))
            inner.append(value)
        found.append(replace(column, field=str(name)))
    rows = compose(plan, kept[len(WINDOW_COLUMNS) :], inner) if inner else plan
    return WindowRows(columns=tuple(found), time=rows.time, input=rows, window=window)


def read_stored(
    column: ColumnDefinition, connector: str, *, is_csv: bool, has_fields: bool
) -> Expression:
    """Return the value of a column from the record of a connector."""
    name = column.name.text
    source = col(name) if has_fields else Expression("field_or", name, lit(None))
    if is_csv and not column.type.endswith("[]"):
        text = tree.column(source, "VARCHAR")
        if column.type != "VARCHAR":
            text = tree.call("nullif", text, tree.literal(""))
        value = tree.cast(text, column.type)
    else:
        found = convert_stored(column.type, source, "csv" if is_csv else connector)
        value = tree.column(found, column.type)
    return check_null(value, column, column.name.at)


def check_null(value: Expression, column: ColumnDefinition, at: int) -> Expression:
    """Return the value of a column, which may be an error, with the offset for errors."""
    is_plain = column.is_nullable and value.operation == "sql.literal"
    found = value if column.is_nullable else tree.call("not_null", value)
    return found if is_plain else locate(found, at)


def _time_hint(plan: Plan, column: str) -> str:
    hint = plan.table.time_hint if isinstance(plan, Scan) else ""
    return (
        hint or f"declare WATERMARK FOR {column} AS {column} - INTERVAL '…' SECOND in CREATE TABLE"
    )
