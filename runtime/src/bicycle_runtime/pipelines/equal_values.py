"""The equality of values in pipelines, as that of texts.

Values of one key are equal: ``1``, ``1.0`` and ``true``, but not ``"1"``. Lists and tables are
equal if their parts are.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

_JSON_INT_END = 1 << 63


def equal_text(value: Any) -> str | None:
    """Return a text that is equal for equal values, or None for null."""
    if isinstance(value, (int, float, Decimal)):
        return _number_text(value)
    return None if value is None else equal_json(value)


def equal_json(value: Any) -> str:
    """Return a JSON text that is equal for equal values, also of numbers within them.

    Example:
        >>> equal_json({"b": [1.0, True], "a": "1"})
        '{"a":"1","b":[1,1]}'
    """
    return msgspec.json.encode(_with_equal_numbers(value), order="sorted").decode()


def _with_equal_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_equal_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_with_equal_numbers, value))
    # JSON has integers of 64 bits; a larger number has one text already.
    is_number = isinstance(value, (float, Decimal, bool)) and -_JSON_INT_END < value < _JSON_INT_END
    return int(value) if is_number and value == int(value) else value


def _number_text(number: int | float | Decimal) -> str:
    if isinstance(number, Decimal):
        as_float = float(number)
        if Decimal(as_float) != number:
            return str(number.normalize())
        number = as_float
    return str(int(number)) if isinstance(number, int) or number.is_integer() else repr(number)
