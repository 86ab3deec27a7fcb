"""Values as JSON that people and other programs can read. There is no way back.

What JSON lacks is marked by a key that begins with ``$``: ``{"$bytes": "00ff"}``, ``{"$map":
[[key, value], …]}`` for a dict whose keys are not all text, ``{"$opaque": type, "bytes": size,
"crc32": digest}`` for what was not loaded. Tuples and sets become lists, dates and decimals become
text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from zlib import crc32

import msgspec

from bicycle_runtime.records.opaque import Opaque

_DEPTH_MAX = 64
_SCALARS = frozenset({str, int, float, bool, type(None)})
Show = Callable[[Opaque], Any]


def readable(value: Any, show: Show | None = None, *, depth: int = 0) -> Any:
    """Return a value as JSON data.

    Args:
        value: Any value; objects are shown by their fields.
        show: Returns JSON data for what was not loaded; None shows its type and size.
        depth: How deep the value lies in others; what lies too deep is shown by its type.

    Example:
        >>> readable({"at": (1, b"a")}), readable({1: "x"})
        ({'at': [1, {'$bytes': '61'}]}, {'$map': [[1, 'x']]})
    """
    if type(value) is Opaque:
        return _describe(value) if show is None else show(value)
    if type(value) in _SCALARS:
        return _scalar(value)
    if depth > _DEPTH_MAX:
        return {"$opaque": type(value).__qualname__}

    def inner(part: Any) -> Any:
        return readable(part, show, depth=depth + 1)

    if isinstance(value, dict | list | tuple | set | frozenset):
        return _container(value, inner)
    return _object(value, inner)


def _scalar(value: Any) -> Any:
    if type(value) is str:
        return _text(value)
    return str(value) if type(value) is float and not math.isfinite(value) else value


def _container(value: Any, inner: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        if all(type(key) is str for key in value):
            return {_text(key): inner(part) for key, part in value.items()}
        return {"$map": [[inner(key), inner(part)] for key, part in value.items()]}
    if hasattr(value, "_fields"):  # a named tuple
        return {name: inner(part) for name, part in zip(value._fields, value, strict=True)}
    parts = [inner(part) for part in value]
    return sorted(parts, key=repr) if isinstance(value, set | frozenset) else parts


def _object(value: Any, inner: Callable[[Any], Any]) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"$bytes": value.hex()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.name
    fields = {} if isinstance(value, type) else _fields_of(value)
    return {name: inner(part) for name, part in fields.items()} if fields else _text(str(value))


def _fields_of(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    elif dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
    else:
        names = list(getattr(value, "__dict__", ()))
    return {name: getattr(value, name, None) for name in names}


def _text(value: str) -> str:
    """Return a text that is valid Unicode; lone surrogates are escaped."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _describe(value: Opaque) -> dict[str, Any]:
    digest = f"{crc32(value.data):08x}"  # distinguishes two values
    return {"$opaque": value.type_name, "bytes": len(value.data), "crc32": digest}
