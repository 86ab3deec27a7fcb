"""Quantities as people write them: durations, sizes, and numbers with their nouns.

Everything inside the runtime is a whole number of milliseconds or bytes; these functions are for
the border.
"""

from __future__ import annotations

import re

__all__ = ["amount", "byte_text", "parse_duration_ms", "parse_size_bytes"]

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
_QUANTITY = re.compile(r"(\d[\d_]*)(\.\d+)?\s*([A-Za-z]*)")


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds; a bare number is milliseconds.

    Units are in lower case: 1M may mean a month.

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


def byte_text(size: float) -> str:
    """Return a size in a unit that fits.

    Example:
        >>> byte_text(512), byte_text(3 << 20)
        ('512 B', '3.0 MiB')
    """
    if size < _KIB:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= _KIB
        if size < _KIB:
            return f"{size:.1f} {unit}"
    return f"{size / _KIB:.1f} TiB"
