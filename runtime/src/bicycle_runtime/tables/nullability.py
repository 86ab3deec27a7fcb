"""The columns of a plan that may be NULL.

A column is nullable unless its definition proves that it is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from bicycle_runtime.expressions.sql.table import FUNCTIONS
from bicycle_runtime.tables.plans import (
    WINDOW_COLUMNS,
    AggregateCall,
    CallRows,
    FilterRows,
    JoinRows,
    Plan,
    Project,
    Scan,
    SortRows,
    UnionAll,
    Unnest,
    WindowAggregate,
    field_read,
)
from bicycle_sdk.expressions import Expression

# Groups of functions that return NULL for missing items.
_PARTIAL = ("json", "array")
_NEVER_NULL = frozenset(
    {"not_null", "is_null", "is_not_null", "is_true", "is_not_true", "is_false", "is_not_false",
     "is_distinct_from", "is_not_distinct_from", "concat", "array", "array_concat"}
)  # fmt: skip


def nullable_fields(plan: Plan) -> frozenset[str]:
    """Return the fields of a plan that may be NULL."""
    every = frozenset(column.field for column in plan.columns)
    match plan:
        case Scan() | Project():
            known = nullable_fields(plan.input) if isinstance(plan, Project) else every
            pairs = zip(plan.columns, plan.values, strict=True)
            return frozenset(column.field for column, value in pairs if _may(value, known))
        case FilterRows() | SortRows():
            proven = _proven(plan.condition) if isinstance(plan, FilterRows) else ()
            return (nullable_fields(plan.input) & every) - frozenset(proven)
        case CallRows() | Unnest():
            added = plan.columns[len(plan.input.columns) :]
            if isinstance(plan, CallRows):
                may = [plan.is_outer or each.is_nullable for each in plan.function.columns]
            else:
                may = [True, *(plan.is_outer for _ in added[1:])]
            known = nullable_fields(plan.input)
            return known | {each.field for each, is_one in zip(added, may, strict=True) if is_one}
        case UnionAll():
            return frozenset().union(*map(nullable_fields, plan.inputs))
        case WindowAggregate():
            known = nullable_fields(plan.input)
            found = [_may(value, known) for value in plan.keys]
            found += [False for _ in WINDOW_COLUMNS]
            found += [_aggregate_may(each, known) for each in plan.aggregates]
            return frozenset(c.field for c, may in zip(plan.columns, found, strict=True) if may)
    return every - frozenset(_never_null_in_join(plan) if isinstance(plan, JoinRows) else ())


def _never_null_in_join(plan: JoinRows) -> Iterator[str]:
    sides = (
        (plan.left, plan.left_values, plan.left_keys, ("right", "full")),
        (plan.right, plan.right_values, plan.right_keys, ("left", "full")),
    )
    for (side, values, keys, others), stamps in zip(sides, plan.stamps, strict=True):
        if plan.how in others:  # A row of the other side alone has no columns of this one.
            continue
        yield from stamps
        known, matched = nullable_fields(side), {field_read(each) for each in keys}
        for name, value in values.items():
            is_key = plan.how == "inner" and field_read(value) in matched - {None}
            if is_key or not _may(value, known):
                yield name


def _aggregate_may(aggregate: AggregateCall, known: frozenset[str]) -> bool:
    # A window has a row, so only an argument that is NULL in all rows leads to NULL.
    value = aggregate.value
    if aggregate.python is not None:
        return aggregate.python.python.returns_null
    return aggregate.function != "count" and value is not None and _may(value, known)


def _may(value: Expression, known: frozenset[str]) -> bool:
    """Return whether an expression may be NULL; ``known`` are the nullable fields."""
    name = value.operation.removeprefix("sql.")
    parts = [each for each in value.arguments if isinstance(each, Expression)]
    row = FUNCTIONS.get(name)
    is_strict = row is not None and not row.takes_nulls and row.group not in _PARTIAL
    match name:
        case "column":
            field = field_read(value)
            return field is None or field in known
        case "literal":
            return value.arguments[1] is None
        case "python":
            function = value.arguments[1]
            pairs = zip(parts, function.takes_null, strict=True)
            return function.returns_null or any(
                _may(each, known) for each, takes in pairs if not takes
            )
        case "coalesce":
            return all(_may(each, known) for each in parts)
        case "case":
            parts = [*parts[1::2], parts[-1]]
        case "cast" | "and" | "or" | "is_in":
            pass
        case _ if name in _NEVER_NULL or not is_strict:
            return name not in _NEVER_NULL
    return any(_may(each, known) for each in parts)


def _proven(condition: Expression) -> Iterator[str]:
    """Yield the fields that are not NULL in the rows for which a condition is true."""
    parts = [each for each in condition.arguments if isinstance(each, Expression)]
    if condition.operation == "sql.and":
        for each in parts:
            yield from _proven(each)
    elif condition.operation == "sql.is_not_null":
        field = field_read(parts[0])
        if field is not None:
            yield field
