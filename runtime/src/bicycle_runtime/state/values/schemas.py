"""Schemas of declared types: descriptions that are readable without classes.

A *schema* is JSON data: a word for a scalar (``"int"``), a mapping for anything with parts. Names
of classes are in it for people; reading never needs them. Records are described field by field,
with the value for an absent field. An *object* is the content of a pickle: it is read by its class
alone, and its schema only shows whether that has changed (see ``pickled``). ``schema_changes``
compares schemas, ``schema_versions`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from bicycle_runtime.layouts.state import UNTYPED
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_runtime.records.exactness import once_a_type
from bicycle_sdk.state.aliases import aliases_of

Schema = Any  # A word, or a mapping with "type".

_WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any",
    inspect.NoneType: "none",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytearray",
    inspect.MemoryViewType: "memoryview",
    inspect.DateTimeType: "datetime",
    inspect.TimeType: "time",
    inspect.DateType: "date",
    inspect.TimeDeltaType: "timedelta",
    inspect.UUIDType: "uuid",
    inspect.DecimalType: "decimal",
}
_ITEMS: dict[type[inspect.Type], str] = {
    inspect.ListType: "list",
    inspect.VarTupleType: "tuple_of",
    inspect.SetType: "set",
    inspect.FrozenSetType: "frozenset",
    inspect.CollectionType: "list",
}
_RECORDS = (
    inspect.DataclassType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
    inspect.StructType,
)
_EMPTY: dict[Any, Any] = {list: [], dict: {}, set: [], frozenset: [], tuple: []}


class _UntypedError(Exception):
    """A part of the type is nothing that can be described."""


@once_a_type(UNTYPED)
def describe(declared: Any) -> Schema:
    """Return the schema of a declared type; ``UNTYPED`` if its values are pickled.

    Example:
        >>> describe(int), describe(None), describe(list[tuple[str, float]])
        ('int', 'untyped', {'type': 'list', 'items': {'type': 'tuple', 'items': ['str', 'float']}})
    """
    return _describe(declared, names_classes=False)


@once_a_type(UNTYPED)
def describe_key(declared: Any) -> Schema:
    """Return the schema of keys of a declared type; of classes with their full names.

    The bytes of a key, and so its key group, depend on the name of its class.
    """
    return _describe(declared, names_classes=True)


def _describe(declared: Any, *, names_classes: bool) -> Schema:
    if not RecordCodec(declared).is_typed:
        return UNTYPED
    try:
        return _Description(names_classes=names_classes).of(inspect.type_info(declared))
    except (_UntypedError, TypeError):
        return UNTYPED


class _Description:
    """A builder of the schema of one type, including recursive records.

    Args:
        names_classes: Whether full names of classes are part of the schema.
    """

    def __init__(self, *, names_classes: bool) -> None:
        self._names_classes = names_classes
        self._within: list[type] = []

    def of(self, info: Any) -> Schema:  # noqa: PLR0911  # one return for each kind of type
        """Return the schema of a type.

        Raises:
            _UntypedError: a part of it can only be pickled.
        """
        match info:
            case inspect.Metadata():
                return self.of(info.type)
            case inspect.UnionType():
                return {"type": "union", "of": [self.of(each) for each in info.types]}
            case inspect.LiteralType():
                return {"type": "literal", "values": sorted(info.values, key=repr)}
            case inspect.EnumType():
                return self._enum(info.cls)
            case inspect.TupleType():
                return {"type": "tuple", "items": [self.of(each) for each in info.item_types]}
            case inspect.DictType():
                keys, values = self.of(info.key_type), self.of(info.value_type)
                return {"type": "dict", "keys": keys, "values": values}
            case _ if isinstance(info, _RECORDS):
                return self._record(info)
            case _ if type(info) in _ITEMS:
                return {"type": _ITEMS[type(info)], "items": self.of(info.item_type)}
            case _ if type(info) in _WORDS:
                return _WORDS[type(info)]
            case _:
                raise _UntypedError

    def _enum(self, cls: Any) -> Schema:
        members = {name: member.value for name, member in cls.__members__.items()}
        return {"type": "enum", "name": cls.__qualname__, **self._class(cls), "members": members}

    def _record(self, info: Any) -> Schema:
        cls: type = info.cls
        if cls in self._within:
            return {"type": "again", "up": len(self._within) - 1 - self._within.index(cls)}
        self._within.append(cls)
        aliases = aliases_of(cls)
        is_array = isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
        schema: dict[str, Any] = {
            "type": "record",
            "name": cls.__qualname__,
            **self._class(cls),
            "form": "array" if is_array else "map",
            "fields": [self._field(each, info, aliases) for each in info.fields],
        }
        if getattr(info, "tag_field", None) is not None or getattr(info, "tag", None) is not None:
            schema["tag"] = [info.tag_field, info.tag]
        if getattr(info, "forbid_unknown_fields", False):
            schema["is_closed"] = True
        if isinstance(info, inspect.StructType) and info.cls.__struct_config__.omit_defaults:
            schema["omits_defaults"] = True
        self._within.pop()
        return schema

    def _field(self, field: Any, info: Any, aliases: dict[str, tuple[str, ...]]) -> dict[str, Any]:
        found = {"name": field.encode_name, "type": self.of(field.type)}
        if not field.required:
            found["is_optional"] = True
            found |= _default_of(field)
        if isinstance(info, inspect.TypedDictType) and not field.required:
            found["may_be_absent"] = True
        if field.name in aliases:
            found["aliases"] = list(aliases[field.name])
        return found

    def _class(self, cls: type) -> dict[str, str]:
        return {"class": f"{cls.__module__}.{cls.__qualname__}"} if self._names_classes else {}


def _default_of(field: Any) -> dict[str, Any]:
    """Return the stored form of a field's default, if known without a call."""
    try:
        if field.default is not NODEFAULT:
            default = field.default
        elif field.default_factory in _EMPTY:
            return {"default": _EMPTY[field.default_factory]}
        else:
            return {}
        plain = msgspec.to_builtins(default)
        # Values that JSON would change, such as a tuple, bytes or infinity, are left to the class.
        is_plain = msgspec.json.decode(msgspec.json.encode(plain)) == plain
    except (TypeError, ValueError, msgspec.MsgspecError):
        return {}
    return {"default": plain} if is_plain else {}


