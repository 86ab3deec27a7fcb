"""Options, declared once: default, bounds, words and doc at the dataclass field.

The check, the parser of texts, the command-line flag and the row in the docs are all derived from
that declaration. The unit is part of a field's name: ``…_ms`` takes ``"30s"`` and ``…_bytes`` takes
``"64MiB"`` as well as plain numbers. Values out of bounds are refused, never clamped. This module
reads no file and no environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, dataclass_transform

from bicycle_sdk.errors import (
    DuplicateOptionError,
    MissingOptionError,
    OptionError,
    UnknownOptionError,
)
from bicycle_sdk.former_names import note_former_name
from bicycle_sdk.option_values import (
    OptionValueError,
    choices_of,
    convert,
    fits,
    hides_values,
    is_columns,
    split_none,
    type_name,
)

__all__ = [
    "CheckedOptions",
    "Declaration",
    "OptionInfo",
    "accepts",
    "adapt_option",
    "check",
    "declaration",
    "declared_options",
    "describe",
    "from_mapping",
    "option",
    "parse",
    "shared_options",
    "take",
]

_METADATA = "bicycle_option"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration at a field, beside its type and its default.

    ``aliases`` are former names of the option, and ``words`` its names in job files. Both are
    accepted.
    """

    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    aliases: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    kw_only: Any = dataclasses.MISSING,
) -> Any:
    """Declare a dataclass field as an option.

    Args:
        default: Absent for a required option. A mutable default is refused, as ``dataclasses``
            does.
        doc: One sentence for the docs and ``--help``.
        low: Least accepted number.
        high: Greatest accepted number.
        choices: The accepted values; by default the values of a ``Literal`` or ``Enum`` annotation.
        aliases: Former names of the option. They are accepted, and a remark names the present name.
        words: Names of the option in job files of Pulse and Bicycle. A job file may use them
            without a remark; elsewhere they are aliases.
        kw_only: False for an option that a call also accepts by position; by default as the class
            decides.

    Example:
        >>> @dataclass(frozen=True, slots=True, kw_only=True)
        ... class Retention:
        ...     keep_ms: int = option(60_000, low=1_000, doc="How long finished epochs are kept.")
        >>> declaration(dataclasses.fields(Retention)[0]).low
        1000
    """
    declared = Declaration(
        doc=doc, low=low, high=high, choices=choices, aliases=aliases, words=words
    )
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_METADATA: declared}, kw_only=kw_only)
    return dataclasses.field(default=default, metadata={_METADATA: declared}, kw_only=kw_only)


