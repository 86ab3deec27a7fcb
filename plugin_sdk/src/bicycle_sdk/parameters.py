"""Plugin parameters: a dataclass of the plugin, filled from texts or plain values.

Types, defaults and docs come from the dataclass; the command line, REST and configuration files all
use this module. Unknown, missing and ill-typed parameters are errors that name the closest known
ones.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from bicycle_sdk.errors import ParameterError, PluginDefinitionError
from bicycle_sdk.record_types import type_name
from bicycle_sdk.secrets import Secret

__all__ = ["ParameterInfo", "fill", "schema_of"]

T = TypeVar("T")

_BOOLS = {word: True for word in ("true", "yes", "on", "1")} | dict.fromkeys(
    ("false", "no", "off", "0"), False
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION_WORDS = "a duration such as 30s, 5m, 1h30m, 250ms"
_SUPPORTED = (
    "str, int, float, bool, Path, timedelta, Secret, an enum, a Literal, a list of these, or any "
    "of these with | None"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterInfo:
    """A parameter; ``default`` is None for a required one too: see ``is_required``.

    ``expected`` describes the accepted values in plain words, ``default_text`` the default.
    """

    name: str
    type: str
    default: Any
    is_required: bool
    doc: str
    expected: str
    default_text: str


def schema_of(parameters: type) -> list[ParameterInfo]:
    """Return the parameters that a dataclass declares, in order.

    The doc of a parameter is its line in the section ``Args:`` or ``Attributes:`` of the class
    docstring.

    Raises:
        PluginDefinitionError: not a dataclass, or a parameter has a type that cannot be parsed from
            text.
    """
    hints = _hints(parameters)
    docs = _docs(parameters.__doc__ or "")
    for name, hint in hints.items():
        if not _is_readable(hint):
            problem = f"parameter {name!r} has the unsupported type {type_name(hint) or hint}"
            raise _undefined_error(parameters, problem, hint=f"use {_SUPPORTED}")
    return [
        ParameterInfo(
            name=item.name,
            type=type_name(hints[item.name]) or "str",
            default=_default(item),
            is_required=_is_required(item),
            doc=docs.get(item.name, ""),
            expected=_describe_type(hints[item.name]),
            default_text=_text_of(_default(item)),
        )
        for item in _fields(parameters)
    ]


def fill(parameters: type[T], values: Mapping[str, Any], *, plugin: str) -> T:
    """Return the dataclass filled from texts or plain values.

    Raises:
        ParameterError: a parameter is unknown, missing, or has the wrong type.
        PluginDefinitionError: the dataclass cannot be filled from texts.
    """
    known = {info.name: info for info in schema_of(parameters)}
    hints = _hints(parameters)
    for name in values:
        if name not in known:
            raise _unknown(name, list(known), plugin)
    for name, info in known.items():
        if info.is_required and name not in values:
            raise ParameterError(name=name, plugin=plugin, problem="missing", hint=_hint_for(info))
    filled = {}
    for name, value in values.items():
        try:
            filled[name] = _read(hints[name], value)
        except ValueError as error:
            hint = _hint_for(known[name])
            raise ParameterError(name=name, plugin=plugin, problem=str(error), hint=hint) from error
    try:
        return parameters(**filled)
    except (TypeError, ValueError) as error:  # The dataclass checks its values itself.
        raise ParameterError(
            name="*", plugin=plugin, problem=str(error), hint="see the documentation of the plugin"
        ) from error


def _unknown(name: str, known: list[str], plugin: str) -> ParameterError:
    # Slow library on the start path: it is needed for a misspelt name only.
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    names = ", ".join(known) or "none"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ParameterError(
        name=name, plugin=plugin, problem="unknown", hint=f"{hint}known parameters: {names}"
    )


def _fields(parameters: type) -> list[Field[Any]]:
    return [item for item in fields(parameters) if item.init]


def _hints(parameters: type) -> dict[str, Any]:
    if not is_dataclass(parameters):
        raise _undefined_error(parameters, "its second parameter is not annotated with a dataclass")
    try:
        hints = typing.get_type_hints(parameters)
    except NameError as error:
        hint = "import it when the module is loaded, not only for type checkers"
        raise _undefined_error(parameters, f"an annotation is unknown: {error}", hint) from error
    return {item.name: hints[item.name] for item in _fields(parameters)}


def _undefined_error(
    parameters: object, problem: str, hint: str = "annotate the second parameter with a dataclass"
) -> PluginDefinitionError:
    return PluginDefinitionError(target=type_name(parameters) or "None", problem=problem, hint=hint)


def _hint_for(info: ParameterInfo) -> str:
    """Return the usage of a parameter, with its author's description."""
    return f"--set {info.name}=…: {info.expected}. {info.doc}".rstrip()


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return None if item.default is MISSING else item.default


