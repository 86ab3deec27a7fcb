"""The binding of queries: each becomes a plan, or an error at its position.

A table or view that several queries read has one plan, so that its source is read once. Columns
that are only NULL have the type NULL until they are inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.types import common_type, decimal_digits, implicit_distance
from bicycle_runtime.tables.catalog import NO_NAME, Catalog, Table, find_name, no_such
from bicycle_runtime.tables.changing import NestedParts
from bicycle_runtime.tables.dialect import Query, WindowCall, offset_of
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.grouping import Grouping, is_aggregate, name_of, written_values
from bicycle_runtime.tables.joins import JoinBinder
from bicycle_runtime.tables.lateness import LATE, late_rows, lateness_hint, require_final
from bicycle_runtime.tables.moments import fields_of
from bicycle_runtime.tables.ordering import sort_rows, split_order
from bicycle_runtime.tables.plans import (
    CLOCK,
    WINDOW_COLUMNS,
    OneRow,
    Plan,
    PlanColumn,
    Scan,
    UnionAll,
    WindowRows,
    compose,
    filter_rows,
    name_nodes,
    prune,
    require_rows,
    require_stream,
    substitute,
    unique_field,
    with_clock,
)
from bicycle_runtime.tables.python_functions import with_functions
from bicycle_runtime.tables.rejections import (
    check_clauses,
    check_select,
    check_union,
    is_nested,
    nested_parts,
    reject_source,
)
from bicycle_runtime.tables.scope import (
    NameScope,
    Relation,
    check_null,
    compile_in,
    read_stored,
    split_and,
    sql_of,
    window_columns,
    window_rows,
)
from bicycle_runtime.tables.statements import ColumnDefinition, CreateView, Insert
from bicycle_runtime.tables.unnesting import add_unnest, split_unnests
from bicycle_sdk.expressions import Expression


class Binder:
    """Binds the queries of a file.

    Args:
        catalog: The tables and views.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._plans: dict[str, Plan] = {}
        self._views: dict[str, Plan] = {}
        self._open: list[str] = []  # Views whose queries are being bound.

    def insert(self, statement: Insert) -> tuple[Table, Plan]:
        """Return the target of an INSERT, and the plan of rows with exactly its columns.

        Raises:
            SqlProblem: the query is wrong, or does not fit the table.
        """
        table = self.catalog.target(statement.name)
        targets = table.targets(statement.columns)
        plan = self.query(statement.query)
        require_rows(plan)
        if not table.definition.key:
            require_final(plan, statement.name.at, f"{table.name} needs a PRIMARY KEY")
        if len(targets) != len(plan.columns):
            names = ", ".join(column.name.text for column in targets)
            raise SqlProblem(
                statement.query.at,
                f"{table.name} takes {len(targets)} columns ({names}), the query has "
                f"{len(plan.columns)}: {', '.join(column.name for column in plan.columns)}",
            )
        texts = written_values(statement.query.tree, plan.columns)
        given = {
            target.name.text: _assign_value(target, column, statement.query.at, text)
            for target, column, text in zip(targets, plan.columns, texts, strict=True)
        }
        values, columns = [], []
        for stored in table.stored_columns:
            name = stored.name.text
            value = given.get(name, tree.literal(None, stored.type))
            values.append(check_null(value, stored, statement.query.at))
            columns.append(PlanColumn(name, name, stored.type))
        return table, compose(plan, columns, values)

    def query(self, query: Query) -> Plan:
        """Return the plan of a query.

        Raises:
            SqlProblem: it is wrong.
        """
        check_clauses(query.tree, lambda node: offset_of(node, query.at))
        bound = with_functions(query.tree, self.catalog.functions)
        return _QueryBinder(self, query, {}).bind(bound)

    def names(self) -> dict[int, str]:
        """Return the names of views, by the identity of the nodes of their plans."""
        found: dict[int, str] = {}
        for view, plan in self._views.items():
            if not view.startswith(NO_NAME):
                name_nodes(plan, view, found)
        return found

    def relation(self, name: str, at: int) -> Plan:
        """Return the plan of a table or view.

        Raises:
            SqlProblem: no table or view has this name, or its definition is wrong.
        """
        key = name.lower()
        view = key.removesuffix(LATE)
        if view != key and key not in self._plans:
            plan = self.relation(view, at)
            self._plans[key] = late_rows(self.names().get(id(plan), view), plan, at)
        if key in self._plans:
            return self._plans[key]
        found = self.catalog.find(name, at)
        if isinstance(found, CreateView):
            self._plans[key] = self._views[found.name.text] = self._view(found, at)
        else:
            self._plans[key] = self._scan(found, at)
        return self._plans[key]

    def attach(self, name: str, plan: Plan) -> None:
        """Make a plan the rows of a table that no query has read from its connector."""
        self._plans.setdefault(name.lower(), plan)

    def _view(self, view: CreateView, at: int) -> Plan:
        name = view.name.text
        if name.lower() in self._open:
            raise SqlProblem(at, self.catalog.show_cycle(name, self._open))
        self._open.append(name.lower())
        try:
            plan = self.query(view.query)
        finally:
            self._open.pop()
        if not view.columns:
            return plan
        names = [column.text for column in view.columns]
        return _with_names(plan, names, view.columns[0].at)

    def _scan(self, table: Table, at: int) -> Scan:
        keys, is_lookup = self.catalog.source(table, at), self.catalog.is_lookup(table)
        is_csv = keys is not None and (keys.is_csv or getattr(keys, "format", "") == "csv")
        connector = "" if keys is None else keys.connector_name
        has_fields = table.has_fields or is_lookup
        stored = {
            column.name.text: read_stored(column, connector, is_csv=is_csv, has_fields=has_fields)
            for column in table.stored_columns
        }
        known = tuple(
            PlanColumn(column.name.text, column.name.text, column.type)
            for column in table.stored_columns
        )
        scope = NameScope([Relation(table.name, Plan(columns=known), known)])
        columns, values = [], []
        for column in table.columns:
            name, kind = column.name.text, column.type
            if column.value is None:
                value = stored[name]
            else:
                given = with_functions(column.value, self.catalog.functions)
                bound = compile_in(scope, given, column.name.at)
                value, kind = substitute(bound, stored), tree.type_of(bound)
            columns.append(PlanColumn(name, name, kind))
            values.append(value)
        time = _time(table, columns)
        return Scan(
            columns=tuple(columns), values=tuple(values), table=table, time=time,
            is_lookup=is_lookup,
        )  # fmt: skip


