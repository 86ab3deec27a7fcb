"""Durations and moments as people read them, for errors and for the command line."""

from __future__ import annotations

__all__ = ["duration_text", "moment_text"]

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_LAST_MS = (
    253_402_300_799_000  # The last second of the year 9999; later times mean the end of input.
)


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
