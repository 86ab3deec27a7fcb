"""Comparisons, logic and mathematics: rows of the table of SQL functions.

Ints have 64 bits: a result that does not fit, and a division by zero, is an error of its row.
Floats follow IEEE 754: ``1.0 / 0.0`` is infinite, ``sqrt(-1)`` is NaN. DECIMALs are exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import partial, reduce
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.functions import (
    DECIMAL_DIGITS_MAX,
    WIDE_DECIMALS,
    Group,
    SqlFunction,
    decimal_digits,
    decimal_type,
    each,
    function,
    rounded_decimal,
    wide_decimal,
)
from bicycle_runtime.expressions.sql.times import add_to_time, is_of_time, subtract_from_time

_NUMBERS = "BIGINT BIGINT -> BIGINT | DECIMAL DECIMAL -> DECIMAL | DOUBLE DOUBLE -> DOUBLE"
_SAME = "BIGINT -> BIGINT | DECIMAL -> DECIMAL | DOUBLE -> DOUBLE"
_CHECKS = pyarrow.types
_INT_MIN = -(1 << 63)
_MONTH_DAYS, _DAY_NS = 30, 86_400_000_000_000


# --- decimals ------------------------------------------------------------------------------------


def _digits(*words: str) -> list[tuple[int, int]]:
    return [decimal_digits(word) or (0, 0) for word in words]


def _common_type(*words: str, more: int = 0) -> str:
    digits = _digits(*words)
    scale = max(one for _, one in digits)
    whole = max(precision - one for precision, one in digits) + more
    return decimal_type(min(DECIMAL_DIGITS_MAX, whole + scale), scale)


_sum_type = partial(_common_type, more=1)


def _product_type(*words: str) -> str:
    precisions, scales = zip(*_digits(*words), strict=True)
    scale = min(sum(scales), DECIMAL_DIGITS_MAX)
    return decimal_type(min(DECIMAL_DIGITS_MAX, sum(precisions)), scale)


def _whole_type(*words: str) -> str:
    [(precision, scale)] = _digits(words[0])
    return decimal_type(min(DECIMAL_DIGITS_MAX, max(1, precision - scale + 1)), 0)


def _wide(column: Any) -> Any:
    # Arrow multiplies at most 76 digits, and counts one more than the factors have.
    precision = min(column.type.precision, DECIMAL_DIGITS_MAX - 1)
    return column.cast(pyarrow.decimal256(precision, column.type.scale))


def _arithmetic(name: str, rule: Callable[..., str]) -> Callable[..., Any]:
    """Return checked arithmetic of ints and decimals, and that of floats."""
    checked, free = getattr(pc, f"{name}_checked"), getattr(pc, name)

    def compute(*columns: Any) -> Any:
        if not _CHECKS.is_decimal(columns[0].type):
            return checked(*columns)
        kinds = [each.type for each in columns]
        digits = decimal_digits(
            rule(*(f"DECIMAL({each.precision},{each.scale})" for each in kinds))
        )
        assert digits is not None
        try:
            return rounded_decimal(free(*map(_wide, columns)), digits)
        except pyarrow.ArrowInvalid:  # Perhaps an operand has all digits, and the result fits.
            exact, unit = getattr(WIDE_DECIMALS, name), Decimal(1).scaleb(-digits[1])
            return each(lambda *pair: exact(*pair).quantize(unit, ROUND_HALF_UP, WIDE_DECIMALS))(
                *columns
            )

    return compute


_sum, _difference = _arithmetic("add", _sum_type), _arithmetic("subtract", _sum_type)


def _add(left: Any, right: Any) -> Any:
    is_time = is_of_time(left) or is_of_time(right)
    return add_to_time(left, right) if is_time else _sum(left, right)


def _subtract(left: Any, right: Any) -> Any:
    return subtract_from_time(left, right) if is_of_time(left) else _difference(left, right)


def _divide(left: Any, right: Any) -> Any:
    """Return the quotient: of ints without its fraction, of others as a float."""
    if _CHECKS.is_integer(left.type):
        return pc.divide_checked(left, right)
    return pc.divide(left, right)


def _modulo(left: Any, right: Any) -> Any:
    """Return the rest of a division, with the sign of the dividend."""
    if _CHECKS.is_integer(left.type):
        # -2^63 / -1 does not fit, but leaves no rest either.
        right = pc.if_else(pc.equal(right, -1), pyarrow.scalar(1, pyarrow.int64()), right)
        return pc.subtract(left, pc.multiply(pc.divide(left, right), right))
    if _CHECKS.is_decimal(left.type):
        return each(_decimal_modulo)(left, right)
    return each(_float_modulo)(left, right)


def _decimal_modulo(left: Any, right: Any) -> Any:
    if not right:
        raise ValueError("divide by zero")
    return WIDE_DECIMALS.remainder(left, right)


def _float_modulo(left: float, right: float) -> float:
    return math.nan if not right or math.isinf(left) else math.fmod(left, right)


def _unless_decimal(name: str) -> Callable[[Any], Any]:
    """Return a function that is checked for overflow, which decimals do not have."""
    checked, free = getattr(pc, f"{name}_checked"), getattr(pc, name)
    return lambda column: (free if _CHECKS.is_decimal(column.type) else checked)(column)


def _to_whole(name: str) -> Callable[[Any], Any]:
    rounded = getattr(pc, name)
    return lambda column: (
        column if _CHECKS.is_integer(column.type) else rounded(wide_decimal(column))
    )


def _round(column: Any, digits: Any = 0) -> Any:
    """Return numbers rounded half away from zero."""
    if isinstance(digits, int):
        return _round_to(column, digits)
    if isinstance(digits, pyarrow.Scalar) and digits.is_valid:
        return _round_to(column, digits.as_py())
    return each(lambda value, size: _round_to(pyarrow.scalar(value), size).as_py())(column, digits)


def _round_to(column: Any, digits: int) -> Any:
    wide = wide_decimal(column)
    return pc.round(wide, digits, "half_towards_infinity").cast(wide.type)


def _truncate(column: Any, digits: Any = None) -> Any:
    if digits is None:
        return column if _CHECKS.is_integer(column.type) else pc.trunc(column)
    return each(_truncate_to)(column, digits)


def _truncate_to(value: Any, digits: int) -> Any:
    size = 10 ** abs(digits)
    return math.trunc(value * size) / size if digits > 0 else math.trunc(value / size) * size


# --- comparisons and logic -----------------------------------------------------------------------


def _compare(name: str, by_key: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    compare = getattr(pc, name)

    def compute(left: Any, right: Any) -> Any:
        if _CHECKS.is_null(left.type) or _CHECKS.is_null(right.type):
            return [None] * max(len(one) for one in (left, right) if isinstance(one, pyarrow.Array))
        if _CHECKS.is_list(left.type) or _CHECKS.is_interval(left.type):
            return each(lambda one, other: by_key(_key(one), _key(other)))(left, right)
        return compare(left, right)

    return compute


def _key(value: Any) -> Any:
    """Return the sort key of an array, interval or item; NULL is greatest."""
    if isinstance(value, pyarrow.MonthDayNano):
        return (value.months * _MONTH_DAYS + value.days) * _DAY_NS + value.nanoseconds
    if isinstance(value, list):
        return [(True, 0) if item is None else (False, _key(item)) for item in value]
    return value


_equal, _not_equal = _compare("equal", operator.eq), _compare("not_equal", operator.ne)
_less, _greater = _compare("less", operator.lt), _compare("greater", operator.gt)
_at_most, _at_least = _compare("less_equal", operator.le), _compare("greater_equal", operator.ge)


def _is_distinct(left: Any, right: Any) -> Any:
    differs = pc.fill_null(pc.invert(_result_of(_equal(left, right))), False)
    return pc.or_(differs, pc.xor(pc.is_null(left), pc.is_null(right)))


def _result_of(found: Any) -> Any:
    return pyarrow.array(found, pyarrow.bool_()) if isinstance(found, list) else found


def _null_if(left: Any, right: Any) -> Any:
    is_equal = pc.fill_null(_result_of(_equal(left, right)), False)
    return pc.if_else(is_equal, pyarrow.scalar(None, left.type), left)


def _between(value: Any, low: Any, high: Any) -> Any:
    return pc.and_kleene(_result_of(_at_least(value, low)), _result_of(_at_most(value, high)))


def _is_in(value: Any, *values: Any) -> Any:
    """Return whether a value equals one of several; NULL if unknown."""
    is_by_key = _CHECKS.is_list(value.type) or _CHECKS.is_interval(value.type)
    if all(isinstance(one, pyarrow.Scalar) for one in values) and not is_by_key:
        known = [one for one in values if one.is_valid]
        options = pyarrow.array([one.as_py() for one in known], value.type)
        if _CHECKS.is_floating(value.type):  # -0.0 becomes 0.0.
            value, options = pc.add(value, 0.0), pc.add(options, 0.0)
        found = pc.is_in(value, value_set=options, skip_nulls=True)
        unknown = pc.is_null(value)
        if len(known) < len(values):
            unknown = pc.or_(unknown, pc.invert(found))
        return pc.if_else(unknown, pyarrow.scalar(None, pyarrow.bool_()), found)
    return reduce(pc.or_kleene, (_result_of(_equal(value, one)) for one in values))


def _is_value(wanted: bool, opposite: bool) -> Callable[[Any], Any]:
    """Return whether a condition has a truth value, or with ``opposite`` has not."""

    def compute(column: Any) -> Any:
        found = pc.fill_null(column if wanted else pc.invert(column), False)
        return pc.invert(found) if opposite else found

    return compute


def _extreme(name: str) -> Callable[..., Any]:
    """Return the least or greatest of several values; NULLs are skipped."""
    compare = _less if name == "least" else _greater
    by_element = pc.min_element_wise if name == "least" else pc.max_element_wise

    def compute(*columns: Any) -> Any:
        kind = columns[0].type
        if _CHECKS.is_integer(kind) or _CHECKS.is_floating(kind) or _CHECKS.is_string(kind):
            return by_element(*columns, skip_nulls=True)
        found = columns[0]
        for one in columns[1:]:
            is_other = pc.fill_null(_result_of(compare(one, found)), pc.is_null(found))
            found = pc.if_else(is_other, one, found)
        return found

    return compute


# --- mathematics ---------------------------------------------------------------------------------


def _by_numpy(name: str) -> Callable[..., Any]:
    """Return a function of numpy, which computes floats by IEEE 754."""
    compute = getattr(numpy, name)

    def computed(*columns: Any) -> Any:
        is_null = reduce(pc.or_, map(pc.is_null, columns))
        with numpy.errstate(all="ignore"):
            found = pyarrow.array(compute(*map(_floats, columns)))
        return pc.if_else(is_null, pyarrow.scalar(None, pyarrow.float64()), found)

    return computed


def _floats(column: Any) -> Any:
    filled = pc.fill_null(column, 0.0)
    return filled.as_py() if isinstance(filled, pyarrow.Scalar) else filled.to_numpy()


def _logarithm(base: Any, value: Any = None) -> Any:
    """Return a logarithm to base 10, or to a base that comes first."""
    if value is None:
        return pc.log10(base)
    return pc.divide(pc.ln(value), pc.ln(base))


def _shift(left: int, right: int, *, is_left: bool) -> int:
    if not 0 <= right < 64:
        raise ValueError(f"a shift must be by 0 to 63 bits, got {right}")
    found = left << right if is_left else left >> right
    if not _INT_MIN <= found < -_INT_MIN:
        raise ValueError("overflow")
    return found


def _factorial(value: int) -> int:
    if value < 0:
        raise ValueError(f"the factorial of {value} is not defined")
    if value > 20:
        raise ValueError("overflow")
    return math.factorial(value)


def _not_null(column: Any) -> Any:
    """Return a column without NULL."""
    if column.null_count:
        raise ValueError("the value is NULL, but its column is NOT NULL")
    return column


def _rows(group: Group, *rows: tuple[Any, ...], **options: Any) -> list[SqlFunction]:
    return [function(*row[:3], *row[4:], group=group, symbol=row[3], **options) for row in rows]


_ANY_TWO = "T T -> BOOLEAN"
_CONDITION, _CONDITIONS = "BOOLEAN -> BOOLEAN", "BOOLEAN BOOLEAN -> BOOLEAN"
_FLOAT, _FLOATS = "DOUBLE -> DOUBLE", "DOUBLE DOUBLE -> DOUBLE"
_INTS = "BIGINT BIGINT -> BIGINT"

COMPARISONS = [
    *_rows(
        "comparison",
        ("equal eq", _ANY_TWO, _equal, "a = b", ("1 = 1.0", True)),
        ("not_equal ne", _ANY_TWO, _not_equal, "a <> b", ("'a' <> 'b'", True)),
        ("lt", _ANY_TWO, _less, "a < b", ("1 < 2", True)),
        ("lte le", _ANY_TWO, _at_most, "a <= b", ("2 <= 2", True)),
        ("gt", _ANY_TWO, _greater, "a > b", ("'b' > 'a'", True)),
        ("gte ge", _ANY_TWO, _at_least, "a >= b", ("1 >= 2", False)),
        ("between", "T T T -> BOOLEAN", _between, "a BETWEEN b AND c", ("2 BETWEEN 1 AND 3", True)),
    ),
    *_rows(
        "comparison",
        ("is_distinct_from", _ANY_TWO, _is_distinct, "a IS DISTINCT FROM b",
         ("1 IS DISTINCT FROM NULL", True)),
        ("is_not_distinct_from", _ANY_TWO, lambda a, b: pc.invert(_is_distinct(a, b)),
         "a IS NOT DISTINCT FROM b",
         ("NULL IS NOT DISTINCT FROM NULL", True)),
        ("is_in", "T T* -> BOOLEAN", _is_in, "a IN (b, …)", ("1 IN (1, NULL)", True),
         ("2 IN (1, NULL)", None)),
        ("is_null", "ANY -> BOOLEAN", pc.is_null, "a IS NULL", ("NULL IS NULL", True)),
        ("is_not_null", "ANY -> BOOLEAN", pc.is_valid, "a IS NOT NULL", ("1 IS NOT NULL", True)),
        takes_nulls=True,
    ),
]  # fmt: skip
LOGIC = [
    *_rows(
        "logic",
        ("and", _CONDITIONS, pc.and_kleene, "a AND b", ("NULL AND 1 = 2", False)),
        ("or", _CONDITIONS, pc.or_kleene, "a OR b", ("NULL OR 1 = 1", True)),
        ("is_true", _CONDITION, _is_value(True, False), "a IS TRUE", ("NULL IS TRUE", False)),
        ("is_not_true", _CONDITION, _is_value(True, True), "a IS NOT TRUE",
         ("NULL IS NOT TRUE", True)),
        ("is_false", _CONDITION, _is_value(False, False), "a IS FALSE", ("1 = 2 IS FALSE", True)),
        ("is_not_false", _CONDITION, _is_value(False, True), "a IS NOT FALSE",
         ("NULL IS NOT FALSE", True)),
        takes_nulls=True,
    ),
    *_rows(
        "condition",
        ("nullif", "T T -> T", _null_if, "", ("nullif(1, 1)", None), ("nullif('a', 'b')", "a")),
        takes_nulls=True,
    ),
    *_rows("logic", ("not", _CONDITION, pc.invert, "NOT a", ("NOT 1 = 2", True))),
]  # fmt: skip
_TIMES = (
    f"{_NUMBERS} | TIMESTAMP INTERVAL -> TIMESTAMP | DATE INTERVAL -> TIMESTAMP"
    " | INTERVAL INTERVAL -> INTERVAL | DATE BIGINT -> DATE"
)
_SPANS = f"{_TIMES} | TIMESTAMP TIMESTAMP -> INTERVAL | DATE DATE -> BIGINT"
ARITHMETIC = [
    *_rows(
        "arithmetic",
        ("add", f"{_TIMES} | INTERVAL TIMESTAMP -> TIMESTAMP", _add, "a + b", ("1 + 2", 3)),
        ("subtract", _SPANS, _subtract, "a - b", ("1 - 2.5", -1.5)),
        decimal=_sum_type,
    ),
    *_rows(
        "arithmetic",
        ("multiply", _NUMBERS, _arithmetic("multiply", _product_type), "a * b", ("6 * 7", 42)),
        decimal=_product_type,
    ),
    *_rows(
        "arithmetic",
        ("mod modulus", _NUMBERS, _modulo, "a % b", ("-7 % 3", -1), ("mod(7, 4)", 3)),
        decimal=_common_type,
    ),
    *_rows(
        "arithmetic",
        ("divide", "BIGINT BIGINT -> BIGINT | DOUBLE DOUBLE -> DOUBLE", _divide, "a / b",
         ("7 / 2", 3), ("7 / 2.0", 3.5)),
        ("bitwise_and bit_and", _INTS, pc.bit_wise_and, "a & b", ("12 & 10", 8)),
        ("bitwise_or bit_or", _INTS, pc.bit_wise_or, "a | b", ("12 | 10", 14)),
        ("bitwise_xor xor bit_xor", _INTS, pc.bit_wise_xor, "", ("xor(12, 10)", 6)),
        ("bitwise_not bit_not", "BIGINT -> BIGINT", pc.bit_wise_not, "~a", ("~5", -6)),
        ("shift_left", _INTS, each(lambda a, b: _shift(a, b, is_left=True)), "a << b",
         ("1 << 4", 16)),
        ("shift_right", _INTS, each(lambda a, b: _shift(a, b, is_left=False)), "a >> b",
         ("16 >> 3", 2)),
    ),
    *_rows(
        "arithmetic",
        ("negate negative", _SAME, _unless_decimal("negate"), "-a", ("-(3)", -3)),
        ("abs", _SAME, _unless_decimal("abs"), "", ("abs(-3)", 3)),
        decimal=lambda first, *_: first,
    ),
]  # fmt: skip


def _floating(name: str, compute: Callable[..., Any], *examples: tuple[str, Any]) -> SqlFunction:
    return function(name, _FLOAT, compute, *examples, group="mathematics")


MATHEMATICS = [
    *_rows(
        "mathematics",
        ("ceil ceiling", _SAME, _to_whole("ceil"), "", ("ceil(1.2)", 2.0)),
        ("floor", _SAME, _to_whole("floor"), "", ("floor(-1.2)", -2.0)),
        decimal=_whole_type,
    ),
    *_rows(
        "mathematics",
        ("round",
         "BIGINT BIGINT? -> BIGINT | DECIMAL BIGINT? -> DECIMAL | DOUBLE BIGINT? -> DOUBLE", _round,
         "", ("round(2.5)", 3.0), ("round(1.25, 1)", 1.3)),
        decimal=_sum_type,
    ),
    *_rows(
        "mathematics",
        ("trunc", "BIGINT -> BIGINT | DOUBLE BIGINT? -> DOUBLE", _truncate, "",
         ("trunc(-1.7)", -1.0)),
        ("sign signum", "BIGINT -> BIGINT | DECIMAL -> BIGINT | DOUBLE -> BIGINT",
         lambda column: pc.sign(column).cast(pyarrow.float64()).cast(pyarrow.int64()), "",
         ("sign(-2.5)", -1)),
        ("power pow", _FLOATS, _by_numpy("float_power"), "", ("power(2, 10)", 1024.0)),
        ("log log10", "DOUBLE DOUBLE? -> DOUBLE", _logarithm, "", ("log10(1000)", 3.0),
         ("log(2, 8)", 3.0)),
        ("atan2", _FLOATS, pc.atan2, "", ("atan2(0, 1)", 0.0)),
        ("gcd", _INTS, each(math.gcd), "", ("gcd(12, 18)", 6)),
        ("lcm", _INTS, each(math.lcm), "", ("lcm(4, 6)", 12)),
        ("factorial", "BIGINT -> BIGINT", each(_factorial), "", ("factorial(5)", 120)),
        ("pi", "-> DOUBLE", lambda: math.pi, "", ("pi()", math.pi)),
    ),
    *_rows(
        "condition", ("not_null", "T -> T", _not_null, "", ("not_null(1)", 1)), takes_nulls=True
    ),
    *_rows(
        "mathematics",
        ("greatest", "T T* -> T", _extreme("greatest"), "", ("greatest(1, NULL, 3)", 3)),
        ("least", "T T* -> T", _extreme("least"), "", ("least('b', 'a')", "a")),
        takes_nulls=True,
    ),
    _floating("sqrt", pc.sqrt, ("sqrt(2.25)", 1.5)),
    _floating("cbrt", _by_numpy("cbrt"), ("cbrt(27)", 3.0)),
    _floating("exp", pc.exp, ("exp(0)", 1.0)),
    _floating("ln", pc.ln, ("ln(1)", 0.0)),
    _floating("log2", pc.log2, ("log2(8)", 3.0)),
    _floating("sin", pc.sin, ("sin(0)", 0.0)),
    _floating("cos", pc.cos, ("cos(0)", 1.0)),
    _floating("tan", pc.tan, ("tan(0)", 0.0)),
    _floating("cot", lambda column: pc.divide(1.0, pc.tan(column)), ("round(cot(1), 4)", 0.6421)),
    _floating("asin", pc.asin, ("asin(0)", 0.0)),
    _floating("acos", pc.acos, ("acos(1)", 0.0)),
    _floating("atan", pc.atan, ("atan(0)", 0.0)),
    _floating("sinh", _by_numpy("sinh"), ("sinh(0)", 0.0)),
    _floating("cosh", _by_numpy("cosh"), ("cosh(0)", 1.0)),
    _floating("tanh", _by_numpy("tanh"), ("tanh(0)", 0.0)),
    _floating("degrees", _by_numpy("degrees"), ("degrees(pi())", 180.0)),
    _floating("radians", _by_numpy("radians"), ("radians(180) = pi()", True)),
    *_rows(
        "mathematics",
        ("isnan", "DOUBLE -> BOOLEAN", pc.is_nan, "", ("isnan(sqrt(-1))", True)),
        ("isinf", "DOUBLE -> BOOLEAN", pc.is_inf, "", ("isinf(1 / 0.0)", True)),
        ("isfinite", "DOUBLE -> BOOLEAN", pc.is_finite, "", ("isfinite(1)", True)),
    ),
]  # fmt: skip
