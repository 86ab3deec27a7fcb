"""Parts of queries that append-only streams do not support, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.python_functions import called

_CHANGES = "its rows would change later, which is not supported yet"
# Clauses that are bound; the parser accepts those of other systems, too.
_BOUND: Mapping[type[exp.Expr], str] = {
    exp.Select: "expressions from_ where group having with_ joins order limit offset",
    exp.SetOperation: "this expression with_ distinct by_name order limit offset",
    exp.Subquery: "this alias with_ order limit offset",
    exp.Table: "this alias db catalog version",
    exp.Join: "this on using side kind method",
    exp.With: "expressions recursive",
    exp.CTE: "this alias materialized",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "this expression limit_options offset",
    exp.Offset: "this expression",
}
_CLAUSES: Mapping[str, str] = {
    "distinct": f"SELECT DISTINCT is not supported: {_CHANGES}; group by the columns in a window",
    "qualify": f"QUALIFY is not supported: {_CHANGES}",
    "windows": f"WINDOW is not supported: {_CHANGES}; use a function in FROM, such as TUMBLE",
    "laterals": "LATERAL is not supported; for an array, write CROSS JOIN UNNEST(column) AS t (x)",
    "sample": "TABLESAMPLE is not supported: results must not depend on chance",
    "pivots": "PIVOT is not supported",
    "hint": "hints are not supported",
    "hints": "hints are not supported",
    "into": "SELECT INTO is not supported; write INSERT INTO table SELECT …",
    "locks": "FOR UPDATE is not supported",
    "connect": "CONNECT BY is not supported",
    "joins": "joins in parentheses are not supported; write them one after another",
    "expressions": "BY is not supported in LIMIT and OFFSET",
    "kind": "SELECT AS is not supported; write SELECT with columns",
    "key_expressions": "USING KEY is not supported",
    "with_fill": "WITH FILL is not supported: a query returns rows of its input",
}
_WINDOWS = frozenset({"TUMBLE", "HOP", "SESSION"})
_JOINS: Mapping[str, str] = {
    "NATURAL": "NATURAL JOIN is not supported; write USING (…)",
    "ASOF": "ASOF JOIN is not supported; write JOIN b FOR SYSTEM_TIME AS OF a.at ON a.id = b.id",
    "POSITIONAL": "POSITIONAL JOIN is not supported: rows of a stream have no numbers",
    "SEMI": f"SEMI JOIN is not supported: {_CHANGES}",
    "ANTI": f"ANTI JOIN is not supported: {_CHANGES}",
}
_PARTS: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Exists, f"EXISTS is not supported: {_CHANGES}"),
    (exp.Subquery, f"a query inside an expression is not supported: {_CHANGES}"),
    (exp.Select, f"a query inside an expression is not supported: {_CHANGES}"),
    (
        exp.Window,
        f"OVER is not supported: {_CHANGES}; use a window function in FROM, such as TUMBLE",
    ),
    (exp.Placeholder, "parameters such as ? and :name are not supported"),
    (exp.Parameter, "parameters are not supported"),
)


def is_nested(node: exp.Expr) -> bool:
    """Return whether a part of an expression is bound as a node of the plan."""
    is_query = isinstance(node, exp.Exists | exp.Subquery | exp.Window)
    return is_query or (isinstance(node, exp.In) and bool(node.args.get("query")))


def nested_parts(node: exp.Expr) -> list[exp.Expr]:
    """Return the outermost parts of an expression, below its root, that are nested."""
    parts = node.walk(prune=lambda part: part is not node and is_nested(part))
    return [part for part in parts if part is not node and is_nested(part)]


def nested_problem(node: exp.Expr) -> str:
    """Return the reason why rows with such a part change later."""
    if isinstance(node, exp.In):
        return f"IN (SELECT …) is not supported: {_CHANGES}"
    return next(text for kind, text in _PARTS if isinstance(node, kind))


def check_clauses(tree: exp.Expr, at: Callable[[exp.Expr], int]) -> None:
    """Reject clauses of a query that are not supported.

    Args:
        tree: The query.
        at: Returns the offset of a part.

    Raises:
        SqlProblem: there is one.
    """
    for node in tree.walk():
        bound = next((words for kind, words in _BOUND.items() if isinstance(node, kind)), None)
        for name, value in node.args.items():
            if bound is None or not value or name in bound.split():
                continue
            parts = value if isinstance(value, list) else [value]
            where = next((part for part in parts if isinstance(part, exp.Expr)), node)
            word = name.strip("_").replace("_", " ").upper()
            problem = _CLAUSES.get(name, f"{word} is not supported here")
            raise SqlProblem(at(_find_located(where, node)), problem)


def check_select(node: exp.Select, at: Callable[[exp.Expr], int]) -> None:
    """Reject parts of a SELECT that are not supported.

    Args:
        node: The SELECT.
        at: Returns the offset of a part.

    Raises:
        SqlProblem: there is one.
    """
    if not node.expressions:
        raise SqlProblem(at(node), "SELECT has no columns")
    for name in ("expressions", "where", "group", "having"):
        value = node.args.get(name)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expr):
                check_expression_parts(part, at, is_bound=name != "group")
    group = node.args.get("group")
    if group is not None:
        check_group(group, at)


def _find_located(part: exp.Expr, node: exp.Expr) -> exp.Expr:
    return part if any("start" in each.meta for each in part.walk()) else node


def check_expression_parts(
    node: exp.Expr, at: Callable[[exp.Expr], int], *, is_bound: bool = False
) -> None:
    """Reject queries, OVER and parameters in an expression.

    Args:
        node: The expression.
        at: Returns the offset of a part.
        is_bound: Whether queries and OVER are possible.

    Raises:
        SqlProblem: there is one.
    """
    for part in node.walk(prune=is_nested if is_bound else None):
        if is_bound and is_nested(part):
            continue
        for kind, text in _PARTS:
            if isinstance(part, kind):
                raise SqlProblem(at(_find_located(part, node)), text)
        if is_nested(part):
            raise SqlProblem(at(part), nested_problem(part))


def check_join(node: exp.Expr, at: int) -> str:
    """Return whose lone rows a join keeps; reject joins that are not supported.

    Raises:
        SqlProblem: it is such a join.
    """
    words = [str(node.args.get(name) or "").upper() for name in ("method", "kind", "side")]
    problem = next((_JOINS[word] for word in words if word in _JOINS), None)
    if isinstance(node.this, exp.Lateral):
        problem = _CLAUSES["laterals"]
    if problem is None and words[2] and not (node.args.get("on") or node.args.get("using")):
        problem = f"{words[2]} JOIN needs a condition: ON a.id = b.id AND …"
    if problem is not None:
        raise SqlProblem(at, problem)
    return words[2].lower() or "inner"


def check_group(node: exp.Expr, at: Callable[[exp.Expr], int]) -> None:
    """Reject GROUP BY with several groupings.

    Raises:
        SqlProblem: there is one.
    """
    if node.args.get("all"):
        raise SqlProblem(at(node), "GROUP BY ALL is not supported; name the columns")
    for each in node.expressions:
        if isinstance(each, exp.Anonymous) and each.name.upper() in _WINDOWS:
            word = each.name.upper()
            raise SqlProblem(
                at(each), f"GROUP BY {word}(…) is not supported; write FROM {word}(TABLE …, "
                "DESCRIPTOR(…), INTERVAL '…' MINUTE) and GROUP BY window_start, window_end",
            )  # fmt: skip
        if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube):
            word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(each), "GROUPING SETS")
            raise SqlProblem(at(each), f"{word} is not supported; write a query for each grouping")
    if any(node.args.get(name) for name in ("grouping_sets", "rollup", "cube", "totals")):
        raise SqlProblem(
            at(node), "GROUPING SETS, ROLLUP and CUBE are not supported; write a query for each "
            "grouping",
        )  # fmt: skip


def check_union(node: exp.SetOperation, at: int) -> None:
    """Reject set operations other than UNION ALL.

    Raises:
        SqlProblem: it is another one.
    """
    word = type(node).__name__.upper()
    if not isinstance(node, exp.Union):
        raise SqlProblem(at, f"{word} is not supported: {_CHANGES}")
    if node.args.get("distinct"):
        raise SqlProblem(at, f"UNION is not supported: {_CHANGES}; use UNION ALL")
    if node.args.get("by_name"):
        raise SqlProblem(at, "UNION ALL BY NAME is not supported; name the columns in order")


def reject_source(node: exp.Expr, at: int) -> None:
    """Reject a source of rows that FROM does not support.

    Raises:
        SqlProblem: it is not a table, a view or a query.
    """
    if isinstance(node, exp.Unnest):
        raise SqlProblem(at, "UNNEST needs a table: FROM table CROSS JOIN UNNEST(column) AS t (x)")
    if isinstance(node, exp.Values):
        raise SqlProblem(at, "VALUES is not supported in FROM; read a table")
    if not isinstance(node, exp.Table):
        return
    if not isinstance(node.this, exp.Identifier):
        if any(map(called, node.this.walk())):
            raise SqlProblem(at, "a function needs a table: FROM table CROSS JOIN LATERAL TABLE(…)")
        raise SqlProblem(
            at, f"{node.this.name} is not a table function; known: TUMBLE, HOP, CUMULATE, SESSION"
        )
    if node.args.get("db"):
        raise SqlProblem(at, "the name of a table has one part: there are no databases")
    if node.args.get("version"):
        raise SqlProblem(at, "FOR SYSTEM_TIME AS OF is possible in a join only")
