"""The binding of GROUP BY: keys and aggregates become columns of an aggregation.

SELECT and HAVING are bound over these columns. The rows of a key in a window are final when the
window ends, so the result is append-only; an aggregation without a window is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.compiling import AGGREGATES, OTHER_AGGREGATES
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.dialect import Name, WindowCall
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.functions import average_type
from bicycle_runtime.tables.keys import encoded_key
from bicycle_runtime.tables.lateness import lateness_hint, require_final
from bicycle_runtime.tables.plans import (
    HIDDEN,
    WINDOW_COLUMNS,
    AggregateCall,
    Changing,
    Plan,
    PlanColumn,
    WindowAggregate,
    field_read,
    filter_rows,
    unique_field,
)
from bicycle_runtime.tables.python_functions import UserFunction, called
from bicycle_runtime.tables.rejections import nested_parts, nested_problem
from bicycle_runtime.tables.scope import (
    NameScope,
    Relation,
    compile_fields,
    compile_in,
    field_node,
    sql_of,
    with_fields,
)
from bicycle_sdk.expressions import Expression

_NUMBERS = ("BIGINT", "DOUBLE", "NULL")
_OVER_GROUPS = "or write the GROUP BY in a view"
_NO_WINDOW = (
    "an aggregation without a window changes its rows with each input row, which is not supported "
    "yet; read FROM TUMBLE(TABLE …, DESCRIPTOR(…), INTERVAL '…' MINUTE) and GROUP BY window_start, "
    "window_end"
)


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a part of a query is the call of an aggregate."""
    if not isinstance(node, exp.Anonymous):
        return False
    name, function = str(node.this).lower(), called(node)
    if function is not None:
        return function.aggregate is not None
    return name in AGGREGATES or name in OTHER_AGGREGATES


