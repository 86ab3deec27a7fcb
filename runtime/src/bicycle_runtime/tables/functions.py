"""Functions of SQL jobs for workers: rows, conditions, times and aggregates.

They compute the expressions of ``bicycle_runtime.expressions.sql`` on columns. If a row of a batch
fails, all are asked again with their errors, so that one bad row is one error. This module imports
no parser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.evaluation import HasExpression, evaluate, sql_rows
from bicycle_runtime.expressions.sql.located import RowError
from bicycle_runtime.expressions.sql.nested import items_of
from bicycle_runtime.expressions.sql.steps import (
    CompiledExpressions,
    ComputedFields,
    ExpressionFailedError,
    Where,
)
from bicycle_runtime.expressions.sql.tree import call, column
from bicycle_runtime.expressions.sql.types import DECIMAL_DIGITS_MAX, decimal_digits, decimal_type
from bicycle_runtime.formats.typed_values import exact_decimal
from bicycle_runtime.frames.arrays import listed_values
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.vectors import ArrowVector, Refused, Vector
from bicycle_runtime.records.times import moment_of, time_of
from bicycle_sdk.expressions import Expression
from bicycle_sdk.functions import ProcessFunction
from bicycle_sdk.record_types import accumulator_type
from bicycle_sdk.windows.aggregates import Average, Minimum, SelectedAggregate
from bicycle_sdk.windows.functions import AggregateFunction, is_mergeable

_AVERAGE_SCALE = 6  # As in Flink: averages of money have more digits than its amounts.
_EXACT = Context(prec=100)


class _TableStep:
    """The results of a step for rows of connectors, and for results of windows.

    Values of connectors may refuse a batch as a whole; then it is halved until bad rows are alone.
    ``locations`` are those of the expressions, by their offsets.
    """

    compiled: CompiledExpressions
    locations: Mapping[int, str] = MappingProxyType({})

    def results(self, records: Sequence[Any]) -> list[Any]:
        """Return for each record the tuple of results, or the exception that it leads to."""
        try:
            return self._compute(records)
        except Refused as error:
            if len(records) > 1:
                middle = len(records) // 2
                return [*self.results(records[:middle]), *self.results(records[middle:])]
            cause = error.__cause__ or error
            return [ExpressionFailedError(str(cause) or type(cause).__name__)]

    def _compute(self, records: Sequence[Any]) -> list[Any]:
        columns, found = _frame_of(records), []
        errors: dict[int, str] = {}
        for value in self.compiled.trees:
            if value.operation.startswith("sql."):
                computed = sql_rows(columns).array(value)
                errors = {**computed.errors, **errors}
                found.append(listed_values(computed.column))
            else:
                found.append(list(evaluate(value, columns).each()))
        return [
            self._error(errors[at]) if at in errors else row
            for at, row in enumerate(zip(*found, strict=True))
        ]

    def _error(self, text: str) -> ExpressionFailedError:
        location = self.locations.get(text.at, "") if isinstance(text, RowError) else ""
        return ExpressionFailedError(text, location)


class SqlRecord(_TableStep, ComputedFields):
    """Computed columns as a record.

    Args:
        names: The fields.
        values: Their expressions.
    """

    def __init__(self, names: Sequence[str], values: Sequence[Expression]) -> None:
        super().__init__(CompiledExpressions(names=tuple(names), trees=tuple(values), types=()))


class SqlRow(_TableStep, ComputedFields):
    """Computed columns as a tuple, as joins store rows. ``result_type`` is its type."""

    def __init__(self, values: Sequence[Expression], result_type: Any) -> None:
        names = tuple(map(str, range(len(values))))
        super().__init__(CompiledExpressions(names=names, trees=tuple(values), types=()))
        self.result_type = result_type

    def expression(self) -> Expression:
        return Expression("tuple", *self.compiled.trees)

    def _answer(self, value: Any, results: tuple[Any, ...]) -> Any:  # noqa: ARG002 - as its base
        return results


class JoinedFields:
    """The record of two rows; the columns of a missing row are NULL.

    Args:
        left: The names of the columns of left rows.
        right: The names of the columns of right rows.
        key_count: The number of keys, which come first in each row.
        present: Names of columns that are true if the left, or the right row is there.
    """

    def __init__(
        self, left: Sequence[str], right: Sequence[str], key_count: int,
        present: tuple[Sequence[str], Sequence[str]],
    ) -> None:  # fmt: skip
        self._names = (*left, *present[0], *right, *present[1])
        self._first = key_count
        self._marks = (True,) * len(present[0]), (True,) * len(present[1])
        self._missing = tuple(
            (None,) * (len(names) + len(more))
            for names, more in zip((left, right), present, strict=True)
        )

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        first = self._first
        # hot path: once per pair.
        one = self._missing[0] if left is None else (*left[first:], *self._marks[0])
        other = self._missing[1] if right is None else (*right[first:], *self._marks[1])
        return dict(zip(self._names, (*one, *other), strict=True))


class WindowBounds(ProcessFunction[Any, Any]):
    """Replaces the marks of present rows by the bounds of the window.

    The window ends 1 ms after the time of the record.

    Args:
        distances: The distance of each column from the end of the window, in ms.
    """

    def __init__(self, distances: Mapping[str, int]) -> None:
        self.distances = distances

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        """Return the record with the bounds of its window."""
        end = ctx.timestamp + 1
        for name, distance in self.distances.items():
            if value[name] is not None:
                value[name] = moment_of(end + distance)
        return [value]


class WithClock(ProcessFunction[Any, Any]):
    """Adds the recorded clock of the epoch to rows.

    Args:
        field: The field of the clock.
    """

    def __init__(self, field: str) -> None:
        self.field = field

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        """Return the record with the clock."""
        return [{**value, self.field: moment_of(ctx.processing_time)}]


class SqlCondition(_TableStep, Where):
    """A condition of rows; NULL is not true."""

    def __init__(self, condition: Expression) -> None:
        super().__init__(CompiledExpressions(names=("where",), trees=(condition,), types=()))


class UnnestItems:
    """Replaces the array of a record by each of its items, in a record for each item.

    Args:
        fields: The field of the array, and perhaps the field of the number of the item.
        is_outer: Whether an array without items leads to a row with NULL.
    """

    def __init__(self, fields: Sequence[str], *, is_outer: bool) -> None:
        self.fields, self.is_outer = tuple(fields), is_outer

    def __call__(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = [
            {**record, **dict(zip(self.fields, (item, number), strict=False))}
            for number, item in enumerate(record[self.fields[0]] or (), 1)
        ]
        if found or not self.is_outer:
            return found
        return [{**record, **dict.fromkeys(self.fields)}]


class EventTime(HasExpression):
    """The event time of a row, in ms since 1970: a column that must not be NULL."""

    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field

    def __call__(self, record: Any) -> int:
        return time_of(record[self.field])

    def expression(self) -> Expression:
        return call("epoch_ms", call("not_null", column(self.field, "TIMESTAMP")))


def _frame_of(records: Sequence[Any]) -> Frame:
    """Return rows, or the results of windows, as a frame."""
    listed = list(records)
    if all(isinstance(record, dict) for record in listed):
        return Frame.of_dicts(listed)
    return Frame.of_rows(FieldRows(objects=listed, make=None, getter=attrgetter))


class _Timestamp:
    """The conversion of texts and numbers to times; a text without a zone is in UTC."""

    def __call__(self, value: Any) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                found = datetime.fromisoformat(value.strip())
            except ValueError:
                return moment_of(value)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return moment_of(value)

    @staticmethod
    def vector(values: Vector) -> Vector | None:
        """Return equal times of texts; None if Arrow does not read each in the same way."""
        # hot path: 0.1 µs a text; a datetime of each takes 2 µs, and its column another one.
        if not values.kinds <= _TEXTS or not values.count:
            return None
        texts = pyarrow.array(values.items, pyarrow.string())
        if (least := pc.min(texts).as_py()) is None or least < "0001":
            return None
        zone = "UTC" if pc.all(pc.ends_with(texts, "Z")).as_py() else None
        try:
            found = texts.cast(pyarrow.timestamp("ms", zone))
        except pyarrow.ArrowInvalid:
            return None
        return ArrowVector(found.cast(pyarrow.timestamp("ms", "UTC")))


def _parse(kind: Any, value: Any) -> Any:
    if value is None or type(value) is kind:
        return value
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return kind.fromisoformat(value.strip())


def _decimal(digits: tuple[int, int], value: Any) -> Decimal | None:
    return None if value is None else exact_decimal(value, *digits)


def _items(convert: Callable[[Any], Any] | None, value: Any) -> list[Any] | None:
    """Return a list, or JSON text of one, with converted items."""
    found = (msgspec.json.decode(value) if value else None) if isinstance(value, str) else value
    if found is None or convert is None:
        return found
    return list(map(convert, items_of(found)))


def convert_stored(word: str, source: Expression, kind: str) -> Expression:
    """Return values of a connector, such as texts of JSON, as values of a type.

    Args:
        word: The type.
        source: The values.
        kind: The connector, or ``csv`` if arrays are texts of JSON.
    """
    item, depth = word.rstrip("[]"), word.count("[]")
    digits = decimal_digits(item)
    conversion = _CONVERSIONS.get(item)
    if digits is not None:
        conversion = _DECIMALS, partial(_decimal, digits)
    if kind in _TYPED:
        conversion = _STORED_JSON if item == "JSON" and kind == "parquet" else None
    if conversion is None and (not depth or kind != "csv"):
        return source
    kinds, convert = conversion or (frozenset(), None)
    for _ in range(depth):
        kinds, convert = _NULLS, partial(_items, convert)
    return Expression("converted", kinds, convert, source)


# Connectors whose values have the types of their columns; those of others may be texts.
_TYPED = ("parquet", "postgres")
_NULL = type(None)
_NULLS = frozenset({_NULL})
_TEXTS: frozenset[type] = frozenset({str, _NULL})
_DECIMALS: frozenset[type] = frozenset({Decimal, _NULL})
_CONVERSIONS: Mapping[str, tuple[frozenset[type], Callable[[Any], Any]]] = {
    "TIMESTAMP": (frozenset({datetime, _NULL}), _Timestamp()),
    "DATE": (frozenset({date, _NULL}), partial(_parse, date)),
    "TIME": (frozenset({time, _NULL}), partial(_parse, time)),
}


def _stored_json(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value


# The conversion of JSON values of Parquet, which are texts, or columns with fields.
_STORED_JSON = (frozenset({dict, list, Decimal, time, bytes, _NULL}), _stored_json)


class DecimalAverage(Average[Any]):
    """The average of decimals, exact and rounded once, half away from zero.

    Args:
        selector: Reads the value of a row.
        scale: Digits after the point of the result.
    """

    def __init__(self, selector: Callable[[Any], Any], *, scale: int) -> None:
        super().__init__(selector, skips_none=True)
        self.scale = scale

    def get_result(self, accumulator: tuple[Any, tuple[float, ...], int]) -> Any:
        total, _, count = accumulator
        if not count:
            return None
        # Scaled as whole numbers: a quotient of decimals would be rounded twice.
        numerator, denominator = Decimal(total).copy_abs().as_integer_ratio()
        scaled = (2 * numerator * 10**self.scale // (denominator * count) + 1) // 2
        return Decimal(scaled).scaleb(-self.scale, _EXACT).copy_sign(total)


def average_type(word: str) -> str:
    """Return the type of the average of a DECIMAL."""
    digits = decimal_digits(word)
    assert digits is not None
    return decimal_type(DECIMAL_DIGITS_MAX, max(_AVERAGE_SCALE, digits[1]))


class LeastNumber(Minimum[Any, Any]):
    """The least number; NaN counts as greater than all others, as in PostgreSQL."""

    def best(self, values: Sequence[Any]) -> Any:
        numbers = [value for value in values if value == value]  # noqa: PLR0124 - NaN differs.
        return min(numbers, default=values[0])

    def add_all(self, accumulator: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
        known = (*accumulator, *self.known(values))
        return (self.best(known),) if known else ()


class PythonAggregate(SelectedAggregate[Any, Any, Any]):
    """An aggregate of users over the values of a column.

    Args:
        inner: The aggregate.
        selector: Reads the value of a row.
        takes_null: Whether it takes NULL, too.
    """

    plain_types = frozenset()  # It may raise for any value, which is an error of its row.

    def __init__(self, inner: Any, selector: Callable[[Any], Any], *, takes_null: bool) -> None:
        super().__init__(selector, skips_none=not takes_null)
        self.inner, self.accumulator_type = inner, accumulator_type(inner)

    def create_accumulator(self) -> Any:
        return self.inner.create_accumulator()

    def add_all(self, accumulator: Any, values: Sequence[Any]) -> Any:
        for value in self.known(values):
            accumulator = self.inner.add(accumulator, value)
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return self.inner.get_result(accumulator)


class MergingAggregate(PythonAggregate):
    """An aggregate of users whose accumulators merge."""

    def merge(self, a: Any, b: Any) -> Any:
        return self.inner.merge(a, b)


def python_aggregate(
    inner: AggregateFunction[Any, Any, Any], selector: Callable[[Any], Any], *, takes_null: bool
) -> PythonAggregate:
    """Return an aggregate of users over the values of a column."""
    kind = MergingAggregate if is_mergeable(inner) else PythonAggregate
    return kind(inner, selector, takes_null=takes_null)
