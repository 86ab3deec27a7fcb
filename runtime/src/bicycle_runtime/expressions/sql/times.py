"""Times: rows of the table of SQL functions, and arithmetic of intervals.

A TIMESTAMP is a number of milliseconds since 1970 in UTC, and all parts of it are those of UTC.
Months are added by the calendar: January 31 and one month is the last day of February.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.expressions.sql.functions import SqlFunction, each, function, without_zone

_CHECKS = pyarrow.types
_DAY_MS = 86_400_000
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # Of the years 1 to 9999.
_NS = 1_000_000
_INTERVAL = pyarrow.month_day_nano_interval()


# --- arithmetic ----------------------------------------------------------------------------------


def is_of_time(column: Any) -> bool:
    """Return whether a column has times or intervals."""
    return bool(_CHECKS.is_temporal(column.type))


def add_to_time(left: Any, right: Any) -> Any:
    """Return a time plus an interval, or a DATE plus days."""
    if _CHECKS.is_interval(left.type) and _CHECKS.is_interval(right.type):
        return each(lambda a, b: pyarrow.MonthDayNano(map(sum, zip(a, b, strict=True))))(
            left, right
        )
    if _CHECKS.is_interval(left.type):
        left, right = right, left
    return _shift(left, right, 1) if _CHECKS.is_interval(right.type) else _add_days(left, right)


def subtract_from_time(left: Any, right: Any) -> Any:
    """Return a time less an interval or a time, or a DATE less days or a DATE."""
    if _CHECKS.is_interval(left.type):
        return each(lambda a, b: pyarrow.MonthDayNano(x - y for x, y in zip(a, b, strict=True)))(
            left, right
        )
    if _CHECKS.is_interval(right.type):
        return _shift(left, right, -1)
    if _CHECKS.is_date(left.type) and _CHECKS.is_date(right.type):
        return pc.subtract(_day_numbers(left), _day_numbers(right))
    if _CHECKS.is_date(left.type):
        return _add_days(left, pc.negate_checked(right))
    return each(lambda a, b: _span_ms(a - b))(_as_ms(left), _as_ms(right))


def _span_ms(ms: int) -> Any:
    days = abs(ms) // _DAY_MS * (1 if ms >= 0 else -1)
    return pyarrow.MonthDayNano((0, days, (ms - days * _DAY_MS) * _NS))


def _day_numbers(column: Any) -> Any:
    return column.cast(pyarrow.int32()).cast(pyarrow.int64())


def _add_days(column: Any, days: Any) -> Any:
    total = pc.add_checked(_day_numbers(column), days)
    return _in_years(total, _DAY_MS).cast(pyarrow.int32()).cast(pyarrow.date32())


def _as_ms(column: Any) -> Any:
    return without_zone(column).cast(pyarrow.int64())


def _as_times(ms: Any) -> Any:
    return _in_years(ms, 1).cast(pyarrow.timestamp("ms", "UTC"))


def _in_years(numbers: Any, unit_ms: int) -> Any:
    """Return times as numbers; a time that Python does not have is an error."""
    low, high = pc.min_max(numbers).as_py().values()
    if low is not None and not _FIRST_MS <= low * unit_ms <= high * unit_ms <= _LAST_MS:
        raise ValueError("the time is not in the years 1 to 9999")
    return numbers


def _shift(times: Any, intervals: Any, sign: int) -> Any:
    """Return timestamps shifted by intervals: first by months, then by the rest."""
    ms = _as_ms(times)
    listed = [intervals.as_py()] if isinstance(intervals, pyarrow.Scalar) else intervals.to_pylist()
    months, days, nanoseconds = (
        pyarrow.array([None if one is None else sign * one[at] for one in listed], pyarrow.int64())
        for at in range(3)
    )
    size = len(times) if isinstance(times, pyarrow.Array) else len(listed)
    parts = [one if len(listed) == size else pyarrow.repeat(one[0], size) for one in (months, days)]
    if isinstance(ms, pyarrow.Scalar):
        ms = pyarrow.repeat(ms, size)
    rest = pc.add_checked(
        pc.multiply_checked(parts[1], _DAY_MS),
        pc.divide(nanoseconds if len(listed) == size else nanoseconds[0], _NS),
    )
    return _as_times(pc.add_checked(_add_months(ms, parts[0]), rest))


def _add_months(ms: Any, months: Any) -> Any:
    is_null = pc.or_(pc.is_null(ms), pc.is_null(months))
    if pc.all(pc.equal(pc.fill_null(months, 0), 0)).as_py():
        return pc.if_else(is_null, pyarrow.scalar(None, pyarrow.int64()), ms)
    numbers = numpy.asarray(pc.fill_null(ms, 0))
    days, rest = numpy.divmod(numbers, _DAY_MS)
    dates = days.astype("M8[D]")
    month = dates.astype("M8[M]")
    day = (dates - month.astype("M8[D]")).astype(numpy.int64)
    later = month + numpy.asarray(pc.fill_null(months, 0))
    first = later.astype("M8[D]").astype(numpy.int64)
    length = (later + 1).astype("M8[D]").astype(numpy.int64) - first
    found = (first + numpy.minimum(day, length - 1)) * _DAY_MS + rest
    return pyarrow.array(found, mask=numpy.asarray(is_null))


# --- parts ---------------------------------------------------------------------------------------


def _parts(**names: str) -> dict[str, Callable[[Any], Any]]:
    """Return functions of Arrow for times in UTC, by the names of parts."""

    def compute(name: str, column: Any) -> Any:
        return getattr(pc, name)(without_zone(column))

    return {part: partial(compute, name) for part, name in names.items()}


_PARTS: Mapping[str, Callable[[Any], Any]] = {
    **_parts(year="year", quarter="quarter", month="month", week="iso_week", day="day"),
    "dow": lambda column: pc.day_of_week(without_zone(column), week_start=7),
    "isodow": lambda column: pc.day_of_week(without_zone(column), count_from_zero=False),
    **_parts(doy="day_of_year", hour="hour", minute="minute", second="second", isoyear="iso_year"),
    "millisecond": lambda column: pc.subtract(_as_ms(column), _as_ms(_truncate("minute", column))),
    "epoch": lambda column: pc.divide(_as_ms(_truncate("second", column)), 1000),
}
_SPELLINGS = {
    "dayofweek": "dow", "dayofyear": "doy", "weekofyear": "week", "milliseconds": "millisecond",
    **{f"{name}s": name for name in ("year", "quarter", "month", "week", "day", "hour", "minute")},
    "seconds": "second",
}  # fmt: skip
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")


def _one_of(text: str, known: Any) -> str:
    word = _SPELLINGS.get(text.lower(), text.lower())
    if word not in known:
        raise ValueError(f"{text!r} is not a part of a time; parts are {', '.join(known)}")
    return word


def _by_part(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first argument names a part, which is mostly constant."""

    def by_part(part: Any, *columns: Any) -> Any:
        if isinstance(part, pyarrow.Scalar):
            size = next(len(one) for one in columns if isinstance(one, pyarrow.Array))
            return compute(part.as_py(), *columns) if part.is_valid else [None] * size
        count = len(part)
        whole = [
            pyarrow.repeat(one, count) if isinstance(one, pyarrow.Scalar) else one
            for one in columns
        ]
        return [
            None if word is None else compute(word, *(one.slice(at, 1) for one in whole))[0].as_py()
            for at, word in enumerate(part.to_pylist())
        ]

    return by_part


