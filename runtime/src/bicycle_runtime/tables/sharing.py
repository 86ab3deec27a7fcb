"""Savings of queries: equal parts are computed once, unread columns never.

Equal views of one file are not found: their operators have the names of their views.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import fields
from typing import Any

from bicycle_runtime.tables.dialect import WindowCall
from bicycle_runtime.tables.moments import fields_of
from bicycle_runtime.tables.plans import (
    AggregateCall,
    CallRows,
    FilterRows,
    JoinRows,
    Plan,
    PlanColumn,
    Project,
    Scan,
    UnionAll,
    WindowAggregate,
    inputs_of,
    is_random,
)
from bicycle_sdk.expressions import Expression


class EqualPlans:
    """The parts of one query.

    Args:
        names: The names of views, by the identity of their plan. Parts of views are shared already.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._first: dict[Hashable, Plan] = {}
        self._known: dict[int, tuple[Plan, Plan]] = {}  # With its plan, whose id stays in use.

    def first(self, plan: Plan) -> Plan:
        """Return the first plan that computes the same rows, or the plan itself."""
        if id(plan) not in self._known:
            key = self._key_of(plan)
            self._known[id(plan)] = plan, self._first.setdefault(key, plan)
        return self._known[id(plan)][1]

    def _key_of(self, plan: Plan) -> Hashable:
        has_late = isinstance(plan, WindowAggregate) and plan.late_readers
        if id(plan) in self._names or has_late or isinstance(plan, CallRows):
            return id(plan)
        parts = [getattr(plan, each.name) for each in fields(plan) if each.name != "late_readers"]
        return type(plan), *map(self._part, parts)

    def _part(self, part: Any) -> Hashable:
        """Return a part without names and positions, which do not affect rows."""
        found: Hashable = id(part)
        match part:
            case Plan():
                found = id(self.first(part))
            case PlanColumn():
                found = part.field, part.type
            case WindowCall():
                found = part.kind, self._part(part.intervals_ms)
            case Expression() if not is_random(part):
                found = part.operation, *map(self._part, part.arguments)
            case AggregateCall():
                found = tuple(self._part(getattr(part, each.name)) for each in fields(part))
            case Mapping():
                found = tuple((name, self._part(each)) for name, each in part.items())
            case tuple():
                found = tuple(map(self._part, part))
            case str() | int() | float() | None:
                found = type(part), part
        return found


def read_fields(plans: Iterable[Plan]) -> Mapping[int, Set[str]]:
    """Return the fields that plans read of each table, by the identity of its scan."""
    found: dict[int, set[str]] = {}
    known = set[tuple[int, frozenset[str]]]()
    todo = [(plan, _all_of(plan)) for plan in plans]
    while todo:
        plan, wanted = todo.pop()
        if (id(plan), wanted) not in known:
            known.add((id(plan), wanted))
            if isinstance(plan, Scan):
                found.setdefault(id(plan), set()).update(wanted)
            todo += _wanted_inputs(plan, wanted)
    return found


def _wanted_inputs(plan: Plan, wanted: frozenset[str]) -> list[tuple[Plan, frozenset[str]]]:
    """Return the inputs of a plan, each with the fields that are read of it."""
    match plan:
        case FilterRows():
            return [(plan.input, wanted | fields_of(plan.condition))]
        case Project():
            return [(plan.input, _fields(plan.values))]
        case WindowAggregate() if not plan.late_readers:
            values = [each.value for each in plan.aggregates if each.value is not None]
            return [(plan.input, _fields([*plan.keys, *values]))]
        case JoinRows():
            left = _fields([*plan.left_values.values(), *plan.left_keys])
            right = _fields([*plan.right_values.values(), *plan.right_keys])
            return [(plan.left, left), (plan.right, right)]
        case UnionAll():
            return [(each, wanted) for each in plan.inputs]
        case _:
            return [(each, _all_of(each)) for each in inputs_of(plan)]


def _fields(values: Iterable[Expression]) -> frozenset[str]:
    return frozenset(name for value in values for name in fields_of(value))


def _all_of(plan: Plan) -> frozenset[str]:
    return frozenset(column.field for column in plan.columns)