def adapt_option(
    owner: type[Any],
    name: str,
    *,
    default: Any = dataclasses.MISSING,
    note: str = "",
    low: float | None = None,
    words: tuple[str, ...] = (),
    kw_only: Any = dataclasses.MISSING,
) -> Any:
    """Return an option of a base class with the default of a subclass.

    The meaning is declared once, by the base class. The annotation of the subclass may narrow the
    type.

    Args:
        owner: The base class that declares the option.
        name: Name of the option.
        default: Absent for a required option.
        note: Sentences for the docs that only apply to the subclass.
        low: Least accepted number, if it is another one.
        words: Further names in job files.
        kw_only: As of ``option``; it is not inherited.
    """
    field = next(each for each in dataclasses.fields(owner) if each.name == name)
    declared = declaration(field)
    assert declared is not None, f"{owner.__name__}.{name} is not an option"
    adapted = dataclasses.replace(
        declared,
        doc=f"{declared.doc} {note}".rstrip(),
        low=declared.low if low is None else low,
        words=declared.words + words,
    )
    metadata = {_METADATA: adapted}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata, kw_only=kw_only)
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(option, adapt_option)
)
def shared_options(cls: type[_T]) -> type[_T]:
    """Make a class of options that several classes inherit a frozen dataclass.

    Type checkers see which options are required, and which ones a call accepts by position.
    """
    return dataclass(frozen=True, kw_only=True)(cls)


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
    when any value of the type will do. ``aliases`` contains ``words``, too. ``unit`` is ``"ms"``,
    ``"bytes"`` or ``""``. ``hint`` is the type without None, which ``is_nullable`` allows.
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
    words: tuple[str, ...] = ()
    hint: Any = object
    is_nullable: bool = False

    @property
    def flag(self) -> str:
        """The command-line flag; a word of Python has a ``_`` behind it as a name only."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def label(self) -> str:
        """The label of a form's field: the first part of the doc."""
        return self.doc.partition(".")[0].partition(";")[0].partition(":")[0]

    @property
    def explanation(self) -> str:
        """The rest of the doc after the label."""
        return self.doc.removeprefix(self.label).lstrip(".;: ")

    @property
    def default_text(self) -> str:
        """The default in the words of the doc; empty without such words."""
        return self.doc.partition("Default: ")[2].rstrip(".")

    @property
    def expected(self) -> str:
        """The accepted values as text: type, unit, bounds or choices."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if self.is_columns:
            return "columns with their types, e.g. {'name': 'str', 'count': 'int'}"
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
    def is_columns(self) -> bool:
        """True for an option that names the columns of a table with their types."""
        return is_columns(self.hint)

    @property
    def hides_values(self) -> bool:
        """True if a wrong value must not be shown, since it may be a secret."""
        return hides_values(self.hint)

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
    key: Any = cls
    return list(_infos(key))


@cache
def _infos(cls: Any) -> tuple[OptionInfo, ...]:
    declared = [(field, declaration(field)) for field in dataclasses.fields(cls)]
    options = [(field, found) for field, found in declared if found is not None]
    hints = typing.get_type_hints(cls) if options else {}
    return tuple(_info(field, hints[field.name], found) for field, found in options)


def parse(info: OptionInfo, value: object) -> Any:
    """Return the value of an option that is given as text or as JSON.

    Raises:
        ValueError: it cannot be parsed, is out of bounds, or is not one of the choices.
    """
    if info.is_nullable and value in (None, "", "none"):
        return None
    try:
        parsed = convert(info.hint, info.unit, value, is_text=True)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not accepts(info, parsed):
        raise ValueError(f"expected {info.expected}")
    return parsed


def take(info: OptionInfo, value: object) -> Any:
    """Return the value of an option from a Python call; a text is not parsed.

    Raises:
        OptionValueError: it has another type, is out of bounds, or is not one of the choices.
    """
    if info.is_nullable and value is None:
        return None
    if info.is_list and isinstance(value, str):
        problem = f"{info.name} must be a tuple, got the text {value!r}"
        raise OptionValueError(problem, f"give ({value!r},)")
    try:
        found = convert(info.hint, info.unit, value, is_text=False)
    except OptionValueError:
        raise
    except (TypeError, ValueError):
        found = value
    if accepts(info, found):
        return found
    shown = "another value (not shown)" if info.hides_values else repr(value)
    raise OptionValueError(
        f"{info.name} is {shown}, expected {info.expected}", f"correct {info.name}"
    )


def accepts(info: OptionInfo, value: Any) -> bool:
    """Return whether a value has the type, bounds and choices of an option."""
    if info.is_nullable and value is None:
        return True
    items = value if isinstance(value, tuple) else value.values() if info.is_map else [value]
    return fits(info.hint, value) and all(_is_in_bounds(info, each) for each in items)


def _is_in_bounds(info: OptionInfo, value: Any) -> bool:
    plain = value.value if isinstance(value, Enum) else value
    if info.choices and plain not in info.choices:
        return False
    if info.low is not None and not plain >= info.low:
        return False
    return info.high is None or bool(plain <= info.high)


def _info(field: dataclasses.Field[Any], hint: Any, declared: Declaration) -> OptionInfo:
    inner, is_nullable = split_none(hint)
    words = set(field.name.split("_"))
    default: Any = None if field.default is dataclasses.MISSING else field.default
    return OptionInfo(
        name=field.name,
        type_name=type_name(inner),
        default=default.to_json() if hasattr(default, "to_json") else default,
        is_required=field.default is dataclasses.MISSING,
        low=declared.low,
        high=declared.high,
        choices=declared.choices or choices_of(inner),
        unit="ms" if "ms" in words else "bytes" if "bytes" in words else "",
        doc=declared.doc,
        aliases=declared.aliases + declared.words,
        words=declared.words,
        hint=inner,
        is_nullable=is_nullable,
    )


def check(options: Any) -> None:
    """Check the values of an options object; called in its ``__post_init__``.

    Raises:
        OptionError: a value has the wrong type, is out of bounds, or is not one of the choices.
    """
    for info in describe(type(options)):
        value = getattr(options, info.name)
        if not accepts(info, value):
            raise _refusal(type(options), info, value)


class CheckedOptions:
    """The base of options whose values are checked when an object is made.

    Raises:
        OptionError: a value is not accepted, see ``check``.
    """

    __slots__ = ()  # A subclass adds its own.

    def __post_init__(self) -> None:
        check(self)


def from_mapping(cls: type[_T], values: Mapping[str, object]) -> _T:
    """Return a checked options object from texts (CLI, files) or JSON values.

    Args:
        cls: A dataclass whose fields are declared with ``option``.
        values: Option name to value. A text is parsed by the type of the field.

    Raises:
        UnknownOptionError: a name is no option.
        DuplicateOptionError: two names of one option are given.
        MissingOptionError: a required option is absent.
        OptionError: a value cannot be read, or is not accepted.
    """
    infos = {info.name: info for info in describe(cls)}
    values = _by_name(cls, infos, values)
    _refuse_unknown(cls, infos, values)
    parsed = {name: _parse(cls, infos[name], value) for name, value in values.items()}
    for info in infos.values():
        if info.is_required and info.name not in parsed:
            raise MissingOptionError(
                group=cls.__name__, name=info.name, doc=info.doc, expected=info.expected
            )
    options = cls(**parsed)
    check(options)
    return options


def _by_name(
    cls: type[Any], infos: Mapping[str, OptionInfo], values: Mapping[str, object]
) -> dict[str, object]:
    """Return the values by the names of options, without aliases."""
    newer = {alias: info.name for info in infos.values() for alias in info.aliases}
    given: dict[str, str] = {}
    for key in values:
        name = newer.get(key, key)
        if key in newer:
            note_former_name(key, name)
        if name in given:
            raise DuplicateOptionError(group=cls.__name__, name=key, other=given[name])
        given[name] = key
    return {name: values[key] for name, key in given.items()}


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


def _parse(cls: type[Any], info: OptionInfo, value: object) -> Any:
    try:
        return parse(info, value)
    except OptionValueError as error:  # It names the cause, and shows no secret.
        raise _refusal(cls, info, value, error.problem) from error
    except ValueError:
        raise _refusal(cls, info, value) from None


def _refusal(cls: type[Any], info: OptionInfo, value: object, problem: str = "") -> OptionError:
    plain = value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
    if info.hides_values:
        plain = "a value that is not shown" + (f": {problem}" if problem else "")
    return OptionError(group=cls.__name__, name=info.name, found=plain, expected=info.expected)
