"""Rules for arrays: the results of Python's operators, computed by numpy.

Each rule returns None if Python's own operators must compute, value by value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.vectors import Refused, Vector

_INT_MAX = (1 << 63) - 1
_EXACT_MAX = 1 << 53  # ints up to here are floats
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_NUMBERS = frozenset({"i", "f"})
_DIGITS_MAX = 15
_SCALED_MAX = float(1 << 40)  # so that scaling is wrong by less than 0.0001
_TIE_NEAR = 1e-3


def compute_in_arrays(operation: str, values: list[Vector]) -> Any:
    """Return the result of an operation as an array, or None if it could differ."""
    rule = _RULES.get(operation)
    arrays = [] if rule is None else [value.array for value in values]
    if any(array is None for array in arrays):
        return None
    with numpy().errstate(all="ignore"):  # Python returns inf and nan without an error, too.
        if operation == "round":
            return _round(*values)
        return None if rule is None else rule(operation, *arrays)


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