def _date_part(part: str, column: Any) -> Any:
    return _PARTS[_one_of(part, _PARTS)](column)


def _truncate(unit: str, column: Any) -> Any:
    found = pc.floor_temporal(without_zone(column), unit=_one_of(unit, _UNITS))
    return found.cast(pyarrow.timestamp("ms", "UTC"))


def _difference(unit: str, start: Any, end: Any) -> Any:
    word = _one_of(unit, _UNITS)
    bounds = without_zone(start), without_zone(end)
    if word == "month":
        years = pc.years_between(*bounds)
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(bounds[1]), pc.month(bounds[0])))
    if word == "week":  # DuckDB counts seven days, Arrow the Mondays between.
        return pc.divide(pc.days_between(*bounds), 7)
    return getattr(pc, f"{word}s_between")(*bounds)


def _epoch_ms(column: Any) -> Any:
    return _as_ms(column) if _CHECKS.is_temporal(column.type) else _as_times(column)


def _last_day(column: Any) -> Any:
    end = each(lambda day: ((numpy.datetime64(day, "M") + 1).astype("M8[D]") - 1).astype(object))
    return end(without_zone(column).cast(pyarrow.date32()))


def _bucket(interval: Any, time: datetime) -> datetime:
    """Return the start of the interval around a time, counted from 2000-01-03."""
    months, days, nanoseconds = interval
    if months and (days or nanoseconds):
        raise ValueError("an interval is in months, or in days and smaller units, not in both")
    if months:
        count = (time.year - 2000) * 12 + time.month - 1
        start = count // months * months
        return datetime(2000 + start // 12, start % 12 + 1, 1, tzinfo=UTC)
    width = days * _DAY_MS + nanoseconds // _NS
    if width <= 0:
        raise ValueError("an interval must be positive")
    since = datetime(2000, 1, 3, tzinfo=UTC)
    ms = round((time - since).total_seconds() * 1000)
    return datetime.fromtimestamp((since.timestamp() * 1000 + ms // width * width) / 1000, UTC)


def _make_time(*parts: Any) -> datetime:
    year, month, day, hour, minute, second = parts
    if not 0 <= second < 60:
        raise ValueError(f"a second must be at least 0 and less than 60, got {second}")
    start = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return start + timedelta(milliseconds=round(second * 1000))


def _parse(text: str, form: str) -> datetime:
    found = datetime.strptime(text, form)  # noqa: DTZ007  # the zone follows
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _interval_of(unit: int, size: int) -> Callable[..., Any]:
    def interval(count: float) -> Any:
        parts = [0, 0, 0]
        parts[unit] = round(count * size)
        return pyarrow.MonthDayNano(parts)

    return each(interval)


_time = partial(function, group="time")


def _named_part(names: str, part: str, example: int) -> SqlFunction:
    name = names.split(maxsplit=1)[0]
    text = f"{name}(TIMESTAMP '2026-11-28T13:05:09.250Z')"
    return _time(names, "TIMESTAMP -> BIGINT", _PARTS[part], (text, example))


_AT = "TIMESTAMP '2026-11-28T13:05:09.250Z'"

TIMES = [
    _named_part("year", "year", 2026), _named_part("quarter", "quarter", 4),
    _named_part("month", "month", 11), _named_part("week weekofyear", "week", 48),
    _named_part("day dayofmonth", "day", 28), _named_part("dayofweek", "dow", 6),
    _named_part("isodow", "isodow", 6), _named_part("dayofyear", "doy", 332),
    _named_part("hour", "hour", 13), _named_part("minute", "minute", 5),
    _named_part("second", "second", 9), _named_part("millisecond", "millisecond", 9250),
    _named_part("isoyear", "isoyear", 2026),
    _time("date_part datepart extract", "VARCHAR TIMESTAMP -> BIGINT", _by_part(_date_part),
          (f"extract(dow FROM {_AT})", 6), (f"date_part('epoch', {_AT})", 1795871109)),
    _time("date_trunc", "VARCHAR TIMESTAMP -> TIMESTAMP", _by_part(_truncate),
          (f"date_trunc('hour', {_AT})", "2026-11-28T13:00:00Z")),
    _time("date_diff datediff", "VARCHAR TIMESTAMP TIMESTAMP -> BIGINT", _by_part(_difference),
          (f"date_diff('month', TIMESTAMP '2026-01-31', {_AT})", 10)),
    _time("time_bucket date_bin", "INTERVAL TIMESTAMP -> TIMESTAMP", each(_bucket),
          (f"time_bucket(INTERVAL '15' MINUTE, {_AT})", "2026-11-28T13:00:00Z")),
    _time("epoch_ms", "TIMESTAMP -> BIGINT | BIGINT -> TIMESTAMP", _epoch_ms,
          (f"epoch_ms({_AT})", 1795871109250), ("epoch_ms(0)", "1970-01-01T00:00:00Z")),
    _time("epoch", "TIMESTAMP -> DOUBLE", lambda column: pc.divide(
        _as_ms(column).cast(pyarrow.float64()), 1000.0), (f"epoch({_AT})", 1795871109.25)),
    _time("to_timestamp", "DOUBLE -> TIMESTAMP", lambda column: _as_times(
        pc.round(pc.multiply(column, 1000.0)).cast(pyarrow.int64())),
          ("to_timestamp(1.5)", "1970-01-01T00:00:01.500000Z")),
    _time("make_date", "BIGINT BIGINT BIGINT -> DATE", each(date),
          ("cast(make_date(2026, 2, 1) AS VARCHAR)", "2026-02-01")),
    _time("make_timestamp", "BIGINT BIGINT BIGINT BIGINT BIGINT DOUBLE -> TIMESTAMP",
          each(_make_time), ("make_timestamp(2026, 2, 1, 13, 0, 1.5)",
                             "2026-02-01T13:00:01.500000Z")),
    _time("last_day", "TIMESTAMP -> DATE", _last_day,
          (f"cast(last_day({_AT}) AS VARCHAR)", "2026-11-30")),
    _time("strftime date_format", "TIMESTAMP VARCHAR -> VARCHAR",
          each(lambda time, text: time.strftime(text)),
          (f"strftime({_AT}, '%d.%m.%Y %H:%M')", "28.11.2026 13:05")),
    _time("strptime", "VARCHAR VARCHAR -> TIMESTAMP", each(_parse),
          ("strptime('28.11.2026', '%d.%m.%Y')", "2026-11-28T00:00:00Z")),
    _time("dayname", "TIMESTAMP -> VARCHAR", each(lambda time: time.strftime("%A")),
          (f"dayname({_AT})", "Saturday")),
    _time("monthname", "TIMESTAMP -> VARCHAR", each(lambda time: time.strftime("%B")),
          (f"monthname({_AT})", "November")),
    _time("to_years", "BIGINT -> INTERVAL", _interval_of(0, 12), (
        f"year({_AT} + to_years(2))", 2028)),
    _time("to_months", "BIGINT -> INTERVAL", _interval_of(0, 1), (
        f"month({_AT} + to_months(2))", 1)),
    _time("to_days", "BIGINT -> INTERVAL", _interval_of(1, 1), (f"day({_AT} - to_days(8))", 20)),
    _time("to_hours", "BIGINT -> INTERVAL", _interval_of(2, 3600 * 10**9),
          (f"hour({_AT} + to_hours(2))", 15)),
    _time("to_minutes", "BIGINT -> INTERVAL", _interval_of(2, 60 * 10**9),
          (f"minute({_AT} + to_minutes(2))", 7)),
    _time("to_seconds", "DOUBLE -> INTERVAL", _interval_of(2, 10**9),
          (f"second({_AT} + to_seconds(2))", 11)),
]  # fmt: skip
