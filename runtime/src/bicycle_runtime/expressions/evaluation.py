"""The kernel: expressions over columns of records, with results equal to Python's.

Arrays compute if they have the same results: ints as long as 64 bits hold every result, floats by
the rules of IEEE 754, which are Python's. Everything else is done value by value with Python's own
functions, in one sweep. If a record would fail, or values have types whose operators may run any
code, the kernel refuses all of them, and they go one by one: so errors go to ``on_error`` with
their record.

A computation of columns from columns is a ``Step``: an expression here, or any other step with the
same result for each record, or a refusal.
"""

from __future__ import annotations

import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from itertools import chain
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

from bicycle_runtime.expressions.array_rules import compute_in_arrays
from bicycle_runtime.expressions.nested import elements_of, regroup
from bicycle_runtime.frames.arrays import bool_array, numpy
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import ArrowVector, Mask, Refused, TupleVector, Vector
from bicycle_sdk.expressions import OPERATIONS, Expression, is_expression
from bicycle_sdk.value_functions import ROWS

_Result = TypeVar("_Result")
_Split = tuple[Mask, Frame, Frame]  # which records fulfill a condition, these, and the others
_PLAIN = frozenset({int, float, str, bool, type(None)})
_CONTAINERS = frozenset({list, dict, tuple})
_COLLECTIONS = frozenset({tuple, frozenset, list, set})
_SEARCHED = _COLLECTIONS | {dict}
_BOOL = frozenset({bool})
# Of plain values.
_GIVE_BOOLS = frozenset(
    {operator.contains, operator.eq, operator.ne, operator.lt, operator.le, operator.gt,
     operator.ge, operator.is_, operator.is_not}
)  # fmt: skip
# By function: what it accepts beside plain values, and the type that all its results have.
_TAKES = {row.call: row.takes for row in ROWS if row.takes}
_RETURNS = {row.call: frozenset({row.returns}) for row in ROWS if row.returns is not None}
# Time zones without code of users.
_ZONES = frozenset({type(None), timezone, ZoneInfo})
SKIPPED_TYPE = type("Skipped", (), {})
# The result of a comprehension for an item that its condition leaves out.
SKIPPED = Expression("literal", SKIPPED_TYPE())
_SLICED = frozenset({str, list, tuple})
_TIMES = frozenset({datetime, date})
# Columns that exist already: picking them again would be no gain.
_AT_HAND = frozenset({"field", "itself", "literal", "free", "element"})


class HasExpression(ABC):
    """A function of a record that declares the expression that it computes.

    Both ways must have the same result: the call for one record, the expression over columns.
    """

    __slots__ = ()

    @abstractmethod
    def expression(self) -> Expression:
        """Return the expression; called on the driver and on workers, and cheap."""


def has_expression(function: object) -> bool:
    """Return whether a function is an expression, or declares one."""
    return is_expression(function) or isinstance(function, HasExpression)


class ComputedColumns(Protocol):
    """Columns that something else computes, such as texts in SQL."""

    def vectors(self, inputs: Sequence[Expression], columns: Frame) -> Sequence[Vector]:
        """Return the values of each thing that it computes, for each record.

        Called once for each of them with the same records, which need not be computed again.

        Args:
            inputs: The fields that it reads.
            columns: The records.

        Raises:
            Refused: a record may fail.
        """


def evaluate(expression: Expression, frame: Frame) -> Vector:
    """Return the value of an expression for each record, computed once for each frame.

    Raises:
        Refused: it must be asked record by record.
    """
    if expression.operation in _AT_HAND:
        return _evaluate(expression, frame)
    found = _find_note(expression, frame)
    if found is None:
        found = _evaluate(expression, frame)
        frame.notes[id(expression)] = expression, found
    return found


def _find_note(expression: Expression, frame: Frame) -> Vector | None:
    """Return a value that is known for a frame, or for the frame above it."""
    found: tuple[Expression, Vector] | None = frame.notes.get(id(expression))
    if found is not None or frame.above is None:
        return found and found[1]
    above, mask = frame.above[0](), frame.above[1]
    whole = None if above is None else _find_note(expression, above)
    if whole is None:
        return None
    value = whole.take(mask)
    frame.notes[id(expression)] = expression, value
    return value


def split(condition: Expression, frame: Frame) -> _Split:
    """Return a mask of the records that fulfill a condition, these, and the others."""
    known: tuple[Expression, _Split] | None = frame.notes.get((id(condition), "split"))
    if known is not None:
        return known[1]
    mask = mask_of(evaluate(condition, frame))
    if mask.count == frame.count or not mask.count:
        return mask, frame, frame
    found = mask, frame.part(mask), frame.part(mask.others())
    frame.notes[id(condition), "split"] = condition, found
    return found


