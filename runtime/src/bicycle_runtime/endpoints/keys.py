"""The keys of a connector, derived from its options class.

A key is an option: same name, type, bounds, default and description. Aliases of the option are
accepted, too. A key without a value in the text is None, and the connector uses its default.
"""

from __future__ import annotations

import typing
from collections import abc
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from bicycle_runtime.endpoints.catalog import ConnectorDescription, format_names
from bicycle_runtime.endpoints.values import ColumnWord, Text, column_pairs
from bicycle_sdk.options import OptionInfo, describe
from bicycle_sdk.secrets import Secret

_BOUND_MAX = 2**63 - 1
_FORMATS = ("value_format", "key_format")
_LIST_AS_TEXT: Any = Annotated[str, Meta(extra={"kind": "list"})]
_TYPES: Mapping[str, Any] = {
    "secret": Annotated[str, Meta(extra={"kind": "secret"})],
    "columns": Annotated[dict[str, ColumnWord], Meta(min_length=1)],
    "headers": dict[str, str],
}


class ConnectorKeys(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of one connector.

    Attributes:
        about: The description of the keys; empty for that of the connector.
        attributes: The attributes that hold options, by the name of the option.
        aliases: Other names of keys, with the key.
        hidden: Options that are not keys.
        kinds: The kinds of the options, by name.
        more_formats: Names of formats of values beside those of this installation.
        option_names: The keys that are options.
        tables: Options that are tables of names and values.
        all_options: All options of the connector.
        connector: The connector.
    """

    about: ClassVar[str] = ""
    attributes: ClassVar[Mapping[str, str]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}
    hidden: ClassVar[frozenset[str]] = frozenset()
    kinds: ClassVar[Mapping[str, str]] = {}
    more_formats: ClassVar[tuple[str, ...]] = ()
    option_names: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[frozenset[str]] = frozenset()
    all_options: ClassVar[frozenset[str]] = frozenset()
    connector: ClassVar[ConnectorDescription]

    def value_of(self, name: str) -> Any:
        """Return the value of an option, or None without a value."""
        return getattr(self, self.attributes.get(name, name), None)

    def properties(self) -> dict[str, Any]:
        """Return the options that have a value, as they are in a graph."""
        given = {name: self.value_of(name) for name in self.option_names}
        return {
            name: _as_json(value, self.kinds[name])
            for name, value in given.items()
            if value is not None
        }


def keys_of_connector(
    name: str,
    connector: ConnectorDescription,
    base: type[ConnectorKeys],
    *,
    more: Sequence[tuple[Any, ...]] = (),
) -> type[Any]:
    """Return the keys of a connector as a class.

    Args:
        name: The name of the class, unique among the definitions of a JSON Schema.
        connector: The connector.
        base: The class to extend. Its keys replace the options of the same names.
        more: Further keys: name, type and default.
    """
    options_class, own = connector.options_class, set(base.__struct_fields__)
    infos = [info for info in describe(options_class) if info.name not in base.hidden]
    kinds = {info.name: _kind(info) for info in infos}
    derived = [info for info in infos if info.name not in own]
    attributes = {info.name: f"option_{info.name}" for info in derived}  # Distinct from methods.
    fields = [(attributes[info.name], *_field(info, kinds[info.name], base)) for info in derived]
    aliases = {alias: info.name for info in infos for alias in info.aliases}
    return msgspec.defstruct(
        name,
        [*fields, *more],
        bases=(base,),
        namespace={
            "__doc__": base.about or connector.about,
            "connector": connector,
            "attributes": attributes,
            "aliases": {**aliases, **base.aliases},
            "former_names": frozenset(aliases).difference(*(info.words for info in infos)),
            "kinds": kinds,
            "option_names": tuple(kinds),
            "tables": base.tables
            | {info.name for info in infos if _is_table(_accept(info, kinds[info.name]))},
            "all_options": frozenset(info.name for info in describe(options_class)),
        },
        module=__name__,
        rename={attribute: name for name, attribute in attributes.items()},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _kind(info: OptionInfo) -> str:
    """Return the meaning of an option's value, where its type is not that of the text."""
    if info.name in _FORMATS:
        return "format"
    if info.hint is Secret or info.is_columns:
        return "secret" if info.hint is Secret else "columns"
    is_own = hasattr(info.hint, "option_form")
    return "headers" if info.is_map and info.hides_values and not is_own else ""


def _field(info: OptionInfo, kind: str, base: type[ConnectorKeys]) -> tuple[Any, ...]:
    """Return type and default of a key; no default if it is required."""
    shown = info.default if isinstance(info.default, str | int | float) else None
    more = {} if shown in (None, "") else {"default": shown}
    about = Meta(description=info.doc, extra_json_schema=more or None, extra={"default": shown})
    accepted = _accept(info, kind)
    if kind == "format":
        more_formats = base.more_formats if info.name == "value_format" else ()
        accepted = Literal[(*more_formats, *format_names())]
    if info.is_required:
        return (Annotated[accepted, about],)
    return Annotated[accepted | None if accepted is not Any else Any, about], None


def _accept(info: OptionInfo, kind: str) -> Any:
    """Return the type of a key's values in a text."""
    if kind in _TYPES or hasattr(info.hint, "option_form"):
        return _TYPES.get(kind) or info.hint.option_form
    if info.unit in ("ms", "bytes"):
        word = {"ms": "duration", "bytes": "size"}[info.unit]
        extra = {"kind": word, "is_option": True, "low": info.low, "high": info.high}
        return Annotated[str | int | float, Meta(extra=extra)]
    if info.choices:
        return Literal[info.choices]
    hint = info.hint
    if hint in (int, float):
        return Annotated[hint, Meta(ge=_bound(info.low), le=_bound(info.high))]
    if hint is str:
        return Text if info.is_required else str
    return bool if hint is bool else _collection(hint)


def _collection(hint: Any) -> Any:
    """Return the type of a list, a table or a path; Any for other types."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, abc.Sequence):
        items = Text if arguments[0] is str else arguments[0]
        return list.__class_getitem__(items) | _LIST_AS_TEXT
    if origin in (dict, abc.Mapping):
        return dict.__class_getitem__((str, arguments[1]))
    return str if isinstance(hint, type) and issubclass(hint, PurePath) else Any


def _is_table(accepted: Any) -> bool:
    return accepted is Any or typing.get_origin(accepted) is dict


def _bound(value: float | None) -> float | None:
    return None if value is None else min(value, _BOUND_MAX)


def _as_json(value: Any, kind: str) -> Any:
    if kind == "secret":
        return Secret.parse(value).to_json()
    if kind == "columns":
        return column_pairs(value)
    return value.value if isinstance(value, Enum) else value