def _time(table: Table, columns: Sequence[PlanColumn]) -> str | None:
    watermark = table.definition.watermark
    if watermark is None:
        return None
    names = [column.name for column in columns]
    name = find_name(watermark.column.text, names)
    if name is None:
        raise SqlProblem(watermark.column.at, no_such("column", watermark.column.text, names))
    found = next(column for column in columns if column.name == name)
    if found.type != "TIMESTAMP":
        raise SqlProblem(
            watermark.column.at,
            f"the watermark column {name} is {found.type}; expected TIMESTAMP(3)",
        )
    return found.field


def _assign_value(target: ColumnDefinition, column: PlanColumn, at: int, text: str) -> Expression:
    digits = decimal_digits(column.type), decimal_digits(target.type)
    is_exact = digits[0] is not None and digits[1] is not None and digits[0][1] <= digits[1][1]
    if implicit_distance(column.type, target.type) is None and not is_exact:
        raise SqlProblem(
            at,
            f"column {target.name.text} is {target.type}, but {text} of the query is {column.type}"
            f"; write CAST({text} AS {target.type})",
        )
    return tree.cast(column.read(), target.type)


def _rename(columns: Sequence[PlanColumn], names: Sequence[str], at: int) -> tuple[PlanColumn, ...]:
    """Return columns with other names; their fields stay.

    Raises:
        SqlProblem: there are more or fewer names.
    """
    if len(names) != len(columns):
        text = f"the query has {len(columns)} columns, but the list of names has {len(names)}"
        raise SqlProblem(at, text)
    return tuple(replace(each, name=name) for name, each in zip(names, columns, strict=True))


def _with_names(plan: Plan, names: Sequence[str], at: int) -> Plan:
    columns = _rename(plan.columns, names, at)
    if isinstance(plan, WindowRows):
        return replace(plan, columns=columns)
    # A copy of another plan would be a further plan, whose source is read a second time.
    return compose(plan, columns, [column.read() for column in plan.columns])


