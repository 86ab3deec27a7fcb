"""Formats by name: the conversion of values in messages and streams to bytes.

A format is plain data, a name with options; the runtime makes the codec. Five names need no options
and may be written as text: ``json``, ``msgpack``, ``csv``, ``string`` and ``bytes``. Extensions of
the runtime bring further formats, for ``Format("name", {...})``.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from bicycle_sdk.errors import StreamDefinitionError

__all__ = [
    "Codec",
    "Format",
    "FormatName",
    "as_format",
    "avro",
    "csv",
    "format_of",
    "protobuf",
    "split_formats",
    "type_given_by",
]

FormatName = Literal["json", "msgpack", "csv", "string", "bytes"]
# The type of a format's records; None: the declared record type.
_GIVEN: Mapping[str, type] = {"string": str, "bytes": bytes}
# Ambiguous names, and the names to use in their place.
_CALLS = {
    "avro": "avro(schema) of bicycle_sdk.formats",
    "protobuf": "protobuf(message) of bicycle_sdk.formats",
    "schema": "the object, by with_schema or with_key_schema",
}


class Codec(Protocol):
    """A codec between values of one type and bytes; picklable, for workers."""

    def decode(self, data: bytes, /) -> Any:
        """Return the value, called once per value. An exception makes it a bad record."""

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes. Called once per value; may raise anything."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format with its options.

    Args:
        name: ``json``, ``msgpack``, ``csv``, ``string``, ``bytes``, ``avro``, ``protobuf``, or the
            name of a format in an extension of the runtime.
        options: The options of the format; plain data, as it is stored in the graph.

    Example:
        >>> Format("json")
        Format(name='json', options={})
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def as_format(given: str | Format, *, call: str) -> Format:
    """Return a format, given as a format or by its name.

    Args:
        given: The format.
        call: The call with this argument, for the error.

    Raises:
        StreamDefinitionError: it is something else, or an ambiguous name.

    Example:
        >>> as_format("csv", call="deserializer")
        Format(name='csv', options={})
    """
    if isinstance(given, Format):
        return given
    if given == "" or type(given) is not str:
        _refuse(call, f"found {given!r}", "give the name of a format, or a Format")
    if given in _CALLS:
        hint = f"give {_CALLS[given]}"
        _refuse(call, f"the format {given!r} needs more than its name", hint)
    return Format(given)


def type_given_by(name: str) -> Any:
    """Return the fixed type of a format's values, or None if the record type decides.

    Example:
        >>> type_given_by("string")
        <class 'str'>
    """
    return _GIVEN.get(name)


def format_of(record_type: Any) -> str:
    """Return the format name of a type, without ``NewType``, ``Annotated`` and None.

    Example:
        >>> [format_of(record_type) for record_type in (str, bytes | None, dict)]
        ['string', 'bytes', 'json']
    """
    while hasattr(record_type, "__supertype__"):
        record_type = record_type.__supertype__
    if typing.get_origin(record_type) is typing.Annotated:
        return format_of(typing.get_args(record_type)[0])
    if typing.get_origin(record_type) in (typing.Union, types.UnionType):
        members = [arm for arm in typing.get_args(record_type) if arm is not types.NoneType]
        return format_of(members[0]) if len(members) == 1 else "json"
    if record_type is str:
        return "string"
    return "bytes" if record_type is bytes else "json"


def split_formats(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return arguments with each ``Format`` as its name, and its options.

    Args:
        given: The arguments.
        names: Names of the options that may be a ``Format``.
    """
    found = dict(given)
    for name in names:
        format = given.get(name)
        if isinstance(format, Format):
            found[name] = format.name
            if format.options:
                found[f"{name}_options"] = dict(format.options)
    return found


def csv(*, fields: Sequence[str] = (), delimiter: str = ",") -> Format:
    """Return the format of one row of CSV for each value, without a header.

    Args:
        fields: Names of the columns in their order; empty for the fields of the declared record
            type.
        delimiter: One character between two columns.

    Raises:
        StreamDefinitionError: the delimiter is no single character, or a field is named twice.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        _refuse("csv", f"the delimiter is {delimiter!r}", "give one character, such as ';'")
    if isinstance(fields, str) or len(set(fields)) != len(fields):
        _refuse("csv", f"the fields are {fields!r}", "give a list of different names")
    return Format("csv", {"fields": list(fields), "delimiter": delimiter})


def avro(schema: str | Path | Mapping[str, Any] | Sequence[Any]) -> Format:
    """Return the format of Avro values: binary, one datum each, without container.

    The schema becomes part of the graph: a file that changes later changes no running job.

    Args:
        schema: As JSON text, as plain data, or the path of a ``.avsc`` file.

    Raises:
        StreamDefinitionError: the file cannot be read, or it is no JSON.

    Example:
        >>> avro('{"type": "long"}').options
        {'schema': {'type': 'long'}}
    """
    if not isinstance(schema, str | Path):
        return Format("avro", {"schema": schema})
    text = schema
    if isinstance(schema, Path) or not schema.lstrip().startswith(("{", "[", '"')):
        try:
            text = Path(schema).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            _refuse("avro", f"{schema} cannot be read: {error}", "give the path of a schema file")
    try:
        return Format("avro", {"schema": json.loads(str(text))})
    except ValueError as error:
        _refuse("avro", f"the schema is not JSON: {error}", "give an Avro schema, as JSON")


def protobuf(message: type | str) -> Format:
    """Return the format of Protobuf messages.

    Records are messages when their declared type is the message's class, else dicts, or objects of
    the declared type, made of the fields by their names.

    Args:
        message: A class that ``protoc`` made, or where it is found: ``"shop_pb2:Order"``.

    Raises:
        StreamDefinitionError: it is neither.
    """
    location = message if isinstance(message, str) else _location_of(message)
    module, _, name = location.partition(":")
    if not module or not name:
        _refuse("protobuf", f"found {location!r}", "give a class, or 'module:Class'")
    return Format("protobuf", {"message": location})


def _location_of(message: type) -> str:
    if not hasattr(message, "DESCRIPTOR"):
        _refuse(
            "protobuf", f"{message!r} is not a message class", "pass a class generated by protoc"
        )
    return f"{message.__module__}:{message.__qualname__}"


def _refuse(call: str, problem: str, hint: str) -> NoReturn:
    raise StreamDefinitionError(call=call, problem=problem, hint=hint)
