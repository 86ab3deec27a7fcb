"""The computation of SQL expressions on columns, with an error per failed row.

An operation is computed for all rows at once. Where it raises, its rows are halved until the rows
that fail are alone: these become NULL, and their errors travel with the column. So one bad row
costs one operation on a few rows, and no batch is computed twice. CASE and COALESCE compute a value
only for the rows that need it; AND and OR drop errors of rows that their left side has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.casts import conversion
from bicycle_runtime.expressions.sql.located import Located, locate_errors
from bicycle_runtime.expressions.sql.nested import json_of, json_texts, text_of, value_at
from bicycle_runtime.expressions.sql.table import FUNCTIONS
from bicycle_runtime.expressions.sql.types import (
    DECIMAL_DIGITS_MAX,
    SqlType,
    arrow_type,
    decimal_digits,
)
from bicycle_runtime.frames.vectors import ArrowVector, Vector
from bicycle_runtime.records.times import time_of
from bicycle_sdk.expressions import Expression
from bicycle_sdk.time import TIME_MS_MAX

# What pyarrow, and functions of values, raise for rows that fail.
FAILURES = (pyarrow.ArrowException, ValueError, TypeError, ArithmeticError, LookupError)
_NO_ERRORS: Mapping[int, str] = MappingProxyType({})
_NUMPY_KINDS = {"BIGINT": "i", "DOUBLE": "f", "BOOLEAN": "b"}
_MESSAGES = {
    "divide by zero": "divide by zero error",
    "overflow": "the result has more than 64 bits",
}
_REFUSED = {"BIGINT": float, "DOUBLE": bool}  # pyarrow would truncate 1.5, and accept True as 1.0.
_LOW_COST = frozenset({"comparison", "arithmetic", "logic", "text"})  # Groups of functions.


class Computed(NamedTuple):
    """An Arrow array or scalar, and by row the error of each row that failed."""

    column: Any
    errors: Mapping[int, str] = _NO_ERRORS


class SqlRows:
    """Rows on which SQL expressions are computed; equal expressions are computed once.

    Args:
        read: Returns the values of an expression with Python semantics, such as a field.
        count: The number of rows.
    """

    def __init__(self, read: Callable[[Expression], Vector], count: int) -> None:
        self.count = count
        self._read = read
        self._known: dict[int, Computed] = {}  # By the identity of an expression.
        self._is_trial = False  # Whether a row that fails makes the whole computation fail.

    def value(self, expression: Expression) -> Computed:
        """Return an expression as an array, or as a scalar if it is constant."""
        found = self._known.get(id(expression))
        if found is None:
            found = _SPECIAL.get(expression.operation, SqlRows._call)(self, expression)
            if found.errors and isinstance(expression, Located):
                found = Computed(found.column, locate_errors(found.errors, expression.at))
            self._known[id(expression)] = found
        return found

    def array(self, expression: Expression) -> Computed:
        """Return an expression as an array."""
        column, errors = self.value(expression)
        if isinstance(column, pyarrow.Scalar):
            # pyarrow cannot repeat an array 0 times.
            column = pyarrow.repeat(column, max(self.count, 1)).slice(0, self.count)
        return Computed(column, errors)

    # --- operations --------------------------------------------------------------------------

    def _literal(self, expression: Expression) -> Computed:
        word, value = expression.arguments
        return Computed(pyarrow.scalar(_plain(word, value), arrow_type(word)))

    def _column(self, expression: Expression) -> Computed:
        word, source = expression.arguments
        vector = self._read(source)
        found = _as_column(word, vector)
        if found is not None:
            return Computed(found)
        items = vector.items
        return self._isolate(
            lambda start, stop: _listed_column(word, items[start:stop]), arrow_type(word)
        )

    def _json_path(self, expression: Expression) -> Computed:
        """Return the value at a path; values of records are not encoded before."""
        word, value, path = expression.arguments
        is_read = (
            value.arguments[0] == "JSON"
            and value.operation == "sql.column"
            and path.operation == "sql.literal"
        )
        if not is_read or path.arguments[1] is None:
            return self._call(expression)
        items, step = self._read(value.arguments[1]).items, path.arguments[1]
        write = text_of if expression.operation == "sql.json_get_text" else json_of
        return self._isolate(
            lambda start, stop: pyarrow.array(
                [write(value_at(item, step)) for item in items[start:stop]], pyarrow.string()
            ),
            arrow_type(word),
        )

    def _cast(self, expression: Expression) -> Computed:
        word, value = expression.arguments
        convert = conversion(value.arguments[0], word)
        if convert is None:
            raise ValueError(f"a cast of {value.arguments[0]} to {word} is not supported")
        column, errors = self.value(value)
        found = self._apply(convert, [column], word)
        if expression.operation == "sql.try_cast":
            return Computed(found.column, errors)
        return Computed(found.column, _both(errors, found.errors))

    def _call(self, expression: Expression) -> Computed:
        row = FUNCTIONS[expression.operation.removeprefix("sql.")]
        word, *arguments = expression.arguments
        values = [self.value(each) for each in arguments]
        if not values:
            return Computed(pyarrow.scalar(row.compute(), arrow_type(word)))
        found = self._apply(row.compute, [value.column for value in values], word)
        errors = reduce(_both, (each.errors for each in (*reversed(values), found)))
        return Computed(found.column, errors)

    def _python(self, expression: Expression) -> Computed:
        word, python, *arguments = expression.arguments
        given = [self.array(each) for each in arguments]
        failed = reduce(_both, (each.errors for each in given), _NO_ERRORS)
        columns = [each.column for each in given]
        if python.is_on_columns:
            found = self._apply(python.on_arrays, columns, word)
            return Computed(found.column, _both(failed, found.errors))
        results, errors = python.each(columns, self.count, failed)

        def convert(start: int, stop: int) -> Any:
            try:
                return _listed_column(word, results[start:stop])
            except FAILURES as error:
                raise ValueError(f"{python.location} returned no {word}: {error}") from error

        found = self._isolate(convert, arrow_type(word))
        return Computed(found.column, _both(failed, _both(errors, found.errors)))

    def _logic(self, expression: Expression) -> Computed:
        column, errors = self._call(expression)
        _, left, right = expression.arguments
        if self.value(right).errors:
            decided, each = expression.operation == "sql.or", self.array(left).column
            errors = {at: text for at, text in errors.items() if each[at].as_py() is not decided}
        return Computed(column, errors)

    def _case(self, expression: Expression) -> Computed:
        word, *parts = expression.arguments
        *pairs, otherwise = parts
        conditions, values = pairs[::2], [*pairs[1::2], otherwise]
        found = self._try_all([*values, *conditions[1:]])
        if found is None:
            test = partial(pc.fill_null, fill_value=False)
            return self._first([*zip(conditions, values, strict=False)], test, otherwise, word)
        known = list(map(self.array, conditions))
        masks = pc.make_struct(
            *(pc.fill_null(each.column, False) for each in known),
            field_names=list(map(str, range(len(known)))),
        )
        column = pc.case_when(masks, *found[: len(values)])
        return Computed(column.cast(arrow_type(word)), known[0].errors)

    def _coalesce(self, expression: Expression) -> Computed:
        word, *values = expression.arguments
        rest = self._try_all(values[1:])
        if rest is not None:
            first, errors = self.value(values[0])
            return Computed(pc.coalesce(first, *rest), errors)
        *firsts, last = values
        return self._first([*zip(firsts, firsts, strict=True)], pc.is_valid, last, word)

    def _try_all(self, values: Sequence[Expression]) -> list[Any] | None:
        """Return values for all rows; None if one costs much, or fails for some row."""
        # hot path: a sum for rows that do not need it costs less than dividing the rows.
        if not all(map(_costs_little, values)):
            return None
        before, self._is_trial = self._is_trial, True
        try:
            found = [self.value(each) for each in values]
        except FAILURES:
            return None
        finally:
            self._is_trial = before
        return None if any(each.errors for each in found) else [each.column for each in found]

    def _first(
        self, pairs: Sequence[tuple[Expression, Expression]], test: Callable[[Any], Any],
        otherwise: Expression, word: SqlType,
    ) -> Computed:  # fmt: skip
        """Return the second of the first pair whose first one passes a test; for each row."""
        rest = numpy.arange(self.count)
        pieces: list[tuple[Any, Expression]] = []
        failed: dict[int, str] = {}
        for tested, value in pairs:
            given = self._some(rest).array(tested)
            is_found, is_good = numpy.asarray(test(given.column)), numpy.ones(len(rest), bool)
            is_good[list(given.errors)] = False
            failed |= {int(rest[at]): text for at, text in given.errors.items()}
            pieces.append((rest[is_found & is_good], value))
            rest = rest[~is_found & is_good]
        pieces.append((rest, otherwise))
        return self._join(pieces, failed, word)

    # --- some of the rows --------------------------------------------------------------------

    def _some(self, rows: Any) -> SqlRows:
        """Return some of the rows, by their indexes."""
        return self if len(rows) == self.count else _PickedRows(self, rows)

    def _join(
        self, pieces: Sequence[tuple[Any, Expression]], failed: dict[int, str], word: SqlType
    ) -> Computed:
        """Return the values of disjoint sets of rows as one column; other rows are NULL."""
        found = [pyarrow.scalar(None, arrow_type(word))]
        for rows, value in pieces:
            if len(rows):
                column, errors = self._some(rows).array(value)
                failed |= {int(rows[at]): text for at, text in errors.items()}
                indexes = numpy.full(self.count, -1)
                indexes[rows] = numpy.arange(len(rows))
                found.append(column.take(pyarrow.array(indexes, mask=indexes < 0)))
        return Computed(pc.coalesce(*found), failed)

    # --- rows that fail ----------------------------------------------------------------------

    def _apply(self, function: Callable[..., Any], columns: list[Any], word: SqlType) -> Computed:
        """Return a function of columns; a row on which it raises has NULL and an error."""
        kind = arrow_type(word)
        if all(isinstance(each, pyarrow.Scalar) for each in columns):
            single = [pyarrow.repeat(each, 1) for each in columns]
            try:
                return Computed(_result(function(*single), kind)[0])
            except FAILURES as error:
                text = _text_of(error)
                return Computed(pyarrow.scalar(None, kind), dict.fromkeys(range(self.count), text))

        def compute(start: int, stop: int) -> Any:
            if stop - start == self.count:
                return _result(function(*columns), kind)
            size = stop - start
            parts = [
                each if isinstance(each, pyarrow.Scalar) else each.slice(start, size)
                for each in columns
            ]
            return _result(function(*parts), kind)

        return self._isolate(compute, kind)

    def _isolate(self, compute: Callable[[int, int], Any], kind: Any) -> Computed:
        """Return the results of ranges of rows, halved until rows that fail are alone."""
        try:
            return Computed(compute(0, self.count))
        except FAILURES as error:
            if not self.count or self._is_trial:
                raise  # Without rows, it fails whatever the rows are: checked before the start.
            first = error
        pieces: list[Any] = []
        errors: dict[int, str] = {}
        todo = [(0, self.count)]
        while todo:
            start, stop = todo.pop()
            try:
                if stop - start == self.count:
                    raise first
                pieces.append(compute(start, stop))
            except FAILURES as error:
                if stop - start == 1:
                    pieces.append(pyarrow.nulls(1, kind))
                    errors[start] = _text_of(error)
                else:
                    middle = (start + stop) // 2
                    todo += [(middle, stop), (start, middle)]
        return Computed(pyarrow.concat_arrays(pieces), errors)


class _PickedRows(SqlRows):
    """Some rows of others."""

    def __init__(self, whole: SqlRows, rows: Any) -> None:
        super().__init__(lambda source: whole._read(source).pick(rows), len(rows))
        self._whole, self._rows = whole, rows

    def value(self, expression: Expression) -> Computed:
        if id(expression) not in self._known:
            known = self._whole._known.get(id(expression))
            if known is None and expression.operation == "sql.column":
                known = self._whole.value(expression)
            if known is not None:
                self._known[id(expression)] = self._pick(known)
        return super().value(expression)

    def _pick(self, known: Computed) -> Computed:
        column, errors = known
        if errors:
            errors = {
                at: errors[row] for at, row in enumerate(self._rows.tolist()) if row in errors
            }
        if not isinstance(column, pyarrow.Scalar):
            column = column.take(pyarrow.array(self._rows))
        return Computed(column, errors)


_SPECIAL: Mapping[str, Callable[[SqlRows, Expression], Computed]] = {
    "sql.literal": SqlRows._literal, "sql.column": SqlRows._column, "sql.python": SqlRows._python,
    "sql.cast": SqlRows._cast, "sql.try_cast": SqlRows._cast,
    "sql.json_get": SqlRows._json_path, "sql.json_get_text": SqlRows._json_path,
    "sql.case": SqlRows._case, "sql.coalesce": SqlRows._coalesce,
    "sql.and": SqlRows._logic, "sql.or": SqlRows._logic,
}  # fmt: skip


def _costs_little(expression: Expression) -> bool:
    """Return whether a value costs little for rows that do not need it."""
    name, arguments = expression.operation.removeprefix("sql."), expression.arguments
    if name in ("literal", "column"):
        return True
    if (row := FUNCTIONS.get(name)) is not None:
        is_cheap = row.group in _LOW_COST and "regexp" not in name
    else:
        is_number = name == "cast" and arguments[1].arguments[0] in ("BIGINT", "DOUBLE")
        is_cheap = is_number or name in ("case", "coalesce")
    return is_cheap and all(map(_costs_little, arguments[1:]))


def _both(first: Mapping[int, str], second: Mapping[int, str]) -> Mapping[int, str]:
    """Return the errors of both; of a row with two errors, that of ``first``."""
    return {**second, **first} if first and second else first or second


def _result(found: Any, kind: Any) -> Any:
    """Return the result of a function as an array of a type."""
    if isinstance(found, list):
        return pyarrow.array(found, kind)
    if isinstance(found, pyarrow.ChunkedArray):
        found = found.combine_chunks()
    return found if found.type == kind else found.cast(kind)


def _text_of(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    text = _MESSAGES.get(text, text)
    if text.startswith("Decimal ") and "does not fit" in text:
        return "the number has more digits than its DECIMAL type"
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


# --- columns and constants -----------------------------------------------------------------------


def _plain(word: SqlType, value: Any) -> Any:
    """Return the value that a literal stores as plain data."""
    if value is None:
        return None
    if word == "BLOB":
        return bytes.fromhex(value)
    if word == "INTERVAL":
        return pyarrow.MonthDayNano(value)
    return Decimal(value) if decimal_digits(word) else value


def _as_column(word: SqlType, vector: Vector) -> Any:
    """Return a vector as a column of a type without a look at its values, or None."""
    kind = arrow_type(word)
    found = vector.as_they_lie
    if isinstance(found, numpy.ndarray):
        return pyarrow.array(found) if found.dtype.kind == _NUMPY_KINDS.get(word) else None
    if not isinstance(vector, ArrowVector) or "JSON" in word:
        return None
    column = vector.column
    if column.type == kind:
        return column
    if not _is_widening(column.type, kind):
        return None
    if pyarrow.types.is_timestamp(column.type):
        column = pc.floor_temporal(
            column.cast(pyarrow.timestamp(column.type.unit)), unit="millisecond"
        )
        return column.cast(pyarrow.timestamp("ms")).cast(kind)
    return column.cast(kind)


def _is_widening(given: Any, wanted: Any) -> bool:
    """Return whether each value of an Arrow type has an equal one in another."""
    checks = pyarrow.types
    pairs = (
        (checks.is_integer, checks.is_integer),
        (checks.is_floating, checks.is_floating),
        (checks.is_timestamp, checks.is_timestamp),
        (checks.is_date, checks.is_date),
        (checks.is_null, lambda _: True),
    )
    is_text = str(given) in ("large_string", "string_view") and checks.is_string(wanted)
    is_same = any(one(given) and other(wanted) for one, other in pairs)
    is_decimal = checks.is_decimal(given) and checks.is_decimal(wanted)
    wider = is_decimal and given.scale <= wanted.scale <= DECIMAL_DIGITS_MAX
    return (is_same and not checks.is_uint64(given)) or is_text or wider


def _listed_column(word: SqlType, items: list[Any]) -> Any:
    """Return the values of records as a column; raise if one is of another type."""
    if word == "TIMESTAMP":
        # hot path: whole ms, such as the bounds of windows, are times as they are.
        is_ms = set(map(type, items)) == {int}
        if not is_ms or min(items) <= -TIME_MS_MAX or max(items) >= TIME_MS_MAX:
            items = [None if value is None else time_of(value) for value in items]
    elif "JSON" in word:
        items = [json_texts(value, word.count("[]")) for value in items]
    elif (refused := _REFUSED.get(word.rstrip("[]"))) and _has(items, refused):
        raise TypeError(f"the value of the field is not a {word}")
    return pyarrow.array(items, arrow_type(word))


def _has(items: list[Any], kind: type) -> bool:
    kinds = set(map(type, items))
    return kind in kinds or (list in kinds and any(_has(one, kind) for one in items if one))


def rows_of(batch: pyarrow.RecordBatch) -> SqlRows:
    """Return the rows of an Arrow batch, whose columns are fields."""
    return SqlRows(lambda source: ArrowVector(batch.column(source.arguments[0])), batch.num_rows)
