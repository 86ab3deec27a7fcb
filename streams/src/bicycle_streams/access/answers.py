"""HTTP responses for errors: the status code, and the common JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bicycle_sdk.errors import BicycleError

# Number of an error -> status code.
_ANSWERS = {
    2320: 401,
    2321: 401,
    2322: 403,
    2323: 404,
    2326: 429,
    2327: 403,
    2330: 429,
    2331: 503,
    2517: 503,
    2522: 403,
}
_LOCATIONS = ("location", "operator", "made")


def answer_code(error: BicycleError, more: Mapping[int, int] | None = None) -> int:
    """Return the status code of the response to an error; 422 by default.

    Args:
        error: The error.
        more: Further status codes by the number of the error.

    Example:
        >>> from bicycle_streams.access.errors import TOKEN_REFUSED
        >>> answer_code(TOKEN_REFUSED())
        401
    """
    digits = error.code.removeprefix("BIC-")
    number = int(digits) if digits.isdigit() else 0
    return {**_ANSWERS, **(more or {})}.get(number, 422)


def plain_answer(error: BicycleError) -> dict[str, Any]:
    """Return the common form of all errors: code, message, fix and location."""
    facts = error.facts
    location = next((str(facts[name]) for name in _LOCATIONS if facts.get(name)), None)
    return {"code": error.code, "message": error.summary, "fix": error.remedy, "location": location}