def name_of(item: exp.Expr, index: int, scope: NameScope, at: int) -> str:
    """Return the name of a column of SELECT: its alias, column or function."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    inner = item
    while isinstance(inner, exp.Cast | exp.TryCast | exp.Paren | exp.Filter):
        inner = inner.this
    if isinstance(inner, exp.Column):
        return scope.resolve(inner, at).name
    return str(inner.this).lower() if isinstance(inner, exp.Anonymous) else f"column{index + 1}"


def written_values(query: exp.Expr, columns: Sequence[PlanColumn]) -> list[str]:
    """Return the columns of a query as they are written, or else their names."""
    items = query.expressions if isinstance(query, exp.Select) else []
    if len(items) != len(columns) or any(each.is_star for each in items):
        return [column.name for column in columns]
    return [sql_of(each.unalias()) for each in items]


class Grouping:
    """Binds a SELECT with GROUP BY over a window function.

    Args:
        node: The SELECT.
        scope: Its names.
        relation: The table that it reads.
        at: Returns the offset of a part of the query.
        extract: Moves queries out of an expression over a plan.
    """

    def __init__(
        self, node: exp.Select, scope: NameScope, relation: Relation,
        at: Callable[[exp.Expr], int], *, extract: Callable[..., exp.Expr],
    ) -> None:  # fmt: skip
        self._node, self._scope, self._relation, self._at = node, scope, relation, at
        self._extract, self._queries = extract, list[exp.Expr]()
        self._default = at(node)
        self._keys: list[tuple[exp.Expr, PlanColumn, Expression]] = []
        self._aggregates: list[tuple[exp.Expr, PlanColumn, AggregateCall]] = []

    def bind(self) -> tuple[Plan, list[tuple[str, Expression]]]:
        """Return the plan, and the name and the value of each column of SELECT."""
        relation, having = self._relation, self._node.args.get("having")
        group = self._node.args.get("group")
        lateness_ms = lateness_hint(self._node, self._default)
        self._bind_keys(relation.window, group)
        items = [self._item(index, item) for index, item in enumerate(self._node.expressions)]
        condition = None if having is None else self._over_groups(having.this)
        plan = self._plan(self._at(group or self._node.expressions[0]), lateness_ms or 0)
        parts = [node for _, node in items] + ([] if condition is None else [condition])
        plan, parts = self._extract_queries(plan, parts)
        items = [(name, node) for (name, _), node in zip(items, parts, strict=False)]
        columns, condition = plan.columns, condition and parts[-1]
        if condition is not None and having is not None:
            bound = compile_fields(condition, columns, self._default)
            if tree.type_of(bound) not in ("BOOLEAN", "NULL"):
                raise SqlProblem(
                    self._at(having), f"HAVING is {tree.type_of(bound)}; expected BOOLEAN"
                )
            require_final(plan, self._at(having), "HAVING cannot remove former results")
            plan = filter_rows(plan, bound, sql_of(having.this))
        values = [(name, compile_fields(node, columns, self._default)) for name, node in items]
        return plan, values

    def _plan(self, at: int, lateness_ms: int) -> Plan:
        """Return the aggregation, by windows or event times if it has some."""
        window, rows = self._relation.window, self._relation.plan
        columns = [column for _, column, _ in self._keys]
        found = [column for _, column, _ in self._aggregates]
        keys = tuple(value for _, _, value in self._keys)
        aggregates = tuple(aggregate for _, _, aggregate in self._aggregates)
        times = {
            column.field: span
            for column, value in zip(columns, keys, strict=True)
            if (span := rows.span(field_read(value) or "")) is not None and span[0] == span[1]
        }
        if window is None and not times:
            return Changing(
                columns=(*columns, *found), operator="AGGREGATE", inputs=(rows,),
                parts={"GROUP BY": keys, "": aggregates}, problem=SqlProblem(at, _NO_WINDOW),
            )  # fmt: skip
        if window is None:  # Rows with the same event time are a window of a millisecond.
            name = Name(next(iter(times)), at)
            window = WindowCall(
                kind="TUMBLE", table=name, time=name, intervals_ms={"SIZE": 1}, at=at
            )
        require_final(rows, window.at, "a second window would count them twice")
        bounds = [PlanColumn(name, name, "TIMESTAMP") for name in WINDOW_COLUMNS]
        plan = WindowAggregate(
            columns=(*columns, *bounds, *found), time="window_time", input=rows, window=window,
            spans={**_window_spans(window), **times}, keys=keys, aggregates=aggregates,
            lateness_ms=lateness_ms,
        )  # fmt: skip
        if window.kind == "SESSION":
            require_final(plan, window.at, "SESSION cannot remove former results")
        return plan

    def _bind_keys(self, window: WindowCall | None, group: exp.Expr | None) -> None:
        windows: set[str] = set()
        for each in () if group is None else group.expressions:
            node = self._key_of(each)
            for part in node.walk():
                if is_aggregate(part):
                    raise SqlProblem(self._at(part), "an aggregate is not possible in GROUP BY")
            named = with_fields(node, self._scope, self._at(each))
            if window and isinstance(named, exp.Column) and named.name in WINDOW_COLUMNS:
                windows.add(named.name)
                continue
            value = compile_in(self._scope, node, self._at(each))
            if window and _reads_window(named):
                raise SqlProblem(
                    self._at(node), "group by window_start and window_end themselves, and compute "
                    "in SELECT",
                )  # fmt: skip
            kind = tree.type_of(value)
            require_comparable(kind, self._at(node), "GROUP BY")
            self._keys.append((named, self._column(sql_of(node), kind), value))
        if window is None:
            return
        if not windows & {"window_start", "window_end"}:
            raise SqlProblem(
                window.at if group is None else self._at(group),
                f"rows of {window.kind} are grouped by their window: add window_start, window_end "
                "to GROUP BY",
            )
        self._check_session_keys(window)

    def _check_session_keys(self, window: WindowCall) -> None:
        """Require that PARTITION BY of a session names the keys of GROUP BY."""
        wanted = {self._scope.resolve(exp.column(key.text), key.at).field for key in window.keys}
        found = {named.name for named, _, _ in self._keys if isinstance(named, exp.Column)}
        is_same = found == wanted and len(self._keys) == len(found)
        if window.kind == "SESSION" and window.keys and not is_same:
            raise SqlProblem(
                window.keys[0].at,
                "PARTITION BY of SESSION has other columns than GROUP BY; name the same columns",
            )
        if window.kind != "SESSION" and window.keys:
            raise SqlProblem(window.keys[0].at, f"{window.kind} has no PARTITION BY; use GROUP BY")

    def _column(self, name: str, kind: SqlType) -> PlanColumn:
        taken = [column for _, column, _ in (*self._keys, *self._aggregates)]
        bounds = [PlanColumn(each, each, "TIMESTAMP") for each in WINDOW_COLUMNS]
        return PlanColumn(name, unique_field(name, [*taken, *bounds]), kind)

    def _key_of(self, node: exp.Expr) -> exp.Expr:
        """Return the expression of a key, which may be a number or an alias of SELECT."""
        items = [each for each in self._node.expressions if each.alias[:1] != HIDDEN]
        if isinstance(node, exp.Literal) and node.is_int:
            index = int(node.name) - 1
            if not 0 <= index < len(items):
                raise SqlProblem(
                    self._at(node), f"GROUP BY {node.name}: SELECT has {len(items)} columns"
                )
            found: exp.Expr = items[index].unalias()
            return found
        if isinstance(node, exp.Column) and not node.table:
            known = {column.name.lower() for column in self._scope.columns}
            for item in items:
                is_alias = isinstance(item, exp.Alias) and item.alias.lower() == node.name.lower()
                if is_alias and node.name.lower() not in known:
                    inner: exp.Expr = item.this
                    return inner
        return node

    def _item(self, index: int, item: exp.Expr) -> tuple[str, exp.Expr]:
        inner: Any = item.unalias()
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            raise SqlProblem(self._at(inner), "* is not possible with GROUP BY; name the columns")
        return name_of(item, index, self._scope, self._default), self._over_groups(inner)

    def _over_groups(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over the aggregation; queries become markers."""
        root = exp.Paren(this=node.copy())
        for part in nested_parts(root):
            if isinstance(part, exp.Window):
                raise SqlProblem(self._at(part), f"{nested_problem(part)}, {_OVER_GROUPS}")
            part.replace(exp.Var(this=len(self._queries)))
            self._queries.append(part)
        named = with_fields(root.this, self._scope, self._default)
        replaced: exp.Expr = named.transform(self._over_group, copy=False)
        return replaced

    def _extract_queries(self, plan: Plan, nodes: list[exp.Expr]) -> tuple[Plan, list[exp.Expr]]:
        """Return an aggregation with queries, and the expressions over it."""
        groups = Relation("", plan, plan.columns)
        scope, found = NameScope([groups]), []
        for node in nodes if self._queries else ():
            root = exp.Paren(this=node)
            for marker in list(root.find_all(exp.Var)):
                if isinstance(marker.this, int):
                    nested = self._extract(self._queries[marker.this], groups, scope)
                    marker.replace(with_fields(nested, scope, self._default))
            found.append(root.this)
        return groups.plan, found or nodes

    def _over_group(self, node: exp.Expr) -> exp.Expr:
        for key, column, _ in self._keys:
            if node == key:
                return field_node(column.field, node)
        if is_aggregate(node) or isinstance(node, exp.Filter):
            return self._aggregate(node)
        is_bound = self._relation.window and node.name in WINDOW_COLUMNS
        if isinstance(node, exp.Column) and not is_bound:
            raise SqlProblem(
                self._at(node), f"column {node.name} is neither in GROUP BY nor in an aggregate"
            )
        return node

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        for known, column, _ in self._aggregates:
            if node == known:
                return field_node(column.field, node)
        call, condition = node, None
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        found = self._aggregate_of(call, condition)
        column = self._column(sql_of(node), found.type)
        self._aggregates.append((node, column, found))
        return field_node(column.field, node)

    def _aggregate_of(self, call: exp.Expr, condition: exp.Expr | None) -> AggregateCall:
        at, word = self._at(call), str(call.this).lower()
        if not is_aggregate(call):
            raise SqlProblem(at, f"FILTER needs an aggregate; {word} is not an aggregate")
        function = called(call)
        if function is not None:
            return self._python_aggregate(call, function, condition)
        if word not in AGGREGATES:
            raise SqlProblem(at, f"{word} is not supported; known: {', '.join(AGGREGATES)}")
        arguments, is_distinct = list(call.expressions), False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments, is_distinct = arguments[0].expressions, True
            if word in ("sum", "avg"):
                raise SqlProblem(at, f"{word}(DISTINCT …) is not supported; use count(DISTINCT …)")
            is_distinct = word == "count"  # Of min and max the same.
        if len(arguments) != 1:
            raise SqlProblem(at, f"{word} has one argument, got {len(arguments)}")
        [argument] = arguments
        value = None
        if not isinstance(argument, exp.Star):
            value = self._argument(argument, word)
        elif is_distinct:
            raise SqlProblem(at, "count(DISTINCT *) is not supported; name a column")
        if condition is not None:
            wanted = self._argument(condition, "FILTER")
            given = tree.literal(1) if value is None else value
            value = tree.case([(wanted, given)], tree.literal(None))
        if is_distinct and value is not None:
            require_comparable(tree.type_of(value), at, "DISTINCT")
            value = encoded_key(value)
        kind = result_type(word, value, at)
        return AggregateCall(function=word, value=value, type=kind, is_distinct=is_distinct)

    def _python_aggregate(
        self, call: exp.Expr, function: UserFunction, condition: exp.Expr | None
    ) -> AggregateCall:
        arguments = [self._argument(each, function.name) for each in call.expressions]
        try:
            value = function.call(arguments)
        except ValueError as error:
            raise SqlProblem(self._at(call), str(error)) from error
        if condition is not None:
            wanted = self._argument(condition, "FILTER")
            value = tree.case([(wanted, value)], tree.literal(None))
        return AggregateCall(
            function=f"python {function.python.location}", value=value, python=function,
            type=function.row.signatures[0].result,
        )  # fmt: skip

    def _argument(self, node: exp.Expr, word: str) -> Expression:
        for part in node.walk():
            if is_aggregate(part):
                raise SqlProblem(self._at(part), f"an aggregate is not possible inside {word}")
        if self._relation.window and _reads_window(node):
            raise SqlProblem(
                self._at(node), f"the window of a row is not possible inside {word}; use it in "
                "SELECT",
            )  # fmt: skip
        value = compile_fields(node, self._scope.columns, self._at(node))
        if word == "FILTER" and tree.type_of(value) not in ("BOOLEAN", "NULL"):
            raise SqlProblem(self._at(node), f"FILTER is {tree.type_of(value)}; expected BOOLEAN")
        return value


