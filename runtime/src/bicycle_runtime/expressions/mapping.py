"""Maps whose function is an expression: columns made from columns."""

from __future__ import annotations

from bicycle_runtime.expressions.evaluation import Columns, evaluate, noted
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import Refused, TupleVector
from bicycle_sdk.expressions import Expression


def mapped(expression: Expression, frame: Columns) -> Frame:
    """Return the records that a map makes of others.

    Raises:
        Refused: they must be made one by one.
    """
    match expression.operation:
        case "given":
            if not expression.arguments[0]():
                raise Refused
            return mapped(expression.arguments[1], frame)
        case "checked":
            frame = noted(frame)
            evaluate(expression.arguments[0], frame)
            return mapped(expression.arguments[1], frame)
        case "record":
            kind: type = dict
            names, *values = expression.arguments
        case "make":
            kind, names, *values = expression.arguments
        case _:
            found = evaluate(expression, frame)
            if isinstance(found, TupleVector):
                form = RecordForm(tuple, tuple(range(len(found.parts))))
                return Frame.of(form, found.parts, frame.count)
            return Frame.of(RecordForm(None, (None,)), [found], frame.count)
    columns = [evaluate(value, frame) for value in values]
    return Frame.of(RecordForm(kind, tuple(names)), columns, frame.count)
