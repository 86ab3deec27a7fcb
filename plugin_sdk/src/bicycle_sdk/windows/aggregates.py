"""The aggregates of windows: count, sum, average, extremes, distinct, reduce.

All aggregates merge, and the order of records does not matter: sums of floats are exact until the
result is rounded once, so ``0.1 + 0.2 + 0.3`` is the same in every order, at every parallelism.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import repeat
from math import copysign, fsum, inf, isfinite
from typing import Any, Generic, TypeVar

from bicycle_sdk.aggregations import checked_selector
from bicycle_sdk.functions import ReduceFunction, as_callable
from bicycle_sdk.windows.functions import AggregateFunction

__all__ = [
    "ApproximateDistinct",
    "Average",
    "Count",
    "Distinct",
    "Maximum",
    "Minimum",
    "Reduction",
    "SelectedAggregate",
    "Sum",
    "sums_of_floats",
    "sums_of_ints",
]

T = TypeVar("T")
V = TypeVar("V")
Acc = TypeVar("Acc")
Out = TypeVar("Out")
_Selector = Callable[[T], V]
# A sum: values other than floats by ``+``, and floats as few numbers that add up to their exact
# sum.
_Total = tuple[Any, tuple[float, ...]]

_NUMBERS: frozenset[type] = frozenset({int, float, bool})
_SCALARS: frozenset[type] = frozenset({int, float, bool, str, bytes, type(None)})
_EMPTY: _Total = (None, ())
_DECIMAL_DIGITS_MAX = 10_000
_FLOAT_MAX = 1.7976931348623157e308
_FAR_PARTS_MAX = 64  # So many times the largest float may a sum be on its way, and come back.


class SelectedAggregate(AggregateFunction[T, Acc, Out]):
    """An aggregate of a selector's values, with batch updates.

    Args:
        selector: Finds the value.
        skips_none: Whether records of which the selector returns None are left out, as SQL leaves
            out NULL. If nothing is left, the result is None.

    ``plain_types`` are the types of values that ``add_all`` takes without a check of each: with
    other types the runtime adds one record after the other.
    """

    plain_types: frozenset[type] = _NUMBERS
    accumulator_type: Any = None

    def __init__(self, selector: _Selector[T, Any], *, skips_none: bool = False) -> None:
        self.selector = checked_selector(type(self).__name__, selector, is_async_fine=True)
        self.skips_none = skips_none
        if skips_none:
            self.plain_types = self.plain_types | {type(None)}

    def known(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values to take: without None, if that is skipped."""
        return [value for value in values if value is not None] if self.skips_none else values

    @abstractmethod
    def add_all(self, accumulator: Acc, values: Sequence[Any]) -> Acc:
        """Return the accumulator with several selected values more."""

    def add(self, accumulator: Acc, value: T) -> Acc:
        return self.add_all(accumulator, (self.selector(value),))


class Count(AggregateFunction[T, int, int]):
    """The number of records, or of records for which a selector returns a value.

    Args:
        selector: Finds a value, or None in a record that does not count, as ``COUNT(x)`` of SQL.
    """

    accumulator_type: Any = int
    plain_types: frozenset[type] = _SCALARS

    def __init__(self, selector: _Selector[T, Any] | None = None) -> None:
        if selector is not None:
            checked_selector("Count", selector, is_async_fine=True)
        self.selector = selector

    def create_accumulator(self) -> int:
        return 0

    def add(self, accumulator: int, value: T) -> int:
        if self.selector is None:
            return accumulator + 1
        return self.add_all(accumulator, (self.selector(value),))

    def add_all(self, accumulator: int, values: Sequence[Any]) -> int:
        """Return the accumulator with several selected values more."""
        return accumulator + sum(value is not None for value in values)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Sum(SelectedAggregate[T, _Total, V], Generic[T, V]):
    """The sum of the selected values: numbers, or anything with ``+``."""

    accumulator_type: Any = tuple[int | None, tuple[float, ...]]

    def create_accumulator(self) -> _Total:
        return _EMPTY

    def add_all(self, accumulator: _Total, values: Sequence[Any]) -> _Total:
        return _add(accumulator, self.known(values))

    def get_result(self, accumulator: _Total) -> V:
        is_empty = accumulator[0] is None and not accumulator[1]
        result: Any = None if self.skips_none and is_empty else _round(accumulator)
        found: V = result
        return found

    def merge(self, a: _Total, b: _Total) -> _Total:
        return _merge(a, b)