class _QueryBinder:
    """Binds the SELECTs of one query.

    Args:
        binder: Has the plans of tables and views.
        query: The query.
        named: The plans of WITH, by name.
        outer: The names of the query around it.
    """

    def __init__(
        self, binder: Binder, query: Query, named: Mapping[str, Plan],
        outer: NameScope | None = None,
    ) -> None:  # fmt: skip
        self._binder, self._query, self._named = binder, query, dict(named)
        self._outer, self._nested = outer, NestedParts(self._bind_inner, self.at)

    def _bind_inner(self, node: exp.Expr, scope: NameScope) -> Plan:
        return _QueryBinder(self._binder, self._query, self._named, scope).bind(node)

    def bind(self, node: exp.Expr) -> Plan:
        """Return the plan of a SELECT or a UNION ALL."""
        with_ = node.args.get("with_")
        if with_ is not None:
            inner = _QueryBinder(self._binder, self._query, self._named, self._outer)
            inner._add_named(with_)
            rest = node.copy()
            rest.set("with_", None)
            return inner.bind(rest)
        order = split_order(node, self.at)
        if order is not None:
            return sort_rows(self.bind(order.query), order, self._binder.catalog, self.at)
        if isinstance(node, exp.Subquery) and not node.args.get("alias"):
            return self.bind(node.this)
        if isinstance(node, exp.SetOperation):
            return self._union(node)
        if not isinstance(node, exp.Select):
            raise SqlProblem(self.at(node), "expected SELECT … FROM …")
        return self._select(node)

    def at(self, node: exp.Expr) -> int:
        """Return the offset of a part of the query."""
        return offset_of(node, self._query.at)

    def _add_named(self, with_: exp.Expr) -> None:
        if with_.args.get("recursive"):
            raise SqlProblem(self.at(with_), "WITH RECURSIVE is not supported on streams")
        own: set[str] = set()
        for each in with_.expressions:
            name = each.alias.lower()
            if name in own:
                raise SqlProblem(self.at(each.args["alias"]), f"{each.alias} is defined twice")
            own.add(name)
            plan = self.bind(each.this)
            names = [column.name for column in each.args["alias"].args.get("columns") or []]
            if names:
                plan = _with_names(plan, names, self.at(each.args["alias"]))
            self._named[name] = plan

    def _union(self, node: exp.SetOperation) -> Plan:
        check_union(node, self.at(node))
        sides = _operands(node)
        parts = [self.bind(side) for side in sides]
        first = parts[0]
        for side, part in zip(sides, parts, strict=True):
            require_rows(part)
            if len(part.columns) != len(first.columns):
                raise SqlProblem(
                    self.at(side),
                    f"the queries of UNION ALL have {len(first.columns)} and "
                    f"{len(part.columns)} columns",
                )
        columns: list[PlanColumn] = []
        for index, column in enumerate(first.columns):
            words = [part.columns[index].type for part in parts]
            kind = common_type(words)
            if kind is None:
                raise SqlProblem(
                    self.at(node),
                    f"column {column.name} of UNION ALL has the types {', '.join(words)}; cast one "
                    "of them",
                )
            columns.append(PlanColumn(column.name, unique_field(column.name, columns), kind))
        inputs = []
        for part in parts:
            pairs = zip(part.columns, columns, strict=True)
            values = [tree.cast(own.read(), column.type) for own, column in pairs]
            inputs.append(compose(part, columns, values))
        times = {each.time for each in inputs}
        time = times.pop() if len(times) == 1 else None
        return UnionAll(columns=tuple(columns), inputs=tuple(inputs), time=time)

    # --- SELECT ------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> Plan:
        node, unnests = split_unnests(node, self.at)
        check_select(node, self.at)
        from_, where = node.args.get("from_"), node.args.get("where")
        if from_ is None:
            relation = Relation("", OneRow(columns=()), ())
        else:
            relation = self._relation(from_.this)
            require_stream(relation.plan, self.at(from_.this))
        node, nested = _split_nested(node)
        where = node.args.get("where")
        scope, condition = NameScope([relation], self._outer), where and where.this
        for each in unnests:
            relation.plan = add_unnest(each, relation.plan, scope, self.at)
        if where is not None:
            self._check_where(where.this, scope if not node.args.get("joins") else NameScope())
        inputs = {id(relation.plan)}
        if node.args.get("joins"):
            binder = JoinBinder(self._relation, self.at)
            relation, scope, condition = binder.bind(node, scope)
            inputs = binder.inputs
        if condition is not None:
            relation.plan = self._filter(relation.plan, condition, scope)
        for each in nested:
            self._check_where(each, NameScope())
            read = self._nested.extract(each, relation, scope)
            relation.plan = self._filter(relation.plan, read, scope, each)
        has_aggregates = any(
            is_aggregate(part) for item in node.expressions for part in item.walk(prune=is_nested)
        )
        if node.args.get("group") or has_aggregates or node.args.get("having"):
            plan, items = Grouping(
                node, scope, relation, self.at, extract=self._nested.extract
            ).bind()
        elif lateness_hint(node, self.at(node)) is not None:
            raise SqlProblem(self.at(node), "the hint needs a window in FROM, such as TUMBLE")
        else:
            items = list(self._items(node.expressions, relation, scope))
            needed = {name for _, value in items for name in fields_of(value)}
            plan = relation.plan = prune(relation.plan, needed, inputs)
        columns: list[PlanColumn] = []
        for name, value in items:
            columns.append(PlanColumn(name, unique_field(name, columns), tree.type_of(value)))
        values = [value for _, value in items]
        if plan is relation.plan and relation.window is not None:
            return window_rows(plan, relation.window, columns, values)
        return compose(plan, columns, values)

    def _relation(self, node: exp.Expr) -> Relation:
        reject_source(node, self.at(node))
        alias_node: Any = node.args.get("alias")
        alias = alias_node.name if alias_node is not None else ""
        names = [] if alias_node is None else alias_node.args.get("columns") or []
        window: WindowCall | None = None
        if isinstance(node, exp.Subquery):
            plan = self.bind(node.this)
        elif isinstance(node, exp.Table):
            window = self._query.windows.get(node.name)
            name = node.name if window is None else window.table.text
            at = self.at(node) if window is None else window.table.at
            plan = self._named.get(name.lower()) or self._binder.relation(name, at)
            alias = alias or name
        else:
            raise SqlProblem(self.at(node), "expected a table, a view or a query in parentheses")
        columns = plan.columns
        if isinstance(plan, WindowRows) and window is None:
            window, plan = plan.window, plan.input
        elif window is not None:
            require_rows(plan)
            plan = with_clock(plan) if window.time.text == CLOCK else plan
            columns = tuple(each for each in window_columns(plan, window) if each.name != CLOCK)
        if names:
            columns = _rename(columns, [each.name for each in names], self.at(alias_node))
        return Relation(alias, plan, columns, window)

    def _check_where(self, node: exp.Expr, scope: NameScope) -> None:
        for part in node.walk(prune=is_nested):
            if is_aggregate(part):
                raise SqlProblem(self.at(part), "an aggregate is not possible in WHERE; use HAVING")
            is_pending = any(each.window is not None for each in scope.relations)
            if not is_pending or not isinstance(part, exp.Column):
                continue
            if scope.resolve(part, self._query.at).field in WINDOW_COLUMNS:
                raise SqlProblem(self.at(part), f"{part.name} is not possible in WHERE; use HAVING")

    def _filter(
        self, plan: Plan, condition: exp.Expr, scope: NameScope, written: exp.Expr | None = None
    ) -> Plan:
        bound = compile_in(scope, condition, self._query.at)
        if tree.type_of(bound) not in ("BOOLEAN", "NULL"):
            raise SqlProblem(
                self.at(condition), f"WHERE is {tree.type_of(bound)}; expected BOOLEAN"
            )
        require_final(plan, self.at(condition), "WHERE cannot remove former results")
        return filter_rows(plan, bound, sql_of(written or condition))

    def _items(
        self, items: Sequence[exp.Expr], relation: Relation, scope: NameScope
    ) -> Iterable[tuple[str, Expression]]:
        """Yield the name and the value of each column of SELECT."""
        for index, item in enumerate(items):
            inner: Any = item.unalias()
            star = inner.this if isinstance(inner, exp.Column) else inner
            if isinstance(star, exp.Star):
                if any(star.args.values()):
                    raise SqlProblem(
                        self.at(star), "* EXCEPT, EXCLUDE and REPLACE are not supported"
                    )
                table = inner.table if isinstance(inner, exp.Column) else ""
                if not scope.columns:
                    raise SqlProblem(self.at(star), "* needs a table: SELECT * FROM table")
                for each in scope.named(table, self.at(inner)):
                    yield from ((column.name, column.read()) for column in each.visible(table))
                continue
            inner = self._nested.extract(inner, relation, scope)
            value = compile_in(scope, inner, self._query.at)
            yield name_of(item, index, scope, self._query.at), value


def _split_nested(node: exp.Select) -> tuple[exp.Select, list[exp.Expr]]:
    """Split off the conditions of WHERE that contain queries."""
    where = node.args.get("where")
    parts = [] if where is None or not nested_parts(where) else split_and(where.this)
    found = [part for part in parts if nested_parts(exp.Paren(this=part.copy()))]
    if not found:
        return node, []
    plain = [part for part in parts if part not in found]
    rest = node.copy()
    rest.set("where", exp.Where(this=exp.and_(*plain)) if plain else None)
    return rest, found


_NOT_PLAIN = ("distinct", "with_", "by_name", "order", "limit", "offset")


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the queries of a chain of UNION ALL, from left to right."""
    todo: list[exp.Expr] = [node]
    found: list[exp.Expr] = []
    while todo:
        part = todo.pop()
        is_plain = not any(part.args.get(name) for name in (*_NOT_PLAIN, "alias"))
        if is_plain and isinstance(part, exp.Subquery):
            todo.append(part.this)
        elif is_plain and isinstance(part, exp.Union):
            todo += [part.right, part.left]
        else:
            found.append(part)
    return found
