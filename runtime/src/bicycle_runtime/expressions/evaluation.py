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
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Protocol

from bicycle_runtime.frames.arrays import bool_array, numpy
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.vectors import Mask, Refused, TupleVector, Vector
from bicycle_sdk.expressions import OPERATIONS, Expression, is_expression

__all__ = [
    "Columns",
    "ComputedColumns",
    "HasExpression",
    "evaluate",
    "has_expression",
    "mask_of",
    "noted",
]

_PLAIN = frozenset({int, float, str, bool, type(None)})
_CONTAINERS = frozenset({list, dict, tuple})
_COLLECTIONS = frozenset({tuple, frozenset, list, set})
_BOOL = frozenset({bool})
# Of plain values.
_GIVE_BOOLS = frozenset(
    {operator.contains, operator.eq, operator.ne, operator.lt, operator.le, operator.gt,
     operator.ge, operator.is_, operator.is_not, str.startswith, str.endswith}
)  # fmt: skip
_TIMES = frozenset({datetime, date})
_INT_MAX = (1 << 63) - 1
_EXACT_MAX = 1 << 53  # ints up to here are floats
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_NUMBERS = frozenset({"i", "f"})
_DIGITS_MAX = 15
# Columns that exist already: picking them again would be no gain.
_AT_HAND = frozenset({"field", "itself", "literal", "free"})
_SCALED_MAX = float(1 << 40)  # so that scaling is wrong by less than 0.0001
_TIE_NEAR = 1e-3


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

    def vectors(self, inputs: Sequence[Expression], columns: Columns) -> Sequence[Vector]:
        """Return the values of each thing that it computes, for each record.

        Called once for each of them with the same records, which need not be computed again.

        Args:
            inputs: The fields that it reads.
            columns: The records.

        Raises:
            Refused: a record may fail.
        """


class NotedColumns:
    """Columns that cache computed values, so that equal expressions are computed once.

    Args:
        columns: The columns.
        above: The columns that contain these, or None.
        mask: Which of them.
    """

    __slots__ = ("__weakref__", "_above", "_columns", "_known", "_mask", "count")

    def __init__(
        self, columns: Columns, above: NotedColumns | None = None, mask: Mask | None = None
    ) -> None:
        self._columns, self._above, self._mask = columns, above, mask
        self._known: dict[int, Vector] = {}  # by the identity of an expression
        self.count: int = columns.count

    def field(self, name: Any) -> Vector:
        """Return a field of each."""
        return self._columns.field(name)

    def field_or(self, name: Any, default: Vector) -> Vector:
        """Return a field of each record, with values of ``default`` where it is missing."""
        return self._columns.field_or(name, default)

    def take(self, mask: Mask) -> NotedColumns:
        """Return some of them."""
        return NotedColumns(self._columns.take(mask), self, mask)

    def value_of(self, expression: Expression) -> Vector:
        """Return the value of an expression for each record."""
        found = self._find(expression)
        if found is None:
            found = self._known[id(expression)] = _evaluate(expression, self)
        return found

    def _find(self, expression: Expression) -> Vector | None:
        found = self._known.get(id(expression))
        if found is None and self._above is not None and self._mask is not None:
            whole = self._above._find(expression)
            if whole is not None:
                found = self._known[id(expression)] = whole.take(self._mask)
        return found


Columns = Frame | NotedColumns


def noted(columns: Columns) -> NotedColumns:
    """Return columns that cache computed values."""
    return columns if isinstance(columns, NotedColumns) else NotedColumns(columns)


def evaluate(expression: Expression, columns: Columns) -> Vector:
    """Return the value of an expression for each record.

    Raises:
        Refused: it must be asked record by record.
    """
    if isinstance(columns, NotedColumns) and expression.operation not in _AT_HAND:
        return columns.value_of(expression)
    return _evaluate(expression, columns)


def _evaluate(expression: Expression, columns: Columns) -> Vector:
    special = _SPECIAL.get(expression.operation)
    if special is not None:
        return special(expression.arguments, columns)
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
    return Mask(np.broadcast_to(array, condition.count), listed)


def _compute(operation: str, values: list[Vector], count: int) -> Vector:
    if all(value.is_constant for value in values):
        return _by_items(OPERATIONS[operation], values, count)
    if operation == "is_null":
        return _are_null(values[0])
    with numpy().errstate(all="ignore"):  # Python returns inf and nan without an error, too.
        found = _in_arrays(operation, values)
    if found is not None:
        return Vector(count, None, found)
    return _by_items(OPERATIONS[operation], values, count)


