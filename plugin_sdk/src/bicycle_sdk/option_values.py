"""The values of options by their types: as text, as JSON, and in Python calls.

The first arm of a union is the stored type; further arms are accepted in calls only. A class with
``from_option`` and ``to_json`` can be the type of an option: it converts its own values. The names
``option_type`` and ``option_form`` of such a class are the type in texts for people and for checks;
``hides_values`` is False if values are no secrets.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections import abc
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, Union

from bicycle_sdk.quantities import parse_duration_ms, parse_size_bytes

__all__ = [
    "OptionValueError",
    "choices_of",
    "convert",
    "decimal_digits",
    "fits",
    "hides_values",
    "is_columns",
    "split_none",
    "stored",
    "type_name",
]

_COLUMN_TYPES = ("bool", "int", "float", "str", "bytes", "datetime", "date", "time", "Decimal")
_COLUMN_MODULES = ("builtins", "datetime", "decimal")
_DECIMAL = re.compile(r"decimal(?:\(([1-9]\d?), ?(\d\d?)\))?")
_DIGITS_MAX, _SCALE = 38, 9  # Of a decimal without numbers.
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_LISTS = (tuple, abc.Sequence)
_MAPS = (dict, abc.Mapping)
_PAIR = 2
_TYPE_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false"}


class OptionValueError(ValueError):
    """A value that an option does not take, with the problem and a hint for the user.

    ``item`` is the name of the wrong item of a map, if one is wrong.
    """

    def __init__(self, problem: str, hint: str, item: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.item = item


def split_none(hint: Any) -> tuple[Any, bool]:
    """Return the stored type of a hint, and whether None is allowed.

    Raises:
        TypeError: the hint has several stored types.
    """
    if not _is_union(hint):
        return hint, False
    arms = typing.get_args(hint)
    first, *others = (arm for arm in arms if arm is not types.NoneType)
    if any(arm in (bool, int, float, str) for arm in others):
        raise TypeError(f"an option has one stored type, not {hint}")
    return first, types.NoneType in arms


def choices_of(hint: Any) -> tuple[Any, ...]:
    """Return the values of a ``Literal`` or an ``Enum``; empty for other types."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return tuple(member.value for member in hint)
    return ()


def is_columns(hint: Any) -> bool:
    """Return whether values are the columns of a table with their types."""
    is_map = typing.get_origin(hint) in _MAPS
    return is_map and _is_union(_item(hint)) and type in typing.get_args(_item(hint))


def hides_values(hint: Any) -> bool:
    """Return whether a wrong value must not be shown, since it may be a secret."""
    item = _item(hint) if typing.get_origin(hint) in _MAPS else hint
    arms = [arm for arm in (item, *typing.get_args(item)) if hasattr(arm, "from_option")]
    return any(getattr(arm, "hides_values", True) for arm in arms)


def type_name(hint: Any) -> str:
    """Return the name of a type in docs and errors."""
    if is_columns(hint):
        return "map of columns to types"
    if typing.get_origin(hint) in _LISTS:
        return f"list of {type_name(_item(hint))}"
    if typing.get_origin(hint) in _MAPS:
        return f"map of names to {type_name(_item(hint))}"
    if _is_union(hint):
        return " or ".join(type_name(arm) for arm in typing.get_args(hint))
    word = "word" if choices_of(hint) else str(getattr(hint, "__name__", hint))
    own = getattr(hint, "option_type", "path" if _is_path(hint) else word)
    return _TYPE_NAMES.get(hint, own)


def stored(hint: Any, value: Any) -> Any:
    """Return a value as JSON: as a graph stores it."""
    if is_columns(hint):  # The names of a JSON object have no order in a graph.
        return [[name, word] for name, word in value.items()]
    return _json(value)


def _json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return os.fspath(value)
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _json(item) for name, item in value.items()}
    return value


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


def _item(hint: Any) -> Any:
    """Return the type of the items of a list or a map."""
    return typing.get_args(hint)[1 if typing.get_origin(hint) in _MAPS else 0]


def _is_path(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, PurePath)


