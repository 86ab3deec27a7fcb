"""Durations, sizes, moments and counts as people read and write them.

Inside Bicycle, a duration is a whole number of milliseconds and a size a whole number of bytes;
these functions convert them at the border.
"""

from __future__ import annotations

import re

__all__ = [
    "amount",
    "byte_text",
    "count_text",
    "duration_text",
    "moment_text",
    "parse_duration_ms",
    "parse_size_bytes",
    "share_text",
    "short_text",
    "three_digits",
    "with_unit",
]

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_LAST_MS = (
    253_402_300_799_000  # The last second of the year 9999; later times mean the end of input.
)
_DURATIONS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_KIB = 1024
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_QUANTITY = re.compile(r"(\d[\d_]*)(\.\d+)?\s*([A-Za-z]*)")


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds; a bare number is milliseconds.

    Units are in lower case: ``1M`` is an error, because it could mean a month.

    Raises:
        ValueError: no number with one of the units ms, s, m, h, d; or not a whole number of
            milliseconds.

    Example:
        >>> [parse_duration_ms(text) for text in ("250", "500ms", "1.5s", "5m")]
        [250, 500, 1500, 300000]
    """
    return _parse(text, _DURATIONS)


def parse_size_bytes(text: str) -> int:
    """Return a size in bytes; KB is 1000, KiB is 1024.

    Raises:
        ValueError: no number with one of the units B, KB … TB, KiB … TiB; or not a whole number of
            bytes.

    Example:
        >>> [parse_size_bytes(text) for text in ("512", "64KiB", "1.5 MB")]
        [512, 65536, 1500000]
    """
    return _parse(text.lower(), _SIZES)


def _parse(text: str, units: dict[str, int]) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[3] not in units:
        raise ValueError(
            f"expected a number with one of the units {', '.join(filter(None, units))}, got "
            f"{text!r}"
        )
    whole, fraction, factor = match[1], match[2] or ".0", units[match[3]]
    digits = fraction[1:]
    numerator = int(digits) * factor
    scale = int("1" + "0" * len(digits))
    if numerator % scale:
        raise ValueError(f"{text!r} is not a whole number of the smallest unit")
    return int(whole) * factor + numerator // scale


def amount(count: int, noun: str) -> str:
    """Return a number with its noun in the correct form.

    Example:
        >>> amount(1, "record"), amount(1200, "record")
        ('1 record', '1,200 records')
    """
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def count_text(count: float) -> str:
    """Return a number with separators, without a fraction from 10 on.

    Example:
        >>> count_text(1234567), count_text(2.5)
        ('1,234,567', '2.5')
    """
    return f"{count:,.1f}" if count < 10 and count != int(count) else f"{count:,.0f}"


def byte_text(size: float) -> str:
    """Return a size in a unit that fits, with three digits.

    Example:
        >>> byte_text(512), byte_text(3 << 20), byte_text(1.25 * (1 << 30))
        ('512 B', '3 MiB', '1.25 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < _KIB:
            return f"{three_digits(size)} {unit}"
        size /= _KIB
    return f"{three_digits(size)} TiB"


def share_text(share: float) -> str:
    """Return a share of one in percent.

    Example:
        >>> share_text(0.714), share_text(0.004)
        ('71 %', '0.4 %')
    """
    percent = share * 100
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def short_text(value: float) -> str:
    """Return a number with three digits, and a letter from 1,000 on.

    Example:
        >>> [short_text(value) for value in (0.0, 0.25, 7.24, 312.4, 48_112)]
        ['0', '0.25', '7.24', '312', '48.1 k']
    """
    for limit, letter in _STEPS:
        if round(abs(value)) >= limit:
            return f"{three_digits(value / limit)} {letter}"
    return three_digits(value)


def three_digits(value: float) -> str:
    """Return a number below 1,000 with three digits, without zeros at the end.

    Example:
        >>> [three_digits(value) for value in (7, 7.256, 72.56, 725.6)]
        ['7', '7.26', '72.6', '726']
    """
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_text(duration_ms: float) -> str:
    """Return a duration in the two largest units that fit.

    Example:
        >>> [duration_text(ms) for ms in (850, 4_200, 65_000, 1_800_000, 3_700_000, 2_592_000_000)]
        ['850 ms', '4.2 s', '1 min 5 s', '30 min', '1 h 1 min', '30 d']
    """
    if duration_ms < _SECOND_MS:
        return f"{duration_ms:.0f} ms"
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms / _SECOND_MS:.1f} s"
    if duration_ms < _HOUR_MS:
        return _two_units(duration_ms, (_MINUTE_MS, "min"), (_SECOND_MS, "s"))
    if duration_ms < _DAY_MS:
        return _two_units(duration_ms, (_HOUR_MS, "h"), (_MINUTE_MS, "min"))
    return _two_units(duration_ms, (_DAY_MS, "d"), (_HOUR_MS, "h"))


def moment_text(time_ms: int) -> str:
    """Return a moment of event time or processing time.

    Example:
        >>> moment_text(1_000), moment_text(2**63 - 1), moment_text(-5)
        ('1970-01-01T00:00:01Z', 'at the end', '-5 ms')
    """
    if not 0 <= time_ms <= _LAST_MS:
        return "at the end" if time_ms > 0 else f"{time_ms} ms"
    # Slow to import, and needed with times only.
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(time_ms / 1_000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def _two_units(duration_ms: float, large: tuple[int, str], small: tuple[int, str]) -> str:
    (large_ms, large_name), (small_ms, small_name) = large, small
    count, rest = divmod(int(duration_ms), large_ms)
    text = f"{count} {large_name}"
    return f"{text} {rest // small_ms} {small_name}" if rest >= small_ms else text


def with_unit(key: str, text: str) -> str:
    """Return the text of a duration with its unit.

    A bare number is milliseconds if the name of the key has ``ms``, else seconds.

    Example:
        >>> with_unit("roll_ms", "250"), with_unit("max_age", "250"), with_unit("max_age", "5m")
        ('250', '250s', '5m')
    """
    is_bare = text[-1:].isdigit() and "ms" not in key.split("_")
    return f"{text}s" if is_bare else text