def _in_arrays(operation: str, values: list[Vector]) -> Any:
    """Return the result of an operation as an array, or None if it could differ."""
    if operation == "round":
        return _round(*values)
    rule = _RULES.get(operation)
    arrays = [value.array for value in values]
    if rule is None or any(array is None for array in arrays):
        return None
    return rule(operation, *arrays)


def _by_items(function: Callable[..., Any], values: list[Vector], count: int) -> Vector:
    """Return the results of a Python function for the values of each record."""
    if not all(_is_plain(value) for value in values):
        raise Refused
    try:
        if all(value.is_constant for value in values):
            return Vector.constant(function(*(value.value for value in values)), count)
        # hot path: 25 to 60 ns a value, without a call of Python code.
        found = list(map(function, *(value.each() for value in values)))
        return Vector(count, found, kinds=_BOOL if function in _GIVE_BOOLS else None)
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _is_plain(value: Vector) -> bool:
    """Return whether operators of the values run no code but Python's."""
    if value.kinds <= _PLAIN:
        return True
    return value.is_constant and _is_plain_constant(value.value)


def _is_plain_constant(value: Any) -> bool:
    return type(value) in _COLLECTIONS and set(map(type, value)) <= _PLAIN


def _are_null(value: Vector) -> Vector:
    np = numpy()
    if type(None) not in value.kinds:
        return Vector(value.count, None, np.zeros(value.count, np.bool_))
    nulls = [item is None for item in value.items]
    return Vector(value.count, None, np.array(nulls, np.bool_))


