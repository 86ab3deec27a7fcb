"""Late rows of windows: the allowed lateness, and the table ``view$late``.

A hint in a SELECT sets the allowed lateness: a row that arrives within it leads to an updated
result, so the results need a table with a key. Rows that arrive later change nothing; they can be
read as the table ``view$late``, with the window that they missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.casts import parse_interval, whole_ms
from bicycle_runtime.tables.dialect import require_length
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.plans import (
    WINDOW_COLUMNS,
    CallRows,
    ClockRows,
    FilterRows,
    LateRows,
    Plan,
    PlanColumn,
    Project,
    SortRows,
    UnionAll,
    Unnest,
    WindowAggregate,
    inputs_of,
)
from bicycle_sdk.expressions import Expression, col, lit

LATE = "$late"
LATE_TAG = "late"
_HINT = re.compile(r"\+\s*(\w+)\s*\(\s*'([^']*)'\s*\)\s*")
_HINT_NAME = "ALLOWED_LATENESS"
_EXAMPLE = f"/*+ {_HINT_NAME}('1 MINUTE') */"


def lateness_hint(node: exp.Select, at: int) -> int | None:
    """Return the allowed lateness in ms that a hint of a SELECT sets, or None.

    Raises:
        SqlProblem: the hint is unknown, or its interval is wrong.
    """
    hints = [text for text in node.comments or () if text.startswith("+")]
    if not hints:
        return None
    found = _HINT.fullmatch(hints[0])
    if found is None or found[1].upper() != _HINT_NAME or len(hints) > 1:
        shown = " ".join(hints[-1].split())
        raise SqlProblem(at, f"the hint /*{shown} */ is not supported; known: {_EXAMPLE}")
    try:
        total = whole_ms(*parse_interval(found[2]))
    except ValueError as error:
        raise SqlProblem(at, f"{_HINT_NAME}: {error}") from error
    if total is None or total < 0:
        raise SqlProblem(at, f"{_HINT_NAME}('{found[2]}') must be whole milliseconds, 0 or more")
    return require_length(total, f"{_HINT_NAME}('{found[2]}')", at)


def late_rows(view: str, plan: Plan, at: int) -> LateRows:
    """Return the rows that came too late for the window of a view.

    Raises:
        SqlProblem: the query of the view has no window, or several.
    """
    windows = list(_top_windows(plan))
    if len(windows) != 1:
        given = f"{len(windows)} windows; create a view for each" if windows else "no window"
        raise SqlProblem(at, f"there is no table {view}{LATE}: the query of {view} has {given}")
    [window] = windows
    bounds = (PlanColumn(name, name, "TIMESTAMP") for name in WINDOW_COLUMNS)
    found = LateRows(columns=(*window.input.columns, *bounds), view=view, window=window)
    window.late_readers.append(found)
    return found


def late_fields(window: WindowAggregate) -> list[PlanColumn]:
    """Return the columns that late rows carry; empty without readers."""
    if not window.late_readers:
        return []
    return [
        PlanColumn(column.name, f"r{at}", column.type)
        for at, column in enumerate(window.input.columns)
    ]


def late_values(plan: LateRows) -> list[Expression]:
    """Return the values of late rows, from the records of the side output."""
    read: list[Expression] = []
    for column in late_fields(plan.window):
        source = Expression("item", col("value"), lit(column.field))
        read.append(tree.column(source, column.type.replace("JSON", "VARCHAR")))
    end = tree.column("window.end", "BIGINT")
    bounds = tree.column("window.start", "BIGINT"), end, tree.call("subtract", end, tree.literal(1))
    return [*read, *(tree.call("epoch_ms", bound) for bound in bounds)]


def require_final(plan: Plan, at: int, problem: str) -> None:
    """Require that no row of a plan is updated by late rows.

    Raises:
        SqlProblem: a window has an allowed lateness.
    """
    if any(each.lateness_ms for each in _top_windows(plan)):
        raise SqlProblem(at, f"{_HINT_NAME}: late rows update results; {problem}")


def reads_late_rows(plans: Iterable[Plan]) -> bool:
    """Return whether a plan reads late rows."""
    return any(isinstance(each, LateRows) or reads_late_rows(inputs_of(each)) for each in plans)


def _top_windows(plan: Plan) -> Iterator[WindowAggregate]:
    match plan:
        case WindowAggregate():
            yield plan
        case CallRows() | ClockRows() | FilterRows() | Project() | SortRows() | Unnest():
            yield from _top_windows(plan.input)
        case UnionAll():
            for each in plan.inputs:
                yield from _top_windows(each)