def is_same(one: Schema, other: Schema) -> bool:
    """Return whether both schemas read each other's stored data unchanged.

    Names of classes, aliases and defaults make no difference.
    """
    return bool(outline(one) == outline(other))


def outline(schema: Schema) -> Schema:  # noqa: PLR0911  # one return for each kind of schema
    """Return a schema without its parts for human readers."""
    if isinstance(schema, str):
        return schema
    match schema["type"]:
        case "record":
            omits = schema.get("omits_defaults", False)
            left_out = {"name", "aliases"} if omits else {"name", "aliases", "default"}
            fields = [
                {
                    **{key: value for key, value in field.items() if key not in left_out},
                    "name": field["name"],
                    "type": outline(field["type"]),
                }
                for field in schema["fields"]
            ]
            return {**_without_name(schema), "fields": fields}
        case "enum":
            values = sorted(schema["members"].values(), key=repr)
            return {**_without_name(schema), "members": values}
        case "union":
            return {"type": "union", "of": sorted(map(outline, schema["of"]), key=repr)}
        case "tuple":
            return {"type": "tuple", "items": list(map(outline, schema["items"]))}
        case "dict":
            keys, values = outline(schema["keys"]), outline(schema["values"])
            return {"type": "dict", "keys": keys, "values": values}
        case "literal" | "again":
            return schema
        case "object":
            fields = [{key: each[key] for key in ("name", "type")} for each in fields_of(schema)]
            return {**_without_name(schema), "fields": fields}
        case _:
            return {**schema, "items": outline(schema["items"])}


def _without_name(schema: Schema) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "name"}


def words(schema: Schema) -> str:  # noqa: PLR0911  # one return for each kind of schema
    """Return a schema as a person would write the type, records with their fields.

    Example:
        >>> words({"type": "dict", "keys": "str", "values": {"type": "list", "items": "int"}})
        'dict[str, list[int]]'
    """
    if isinstance(schema, str):
        return "None" if schema == "none" else schema
    match schema["type"]:
        case "record" | "object":
            return f"{schema['name']}({', '.join(_field_words(schema))})"
        case "enum":
            return f"{schema['name']}({', '.join(map(repr, schema['members'].values()))})"
        case "union":
            return " | ".join(map(words, schema["of"]))
        case "tuple":
            return f"tuple[{', '.join(map(words, schema['items'])) or '()'}]"
        case "tuple_of":
            return f"tuple[{words(schema['items'])}, ...]"
        case "dict":
            return f"dict[{words(schema['keys'])}, {words(schema['values'])}]"
        case "literal":
            return f"Literal[{', '.join(map(repr, schema['values']))}]"
        case "again":
            return "itself" if schema["up"] == 0 else "its container"
        case kind:
            return f"{kind}[{words(schema['items'])}]"


def fields_of(schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of a record or an object, which may be unknown."""
    fields: list[dict[str, Any]] = schema.get("fields", [])
    return fields


def _field_words(schema: Schema) -> Iterator[str]:
    for field in fields_of(schema):
        text = f"{field['name']}: {words(field['type'])}"
        if "default" in field:
            text += f" = {field['default']!r}"
        elif field.get("is_optional"):
            text += " = …"
        yield text
