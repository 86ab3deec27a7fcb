"""Options, declared once: default, bounds, words and doc at the dataclass field.

The check, the parser of texts, the command-line flag and the row in the docs are all derived from
that declaration. The unit is part of a field's name: ``…_ms`` takes ``"30s"`` and ``…_bytes`` takes
``"64MiB"`` as well as plain numbers. Values out of bounds are refused, never clamped. This module
reads no file and no environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from bicycle_sdk.errors import MissingOptionError, OptionError, UnknownOptionError
from bicycle_sdk.quantities import parse_duration_ms, parse_size_bytes

__all__ = [
    "Declaration",
    "OptionInfo",
    "check",
    "declaration",
    "declared_options",
    "describe",
    "from_mapping",
    "option",
]

_METADATA = "bicycle_option"
_T = TypeVar("_T")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration at a field, beside its type and its default.

    ``call`` is the method of a builder that sets the option, where there is one. ``aliases`` are
    earlier names of the option that are still accepted.
    """

    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    call: str = ""
    aliases: tuple[str, ...] = ()


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    call: str = "",
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a dataclass field as an option.

    Args:
        default: Absent for a required option. A mutable default is refused, as ``dataclasses``
            does.
        doc: One sentence for the docs and ``--help``.
        low: Least accepted number.
        high: Greatest accepted number.
        choices: The accepted values; by default the values of a ``Literal`` or ``Enum`` annotation.
        call: The method of a builder that sets it.
        aliases: Earlier names of the option that are still accepted.

    Example:
        >>> @dataclass(frozen=True, slots=True, kw_only=True)
        ... class Retention:
        ...     keep_ms: int = option(60_000, low=1_000, doc="How long finished epochs are kept.")
        >>> declaration(dataclasses.fields(Retention)[0]).low
        1000
    """
    declared = Declaration(doc=doc, low=low, high=high, choices=choices, call=call, aliases=aliases)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_METADATA: declared})
    return dataclasses.field(default=default, metadata={_METADATA: declared})


def declaration(field: dataclasses.Field[Any]) -> Declaration | None:
    """Return the declaration of a field, or None if it is not an option."""
    found: Declaration | None = field.metadata.get(_METADATA)
    return found


def declared_options(cls: type[Any]) -> dict[str, Declaration]:
    """Return the declared options of a dataclass, by name."""
    found = {field.name: declaration(field) for field in dataclasses.fields(cls)}
    return {name: declared for name, declared in found.items() if declared is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionInfo:
    """One option as the docs, the CLI and the REST API show it.

    ``default`` is None for a required option as well: ask ``is_required``. ``choices`` is empty
    when any value of the type will do. ``unit`` is ``"ms"``, ``"bytes"`` or ``""``.
    """

    name: str
    type_name: str
    default: Any
    is_required: bool
    low: float | None
    high: float | None
    choices: tuple[Any, ...]
    unit: str
    doc: str
    aliases: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The command-line flag; a word of Python has a ``_`` behind it as a name only."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def label(self) -> str:
        """The label of a form's field: the first part of the doc."""
        return self.doc.partition(".")[0].partition(";")[0]

    @property
    def default_text(self) -> str:
        """The default in the words of the doc; empty without such words."""
        return self.doc.partition("Default: ")[2].rstrip(".")

    @property
    def expected(self) -> str:
        """The accepted values as text: type, unit, bounds or choices."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        unit = {"ms": " of milliseconds (or '30s', '5m')", "bytes": " of bytes (or '64MiB')"}
        return f"{self.type_name}{unit.get(self.unit, '')}{self._bounds}"

    @property
    def is_list(self) -> bool:
        """True for an option that is a list."""
        return self.type_name.startswith("list of ")

    @property
    def is_map(self) -> bool:
        """True for an option that is a map."""
        return self.type_name.startswith("map of ")

    @property
    def _bounds(self) -> str:
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f", at least {self.low:,}"
        if self.low is None:
            return f", at most {self.high:,}"
        return f" from {self.low:,} to {self.high:,}"


def describe(cls: type[Any]) -> list[OptionInfo]:
    """Return the options of a dataclass in the order of their declaration."""
    declared = [(field, declaration(field)) for field in dataclasses.fields(cls)]
    options = [(field, found) for field, found in declared if found is not None]
    hints = typing.get_type_hints(cls) if options else {}
    return [_info(field, hints[field.name], found) for field, found in options]


def check(options: Any) -> None:
    """Check the values of an options object; called in its ``__post_init__``.

    Raises:
        OptionError: a value has the wrong type, is out of bounds or is none of the choices.
    """
    cls = type(options)
    hints = typing.get_type_hints(cls)
    for info in describe(cls):
        inner, is_optional = _without_none(hints[info.name])
        value = getattr(options, info.name)
        if not (is_optional and value is None) and not _is_accepted(info, inner, value):
            raise _refusal(cls, info, value)


def from_mapping(cls: type[_T], values: Mapping[str, object]) -> _T:
    """Return a checked options object from texts (CLI, files) or JSON values.

    Args:
        cls: A dataclass whose fields are declared with ``option``.
        values: Option name to value. A text is parsed by the type of the field.

    Raises:
        UnknownOptionError: a name is no option.
        MissingOptionError: a required option is absent.
        OptionError: a value cannot be read, or is not accepted.
    """
    infos = {info.name: info for info in describe(cls)}
    newer = {alias: info.name for info in infos.values() for alias in info.aliases}
    values = {newer.get(name, name): value for name, value in values.items()}
    _refuse_unknown(cls, infos, values)
    hints = typing.get_type_hints(cls)
    parsed = {name: _parse(cls, infos[name], hints[name], value) for name, value in values.items()}
    for info in infos.values():
        if info.is_required and info.name not in parsed:
            raise MissingOptionError(
                group=cls.__name__, name=info.name, doc=info.doc, expected=info.expected
            )
    options = cls(**parsed)
    check(options)
    return options


def _refuse_unknown(
    cls: type[Any], infos: Mapping[str, OptionInfo], values: Mapping[str, object]
) -> None:
    for name in values:
        if name in infos:
            continue
        close = difflib.get_close_matches(name, infos, n=1, cutoff=0.5)
        raise UnknownOptionError(
            group=cls.__name__,
            name=name,
            closest=close[0] if close else None,
            suggestion=f"; did you mean {close[0]!r}?" if close else "",
            known=sorted(infos),
            known_text=", ".join(sorted(infos)) or "(it has none)",
        )


def _info(field: dataclasses.Field[Any], hint: Any, declared: Declaration) -> OptionInfo:
    inner, is_optional = _without_none(hint)
    words = set(field.name.split("_"))
    return OptionInfo(
        name=field.name,
        type_name=_type_name(inner) + (" or nothing" if is_optional else ""),
        default=None if field.default is dataclasses.MISSING else field.default,
        is_required=field.default is dataclasses.MISSING,
        low=declared.low,
        high=declared.high,
        choices=declared.choices or _choices(inner),
        unit="ms" if "ms" in words else "bytes" if "bytes" in words else "",
        doc=declared.doc,
        aliases=declared.aliases,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type behind ``X | None``, and whether None is allowed."""
    if typing.get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    inner = [arm for arm in typing.get_args(hint) if arm is not types.NoneType]
    if len(inner) != 1:
        raise TypeError(f"an option has one type or that and None, not {hint}")
    return inner[0], True