def _window_spans(window: WindowCall) -> dict[str, tuple[int, int]]:
    """Return the constant differences of the bounds of a window from its time."""
    found = {"window_end": (1, 1)}
    if window.kind in ("TUMBLE", "HOP"):
        before = 1 - window.intervals_ms["SIZE"]
        found["window_start"] = before, before
    return found


def require_comparable(kind: SqlType, at: int, clause: str) -> None:
    """Require a type whose equal values have equal keys."""
    if kind == "DOUBLE" and clause == "JOIN":  # As values, NaN equals no value.
        hint = "floats that look equal may differ; cast to DECIMAL(p, s)"
        raise SqlProblem(at, f"{clause} of DOUBLE is not supported: {hint}")
    if kind.endswith("[]") or kind in ("JSON", "INTERVAL"):
        raise SqlProblem(at, f"{clause} of {kind} is not supported; cast to VARCHAR")


def _reads_window(node: exp.Expr) -> bool:
    return any(column.name in WINDOW_COLUMNS for column in node.find_all(exp.Column))


def result_type(word: str, value: Expression | None, at: int) -> SqlType:
    """Return the type of an aggregate.

    Raises:
        SqlProblem: its argument has another type.
    """
    if word == "count":
        return "BIGINT"
    if value is None:
        raise SqlProblem(at, f"{word}(*) has no value; name a column")
    kind = tree.type_of(value)
    is_decimal = kind.startswith("DECIMAL(")
    if word in ("sum", "avg") and kind not in _NUMBERS and not is_decimal:
        raise SqlProblem(at, f"{word} of {kind} is not supported; expected a number")
    if word == "avg":
        return average_type(kind) if is_decimal else "DOUBLE"
    if kind.endswith("[]") or kind in ("JSON", "INTERVAL", "BLOB", "BOOLEAN"):
        raise SqlProblem(at, f"{word} of {kind} is not supported")
    if word == "sum" and is_decimal:
        return f"DECIMAL(38,{kind.rstrip(')').partition(',')[2]})"
    return "BIGINT" if kind == "NULL" and word == "sum" else kind
