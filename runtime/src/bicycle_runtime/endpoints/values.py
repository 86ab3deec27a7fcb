"""Types of values in a text, and their conversion to the values of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from bicycle_runtime.frames.schemas import VALUE_TYPES
from bicycle_sdk.quantities import parse_duration_ms, parse_size_bytes, with_unit

Duration = Annotated[
    str | int | float,
    Meta(
        description="a time such as 250ms, 10s, 5m, 1h, 2d; a bare number is seconds",
        extra={"kind": "duration"},
    ),
]
Text = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1)]
Scalar = str | int | float | bool
# The text of keys that have no effect here.
NOTHING_NAMED = "Ignored, for compatibility"


def _type_words(*words: str, ending: str = "") -> Any:
    """Return the type of names of types: the words, and ``decimal(12,2)``."""
    accepted = [{"enum": list(words)}, {"pattern": rf"^decimal\([0-9]+, ?[0-9]+\){ending}$"}]
    schema = {"anyOf": accepted}
    return Annotated[str, Meta(extra_json_schema=schema, extra={"kind": "type", "words": words})]


_FIELDS = [found.word for found in VALUE_TYPES if found.in_fields]
# A type with a question mark: the field may be null, or not there.
FieldType = _type_words(*_FIELDS, *(f"{word}?" for word in _FIELDS), ending=r"\??")
ColumnWord = _type_words(*(found.word for found in VALUE_TYPES if found.in_columns))


def describe(text: str) -> Meta:
    """Return the description of a key, for the reference and editors."""
    return Meta(description=text)


def duration_ms(value: str | float) -> int:
    """Return a time in whole ms; a bare number is seconds.

    Raises:
        ValueError: it is no time, or no whole number of ms.

    Example:
        >>> [duration_ms(text) for text in ("250ms", "10s", "5m", "1h", "42", 7, "-5s")]
        [250, 10000, 300000, 3600000, 42000, 7000, -5000]
    """
    text = str(value).strip()
    is_negative = text.startswith("-")
    text = text.removeprefix("-").strip()
    unit = "s" if text[-1:].isdigit() else ""
    ms = parse_duration_ms(text + unit)
    return -ms if is_negative else ms


def option_duration_ms(key: str, value: str | float) -> int:
    """Return the time of an option in whole ms.

    A bare number has the unit in the name of the key; without one it is seconds.

    Raises:
        ValueError: it is no time, or no whole number of ms.

    Example:
        >>> option_duration_ms("roll_ms", 250), option_duration_ms("max_age", 250)
        (250, 250000)
    """
    return parse_duration_ms(with_unit(key, str(value)))


def size_bytes(value: str | float) -> int:
    """Return a size in bytes; a bare number is bytes.

    Raises:
        ValueError: it is no size.
    """
    return parse_size_bytes(str(value))


def column_pairs(columns: Mapping[str, str]) -> list[list[str]]:
    """Return name and type of each column, in their order.

    Example:
        >>> column_pairs({"user": "string", "cents": "int"})
        [['user', 'str'], ['cents', 'int']]
    """
    return [[name, "str" if word == "string" else word] for name, word in columns.items()]


def list_items(value: str | Sequence[Any]) -> list[Any]:
    """Return a list; the items of a text are separated by commas."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return list(value)