def _docs(docstring: str) -> dict[str, str]:
    """Return the ``Args:`` or ``Attributes:`` docs of a Google docstring by name."""
    found: dict[str, str] = {}
    is_inside, name = False, ""
    for line in docstring.splitlines():
        text = line.strip()
        if text in ("Args:", "Attributes:"):
            is_inside = True
        elif is_inside and not text:
            is_inside = False
        elif is_inside:
            match = re.match(r"(\w+)(?: \([^)]*\))?: +(.*)", text)
            if match:
                name = match[1]
                found[name] = match[2]
            elif name:
                found[name] += " " + text
    return found


# --- one value -------------------------------------------------------------------------------


def _is_readable(hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not types.NoneType]
        return len(inner) == 1 and len(arguments) == 2 and _is_readable(inner[0])
    if origin is list:
        return _is_readable(arguments[0])
    if origin is typing.Literal:
        return all(isinstance(value, (str, int)) for value in arguments)
    return hint in _READERS or (isinstance(hint, type) and issubclass(hint, Enum))


def _describe_type(hint: Any) -> str:
    """Return a description of accepted values for readers without Python knowledge."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return f"{_describe_type(inner)}, or empty"
    if origin is list:
        return f"{_describe_type(arguments[0])}, or several separated by commas"
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if hint in _READERS:
        return _READERS[hint][1]
    return "one of " + ", ".join(member.name for member in hint)


def _text_of(value: Any) -> str:
    """Return a value as its parameter text."""
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Secret):
        return f"{value.kind}:{value.location}"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}".rstrip("0").rstrip(".") + "s"
    return "" if value is None else str(value)


def _read(hint: Any, value: Any) -> Any:
    """Return a value of the hinted type; raise ValueError with the problem."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return None if value is None or value == "" else _read(inner, value)
    if origin is list:
        items = value.split(",") if isinstance(value, str) and value else value or []
        if not isinstance(items, (list, tuple)):
            raise _wrong(value, "a list, or a text separated by commas")
        return [
            _read(arguments[0], item.strip() if isinstance(item, str) else item) for item in items
        ]
    if origin is typing.Literal:
        return _choose({str(word): word for word in arguments}, value, _describe_type(hint))
    if hint in _READERS:
        return _READERS[hint][0](value)
    if isinstance(value, hint):
        return value
    by_word = {member.name: member for member in hint}
    by_value = {str(member.value): member for member in hint}
    return _choose(by_value | by_word, value, _describe_type(hint))


def _choose(words: Mapping[str, Any], value: Any, expected: str) -> Any:
    if isinstance(value, (str, int)) and str(value) in words:
        return words[str(value)]
    raise _wrong(value, expected)


def _str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(value, "a text")


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d[\d_]*", value):
        return int(value)
    raise _wrong(value, "a whole number")


def _float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError as error:
            raise _wrong(value, "a number") from error
    raise _wrong(value, "a number")


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLS:
        return _BOOLS[value.lower()]
    raise _wrong(value, "true or false")


def _path(value: Any) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise _wrong(value, "a path")


def _timedelta(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str) and re.fullmatch(rf"(?:{_DURATION.pattern})+", value):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(value))
        try:
            return timedelta(seconds=seconds)
        except OverflowError as error:
            raise _wrong(value, "a shorter duration") from error
    raise _wrong(value, _DURATION_WORDS)


def _secret(value: Any) -> Secret:
    if isinstance(value, Secret):
        return value
    return Secret.parse(value if isinstance(value, str) else "")


def _wrong(value: Any, expected: str) -> ValueError:
    return ValueError(f"found {value!r}, expected {expected}")


# Type -> its reader, and a description of the accepted values.
_READERS: Mapping[Any, tuple[Callable[[Any], Any], str]] = {
    str: (_str, "a text"),
    int: (_int, "a whole number"),
    float: (_float, "a number"),
    bool: (_bool, "true or false"),
    Path: (_path, "a path"),
    timedelta: (_timedelta, _DURATION_WORDS),
    Secret: (_secret, "env:NAME, file:PATH, or prompt: for a prompt; never the secret itself"),
}
