"""ORDER BY, LIMIT and OFFSET: the order of rows of input that ends.

The keys of ORDER BY that SELECT does not have are bound as further columns, which only the sort
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from bicycle_runtime.tables.catalog import Catalog, no_such
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.grouping import require_comparable
from bicycle_runtime.tables.lateness import require_final
from bicycle_runtime.tables.plans import (
    HIDDEN,
    Plan,
    PlanColumn,
    Project,
    Scan,
    SortKey,
    SortRows,
    has_order,
    inputs_of,
    require_rows,
)
from bicycle_runtime.tables.scope import sql_of

_At = Callable[[exp.Expr], int]
_CLAUSES = ("order", "limit", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a query, with the query to bind, which has further columns."""

    query: exp.Expr
    keys: tuple[exp.Expr, ...]
    hidden: int
    limit: int | None
    offset: int
    text: str
    at: int


def split_order(node: exp.Expr, at: _At) -> Order | None:
    """Return the order of a query, or None for a query without order.

    Raises:
        SqlProblem: a clause is not supported.
    """
    order, limit, offset = (node.args.get(name) for name in _CLAUSES)
    if not isinstance(node, exp.Query) or not (order or limit or offset):
        return None
    keys, hidden = [] if order is None else order.expressions, list[exp.Expr]()
    limited, skipped = _limit(limit, at, at(node)), _count(offset, "OFFSET", at, at(node)) or 0
    rest = node.copy()
    for name in _CLAUSES:
        rest.set(name, None)
    if isinstance(rest, exp.Select):
        names = {each.alias_or_name.lower() for each in rest.expressions}
        for index, key in enumerate(keys):
            value = key.this
            if isinstance(value, exp.Var):
                raise SqlProblem(at(node), "ORDER BY ALL is not supported; name the columns")
            is_output = isinstance(value, exp.Column) and not value.table
            if _is_number(value) or (is_output and value.name.lower() in names):
                continue
            hidden.append(exp.alias_(value.copy(), f"{HIDDEN}{index}", quoted=True))
        rest.set("expressions", [*rest.expressions, *hidden])
    elif isinstance(rest, exp.Subquery):
        rest = rest.this
    shown = ["ORDER BY " + ", ".join(map(_show, keys))] if keys else []
    shown += [] if limited is None else [f"LIMIT {limited}"]
    shown += [f"OFFSET {skipped}"] if skipped else []
    first = next(part for part in (order, limit, offset) if part)
    return Order(
        query=rest, keys=tuple(keys), hidden=len(hidden), limit=limited, offset=skipped,
        text=" ".join(shown), at=_first(first, at, at(node)),
    )  # fmt: skip


def sort_rows(plan: Plan, order: Order, catalog: Catalog, at: _At) -> Plan:
    """Return the rows of a plan in an order.

    Args:
        plan: The rows, with the further columns of the order.
        order: The order.
        catalog: The tables.
        at: Returns the offset of a part of the query.

    Raises:
        SqlProblem: the input never ends, or a key is not a column that can be sorted.
    """
    if not order.text:  # LIMIT ALL.
        return plan
    require_rows(plan)
    word = order.text.partition(" ")[0].replace("ORDER", "ORDER BY")
    require_final(plan, order.at, f"{word} needs final rows")
    for table in {id(each): each for each in _tables(plan)}.values():
        reason = catalog.unbounded_reason(table, order.at)
        if reason:
            raise SqlProblem(order.at, f"{word} needs input that ends, but {table.name} {reason}")
    columns = plan.columns[: len(plan.columns) - order.hidden]
    further = {each.name: each for each in plan.columns[len(columns) :]}
    keys = tuple(
        _key(key, columns, further.get(f"{HIDDEN}{index}"), at)
        for index, key in enumerate(order.keys)
    )
    if not keys:
        found = _limit_sort(plan, order)
        if found is not None:
            return found
    is_sorted = not keys and has_order(plan)
    return SortRows(
        columns=columns, input=plan, keys=keys, limit=order.limit, offset=order.offset,
        text=order.text, is_sorted=is_sorted,
    )  # fmt: skip


def _key(
    key: exp.Expr, columns: tuple[PlanColumn, ...], hidden: PlanColumn | None, at: _At
) -> SortKey:
    value, begin = key.this, _first(key, at, at(key))
    if _is_number(value):
        index = int(value.name) - 1
        if not 0 <= index < len(columns):
            raise SqlProblem(begin, f"ORDER BY {value.name}: the query has {len(columns)} columns")
        column = columns[index]
    else:
        found = [] if hidden is None else [hidden]
        is_name = isinstance(value, exp.Column) and not value.table
        if not found and is_name:
            found = [each for each in columns if each.name.lower() == value.name.lower()]
        if len(found) > 1:
            raise SqlProblem(begin, f"column {value.name!r} is ambiguous; rename one with AS")
        if not found and is_name:
            raise SqlProblem(begin, no_such("column", value.name, [each.name for each in columns]))
        if not found:
            raise SqlProblem(
                begin, "ORDER BY of UNION ALL takes names and numbers of result columns"
            )
        [column] = found
    require_comparable(column.type, begin, "ORDER BY")
    return SortKey(
        column.field, is_descending=bool(key.args.get("desc")),
        nulls_first=bool(key.args.get("nulls_first")),
    )  # fmt: skip


def _limit_sort(plan: Plan, order: Order) -> Plan | None:
    """Return the first rows of a sort without a limit, or None for another plan."""
    if isinstance(plan, Project):
        found = _limit_sort(plan.input, order)
        return None if found is None else replace(plan, input=found)
    if not isinstance(plan, SortRows) or plan.limit is not None or plan.offset:
        return None
    text = f"{plan.text} {order.text}"
    return replace(plan, limit=order.limit, offset=order.offset, text=text)


def _tables(plan: Plan) -> list[Any]:
    own = [plan.table] if isinstance(plan, Scan) and not plan.is_lookup else []
    return [*own, *(table for each in inputs_of(plan) for table in _tables(each))]


def _limit(node: Any, at: _At, begin: int) -> int | None:
    options = None if node is None else node.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        word = "WITH TIES" if options.args.get("with_ties") else "PERCENT"
        raise SqlProblem(begin, f"{word} is not supported; LIMIT takes a number of rows")
    if isinstance(node, exp.Fetch):
        value = node.args.get("count")
        return 1 if value is None else _count(value, "FETCH", at, begin)
    if node is not None and node.expression.name.upper() in ("ALL", "NULL"):
        return None
    return _count(node, "LIMIT", at, begin)


def _count(node: Any, word: str, at: _At, begin: int) -> int | None:
    if node is None:
        return None
    value = node if isinstance(node, exp.Literal) else node.expression
    if not _is_number(value):
        begin = _first(value, at, begin)
        raise SqlProblem(begin, f"{word} is {sql_of(value)}; expected a whole number")
    return int(value.name)


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_int


def _first(node: exp.Expr, at: _At, default: int) -> int:
    """Return the offset of a part, or the default for a part without offset."""
    return at(node) if any("start" in part.meta for part in node.walk()) else default


def _show(key: exp.Expr) -> str:
    shown = f"{sql_of(key.this)}{' DESC' if key.args.get('desc') else ''}"
    is_first = bool(key.args.get("nulls_first"))
    default = bool(key.args.get("desc"))
    return shown if is_first is default else f"{shown} NULLS {'FIRST' if is_first else 'LAST'}"