def sql_rows(frame: Frame) -> Any:
    """Return a frame as ``SqlRows``, on which SQL expressions are computed."""
    found = frame.notes.get("sql")
    if found is None:
        # It imports pyarrow, which is slow and which jobs without SQL do not need.
        from bicycle_runtime.expressions.sql.computing import SqlRows

        held = weakref.ref(frame)  # Its own notes must not keep it.

        def read(source: Expression) -> Vector:
            records = held()
            assert records is not None
            return evaluate(source, records)

        found = frame.notes["sql"] = SqlRows(read, frame.count)
    return found


def _evaluate(expression: Expression, columns: Frame) -> Vector:
    special = _SPECIAL.get(expression.operation)
    if special is not None:
        return special(expression.arguments, columns)
    if expression.operation.startswith("sql."):
        column, errors = sql_rows(columns).array(expression)
        if errors:
            raise Refused
        return ArrowVector(column)
    values = [
        evaluate(one, columns)
        if isinstance(one, Expression)
        else Vector.constant(one, columns.count)
        for one in expression.arguments
    ]
    return _compute(expression.operation, values, columns.count)


def mask_of(condition: Vector) -> Mask:
    """Return for which records a value counts as true.

    Raises:
        Refused: code of its type must decide.
    """
    np = numpy()
    array, listed = condition.array, condition.bools
    if array is None:
        if not condition.kinds <= _PLAIN:
            raise Refused
        listed = list(map(bool, condition.items))
        array = bool_array(listed)
    elif array.dtype.kind != "b":
        array = array != 0
    return Mask(np.broadcast_to(array, condition.count) if condition.is_constant else array, listed)


def _compute(operation: str, values: list[Vector], count: int) -> Vector:
    if all(value.is_constant for value in values):
        return _by_items(OPERATIONS[operation], values, count)
    if operation == "is_null":
        return _are_null(values[0])
    found = compute_in_arrays(operation, values)
    if found is not None:
        return Vector(count, None, found)
    return _by_items(OPERATIONS[operation], values, count)


def _by_items(function: Callable[..., Any], values: list[Vector], count: int) -> Vector:
    """Return the results of a Python function for the values of each record."""
    takes = _TAKES.get(function, frozenset())
    if not all(_is_accepted(value, takes) for value in values):
        raise Refused
    kinds = _BOOL if function in _GIVE_BOOLS else _RETURNS.get(function)
    try:
        if all(value.is_constant for value in values):
            found = function(*(value.value for value in values))
            if type(found) is not list:
                return Vector.constant(found, count)
        # hot path: 25 to 60 ns a value, without a call of Python code.
        return Vector(count, list(map(function, *(value.each() for value in values))), kinds=kinds)
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _is_accepted(value: Vector, takes: frozenset[type]) -> bool:
    """Return whether a function runs no code but Python's on values.

    Args:
        value: The values of one argument.
        takes: Types that the function accepts beside plain values.
    """
    others = value.kinds - _PLAIN
    if not others:
        return True
    if not others <= takes:
        return value.is_constant and _is_plain_constant(value.value)
    items = [value.value] if value.is_constant else value.items
    inner = chain.from_iterable(item for item in items if type(item) in (list, tuple))
    if not _PLAIN.issuperset(map(type, inner)):
        return False
    times = (item.tzinfo for item in items if type(item) is datetime)
    return _ZONES.issuperset(map(type, times))


def _is_plain_constant(value: Any) -> bool:
    return type(value) in _COLLECTIONS and set(map(type, value)) <= _PLAIN


def _are_null(value: Vector) -> Vector:
    np = numpy()
    if type(None) not in value.kinds:
        return Vector(value.count, None, np.zeros(value.count, np.bool_))
    nulls = [item is None for item in value.items]
    return Vector(value.count, None, np.array(nulls, np.bool_))


