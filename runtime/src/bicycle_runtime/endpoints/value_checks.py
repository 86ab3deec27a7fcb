"""Checks of values against types of keys, and conversion to values of options."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from bicycle_runtime.endpoints.positions import KeyPath
from bicycle_runtime.endpoints.values import list_items, option_duration_ms, size_bytes

WRONG = object()


def option_amount(key: str, value: Any, kind: str) -> int:
    """Return the duration or size of an option as a whole number of ms or bytes.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{key} is neither text nor number")
    if "_" in str(value):
        raise ValueError(f"{key} has an underscore")
    return size_bytes(value) if kind == "size" else option_duration_ms(key, value)


def without_problems(data: Any, info: Any, path: KeyPath, touched: Container[KeyPath]) -> Any:
    """Return data without wrong or empty keys, or ``WRONG`` if no data remain.

    Args:
        data: The data at the path.
        info: The expected type.
        path: The path.
        touched: Paths of errors, and all above them.
    """
    members = _members(info)
    plain = next((each for each in members if isinstance(each, inspect.StructType)), None)
    items = next((each for each in members if isinstance(each, inspect.ListType)), None)
    if items is not None and isinstance(data, list) and path not in touched:
        kind = items.item_type
        return [without_problems(item, kind, (*path, at), touched) for at, item in enumerate(data)]
    if plain is None or not isinstance(data, dict):
        return WRONG if path in touched else _as_option(data, info, path)
    found = {}
    aliases = aliases_of(plain)
    keys = {aliases.get(key, key): key for key in reversed(data)}
    for each in plain.fields:
        name = each.encode_name
        key = keys.get(name, name)
        kept = without_problems(data.get(key), each.type, (*path, key), touched)
        if kept is not WRONG and kept is not None:
            found[name] = kept
        elif each.required:
            return WRONG
    return found


def names_of(info: Any, name: str) -> tuple[str, str]:
    """Return the first alias of a key, or its name, and a text with the other names."""
    others = [alias for alias, key in aliases_of(info).items() if key == name and "." not in alias]
    first, *others = [*others, name]
    return first, f" (also named {', '.join(others)})" if others else ""


def aliases_of(info: Any) -> Mapping[str, str]:
    """Return the aliases of a struct's keys, with the keys."""
    found: Mapping[str, str] = getattr(info.cls, "aliases", {})
    return found


def _as_option(data: Any, info: Any, path: KeyPath) -> Any:
    """Return a valid value as its option takes it: times in ms, sizes in bytes, lists."""
    if isinstance(info, inspect.Metadata):
        extra = info.extra or {}
        if extra.get("is_option") and data is not None:
            return option_amount(str(path[-1]), data, extra["kind"])
        if extra.get("kind") == "list" and isinstance(data, str):
            return list_items(data)
        return _as_option(data, info.type, path)
    if isinstance(info, inspect.UnionType):
        for each in info.types:
            kept = _as_option(data, each, path)
            if kept is not data:
                return kept
    return data


def _members(info: Any) -> list[Any]:
    """Return the types that a value may be of."""
    plain = plain_type(info)
    return list(map(plain_type, plain.types)) if isinstance(plain, inspect.UnionType) else [plain]


def plain_type(info: Any) -> Any:
    """Return a type without its description."""
    return info.type if isinstance(info, inspect.Metadata) else info


def fits(data: Any, info: Any) -> bool:
    """Return whether a value is of a plain type; numbers may be written as text."""
    if isinstance(info, inspect.UnionType):
        return any(fits(data, plain_type(each)) for each in info.types)
    if isinstance(info, inspect.BoolType):
        return isinstance(data, bool) or data in ("true", "false")
    if isinstance(info, (inspect.IntType, inspect.FloatType)):
        return number_of(data, info) is not None
    if isinstance(info, (inspect.StrType, inspect.LiteralType)):
        return isinstance(data, str)
    return isinstance(info, inspect.NoneType) and data is None


def number_of(data: Any, info: Any) -> Any:
    """Return a number, which may be written as text; None for anything else."""
    kind: type[int] | type[float] = int if isinstance(info, inspect.IntType) else float
    if isinstance(data, bool) or not isinstance(data, (str, int, kind)):
        return None
    try:
        found = kind(data)
        msgspec.convert(data, kind, strict=False)  # Takes fewer texts: no 1_000.
        return found if math.isfinite(found) else None
    except (ValueError, OverflowError):
        return None
