"""Numbers, sizes and times as pages show them. Pure functions; templates use them as filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bicycle_runtime.jobs.epoch_ages import activity_text, fixed_text
from bicycle_sdk.quantities import duration_text

__all__ = [
    "FILTERS", "NOTHING", "amount", "clock_text", "count", "rate", "seconds_of_lag", "share",
    "size", "whole_number",
]  # fmt: skip

NOTHING = "\u2013"  # A dash, where a number is not known.
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
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
    return _short(value) if round(abs(value)) >= _EXACT_MAX else f"{value:,.0f}"


def amount(value: float | None, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> [amount(value, "record") for value in (1, 2, 1_234_567)]
        ['1 record', '2 records', '1.23 M records']
    """
    return f"{count(value)} {noun if value == 1 else noun + 's'}"


def rate(value: float | None) -> str:
    """Return records per second with three digits.

    Example:
        >>> [rate(value) for value in (0.0, 0.25, 7.24, 312.4, 48_112)]
        ['0', '0.25', '7.24', '312', '48.1 k']
    """
    return NOTHING if value is None else _short(value)


def _short(value: float) -> str:
    for limit, letter in _STEPS:
        if round(abs(value)) >= limit:
            return f"{_three_digits(value / limit)} {letter}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(value: float | None) -> str:
    """Return a size in bytes with the unit that fits.

    Example:
        >>> [size(value) for value in (0, 512, 4 << 30)]
        ['0 B', '512 B', '4 GiB']
    """
    if value is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{_three_digits(value)} {unit}"
        value /= 1024
    return f"{_three_digits(value)} TiB"


def share(value: float | None) -> str:
    """Return a share of one in percent.

    Example:
        >>> share(0.714), share(0.004)
        ('71 %', '0.4 %')
    """
    if value is None:
        return NOTHING
    percent = value * 100
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def brief(value: float | None) -> str:
    """Return a short time, from ms.

    Example:
        >>> [brief(value) for value in (0.002, 0.25, 12.34, 40_000.4)]
        ['2 us', '250 us', '12.3 ms', '40.0 s']
    """
    if value is None:
        return NOTHING
    if value < 1:
        return f"{_three_digits(value * 1_000)} us"
    return f"{_three_digits(value)} ms" if value < 1_000 else duration_text(round(value))


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


FILTERS: dict[str, Callable[..., Any]] = {
    "amount": amount,
    "behind": behind_text,
    "brief": brief,
    "clock": clock_text,
    "count": count,
    "duration": lambda ms: NOTHING if ms is None else duration_text(ms),
    "json_text": lambda value: json.dumps(value, ensure_ascii=False),
    "lag_time": seconds_of_lag,
    "activity": activity_text,
    "fixed_part": fixed_text,
    "rate": rate,
    "share": share,
    "size": size,
    "spread": spread,
    "time": time_text,
}
