"""Times in records: RFC 3339 text with a zone, or milliseconds since 1970.

All formats, sources and sinks convert times here. A number is in milliseconds: since 1970 for a
time, since midnight for a time of day, and in all for a duration. A part of a millisecond is
rounded down, before 1970 as well, so that a value has the same time in a window and in a file.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from bicycle_sdk.time import as_ms

_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
_MS = timedelta(milliseconds=1)


def time_of(value: object) -> int:
    """Return the event time of a record's value, in ms since 1970.

    Args:
        value: A number or a text of it, RFC 3339 text, or a datetime with time zone. White space
            around a text does not count.

    Raises:
        ValueError: it is something else, or out of bounds.

    Example:
        >>> time_of("1970-01-01T00:00:02+00:00"), time_of(" 2000 "), time_of(2_000), time_of(-0.5)
        (2000, 2000, 2000, -1)
    """
    if value is None:
        raise ValueError("the time is missing")
    return as_ms(_parse(value) if isinstance(value, str) else value)


def moment_of(value: object) -> datetime:
    """Return a value of a record as a datetime; see ``time_of``.

    Raises:
        ValueError: it is no time, or outside the years 1 to 9999.

    Example:
        >>> moment_of(-1).isoformat()
        '1969-12-31T23:59:59.999000+00:00'
    """
    found = _parse(value) if isinstance(value, str) else value
    if isinstance(found, datetime):
        return found
    try:
        return _EPOCH + timedelta(milliseconds=as_ms(found))
    except OverflowError:
        raise ValueError(f"the timestamp {found} is outside the years 1 to 9999") from None


def time_of_day_of(value: object) -> time:
    """Return a value of a record as a time of day: a number is in ms since midnight.

    Raises:
        ValueError: it is no time of day.

    Example:
        >>> time_of_day_of(3_600_000), time_of_day_of("01:00:00")
        (datetime.time(1, 0), datetime.time(1, 0))
    """
    found = number_of(value)
    if isinstance(found, time):
        return found
    if isinstance(found, str):
        return msgspec.convert(found, time)
    ms = as_ms(found)
    if isinstance(found, datetime) or not 0 <= ms < _DAY_MS:
        raise ValueError(f"a time of day is {found}, expected 0 to {_DAY_MS - 1:,} ms")
    return (_EPOCH + timedelta(milliseconds=ms)).time()


def duration_of(value: object) -> timedelta:
    """Return a value of a record as a duration: a number is in ms.

    Raises:
        ValueError: it is no duration.

    Example:
        >>> str(duration_of(1_500)), str(duration_of("PT1.5S"))
        ('0:00:01.500000', '0:00:01.500000')
    """
    found = number_of(value)
    if isinstance(found, timedelta):
        return found
    if isinstance(found, str):
        return msgspec.convert(found, timedelta)
    if isinstance(found, datetime):
        raise ValueError(f"expected a duration, got the time {found}")
    try:
        return timedelta(milliseconds=as_ms(found))
    except OverflowError:
        raise ValueError(f"the duration {found} ms is too long") from None


def with_zone(value: datetime) -> datetime:
    """Return a datetime with a zone; one without a zone is in UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def in_ms(value: object) -> object:
    """Return a time, a time of day or a duration in ms; anything else as it is.

    Example:
        >>> in_ms(datetime(1970, 1, 1, 0, 0, 1)), in_ms(time(0, 1)), in_ms("x")
        (1000, 60000, 'x')
    """
    found = datetime.combine(_EPOCH, value, UTC) if isinstance(value, time) else value
    if isinstance(found, datetime):
        return as_ms(with_zone(found))
    return found // _MS if isinstance(found, timedelta) else found


def date_of(value: object) -> date:
    """Return a value of a record as a date.

    Raises:
        ValueError: it is no date, or would lose its time of day. No number is a date.

    Example:
        >>> date_of("2026-03-01")
        datetime.date(2026, 3, 1)
    """
    if isinstance(value, str):
        return date.fromisoformat(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise ValueError(f"a date is expected, found {type(value).__name__} ({str(value)[:40]!r})")


def number_of(value: object) -> object:
    """Return the number that a text is; anything else as it is.

    Example:
        >>> number_of(" 2000 "), number_of("-1.5"), number_of("PT1S"), number_of(None)
        (2000, -1.5, 'PT1S', None)
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    return float(text) if found[1] or found[2] else int(text)


def _parse(value: str) -> object:
    """Return the number or the datetime with a zone that a text is."""
    found = number_of(value)
    if not isinstance(found, str):
        return found
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{found[:60]!r} is neither an RFC 3339 time with a zone nor ms since 1970"
        )
    return moment