class Average(SelectedAggregate[T, tuple[Any, tuple[float, ...], int], Any]):
    """The sum of the selected values over their number."""

    accumulator_type: Any = tuple[int | None, tuple[float, ...], int]

    def create_accumulator(self) -> tuple[Any, tuple[float, ...], int]:
        return (None, (), 0)

    def add_all(
        self, accumulator: tuple[Any, tuple[float, ...], int], values: Sequence[Any]
    ) -> tuple[Any, tuple[float, ...], int]:
        rest, parts, count = accumulator
        known = self.known(values)
        return (*_add((rest, parts), known), count + len(known))

    def get_result(self, accumulator: tuple[Any, tuple[float, ...], int]) -> Any:
        rest, parts, count = accumulator
        if self.skips_none and not count:
            return None
        return _round((rest, parts)) / count

    def merge(
        self, a: tuple[Any, tuple[float, ...], int], b: tuple[Any, tuple[float, ...], int]
    ) -> tuple[Any, tuple[float, ...], int]:
        return (*_merge(a[:2], b[:2]), a[2] + b[2])


class _Extreme(SelectedAggregate[T, tuple[V, ...], V], Generic[T, V]):
    """The least or greatest selected value, as a tuple of one; NaN takes precedence."""

    def create_accumulator(self) -> tuple[V, ...]:
        return ()

    def add_all(self, accumulator: tuple[V, ...], values: Sequence[Any]) -> tuple[V, ...]:
        values = self.known(values)
        if not values:
            return accumulator
        _refuse_none(set(map(type, values)))
        best = self.best((*accumulator, *values))
        # A NaN is less than nothing and greater than nothing: comparing would drop it or not by
        # the order of the values.
        strange = [value for value in (*accumulator, *values) if value != value]  # noqa: PLR0124
        return (strange[0] if strange else best,)

    @abstractmethod
    def best(self, values: Sequence[Any]) -> V:
        """Return the value that counts."""

    def get_result(self, accumulator: tuple[V, ...]) -> V:
        nothing: Any = None
        return nothing if self.skips_none and not accumulator else accumulator[0]

    def merge(self, a: tuple[V, ...], b: tuple[V, ...]) -> tuple[V, ...]:
        return self.add_all(a, b) if b else a


class Minimum(_Extreme[T, V]):
    """The least selected value."""

    def best(self, values: Sequence[Any]) -> V:
        least: V = min(values)
        return least


class Maximum(_Extreme[T, V]):
    """The greatest selected value."""

    def best(self, values: Sequence[Any]) -> V:
        greatest: V = max(values)
        return greatest


class Distinct(SelectedAggregate[T, "set[Any]", int]):
    """The number of distinct values of a selector, compared with ``!=``."""

    plain_types = _SCALARS

    def create_accumulator(self) -> set[Any]:
        return set()

    def add_all(self, accumulator: set[Any], values: Sequence[Any]) -> set[Any]:
        accumulator.update(self.known(values))
        return accumulator

    def get_result(self, accumulator: set[Any]) -> int:
        return len(accumulator)

    def merge(self, a: set[Any], b: set[Any]) -> set[Any]:
        return a | b


class ApproximateDistinct(Distinct[T]):
    """The approximate number of distinct values of a selector, in bounded memory.

    The runtime carries it out with a theta sketch; on its own, as in a test, it counts exactly.

    Args:
        selector: Finds a str, bytes, int or float in a record.
        precision: 5 to 21: at most ``8 * 2 ** precision`` bytes per key and window, and a relative
            standard error of about ``1 / 2 ** (precision / 2)``: 1.6 % at 12. Below
            ``2 ** precision`` different values the count is exact.
    """

    def __init__(self, selector: _Selector[T, Any], *, precision: int = 12) -> None:
        super().__init__(selector)
        self.precision = precision


class Reduction(AggregateFunction[T, "tuple[T, ...]", T]):
    """The pairwise combination of records; the accumulator is a tuple of up to one.

    Args:
        function: A callable or ``ReduceFunction``.
    """

    def __init__(self, function: Callable[[T, T], T | Awaitable[T]] | ReduceFunction[T]) -> None:
        self.function = function
        self.call: Callable[[T, T], T] = as_callable(function, "reduce")

    def create_accumulator(self) -> tuple[T, ...]:
        return ()

    def add(self, accumulator: tuple[T, ...], value: T) -> tuple[T, ...]:
        return (self.call(accumulator[0], value),) if accumulator else (value,)

    def get_result(self, accumulator: tuple[T, ...]) -> T:
        return accumulator[0]

    def merge(self, a: tuple[T, ...], b: tuple[T, ...]) -> tuple[T, ...]:
        return (self.call(a[0], b[0]),) if a and b else a or b


