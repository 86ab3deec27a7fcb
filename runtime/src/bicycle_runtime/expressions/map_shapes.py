"""Shapes of the results of maps, known before the start."""

from __future__ import annotations

import dataclasses
from typing import Any

from bicycle_runtime.expressions.calls import is_plain_dataclass
from bicycle_runtime.expressions.evaluation import SKIPPED
from bicycle_runtime.expressions.symbols import MORE, Reading
from bicycle_runtime.frames.record_shapes import RecordForms, RecordShape
from bicycle_sdk.expressions import Expression

Shaped = tuple[RecordShape | None, str | None]


def with_record_type(expression: Expression, kind: type | None) -> Expression:
    """Return the expression of a map over records of a type.

    Maps that set attributes become maps that create objects of the type.

    Raises:
        Reading: objects of the type cannot be created from their fields.
    """
    operation, arguments = expression.operation, expression.arguments
    match operation:
        case "given" | "checked":
            return Expression(operation, arguments[0], with_record_type(arguments[1], kind))
        case "if":
            sides = (with_record_type(side, kind) for side in arguments[1:])
            return Expression(operation, arguments[0], *sides)
        case "assigned" | "replaced":
            if kind is None or not is_plain_dataclass(kind):
                raise Reading(MORE)
            if operation == "assigned" and "__setattr__" in vars(kind):
                raise Reading(MORE)  # It is frozen.
            names, *values = arguments
            known = {
                field.name: Expression("field", field.name, "attribute")
                for field in dataclasses.fields(kind)
            }
            if not set(names) <= known.keys():
                raise Reading(MORE)
            known |= dict(zip(names, values, strict=True))
            return Expression("make", kind, tuple(known), *known.values())
    return expression


def mapped_shape(expression: Expression, shape: RecordShape) -> Shaped:
    """Return the shape of a map's results, or None and the reason.

    Args:
        expression: The expression of the map.
        shape: The shape of its input.
    """
    kind: type | None = None
    values: list[Any]
    tests, expression = _without_checks(expression)
    match expression.operation:
        case "if":
            return _shape_of_choice(expression, shape, tests)
        case "itself" | "updated" if shape.form != "value":
            return _shape_of_update(expression, shape, tests)
        case "record":
            form: RecordForms = "mapping"
            names, *values = expression.arguments
        case "make":
            form = "object"
            kind, names, *values = expression.arguments
        case "tuple":
            form, names, values = "tuple", range(len(expression.arguments)), [*expression.arguments]
        case _:
            form, names, values = "value", (None,), [expression]
    problem = _problem([*tests, *values], shape)
    if problem is not None:
        return None, problem
    kinds = _kinds(names, values, shape)
    return RecordShape(form=form, names=frozenset(names), kinds=kinds, record_type=kind), None


def _problem(values: list[Expression], shape: RecordShape) -> str | None:
    return next(filter(None, map(shape.problem, values)), None)


def _kinds(names: Any, values: list[Expression], shape: RecordShape) -> dict[Any, type]:
    kinds = {name: shape.kind_of(value) for name, value in zip(names, values, strict=True)}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _without_checks(expression: Expression) -> tuple[list[Expression], Expression]:
    """Return the values that must be computable, and the result."""
    tests: list[Expression] = []
    while expression.operation in ("given", "checked"):
        test, result = expression.arguments
        tests += [test] if expression.operation == "checked" else []
        expression = result
    return tests, expression


def _shape_of_update(expression: Expression, shape: RecordShape, tests: list[Expression]) -> Shaped:
    names, *values = expression.arguments or ((),)
    problem = _problem([*tests, *values], shape)
    if problem is None and expression.arguments and shape.form != "mapping":
        problem = "it sets entries of records that are not dicts"
    if problem is not None:
        return None, problem
    kept = {name: kind for name, kind in shape.kinds.items() if name not in names}
    known = None if shape.names is None else shape.names | set(names)
    return dataclasses.replace(
        shape, names=known, kinds={**kept, **_kinds(names, values, shape)}
    ), None


def _shape_of_choice(expression: Expression, shape: RecordShape, tests: list[Expression]) -> Shaped:
    condition, *sides = expression.arguments
    problem = _problem([*tests, condition], shape)
    found = []
    for side in sides:
        its_shape, its_problem = mapped_shape(side, shape)
        problem = problem or its_problem
        found.append(its_shape)
    first, second = found
    if problem is not None or first is None or second is None:
        return None, problem
    if first.form != second.form or first.record_type is not second.record_type:
        return None, "it returns records of several types"
    names = first.names if first.names == second.names else None
    if names is None and first.form != "mapping":
        return None, "it returns records with several numbers of fields"
    kinds = {name: kind for name, kind in first.kinds.items() if second.kinds.get(name) is kind}
    return dataclasses.replace(first, names=names, kinds=kinds), None


def flat_mapped_shape(expression: Expression, shape: RecordShape) -> Shaped:
    """Return the shape of a flat map's results, or None and the reason.

    Args: as of ``mapped_shape``.
    """
    tests, expression = _without_checks(expression)
    if expression.operation != "each":
        problem = _problem([*tests, expression], shape)
        plain = RecordShape(form="value", names=frozenset({None}))
        return (None, problem) if problem else (plain, None)
    source, _, body = expression.arguments
    tests.append(source)
    while body.operation == "if" and any(side is SKIPPED for side in body.arguments[1:]):
        condition, first, second = body.arguments
        tests.append(condition)
        body = second if first is SKIPPED else first
    problem = _problem(tests, shape)
    return (None, problem) if problem else mapped_shape(body, shape)
