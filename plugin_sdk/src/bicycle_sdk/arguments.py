"""Checks of call arguments: a wrong type is an error at the call, not later.

Type checkers find most of these errors; an unchecked job fails with the same text as any other
impossible call.
"""

from __future__ import annotations

from datetime import timedelta

from bicycle_sdk.errors import StreamDefinitionError

__all__ = ["require_text", "require_timedelta", "require_whole"]


def require_text(call: str, text: object, *, is_empty_fine: bool = False) -> str:
    """Return a text that is not empty.

    Raises:
        StreamDefinitionError: it is not a text, or empty.
    """
    if isinstance(text, str) and (text or is_empty_fine):
        return text
    problem = f"expected a text, got {text!r}" if text != "" else "the text is empty"
    raise StreamDefinitionError(call=call, problem=problem, hint="give a text")


def require_whole(call: str, number: object, *, low: int, high: int) -> int:
    """Return an int within bounds; refuse true and false.

    Raises:
        StreamDefinitionError: it is something else.
    """
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if is_number and isinstance(number, int) and low <= number <= high:
        return number
    raise StreamDefinitionError(
        call=call,
        problem=f"expected a whole number in {low}..{high}, got {number!r}",
        hint="give a value within the bounds",
    )


def require_timedelta(call: str, duration: object) -> timedelta:
    """Return a duration that names its unit.

    Raises:
        StreamDefinitionError: it is a mere number, or something else.
    """
    if isinstance(duration, timedelta):
        return duration
    raise StreamDefinitionError(
        call=call,
        problem=f"expected a timedelta, got {duration!r}: a number has no unit",
        hint="pass a timedelta, e.g. timedelta(seconds=30)",
    )