def _tuple(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    return TupleVector(columns.count, [evaluate(one, columns) for one in arguments])


def _given_value(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    """Return a value that is valid while an outside name is unchanged."""
    is_same, value = arguments
    if not is_same():
        raise Refused
    return evaluate(value, columns)


def _with_checks(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    """Return a value if another one can be computed; common parts are computed once."""
    other, value = arguments
    columns = noted(columns)
    evaluate(other, columns)
    return evaluate(value, columns)


def _apply(arguments: tuple[Any, ...], columns: Columns) -> Vector:
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
        if type(known) in _COLLECTIONS and set(map(type, known)) <= _PLAIN:
            found = list(map(frozenset(known).__contains__, value.items))
            return Vector(value.count, found, kinds=_BOOL)
    return _by_items(operator.contains, [container, value], value.count)


def _convert(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    """Return values of accepted types as they are, others converted by a function.

    Where no function is given, other types are for records.
    """
    kinds, function, value = arguments
    found = evaluate(value, columns)
    if found.kinds <= kinds:
        return found
    if function is None or not found.kinds <= _PLAIN | _TIMES:
        raise Refused
    try:
        return Vector(columns.count, list(map(function, found.each())))
    except Exception as error:  # Which record failed is found out one by one.
        raise Refused from error


def _by_others(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    computer, index, *inputs = arguments
    vector: Vector = computer.vectors(inputs, columns)[index]
    return vector


def _choose(arguments: tuple[Any, ...], columns: Columns) -> Vector:
    """Return one of two values per record, each computed only for its records."""
    condition, first, second = arguments
    mask = mask_of(evaluate(condition, columns))
    if mask.count == columns.count:
        return evaluate(first, columns)
    if not mask.count:
        return evaluate(second, columns)
    others = mask.others()
    return _merge(mask, evaluate(first, columns.take(mask)), evaluate(second, columns.take(others)))


def _merge(mask: Mask, first: Vector, second: Vector) -> Vector:
    np, count = numpy(), len(mask.array)
    arrays = first.array, second.array
    if all(array is not None for array in arrays) and arrays[0].dtype == arrays[1].dtype:
        merged = np.empty(count, arrays[0].dtype)
        merged[mask.array], merged[~mask.array] = arrays
        return Vector(count, None, merged)
    rest = iter(first.each()), iter(second.each())
    return Vector(count, [next(rest[0] if is_first else rest[1]) for is_first in mask.listed])


def _item(arguments: tuple[Any, ...], columns: Columns) -> Vector:
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


# Functions with more than values as input.
_SPECIAL: dict[str, Callable[[tuple[Any, ...], Columns], Vector]] = {
    "field": lambda arguments, columns: columns.field(arguments[0]),
    "field_or": lambda arguments, columns: columns.field_or(
        arguments[0], evaluate(arguments[1], columns)
    ),
    "itself": lambda _, columns: columns.field(None),
    "literal": lambda arguments, columns: Vector.constant(arguments[0], columns.count),
    "free": lambda arguments, columns: Vector.constant(arguments[0](), columns.count),
    "if": _choose,
    "tuple": _tuple,
    "item": _item,
    "given": _given_value,
    "checked": _with_checks,
    "apply": _apply,
    "converted": _convert,
    "columns": _by_others,
}


# Rules for arrays. Each returns None where Python's own operators must compute, value by value.


def _arithmetic(operation: str, a: Any, b: Any) -> Any:
    kinds = a.dtype.kind + b.dtype.kind
    if not set(kinds) <= _NUMBERS:
        return None
    if kinds == "ii":
        far = _magnitude(a), _magnitude(b)
        if (far[0] * far[1] if operation == "*" else far[0] + far[1]) > _INT_MAX:
            return None
    return _FUNCTIONS[operation](a, b)


def _divide(_: str, a: Any, b: Any) -> Any:
    kinds = a.dtype.kind + b.dtype.kind
    if not set(kinds) <= _NUMBERS:
        return None
    if (b == 0).any():
        raise Refused
    if kinds == "ii" and max(_magnitude(a), _magnitude(b)) > _EXACT_MAX:
        return None
    return numpy().true_divide(a, b)


def _floor(operation: str, a: Any, b: Any) -> Any:
    if a.dtype.kind + b.dtype.kind != "ii" or _magnitude(a) > _INT_MAX:
        return None
    if (b == 0).any():
        raise Refused
    np = numpy()
    return np.floor_divide(a, b) if operation == "//" else np.remainder(a, b)


def _comparison(operation: str, a: Any, b: Any) -> Any:
    if a.dtype.kind != b.dtype.kind:
        if not {a.dtype.kind, b.dtype.kind} <= _NUMBERS:
            return None
        # Python compares an int with a float exactly.
        if _magnitude(a if a.dtype.kind == "i" else b) > _EXACT_MAX:
            return None
    return _FUNCTIONS[operation](a, b)


def _logical(operation: str, a: Any, b: Any) -> Any:
    if a.dtype.kind + b.dtype.kind != "bb":
        return None
    return _FUNCTIONS[operation](a, b)


def _negation(_: str, a: Any) -> Any:
    return ~a if a.dtype.kind == "b" else None


def _sign(operation: str, a: Any) -> Any:
    if a.dtype.kind == "b" or (a.dtype.kind == "i" and _magnitude(a) > _INT_MAX):
        return None
    return -a if operation == "negative" else abs(a)


def _round(value: Vector, digits: Vector) -> Any:
    """Return rounded numbers; values close to a midpoint are rounded by Python."""
    array, digit_count = value.array, digits.value
    if array is None or array.dtype.kind == "b":
        return None
    if array.dtype.kind == "i":
        return (
            array
            if digit_count is None or (type(digit_count) is int and digit_count >= 0)
            else None
        )
    np = numpy()
    if digit_count is not None and not (
        type(digit_count) is int and 0 <= digit_count <= _DIGITS_MAX
    ):
        return None
    scale = 10.0 ** (digit_count or 0)
    scaled = array * scale
    if not (np.abs(scaled) < _SCALED_MAX).all():
        return None
    whole = np.rint(scaled)
    if digit_count is None:
        return whole.astype(np.int64)
    rounded = whole / scale
    unsure = np.flatnonzero(np.abs(np.abs(scaled - whole) - 0.5) < _TIE_NEAR)
    if len(unsure):
        rounded[unsure] = [round(number, digit_count) for number in array[unsure].tolist()]
    return rounded


def _magnitude(array: Any) -> int:
    return max(-int(array.min()), int(array.max()))


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "&": operator.and_, "|": operator.or_,
}  # fmt: skip
_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("+", "-", "*"), _arithmetic),
    "/": _divide,
    **dict.fromkeys(("//", "%"), _floor),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(("&", "|"), _logical),
    "~": _negation,
    **dict.fromkeys(("negative", "absolute"), _sign),
}
