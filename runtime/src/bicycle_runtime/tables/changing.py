"""Queries in expressions and OVER: their rows change later.

They are bound to nodes of the plan, which are refused before the lowering. A query in an
expression, and OVER, become a column of a node below the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.compiling import AGGREGATES
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.grouping import result_type
from bicycle_runtime.tables.plans import Changing, Plan, PlanColumn, require_rows, unique_field
from bicycle_runtime.tables.rejections import nested_parts, nested_problem
from bicycle_runtime.tables.scope import NameScope, Relation, compile_in, field_node, sql_of
from bicycle_sdk.expressions import Expression

_At = Callable[[exp.Expr], int]
_RANKS: Mapping[str, SqlType] = {
    "row_number": "BIGINT", "rank": "BIGINT", "dense_rank": "BIGINT", "ntile": "BIGINT",
    "percent_rank": "DOUBLE", "cume_dist": "DOUBLE",
}  # fmt: skip
_OF_ROWS = ("lag", "lead", "first_value", "last_value", "nth_value")


class NestedParts:
    """Moves queries and OVER out of expressions.

    Args:
        bind: Returns the plan of a query that may read the columns of a scope.
        at: Returns the offset of a part of the query.
    """

    def __init__(self, bind: Callable[[exp.Expr, NameScope], Plan], at: _At) -> None:
        self._bind, self._at = bind, at

    def extract(self, node: exp.Expr, relation: Relation, scope: NameScope) -> exp.Expr:
        """Return an expression that reads new columns of a relation instead."""
        root = exp.Paren(this=node.copy())
        for part in nested_parts(root):
            if relation.window is not None:
                raise SqlProblem(self._at(part), nested_problem(part))
            part.replace(self._column(part, relation, scope))
        found: exp.Expr = root.this
        return found

    def _column(self, part: exp.Expr, relation: Relation, scope: NameScope) -> exp.Expr:
        inputs = [relation.plan]
        parts: dict[str, tuple[Any, ...]] = {}
        if isinstance(part, exp.Window):
            operator, kind, parts = self._over(part, scope)
        else:
            inner = self._bind(part.args.get("query") or part.this, scope)
            require_rows(inner)
            inputs.append(inner)
            operator, kind = "EXISTS", "BOOLEAN"
            if not isinstance(part, exp.Exists) and len(inner.columns) != 1:
                text = f"a query in an expression has 1 column, got {len(inner.columns)}"
                raise SqlProblem(self._at(part), text)
            if isinstance(part, exp.In):
                value = compile_in(scope, part.this, self._at(part))
                self._require_same(value, inner.columns[0].read(), part)
                operator, parts = "IN", {"": (value,)}
            elif isinstance(part, exp.Subquery):
                operator, kind = "SCALAR", inner.columns[0].type
        known = [*relation.plan.columns, *scope.columns]
        name = unique_field(operator.split(" ")[0].lower(), known)
        column = PlanColumn(name, name, kind)
        plan = relation.plan
        relation.plan = Changing(
            columns=(*plan.columns, column), time=plan.time, spans=plan.spans, operator=operator,
            inputs=tuple(inputs), parts=parts,
            problem=SqlProblem(self._at(part), nested_problem(part)),
        )  # fmt: skip
        # A query reads it by this alias only, so that no text has its name.
        alias = f"{name} of {id(relation.plan)}"
        scope.relations.append(
            Relation(alias, relation.plan, (column,), merged=frozenset([column.field]))
        )
        read = field_node(name, part)
        read.set("table", exp.to_identifier(alias, quoted=True))
        return read

    def _require_same(self, value: Expression, other: Expression, part: exp.Expr) -> None:
        try:
            tree.call("equal", value, other)
        except ValueError as error:
            raise SqlProblem(self._at(part), str(error)) from error

    def _over(self, part: exp.Window, scope: NameScope) -> tuple[str, SqlType, dict[str, Any]]:
        call, order = part.this, part.args.get("order")
        if not isinstance(call, exp.Anonymous):
            raise SqlProblem(self._at(part), f"{sql_of(call)} OVER is not supported")

        def bound(nodes: Any) -> tuple[Expression, ...]:
            plain = [each for each in nodes if not isinstance(each, exp.Star)]
            return tuple(compile_in(scope, each, self._at(each)) for each in plain)

        word, arguments = str(call.this).lower(), bound(call.expressions)
        if word in _RANKS:
            kind = _RANKS[word]
        elif word in AGGREGATES:
            kind = result_type(word, arguments[0] if arguments else None, self._at(part))
        elif word in _OF_ROWS and arguments:
            kind = tree.type_of(arguments[0])
        else:
            raise SqlProblem(self._at(part), f"{word} OVER is not supported")
        parts: dict[str, Any] = {
            "": arguments, "PARTITION BY": bound(part.args.get("partition_by") or []),
            "ORDER BY": order_keys(order, scope, self._at), "frame": part.args.get("spec") or (),
        }  # fmt: skip
        if parts["frame"]:
            parts["frame"] = (sql_of(parts["frame"]),)
        return f"{word.upper()} OVER", kind, parts


def order_keys(order: exp.Expr | None, scope: NameScope, at: _At) -> tuple[Any, ...]:
    """Return the keys of ORDER BY, and for each its direction as text."""
    found: list[Any] = []
    for each in () if order is None else order.expressions:
        found += [compile_in(scope, each.this, at(each)), "DESC" if each.args["desc"] else "ASC"]
    return tuple(found)
