"""Maps by expressions: records in columns from records in columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_runtime.expressions.evaluation import (
    SKIPPED,
    SKIPPED_TYPE,
    choose,
    evaluate,
    merge_vectors,
    split,
)
from bicycle_runtime.expressions.nested import elements_of
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import Mask, Refused, TupleVector, Vector
from bicycle_sdk.expressions import Expression


def mapped(expression: Expression, frame: Frame) -> Frame:
    """Return the records that a map makes of others.

    Raises:
        Refused: they must be made one by one.
    """
    expression = _pass_checks(expression, frame)
    arguments = expression.arguments
    match expression.operation:
        case "if":
            return choose(arguments, frame, mapped, _interleave)
        case "itself" if frame.has_records:
            return frame
        case "updated":
            names, *values = arguments
            return _update_records(frame, dict(zip(names, _values(values, frame), strict=True)))
        case "record":
            kind: type = dict
            names, *values = arguments
        case "make":
            kind, names, *values = arguments
        case _:
            return _frame_of(evaluate(expression, frame))
    return Frame.of(RecordForm(kind, tuple(names)), _values(values, frame), frame.count)


def flat_mapped(expression: Expression, frame: Frame) -> tuple[Frame, Any]:
    """Return the records of a flat map, and the index of the input of each.

    Raises:
        Refused: they must be made one by one.
    """
    expression = _pass_checks(expression, frame)
    if expression.operation == "each":
        source, variable, body = expression.arguments
    else:
        source, variable = expression, object()
        body = Expression("element", variable)
    kept, rows = elements_of(evaluate(source, frame), variable, frame)
    while kept.count and body.operation == "if":
        condition, first, second = body.arguments
        if first is not SKIPPED and second is not SKIPPED:
            break
        mask, ones, others = split(condition, kept)
        body, kept = (second, others) if first is SKIPPED else (first, ones)
        rows = rows[~mask.array if first is SKIPPED else mask.array]
    if not len(rows):
        return Frame.of(RecordForm(None, (None,)), [Vector(0, [])], 0), rows
    made = mapped(body, kept)
    if any(SKIPPED_TYPE in vector.kinds for vector in made.columns()):
        raise Refused
    return made, rows


def _pass_checks(expression: Expression, frame: Frame) -> Expression:
    """Return the result of an expression whose outer names and checks hold.

    Raises:
        Refused: one does not.
    """
    while expression.operation in ("given", "checked"):
        test, result = expression.arguments
        if expression.operation == "checked":
            evaluate(test, frame)
        elif not test():
            raise Refused
        expression = result
    return expression


def _values(values: list[Expression], frame: Frame) -> list[Vector]:
    return [evaluate(value, frame) for value in values]


def _frame_of(found: Vector) -> Frame:
    """Return values as records: tuples in columns, anything else as it is."""
    if isinstance(found, TupleVector):
        form = RecordForm(tuple, tuple(range(len(found.parts))))
        return Frame.of(form, found.parts, found.count)
    return Frame.of(RecordForm(None, (None,)), [found], found.count)


def _update_records(frame: Frame, columns: Mapping[str, Vector]) -> Frame:
    """Return new dicts with the fields of others and some more."""
    form = frame.form
    if not frame.has_records or (form is not None and form.kind is not dict):
        raise Refused
    if form is None:
        return _update_one_by_one(frame, columns)
    return frame.update(columns)


def _update_one_by_one(frame: Frame, columns: Mapping[str, Vector]) -> Frame:
    if set(map(type, frame.records)) - {dict}:
        raise Refused
    names, each = tuple(columns), [vector.each() for vector in columns.values()]
    rows = zip(*each, strict=True) if each else [()] * frame.count
    made = [
        {**record, **dict(zip(names, row, strict=True))}
        for record, row in zip(frame.records, rows, strict=True)
    ]
    return Frame.of_dicts(made)


def _interleave(mask: Mask, first: Frame, second: Frame) -> Frame:
    count, form = len(mask.array), first.form
    if form is not None and form == second.form:
        pairs = zip(first.columns(), second.columns(), strict=True)
        return Frame.of(form, [merge_vectors(mask, *pair) for pair in pairs], count)
    records = [iter(first.records), iter(second.records)]
    made = [next(records[0 if is_first else 1]) for is_first in mask.listed]
    if set(map(type, made)) != {dict}:
        raise Refused
    return Frame.of_dicts(made)
