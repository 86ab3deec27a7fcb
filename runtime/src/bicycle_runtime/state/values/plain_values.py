"""Stored values as plain data, by their schema: for hooks that migrate values of former classes.

Records become dicts by field names, enums what they stand for; tuples, sets, dates, decimals and
the like are what they were.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from bicycle_runtime.state.values.schema_changes import could_be
from bicycle_runtime.state.values.schemas import Schema

__all__ = ["plain_value"]

_CONVERTED: dict[str, Any] = {
    "float": float,
    "bytearray": bytearray,
    "datetime": dt.datetime,
    "time": dt.time,
    "date": dt.date,
    "timedelta": dt.timedelta,
    "uuid": uuid.UUID,
    "decimal": Decimal,
}
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple_of": tuple,
    "set": set,
    "frozenset": frozenset,
}


def plain_value(  # noqa: PLR0911  # one return for each kind of schema
    schema: Schema, raw: Any, within: tuple[Schema, ...] = ()
) -> Any:
    """Return a value as plain data.

    Args:
        schema: How it was stored.
        raw: What MessagePack holds.
        within: The records that the schema lies in, the innermost last.

    Example:
        >>> point = {"type": "record", "name": "P", "form": "array", "fields": [
        ...     {"name": "x", "type": "int"},
        ...     {"name": "y", "type": {"type": "set", "items": "int"}}]}
        >>> plain_value(point, [1, [2]])
        {'x': 1, 'y': {2}}
    """
    if isinstance(schema, str):
        return msgspec.convert(raw, _CONVERTED[schema]) if schema in _CONVERTED else raw
    match schema["type"]:
        case "record":
            return _record(schema, raw, (*within, schema))
        case "again":
            up = len(within) - schema["up"]
            return plain_value(within[up - 1], raw, within[: up - 1])
        case "union":
            members = [each for each in schema["of"] if could_be(raw, each)]
            return plain_value(members[0], raw, within) if members else raw
        case "tuple":
            pairs = zip(schema["items"], raw, strict=True)
            return tuple(plain_value(each, part, within) for each, part in pairs)
        case "dict":
            keys, values = schema["keys"], schema["values"]
            return {
                _hashable(plain_value(keys, key, within)): plain_value(values, value, within)
                for key, value in raw.items()
            }
        case "enum" | "literal":
            return raw
        case kind:
            items = [plain_value(schema["items"], part, within) for part in raw]
            return _MAKERS[kind](items)


def _record(schema: Schema, raw: Any, within: tuple[Schema, ...]) -> dict[str, Any]:
    fields = schema["fields"]
    if schema["form"] == "array":
        first = int(schema.get("tag") is not None)
        raw = dict(zip((each["name"] for each in fields), raw[first:], strict=False))
    return {
        each["name"]: plain_value(each["type"], raw[each["name"]], within)
        if each["name"] in raw
        else each.get("default")
        for each in fields
        if each["name"] in raw or "default" in each
    }


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
