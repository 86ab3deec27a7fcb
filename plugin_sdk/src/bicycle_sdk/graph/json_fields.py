"""Strict reading of JSON objects: each field has a type, others are errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from bicycle_sdk.errors import GraphFormatError

__all__ = [
    "GRAPH_SDK_VERSION",
    "REQUIRED",
    "Fields",
    "compact_json",
    "json_type",
    "read_word",
    "unreadable",
]

_E = TypeVar("_E", bound=Enum)

# The version of this distribution, for error messages.
GRAPH_SDK_VERSION = "0.1.0"

REQUIRED = object()


class Fields:
    """A reader of the fields of one JSON object; unread fields are finally an error."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise unreadable(f"{where} is {json_type(data)}, expected an object")
        self.data = dict(data)
        self.where = where

    def take(self, name: str, expected: type, *, default: object = REQUIRED) -> Any:
        """Return a field of the expected type; null represents an absent optional field."""
        value = self.data.pop(name, None)
        if value is None:
            if default is REQUIRED:
                raise unreadable(f"{self.where} has no field {name!r}")
            return default
        if expected is float and type(value) is int:
            return float(value)
        # JSON true is an int in Python, but not a number in a graph.
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            found = json_type(value)
            raise unreadable(f"{self.where}: {name!r} is {found}, expected {_JSON_TYPES[expected]}")
        return value

    def finish(self) -> None:
        """Check that every field was taken."""
        if self.data:
            names = ", ".join(repr(name) for name in sorted(self.data))
            raise unreadable(f"{self.where} has the unknown field {names}")


_JSON_TYPES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def json_type(value: object) -> str:
    """Return the JSON name of a value's type."""
    return _JSON_TYPES.get(type(value), type(value).__name__)


def read_word(words: type[_E], word: object, where: str) -> _E:
    """Return the member of a closed list whose value is ``word``."""
    for member in words:
        if member.value == word:
            return member
    known = ", ".join(str(member.value) for member in words)
    raise unreadable(f"{where}: unknown value {word!r}; known are {known}")


def unreadable(detail: str) -> GraphFormatError:
    """Return the error for JSON that is not a job graph."""
    return GraphFormatError(detail=detail, sdk_version=GRAPH_SDK_VERSION)


def compact_json(data: object) -> str:
    """Return the canonical text of data: no spaces, sorted names."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True)
