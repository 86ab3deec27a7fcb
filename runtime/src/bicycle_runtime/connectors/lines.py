"""Records as lines of text: strings as they are, everything else as JSON.

Used by every sink that writes for people or for line-based tools. What has no such form is said
with an exception that the sink's ``on_error`` settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bicycle_runtime.operators.columnar.records import TupleRecords

__all__ = ["UnencodableError", "json_lines", "text_lines"]

_encoder = msgspec.json.Encoder()


class UnencodableError(Exception):
    """A record has no form in the sink's format; the text says why and what to do."""

    def __init__(self, format_name: str, value: object, reason: object) -> None:
        super().__init__(
            f"a record of type {type(value).__qualname__} cannot be written as {format_name}: "
            f"{reason}; map it to a str, number, tuple, list, dict or dataclass before the sink"
        )


def json_lines(values: Sequence[Any]) -> bytes:
    """Return one JSON document per line, each ended by a newline.

    Raises:
        UnencodableError: a record holds something that JSON does not have.
    """
    # hot path: encode_lines writes 7 M small dataclasses/s, a join over encode() 2 M/s.
    try:
        return _encoder.encode_lines(values.rows() if isinstance(values, TupleRecords) else values)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnencodableError("JSON", _culprit(values), error) from error


def text_lines(values: list[Any]) -> bytes:
    """Return one line per record, each ended by a newline; strings are not quoted.

    Raises:
        UnencodableError: a record is neither a string nor JSON.
    """
    # hot path: one join and one encode per batch, 50 M strings/s; one by one 5 M/s.
    try:
        return ("\n".join(values) + "\n").encode() if values else b""
    except TypeError:
        return b"\n".join(map(_one, values)) + b"\n"
    except UnicodeEncodeError as error:
        raise UnencodableError("text", _culprit(values), error) from error


def _one(value: Any) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnencodableError("text", value, error) from error


def _culprit(values: Sequence[Any]) -> Any:
    return next((value for value in values if not _is_encodable(value)), values[0])


def _is_encodable(value: Any) -> bool:
    try:
        _encoder.encode(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
