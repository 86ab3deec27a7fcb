"""Conversions between SQL types, which raise if a value has no equivalent.

Floats and decimals lose their fraction as ints, as in Flink, Spark and DataFusion. Times are RFC
3339 as text; a text without zone is in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.functions import WIDE_DECIMALS, rounded_decimal, without_zone
from bicycle_runtime.expressions.sql.types import SqlType, arrow_type, decimal_digits
from bicycle_runtime.frames.arrays import listed_values

_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_WORD_MAX = 60


def conversion(given: SqlType, wanted: SqlType) -> Callable[[Any], Any] | None:
    """Return the function that converts columns of one type to another, or None."""
    if given == "NULL":
        return lambda column: pyarrow.nulls(len(column), arrow_type(wanted))
    if given.endswith("[]") and wanted.endswith("[]"):
        inner = conversion(given[:-2], wanted[:-2])
        return None if inner is None else lambda column: _each_item(column, inner, wanted)
    if wanted == "VARCHAR" and given.endswith("[]"):
        return lambda column: by_value(column, lambda value: msgspec.json.encode(value).decode())
    digits = decimal_digits(wanted)
    kinds = "DECIMAL" if decimal_digits(given) else given, "DECIMAL" if digits else wanted
    found = _CONVERSIONS.get(kinds)
    if kinds[1] == "DECIMAL" and found is not None:
        return lambda column: found(column, digits)
    return _CONVERSIONS["JSON", "VARCHAR"] if given == wanted else found


def by_value(column: Any, function: Callable[[Any], Any]) -> list[Any]:
    """Return the results of a Python function for the values that are not NULL."""
    return [None if value is None else function(value) for value in listed_values(column)]


def time_texts(column: Any) -> Any:
    """Return timestamps as RFC 3339 text in UTC, with microseconds if there are any."""
    texts = pc.strftime(without_zone(column), "%Y-%m-%dT%H:%M:%S")
    texts = pc.replace_substring_regex(texts, r"\.000$", "")
    texts = pc.replace_substring_regex(texts, r"(\.\d{3})$", r"\1000")
    return pc.binary_join_element_wise(texts, "Z", "")


def parse_time(text: str) -> datetime:
    """Return the time in a text; without a zone it is in UTC.

    Raises:
        ValueError: the text is no time.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text[:_WORD_MAX]!r} is not a timestamp") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _parse_clock(text: str) -> time:
    found = text.strip()
    try:  # The hour may have one digit; a zone has no effect.
        return time.fromisoformat(f"{'0' * (found[1:2] == ':')}{found}").replace(tzinfo=None)
    except ValueError:
        raise ValueError(f"{text[:_WORD_MAX]!r} is not a time") from None


def _each_item(column: Any, convert: Callable[[Any], Any], wanted: SqlType) -> Any:
    items = convert(column.flatten())
    if isinstance(items, list):
        items = pyarrow.array(items, arrow_type(wanted[:-2]))
    # The offsets of a slice do not begin at 0; pyarrow does not accept them together with a mask.
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    offsets = pc.cumulative_sum(pyarrow.array([0, *lengths], pyarrow.int32()))
    return pyarrow.ListArray.from_arrays(offsets, items, mask=pc.is_null(column))


def _text_as_int(column: Any) -> Any:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.replace_substring_regex(trimmed, r"^\+", "").cast(pyarrow.int64())


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"{text[:_WORD_MAX]!r} is not a boolean")


def _text_as_decimal(column: Any, digits: tuple[int, int]) -> Any:
    quantum = Decimal(1).scaleb(-digits[1])

    def parse(text: str) -> Decimal:
        try:
            return Decimal(text.strip()).quantize(quantum, ROUND_HALF_UP, WIDE_DECIMALS)
        except InvalidOperation:
            raise ValueError(f"{text[:_WORD_MAX]!r} is not a DECIMAL{digits}") from None

    return pyarrow.array(by_value(column, parse), pyarrow.decimal128(*digits))


def _as_decimal(column: Any, digits: tuple[int, int]) -> Any:
    if pyarrow.types.is_floating(column.type):
        return _text_as_decimal(pyarrow.array(by_value(column, repr), pyarrow.string()), digits)
    if pyarrow.types.is_int64(column.type):
        column = column.cast(pyarrow.decimal128(19, 0))
    return rounded_decimal(column, digits)


def _as_int(column: Any) -> Any:
    if pyarrow.types.is_decimal(column.type):
        return pc.trunc(column).cast(pyarrow.decimal256(76, 0)).cast(pyarrow.int64())
    return pc.trunc(column).cast(pyarrow.int64())


def _as_float(column: Any) -> Any:
    if pyarrow.types.is_decimal(column.type):
        return by_value(column, float)  # Arrow's own conversion rounds twice.
    return column.cast(pyarrow.float64(), safe=False)


def _text_as_json(column: Any) -> Any:
    by_value(column, _check_json)
    return column


def _check_json(text: str) -> None:
    try:
        msgspec.json.decode(text.encode())
    except ValueError as error:
        shown, quoted = text[:_WORD_MAX], msgspec.json.encode(text[:_WORD_MAX]).decode()
        raise ValueError(
            f"{shown!r} is not JSON ({error}); a text in JSON is {quoted!r}, and ->> reads texts"
        ) from None


