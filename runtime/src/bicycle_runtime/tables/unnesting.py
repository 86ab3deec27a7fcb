"""UNNEST and table functions in Python: several rows beside the columns of a row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.lateness import require_final
from bicycle_runtime.tables.plans import CallRows, Plan, PlanColumn, Unnest, unique_field
from bicycle_runtime.tables.python_functions import called
from bicycle_runtime.tables.scope import NameScope, Relation, compile_in

_At = Callable[[exp.Expr], int]


def split_unnests(node: exp.Select, at: _At) -> tuple[exp.Select, list[exp.Expr]]:
    """Return a SELECT without its first joins, of UNNEST or functions, and these.

    Raises:
        SqlProblem: another join precedes UNNEST.
    """
    joins: list[exp.Expr] = node.args.get("joins") or []
    found = list(takewhile(_unnest_of, joins))
    for each in joins[len(found) :]:
        if _unnest_of(each) is not None:
            raise SqlProblem(
                at(each), "UNNEST after another join is not supported; write it before the join, "
                "or create a view",
            )  # fmt: skip
    if not found:
        return node, []
    rest = node.copy()
    rest.set("joins", rest.args["joins"][len(found) :] or None)
    return rest, found


def add_unnest(join: exp.Expr, plan: Plan, scope: NameScope, at: _At) -> Plan:
    """Return the rows of a plan with the items of an array, or the rows of a function.

    Their columns are added to the scope.

    Raises:
        SqlProblem: the value is not an array, or the join has a condition.
    """
    node = _unnest_of(join)
    assert node is not None
    is_outer = _require_plain(join, at)
    require_final(plan, at(join), "rows of former results cannot be removed")
    if scope.relations[0].window is not None:
        raise SqlProblem(at(join), "UNNEST beside a window is not supported; create a view")
    if not isinstance(node, exp.Unnest):
        function = called(node)
        if function is None:
            raise SqlProblem(
                at(node), f"{node.name} is not a function in Python; write CREATE FUNCTION"
            )
        if function.columns:
            return _add_call(join, plan, scope, at, is_outer=is_outer)
        node = exp.Unnest(expressions=[node])
    if len(node.expressions) != 1:
        raise SqlProblem(at(join), f"UNNEST has one array, got {len(node.expressions)}")
    [given] = node.expressions
    value = compile_in(scope, given, at(given))
    kind = tree.type_of(value)
    if not kind.endswith("[]"):
        hint = "; write UNNEST(json_items(…))" if kind == "JSON" else ""
        raise SqlProblem(at(given), f"UNNEST of {kind} is not possible; expected an array{hint}")
    alias = join.this.args.get("alias") or node.args.get("alias")
    names = [] if alias is None else [each.name for each in alias.args.get("columns") or []]
    name = "unnest" if alias is None else alias.name
    offset = node.args.get("offset")
    if len(names) > 1:
        raise SqlProblem(at(join), f"UNNEST has 1 column, got {len(names)} names")
    item = PlanColumn(names[0] if names else name, "", kind.removesuffix("[]"))
    added = [_with_field(item, plan.columns)]
    if offset:
        word = offset.name if isinstance(offset, exp.Expr) else "ordinality"
        ordinal = PlanColumn(word, "", "BIGINT")
        added.append(_with_field(ordinal, [*plan.columns, *added]))
    scope.relations.append(Relation(name, plan, tuple(added)))
    return Unnest(
        columns=(*plan.columns, *added), time=plan.time, spans=plan.spans, latest=plan.latest,
        input=plan, value=value, is_outer=is_outer,
    )  # fmt: skip


def _add_call(join: exp.Expr, plan: Plan, scope: NameScope, at: _At, *, is_outer: bool) -> Plan:
    """Return the rows that a function returns for each row of a plan."""
    node = _unnest_of(join)
    function = called(node)
    assert function is not None
    given = [compile_in(scope, each, at(each)) for each in node.expressions]
    try:
        call, arguments = function.bind_rows(given)
    except ValueError as error:
        raise SqlProblem(at(node), str(error)) from error
    alias = join.this.args.get("alias")
    names = [] if alias is None else [each.name for each in alias.args.get("columns") or []]
    if names and len(names) != len(function.columns):
        count = f"{len(function.columns)} column{'s' * (len(function.columns) > 1)}"
        raise SqlProblem(at(alias), f"{function.name} has {count}, got {len(names)} names")
    name = function.name if alias is None else alias.name
    names = names or [each.name or name for each in function.columns]
    added: list[PlanColumn] = []
    for own, each in zip(names, function.columns, strict=True):
        column = PlanColumn(own, "", each.type)
        added.append(_with_field(column, [*plan.columns, *added]))
    scope.relations.append(Relation(name, plan, tuple(added)))
    return CallRows(
        columns=(*plan.columns, *added), time=plan.time, spans=plan.spans, latest=plan.latest,
        input=plan, function=function, call=call, arguments=tuple(arguments), is_outer=is_outer,
    )  # fmt: skip


def _unnest_of(join: exp.Expr) -> Any:
    """Return UNNEST or the call of a function, or None for another join."""
    if not isinstance(join.this, exp.Lateral):
        return join.this if isinstance(join.this, exp.Unnest) else None
    found = join.this.this
    if isinstance(found, exp.Anonymous) and found.name.lower() == "table" and found.expressions:
        found = found.expressions[0]
    return found if isinstance(found, exp.Unnest | exp.Anonymous) else None


def _require_plain(join: exp.Expr, at: _At) -> bool:
    """Return whether the join is LEFT; a condition other than TRUE is rejected."""
    side, on = str(join.args.get("side") or "").upper(), join.args.get("on")
    is_true = isinstance(on, exp.Boolean) and bool(on.this)
    if side not in ("", "LEFT") or (on is not None and not is_true) or join.args.get("using"):
        raise SqlProblem(at(join), "UNNEST and LATERAL need CROSS JOIN … or LEFT JOIN … ON TRUE")
    return side == "LEFT"


def _with_field(column: PlanColumn, others: Any) -> PlanColumn:
    return PlanColumn(column.name, unique_field(column.name, others), column.type)