def convert(hint: Any, unit: str, value: Any, *, is_text: bool) -> Any:
    """Return a value as its type.

    Args:
        hint: The type.
        unit: ``ms``, ``bytes``, or an empty text.
        value: The value.
        is_text: Whether texts are parsed, as they come from outside Python.

    Raises:
        TypeError: it cannot be converted; or
        ValueError: likewise; an ``OptionValueError`` has a hint.
    """
    if is_columns(hint):
        return _columns(value)
    if typing.get_origin(hint) in (*_LISTS, *_MAPS):
        return _items(hint, unit, value, is_text=is_text)
    if _is_union(hint):
        arms = typing.get_args(hint)
        own = [arm for arm in arms if hasattr(arm, "from_option") and not isinstance(value, str)]
        arm = [*own, *arms][0]
        return convert(arm, unit, value, is_text=is_text)
    if hasattr(hint, "from_option"):
        return hint.from_option(value, is_text=is_text)
    return _plain(hint, unit, value, is_text=is_text)


def _plain(hint: Any, unit: str, value: Any, *, is_text: bool) -> Any:
    """Return a value as a number, text, path, word or item of an enumeration."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value if isinstance(value, hint) else hint(value)
    if _is_path(hint) and isinstance(value, str):
        return hint(value)
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_text and isinstance(value, str) and typing.get_origin(hint) is not Literal:
        return _parse_text(hint, unit, value.strip() if hint is not str else value)
    return float(value) if hint is float and type(value) is int else value


def _items(hint: Any, unit: str, value: Any, *, is_text: bool) -> Any:
    """Return a list or a map; as a text its items are separated by commas."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    inner = _item(hint)
    if typing.get_origin(hint) in _LISTS:
        return tuple(convert(inner, unit, each, is_text=is_text) for each in items if each != "")
    pairs = map(_pair, items) if isinstance(value, str) else dict(value).items()
    return {str(name): convert(inner, unit, each, is_text=is_text) for name, each in pairs}


def _pair(text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise ValueError(text)
    return name.strip(), value


def _columns(value: Any) -> dict[str, str]:
    """Return the word for the type of each column, in their order."""
    pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
    if isinstance(value, str) or any(isinstance(p, str) or len(p) != _PAIR for p in pairs):
        raise ValueError("expected columns with their types")
    pairs = value.items() if isinstance(value, Mapping) else value
    words = {str(name): _column_word(str(name), found) for name, found in pairs}
    if not words:
        problem, hint = "columns is empty", "name at least one column, or remove columns"
        raise OptionValueError(problem, hint)
    return words


def decimal_digits(word: str) -> tuple[int, int] | None:
    """Return digits and scale of a decimal type, or None for another type.

    Example:
        >>> [decimal_digits(word) for word in ("decimal(12,2)", "decimal", "decimal(2,3)", "int")]
        [(12, 2), (38, 9), None, None]
    """
    match = _DECIMAL.fullmatch(word)
    if match is None:
        return None
    digits, scale = int(match[1] or _DIGITS_MAX), int(match[2] or _SCALE)
    return (digits, scale) if scale <= digits <= _DIGITS_MAX else None


def _column_word(name: str, found: object) -> str:
    if isinstance(found, str):
        return found
    word = getattr(found, "__name__", repr(found))
    is_known = isinstance(found, type) and found.__module__ in _COLUMN_MODULES
    if not is_known or word not in _COLUMN_TYPES:
        hint = (
            f"use one of {', '.join(_COLUMN_TYPES)}, or a type name such as 'decimal(12,2)' or "
            "'json'"
        )
        raise OptionValueError(f"column {name!r} has the type {word}", hint)
    return word.lower()


def _parse_text(hint: Any, unit: str, text: str) -> Any:
    if hint is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ValueError(text)
    if hint is int and unit == "ms":
        return parse_duration_ms(text)
    if hint is int and unit == "bytes":
        return parse_size_bytes(text)
    return hint(text) if hint in (int, float) else text


def fits(hint: Any, value: Any) -> bool:
    """Return whether a value has a type; bounds are another question."""
    if typing.get_origin(hint) in _LISTS:
        return isinstance(value, tuple) and all(fits(_item(hint), each) for each in value)
    if typing.get_origin(hint) in _MAPS:
        return isinstance(value, dict) and all(fits(_item(hint), each) for each in value.values())
    if _is_union(hint):
        return any(fits(arm, value) for arm in typing.get_args(hint))
    return not isinstance(hint, type) or _is_instance(value, hint)


def _is_instance(value: object, hint: type[Any]) -> bool:
    """Return whether a value fits a type: an int is a float, ``True`` is neither."""
    if isinstance(value, bool):
        return hint in (bool, object)
    return isinstance(value, (int, float) if hint is float else hint)
