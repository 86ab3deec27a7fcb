"""Times as records have them: RFC 3339 text with a zone, or milliseconds since 1970."""

from __future__ import annotations

from datetime import datetime

from bicycle_sdk.time import as_ms

__all__ = ["time_of"]


def time_of(value: object) -> int:
    """Return the event time that a value of a record stands for, in ms since 1970.

    Args:
        value: A number or a text of it, RFC 3339 text, or a datetime with time zone. White space
            around a text does not count.

    Raises:
        ValueError: it is something else, or out of bounds.

    Example:
        >>> time_of("1970-01-01T00:00:02+00:00"), time_of(" 2000 "), time_of(2_000)
        (2000, 2000, 2000)
    """
    if value is None:
        raise ValueError("there is no time")
    if not isinstance(value, str):
        return as_ms(value)
    text = value.strip()
    if text.removeprefix("-").isdecimal():
        return as_ms(int(text))
    try:
        return as_ms(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(
            f"{text[:60]!r} is neither an RFC 3339 time with a zone nor ms since 1970"
        ) from None