def _tuple(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    return TupleVector(columns.count, [evaluate(one, columns) for one in arguments])


def _given_value(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return a value that is valid while an outside name is unchanged."""
    is_same, value = arguments
    if not is_same():
        raise Refused
    return evaluate(value, columns)


def _with_checks(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return a value if another one can be computed; common parts are computed once."""
    other, value = arguments
    evaluate(other, columns)
    return evaluate(value, columns)


def _apply(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    function, *parts = arguments
    if function is operator.not_:
        return Vector(columns.count, None, ~mask_of(evaluate(parts[0], columns)).array)
    values = [evaluate(one, columns) for one in parts]
    if function is operator.contains:
        return _are_in(*values)
    return _by_items(function, values, columns.count)


def _are_in(container: Vector, value: Vector) -> Vector:
    """Return a mask of the values that are in a container.

    hot path: 16 ns a value where the container is a constant, 30 by ``operator.contains``.
    """
    if container.is_constant and not value.is_constant and value.kinds <= _PLAIN:
        known = container.value
        if type(known) in _SEARCHED and set(map(type, known)) <= _PLAIN:
            found = list(map(frozenset(known).__contains__, value.items))
            return Vector(value.count, found, kinds=_BOOL)
    return _by_items(operator.contains, [container, value], value.count)


def _convert(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return values of accepted types as they are, others converted by a function.

    Where no function is given, other types are for records. A function with ``vector`` may convert
    all values at once.
    """
    kinds, function, value = arguments
    found = evaluate(value, columns)
    if found.kinds <= kinds:
        return found
    if function is None or not found.kinds <= _PLAIN | _TIMES | {list}:
        raise Refused
    whole: Vector | None = function.vector(found) if hasattr(function, "vector") else None
    if whole is not None:
        return whole
    try:
        return Vector(columns.count, list(map(function, found.each())))
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _by_others(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    computer, index, *inputs = arguments
    vector: Vector = computer.vectors(inputs, columns)[index]
    return vector


def _choose(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    return choose(arguments, columns, evaluate, merge_vectors)


def choose(
    arguments: tuple[Any, ...], columns: Frame, compute: Callable[[Any, Frame], _Result],
    merge: Callable[[Mask, _Result, _Result], _Result],
) -> _Result:  # fmt: skip
    """Return one of two results per record, each computed only for its records."""
    condition, first, second = arguments
    mask, ones, others = split(condition, columns)
    if mask.count == columns.count:
        return compute(first, ones)
    if not mask.count:
        return compute(second, others)
    return merge(mask, compute(first, ones), compute(second, others))


def merge_vectors(mask: Mask, first: Vector, second: Vector) -> Vector:
    """Return values of ``first`` for the records of a mask, of ``second`` for others."""
    np, count = numpy(), len(mask.array)
    if first.is_constant and second.is_constant and first.value is second.value:
        return Vector.constant(first.value, count)
    parts = [each.parts for each in (first, second) if isinstance(each, TupleVector)]
    if len(parts) > 1 and len(parts[0]) == len(parts[1]):
        pairs = zip(*parts, strict=True)
        return TupleVector(count, [merge_vectors(mask, *pair) for pair in pairs])
    arrays = first.array, second.array
    if all(array is not None for array in arrays) and arrays[0].dtype == arrays[1].dtype:
        merged = np.empty(count, arrays[0].dtype)
        merged[mask.array], merged[~mask.array] = arrays
        return Vector(count, None, merged)
    rest = iter(first.each()), iter(second.each())
    return Vector(count, [next(rest[0] if is_first else rest[1]) for is_first in mask.listed])


def _item(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    base, index = (evaluate(one, columns) for one in arguments)
    if isinstance(base, TupleVector):
        if not index.is_constant or type(index.value) is not int:
            raise Refused
        try:
            return base.parts[index.value]
        except IndexError as error:
            raise Refused from error
    if not (base.kinds <= _PLAIN | _CONTAINERS and index.kinds <= _PLAIN):
        raise Refused
    try:
        return Vector(columns.count, list(map(operator.getitem, base.each(), index.each())))
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _slice(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    base, *bounds = (evaluate(one, columns) for one in arguments)
    if not base.kinds <= _SLICED or not all(bound.kinds <= _PLAIN for bound in bounds):
        raise Refused
    try:
        if all(bound.is_constant for bound in bounds):
            cut = operator.itemgetter(slice(*(bound.value for bound in bounds)))
            return Vector(columns.count, list(map(cut, base.each())), kinds=base.kinds)
        slices = map(slice, *(bound.each() for bound in bounds))
        return Vector(columns.count, list(map(operator.getitem, base.each(), slices)))
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _unpack(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return sequences that all have a given length."""
    source, length = arguments
    found = evaluate(source, columns)
    if isinstance(found, TupleVector) and len(found.parts) == length:
        return found
    if not found.kinds <= {list, tuple} or set(map(len, found.items)) != {length}:
        raise Refused
    return found


def _list(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return a new list for each record: a function may change the list of one."""
    parts = [evaluate(one, columns).each() for one in arguments]
    rows = zip(*parts, strict=True) if parts else [()] * columns.count
    return Vector(columns.count, list(map(list, rows)), kinds=frozenset({list}))


def _each(arguments: tuple[Any, ...], columns: Frame) -> Vector:
    """Return the list of a comprehension for each record."""
    source, variable, body = arguments
    elements, rows = elements_of(evaluate(source, columns), variable, columns)
    if not elements.count:
        return _list((), columns)
    return regroup(evaluate(body, elements), rows, columns.count, SKIPPED_TYPE)


# Functions with more than values as input.
_SPECIAL: dict[str, Callable[[tuple[Any, ...], Frame], Vector]] = {
    "field": lambda arguments, columns: columns.field(arguments[0]),
    "field_or": lambda arguments, columns: columns.field_or(
        arguments[0], evaluate(arguments[1], columns)
    ),
    "itself": lambda _, columns: columns.field(None),
    "literal": lambda arguments, columns: Vector.constant(arguments[0], columns.count),
    "free": lambda arguments, columns: Vector.constant(arguments[0](), columns.count),
    "if": _choose,
    "tuple": _tuple,
    "list": _list,
    "unpacked": _unpack,
    "slice": _slice,
    "each": _each,
    "element": lambda arguments, columns: columns.field(arguments[0]),
    "item": _item,
    "given": _given_value,
    "checked": _with_checks,
    "apply": _apply,
    "converted": _convert,
    "columns": _by_others,
}
