"""Answers of operators: whether they work on the columns of records of a shape.

Each class of operators answers for an operator before the start, from its kind, the code of its
function, and the shape of its input; nothing of the user's is called. ``bicycle plan`` prints the
answers, and workers take frames by the same answers. Conditions on data are checked for each
frame: an operator refuses it, and then the records are processed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from bicycle_runtime.expressions.evaluation import has_expression
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.map_shapes import Shaped, with_record_type
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.record_shapes import RecordShape, shape_of_form
from bicycle_runtime.frames.rows import is_plain
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_sdk.expressions import Expression
from bicycle_sdk.functions import as_callable

Load = Callable[[str], Any]  # returns the object of a payload id
OPEN_SHAPE = RecordShape(form="mapping", names=None)


class ColumnAnswer(NamedTuple):
    """The answer of an operator for records of a shape.

    ``because`` is the reason for records, None if it works on columns. ``value`` is the expression
    that it computes, None where it computes nothing. ``gives`` is the shape of its output, None for
    records. ``spares_records`` means that columns avoid the creation of records.
    ``begins`` means that it computes columns of any records, whatever its input is.
    """

    because: str | None
    value: Expression | None = None
    gives: RecordShape | None = None
    spares_records: bool = False
    begins: bool = False


class Asked:
    """The answers of an operator by the shape of its input, each found once."""

    def __init__(self, ask: Callable[[RecordShape | None], ColumnAnswer]) -> None:
        self._ask = ask
        # By identity, since a shape has a dict; the shape is kept, so that no other takes its id.
        self._known: dict[int, tuple[RecordShape | None, ColumnAnswer]] = {}

    def for_shape(self, shape: RecordShape | None) -> ColumnAnswer:
        """Return the answer for a shape of the input, None for records of unknown shape."""
        found = self._known.get(id(shape))
        if found is None:
            found = self._known[id(shape)] = shape, self._ask(shape)
        return found[1]


def loaded_function(spec: OperatorSpec, load: Load) -> Any:
    """Return the function of an operator, or None without one."""
    is_there = "function" in spec.vertex.payloads
    return load(spec.vertex.payload_id("function")) if is_there else None


def answer_by_function(
    spec: OperatorSpec, load: Load, shape: RecordShape | None, *, method: str,
    shaped: Callable[[Expression, RecordShape], Shaped], makes_records: bool = False,
) -> ColumnAnswer:  # fmt: skip
    """Return the answer of an operator that calls a function for each record.

    Args:
        spec: The operator.
        load: Returns the object of a payload id.
        shape: The shape of its input, None if it is unknown.
        method: The method of an object that is its function.
        shaped: Returns the shape of the output for an expression and a shape of the input, or the
            reason for records.
        makes_records: Whether the results are new records; then the function may change its
            argument. Key selectors, filters and time functions must not.
    """
    function = loaded_function(spec, load)
    begins = has_expression(function)
    if function is None or (shape is None and not begins):
        return ColumnAnswer(None, gives=shape)
    known = shape or OPEN_SHAPE
    try:
        value = read(as_callable(function, method), may_change=makes_records)
        if makes_records:
            value = with_record_type(value, known.record_type)
    except Reading as reason:
        return ColumnAnswer(str(reason))
    gives, problem = shaped(value, known)
    fits = problem is None
    return ColumnAnswer(
        problem, value, gives if makes_records or shape else None,
        spares_records=makes_records and fits, begins=begins and fits,
    )  # fmt: skip


def keep_shape(
    value: Expression, shape: RecordShape, *, kinds: tuple[type, ...] | None = None
) -> Shaped:
    """Return the shape of records that an operator keeps; ``kinds`` limit its value."""
    problem = shape.problem(value)
    if problem is None and kinds is not None:
        problem = shape.kind_problem(value, kinds)
    return None if problem else shape, problem


def shape_of_frame(frame: Frame) -> RecordShape | None:
    """Return the shape of the records of a frame, or None if their form is unknown."""
    form = frame.form
    return None if form is None else _shape_of(form)


@cache
def _shape_of(form: RecordForm) -> RecordShape:
    return shape_of_form(form.kind, form.names)


def frame_of(records: Sequence[Any]) -> tuple[Frame, RecordShape] | None:
    """Return objects as a frame, or None if reading a field of one may run code."""
    kinds = set(map(type, records))
    if kinds == {dict}:
        return Frame.of_dicts(list(records)), OPEN_SHAPE
    if len(kinds) != 1 or not is_plain(*kinds):
        return None
    rows = FieldRows(objects=list(records), make=None, getter=attrgetter)
    return Frame.of_rows(rows), _object_shape(*kinds)


@cache
def _object_shape(kind: type) -> RecordShape:
    return RecordShape(form="object", names=None, record_type=kind)