def _choices(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return tuple(member.value for member in hint)
    return ()


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return f"list of {_type_name(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is Literal:
        return "word"
    if typing.get_origin(hint) is dict:
        return f"map of names to {_type_name(typing.get_args(hint)[1])}"
    names = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}
    return names.get(hint) or ("word" if _choices(hint) else str(getattr(hint, "__name__", hint)))


def _parse(cls: type[Any], info: OptionInfo, hint: Any, value: object) -> Any:
    inner, is_optional = _without_none(hint)
    if is_optional and value in (None, "", "none"):
        return None
    try:
        parsed = _parse_as(inner, info.unit, value)
    except (TypeError, ValueError):
        raise _refusal(cls, info, value) from None
    if not _is_accepted(info, inner, parsed):
        raise _refusal(cls, info, value)  # Names the written value, not the parsed one.
    return parsed


def _parse_as(hint: Any, unit: str, value: Any) -> Any:
    """Return ``value`` as the type ``hint``; raise ValueError if it cannot be parsed."""
    if typing.get_origin(hint) in (tuple, dict):
        return _parse_items(hint, unit, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value if isinstance(value, hint) else hint(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, str) and typing.get_origin(hint) is not Literal:
        return _parse_text(hint, unit, value.strip() if hint is not str else value)
    if hint is float and type(value) is int:
        return float(value)
    return value


def _parse_items(hint: Any, unit: str, value: Any) -> Any:
    """Return a list or a map; as a text its items are separated by commas."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_parse_as(inner, unit, item) for item in items if item != "")
    inner = typing.get_args(hint)[1]
    pairs = map(_pair, items) if isinstance(value, str) else dict(value).items()
    return {str(name): _parse_as(inner, unit, each) for name, each in pairs}


def _pair(text: str) -> tuple[str, str]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise ValueError(text)
    return name.strip(), value


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


def _is_accepted(info: OptionInfo, hint: Any, value: Any) -> bool:
    """Return whether a value has the type ``hint`` and is in bounds and choices."""
    if typing.get_origin(hint) is tuple:
        item_hint = typing.get_args(hint)[0]
        return isinstance(value, tuple) and all(_is_accepted(info, item_hint, v) for v in value)
    if typing.get_origin(hint) is dict:
        items = value.values() if isinstance(value, dict) else ()
        return isinstance(value, dict) and all(
            _is_accepted(info, typing.get_args(hint)[1], each) for each in items
        )
    if isinstance(hint, type) and not _is_instance(value, hint):
        return False
    plain = value.value if isinstance(value, Enum) else value
    if info.choices and plain not in info.choices:
        return False
    if info.low is not None and not plain >= info.low:
        return False
    return info.high is None or bool(plain <= info.high)


def _is_instance(value: object, hint: type[Any]) -> bool:
    """Return whether a value fits a type: an int is a float, ``True`` is neither."""
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _refusal(cls: type[Any], info: OptionInfo, value: object) -> OptionError:
    plain = value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
    return OptionError(group=cls.__name__, name=info.name, found=plain, expected=info.expected)
