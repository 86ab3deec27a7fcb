"""The plans of the queries of Nexmark and TPC-H are those in the files beside the queries.

``python -m tests.sql.test_golden_plans --write`` replaces the files. With ``-s``, the tests print
the processor time of each plan.
"""

import statistics
import sys
import time
from pathlib import Path

import pytest

from bicycle_runtime.tables.building import Building
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.plans import (
    AggregateCall,
    Changing,
    FilterRows,
    JoinRows,
    Project,
    Scan,
    SortRows,
    WindowAggregate,
    inputs_of,
    require_append_only,
)
from bicycle_runtime.tables.statements import read_statements
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk.expressions import Expression

FOLDER = Path(__file__).parent
QUERIES = [
    (folder, f"q{number}")
    for folder, numbers in (("nexmark", range(24)), ("tpch", range(1, 23)))
    for number in numbers
]
# The queries whose rows do not change later.
APPEND_ONLY = {"q0", "q1", "q2", "q5", "q7", "q8", "q10", "q11", "q12", "q13", "q14", "q21", "q22"}


def plan_of(folder, name):
    """Return the plan of a query, and the ms of processor time of parsing and planning."""
    tables = (FOLDER / folder / "tables.sql").read_text("utf-8")
    query = (FOLDER / folder / f"{name}.sql").read_text("utf-8")
    building = Building(SqlText(tables, f"{name}.sql"))
    building.bind_statements(read_statements(building.text, building.checks))
    begin = time.process_time()
    building.text.append(f"CREATE VIEW answer AS\n{query}", "{line}:{column}")
    [view] = read_statements(building.text, building.checks)
    building.checks.raise_problems()
    building.catalog.add_view(view)
    plan = building.binder.relation("answer", 0)
    return plan, (time.process_time() - begin) * 1_000


def shown(value):
    """Return an expression, or another part of a plan, as text."""
    if isinstance(value, AggregateCall):
        distinct = "DISTINCT " if value.is_distinct else ""
        return f"{value.function}({distinct}{'*' if value.value is None else shown(value.value)})"
    if not isinstance(value, Expression):
        return str(value)
    operation, arguments = value.operation.removeprefix("sql."), value.arguments
    match operation:
        case "column" | "converted":
            text = shown(arguments[-1])
        case "field" | "field_or":
            text = str(arguments[0])
        case "literal":
            text = repr(arguments[1])
        case "cast":
            text = f"{shown(arguments[1])}::{arguments[0]}"
        case _:
            text = f"{operation}({', '.join(map(shown, arguments[1:]))})"
    return text


def lines_of(plan, indent=""):
    """Yield the lines of a plan: a node, its parts, then the nodes that it reads."""
    word, parts = type(plan).__name__, {}
    match plan:
        case Scan():
            word += f" {plan.table.name}"
        case FilterRows():
            parts = {"where": [plan.condition]}
        case Project():
            parts = {
                column.name: [value]
                for column, value in zip(plan.columns, plan.values, strict=True)
            }
        case WindowAggregate():
            lengths = ", ".join(f"{name} {ms} ms" for name, ms in plan.window.intervals_ms.items())
            word += f" {plan.window.kind} ({lengths})"
            parts = {"by": plan.keys, "aggregates": plan.aggregates}
        case JoinRows():
            word += f" {plan.kind} {plan.how}"
            if plan.kind == "interval":
                word += f" ({plan.bounds[0]} to {plan.bounds[1]} ms)"
            parts = {"left keys": plan.left_keys, "right keys": plan.right_keys}
        case SortRows():
            parts = {"order": [plan.text]}
        case Changing():
            word += f" {plan.operator}"
            parts = {name or "values": values for name, values in plan.parts.items()}
    time = next((column.name for column in plan.columns if column.field == plan.time), None)
    yield f"{indent}{word}" + (f", time {time}" if time else "")
    if not isinstance(plan, Project):
        names = [f"{column.name} {column.type}" for column in plan.columns]
        parts = {**parts, "columns": names} if isinstance(plan, WindowAggregate) else parts
    for name, values in parts.items():
        if values:
            yield f"{indent}  - {name}: {', '.join(map(shown, values))}"
    for each in inputs_of(plan):
        yield from lines_of(each, f"{indent}    ")


def printed(folder, name):
    """Return the golden text of a query: its columns, its plan, and why it is refused."""
    plan, _ = plan_of(folder, name)
    columns = ", ".join(f"{column.name} {column.type}" for column in plan.columns)
    lines = [f"columns: {columns}", *lines_of(plan)]
    try:
        require_append_only(plan)
    except SqlProblem as problem:
        lines.append(f"refused: {problem}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("folder", "name"), QUERIES)
def test_a_query_has_its_golden_plan(folder, name):
    expected = (FOLDER / folder / f"{name}.plan").read_text("utf-8")

    assert printed(folder, name) == expected

    spent = statistics.median(plan_of(folder, name)[1] for _ in range(3))
    sys.stdout.write(f"{folder} {name}: planned in {spent:.1f} ms of processor time\n")


def test_only_queries_that_change_are_refused():
    refused = {
        (folder, name)
        for folder, name in QUERIES
        if "refused: " in (FOLDER / folder / f"{name}.plan").read_text("utf-8")
    }

    assert refused == {each for each in QUERIES if each[0] == "tpch" or each[1] not in APPEND_ONLY}


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    for each in QUERIES:
        (FOLDER / each[0] / f"{each[1]}.plan").write_text(printed(*each), "utf-8")
