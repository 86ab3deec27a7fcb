"""Numbers, sizes and times as pages show them. Pure functions; templates use them as filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bicycle_runtime.jobs.epoch_ages import activity_text, fixed_text
from bicycle_sdk.quantities import byte_text, duration_text, share_text, short_text, three_digits

NOTHING = "\u2013"  # A dash, where a number is not known.
_EXACT_MAX = 100_000
_DIGITS_MAX = 15
_SPREAD_MAX = 12
_END_MS = 253_402_300_799_999  # The last moment of the year 9999: later watermarks mean the end.


def count(value: float | None) -> str:
    """Return a count: exact up to 99,999, three digits with a letter above.

    Example:
        >>> [count(value) for value in (0, 10_204, 1_234_567, 99_999.6)]
        ['0', '10,204', '1.23 M', '100 k']
    """
    if value is None:
        return NOTHING
    return short_text(value) if round(abs(value)) >= _EXACT_MAX else f"{value:,.0f}"


def amount(value: float | None, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> [amount(value, "record") for value in (1, 2, 1_234_567)]
        ['1 record', '2 records', '1.23 M records']
    """
    return f"{count(value)} {noun if value == 1 else noun + 's'}"


def brief(value: float | None) -> str:
    """Return a short time, from ms.

    Example:
        >>> [brief(value) for value in (0.002, 0.25, 12.34, 40_000.4)]
        ['2 us', '250 us', '12.3 ms', '40.0 s']
    """
    if value is None:
        return NOTHING
    if value < 1:
        return f"{three_digits(value * 1_000)} us"
    return f"{three_digits(value)} ms" if value < 1_000 else duration_text(round(value))


def seconds_of_lag(value: int | None) -> str:
    """Return the age of the oldest unread record, from ms, empty without any.

    Example:
        >>> seconds_of_lag(None), seconds_of_lag(0), seconds_of_lag(40_000)
        ('', '', '40.0 s')
    """
    return duration_text(value) if value else ""


def clock_text(time_ms: int | None) -> str:
    """Return a time in ms since 1970 as date and time in UTC, or a placeholder.

    Example:
        >>> clock_text(1_000), clock_text(2**63 - 1)
        ('1970-01-01 00:00:01', 'at the end')
    """
    if time_ms is None:
        return NOTHING
    if not 0 <= time_ms <= _END_MS:
        return "at the end" if time_ms > 0 else "before 1970"
    return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}"


def time_text(time_ms: int) -> str:
    """Return the time of day in UTC.

    Example:
        >>> time_text(1_000)
        '00:00:01'
    """
    return f"{datetime.fromtimestamp(time_ms / 1000, tz=UTC):%H:%M:%S}"


def behind_text(watermark_ms: int | None, now_ms: int) -> str:
    """Return how far event time is behind the time of day.

    Example:
        >>> [behind_text(ms, 13_000) for ms in (1_000, 20_000, None, 2**63 - 1)]
        ['12.0 s behind', 'ahead of the clock', '', '']
    """
    if watermark_ms is None or not 0 <= watermark_ms <= _END_MS:
        return ""
    if watermark_ms > now_ms:
        return "ahead of the clock"
    return f"{duration_text(now_ms - watermark_ms)} behind"


def whole_number(text: str) -> int | None:
    """Return a typed number of at most 15 digits, or None for other text.

    Example:
        >>> whole_number("12"), whole_number(" 7 "), whole_number("-1"), whole_number("9" * 5_000)
        (12, 7, None, None)
    """
    plain = text.strip()
    is_number = plain.isascii() and plain.isdecimal() and len(plain) <= _DIGITS_MAX
    return int(plain) if is_number else None


def spread(samples: Mapping[str, Any], column: str) -> list[tuple[int, Any]]:
    """Return at most 12 samples of a column over all of their time, the newest first.

    Each is its time in ms since 1970 and its value; samples without a value are left out.

    Example:
        >>> spread({"at_s": [0, 5, 10], "late": [1, None, 3]}, "late")
        [(10000, 3), (0, 1)]
    """
    found = [
        (at_s * 1_000, value)
        for at_s, value in zip(samples["at_s"], samples.get(column, ()), strict=False)
        if value is not None
    ]
    step = max(1, -(-len(found) // _SPREAD_MAX))
    return found[::-1][::step]


def _or_nothing(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a filter that shows a dash for an unknown value."""
    return lambda value: NOTHING if value is None else text(value)


FILTERS: dict[str, Callable[..., Any]] = {
    "amount": amount,
    "behind": behind_text,
    "brief": brief,
    "clock": clock_text,
    "count": count,
    "duration": _or_nothing(duration_text),
    "json_text": lambda value: json.dumps(value, ensure_ascii=False),
    "lag_time": seconds_of_lag,
    "activity": activity_text,
    "fixed_part": fixed_text,
    "rate": _or_nothing(short_text),
    "share": _or_nothing(share_text),
    "size": _or_nothing(byte_text),
    "spread": spread,
    "time": time_text,
}