def _by_text(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of JSON values by their texts: ``"5"`` and ``5`` are 5."""
    return lambda column: convert(pyarrow.array(by_value(column, _plain_text), pyarrow.string()))


def _plain_text(text: str) -> str | None:
    if text[:1] != '"':
        return None if text == "null" else text
    return str(msgspec.json.decode(text))


def whole_ms(months: int, days: int, nanoseconds: int) -> int | None:
    """Return the length of an interval in ms; None with months, or with parts of a ms."""
    is_whole = not months and nanoseconds % 1_000_000 == 0
    return days * 86_400_000 + nanoseconds // 1_000_000 if is_whole else None


def parse_interval(text: str) -> tuple[int, int, int]:
    """Return months, days and nanoseconds of a text such as ``1 day 02:00:00``.

    Raises:
        ValueError: the text is no interval.

    Example:
        >>> parse_interval("1 year 2 days"), parse_interval("-90 seconds")
        ((12, 2, 0), (0, 0, -90000000000))
    """
    months = days = nanoseconds = 0
    words = text.split()
    while words:
        first = words.pop(0)
        if ":" in first:
            parts = [float(part) for part in first.lstrip("+-").split(":")]
            total = sum(part * size for part, size in zip(parts, (3600, 60, 1), strict=False))
            nanoseconds += round(total * 1e9) * (-1 if first.startswith("-") else 1)
            continue
        unit = (words.pop(0) if words else "").lower().removesuffix("s")
        size = INTERVAL_UNITS.get(unit)
        try:
            count = float(first)
        except ValueError:
            size = None
        if size is None:
            raise ValueError(f"{text[:_WORD_MAX]!r} is not an interval")
        if not (count * (size[0] or size[1] or 1)).is_integer() and not size[2]:
            raise ValueError(f"{text[:_WORD_MAX]!r}: months and days are whole numbers")
        months += round(count * size[0])
        days += round(count * size[1])
        nanoseconds += round(count * size[2])
    return months, days, nanoseconds


_SECOND = 1_000_000_000
# Months, days and nanoseconds of a unit.
INTERVAL_UNITS: Mapping[str, tuple[int, int, int]] = {
    "year": (12, 0, 0), "quarter": (3, 0, 0), "month": (1, 0, 0), "week": (0, 7, 0),
    "day": (0, 1, 0), "hour": (0, 0, 3600 * _SECOND), "minute": (0, 0, 60 * _SECOND),
    "second": (0, 0, _SECOND), "millisecond": (0, 0, 1_000_000),
}  # fmt: skip


def _each(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda column: by_value(column, function)


_TO_TEXT: Mapping[SqlType, Callable[..., Any]] = {
    **dict.fromkeys(
        ("BIGINT", "BOOLEAN", "DATE", "BLOB"), lambda column: column.cast(pyarrow.string())
    ),
    "DOUBLE": _each(repr), "DECIMAL": _each(lambda value: format(value, "f")),
    "TIMESTAMP": time_texts, "TIME": _each(time.isoformat), "JSON": lambda column: column,
}  # fmt: skip
_FROM_TEXT: Mapping[SqlType, Callable[..., Any]] = {
    "BIGINT": _text_as_int,
    "DOUBLE": lambda column: pc.utf8_trim_whitespace(column).cast(pyarrow.float64()),
    "DECIMAL": _text_as_decimal,
    "BOOLEAN": _each(_parse_bool),
    "TIMESTAMP": lambda column: pyarrow.array(
        by_value(column, parse_time), pyarrow.timestamp("ms", "UTC"), safe=False
    ),
    "DATE": _each(lambda text: date.fromisoformat(text.strip()[:_WORD_MAX])),
    "TIME": lambda column: pyarrow.array(
        by_value(column, _parse_clock), pyarrow.time32("ms"), safe=False
    ),
    "INTERVAL": _each(parse_interval), "JSON": _text_as_json,
    "BLOB": lambda column: column.cast(pyarrow.binary()),
}  # fmt: skip
_CONVERSIONS: Mapping[tuple[SqlType, SqlType], Callable[..., Any]] = {
    **{(word, "VARCHAR"): convert for word, convert in _TO_TEXT.items()},
    **{("VARCHAR", word): convert for word, convert in _FROM_TEXT.items()},
    **{("JSON", word): _by_text(_FROM_TEXT[word])
       for word in ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP")},
    ("BIGINT", "DOUBLE"): _as_float, ("BIGINT", "DECIMAL"): _as_decimal,
    ("BIGINT", "BOOLEAN"): lambda column: pc.not_equal(column, 0),
    ("DOUBLE", "BIGINT"): _as_int, ("DOUBLE", "DECIMAL"): _as_decimal,
    ("DOUBLE", "BOOLEAN"): lambda column: pc.not_equal(column, 0.0),
    ("DECIMAL", "BIGINT"): _as_int, ("DECIMAL", "DOUBLE"): _as_float,
    ("DECIMAL", "DECIMAL"): rounded_decimal,
    ("BOOLEAN", "BIGINT"): lambda column: column.cast(pyarrow.int64()),
    ("BOOLEAN", "DOUBLE"): lambda column: column.cast(pyarrow.int64()).cast(pyarrow.float64()),
    ("TIMESTAMP", "DATE"): lambda column: pc.floor_temporal(without_zone(column), unit="day").cast(
        pyarrow.date32()
    ),
    ("TIMESTAMP", "TIME"): lambda column: without_zone(column).cast(pyarrow.time32("ms")),
    ("DATE", "TIMESTAMP"): lambda column: column.cast(pyarrow.timestamp("ms")).cast(
        pyarrow.timestamp("ms", "UTC")
    ),
}  # fmt: skip