def sums_of_ints(totals: Iterable[int]) -> list[_Total]:
    """Return the accumulators of sums of ints from their totals."""
    return list(zip(totals, repeat(()), strict=False))


def sums_of_floats(several: Iterable[Sequence[float]]) -> list[_Total]:
    """Return the accumulators of sums over floats, from floats that add up to each."""
    return [(None, _exact(floats)) for floats in several]


def _add(total: _Total, values: Sequence[Any]) -> _Total:
    rest, parts = total
    if len(values) == 1:
        # hot path: one value, as with many keys: 0.2 us in place of 0.8.
        value = values[0]
        if type(value) is int:
            return (value if rest is None else rest + value, parts)
        if type(value) is float and not parts:
            return (rest, (value,))
    kinds = set(map(type, values))
    _refuse_none(kinds)
    if float not in kinds:
        added = values if rest is None else (rest, *values)
        return (_plain_sum(added, {*kinds, type(rest)}) if added else rest, parts)
    if kinds == {float}:
        return (rest, _exact([*parts, *values]))
    others = [value for value in values if type(value) is not float]
    floats = [value for value in values if type(value) is float]
    return (_add((rest, ()), others)[0], _exact([*parts, *floats]))


def _refuse_none(kinds: set[type]) -> None:
    """Refuse None: alone in a window it would be taken for an empty result."""
    if type(None) in kinds:
        raise TypeError("the selector returned None; filter such records, or select a number")


def _merge(a: Sequence[Any], b: Sequence[Any]) -> _Total:
    kinds = {type(a[0]), type(b[0])}
    rest = b[0] if a[0] is None else a[0] if b[0] is None else _plain_sum((a[0], b[0]), kinds)
    if not a[1] or not b[1]:
        return (rest, a[1] or b[1])
    return (rest, _exact([*a[1], *b[1]]))


def _round(total: Sequence[Any]) -> Any:
    rest, parts = total
    if not parts:
        return int(rest or 0) if rest is None or type(rest) is bool else rest
    try:
        return fsum((*parts, *_as_floats(rest))) if type(rest) is int else fsum((*parts, rest or 0))
    except OverflowError:
        return _rounded_far(_fraction([*parts, rest or 0]))


def _as_floats(number: int) -> list[float]:
    """Return floats that add up to an int, exactly."""
    parts = []
    while number:
        parts.append(float(number))
        number -= int(parts[-1])
    return parts


def _plain_sum(values: Sequence[Any], kinds: set[type]) -> Any:
    """Add without a zero in front: a timedelta does not go with 0.

    Decimals keep all their digits; the context of Python would round to 28.
    """
    if not any(kind.__name__ == "Decimal" for kind in kinds):
        return sum(values[1:], values[0])
    from decimal import localcontext  # slow on the start path, and decimals are rare

    with localcontext(prec=_DECIMAL_DIGITS_MAX):
        return sum(values[1:], values[0])


def _exact(values: Sequence[float]) -> tuple[float, ...]:
    """Return few floats with the exact sum of the values, equal for every order.

    Each is the rest after the numbers before it, rounded once; two or three suffice as a rule. If a
    value is infinite or not a number, the result is that of ``+``.

    Source: J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic", 1997 (as in ``fsum``).
    """
    try:
        part = fsum(values)
        if not isfinite(part):
            return (part,)
        # hot path: 0.8 us for four values; the rests are finite, too.
        parts: list[float] = []
        left = [*values]
        while part:
            parts.append(part)
            left.append(-part)
            part = fsum(left)
    except (OverflowError, ValueError):  # the sum is too large, or holds inf and -inf
        return _exact_far(values)
    return tuple(parts) if parts else (0.0,)


def _exact_far(values: Sequence[float]) -> tuple[float, ...]:
    """Return few floats with the exact sum of values that ``fsum`` refuses."""
    if not all(map(isfinite, values)):
        return (sum(values),)
    left, parts = _fraction(values), []
    while left:
        part = max(-_FLOAT_MAX, min(_FLOAT_MAX, _rounded_far(left)))
        parts.append(part)
        if len(parts) > _FAR_PARTS_MAX:
            return (copysign(inf, part),)
        left -= _fraction([part])
    return tuple(parts) if parts else (0.0,)


def _fraction(values: Iterable[Any]) -> Any:
    # A slow library on the start path of every plugin, for sums beyond 1e308 only.
    from fractions import Fraction

    return sum(map(Fraction, values), Fraction())


def _rounded_far(total: Any) -> float:
    """Return the float closest to a fraction, or infinity."""
    try:
        return float(total)
    except OverflowError:
        return inf if total > 0 else -inf
