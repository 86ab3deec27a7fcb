"""Protobuf messages of a class that the job brings, as such or as records of named fields.

A field without presence has its default when it was not sent; one with presence is left out then.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from bicycle_runtime.formats.plain import refuse_options

__all__ = ["ProtobufCodec"]


class ProtobufCodec:
    """One message for each value.

    Records are messages when the message's class is declared; else dicts of the fields by name, or
    what is declared. In these an enum is its number, and a map is a dict.

    Args:
        record_type: Declared type of the records, or None.
        options: ``message``: the class, as ``"module:Class"``.

    Raises:
        ValueError: the class is missing, or is none of messages.
        ImportError: its module cannot be imported.
    """

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options, frozenset({"message"}))
        if "message" not in options:
            raise ValueError("the option 'message' is missing")
        module, _, name = str(options["message"]).partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if not (isinstance(found, type) and issubclass(found, Message)):
            raise ValueError(f"{options['message']!r} is no class of messages")
        self._message: type[Message] = found
        self._type = record_type
        if not self._gives_messages and not self._is_plain:
            msgspec.json.Decoder(record_type)  # Refuses a type that nothing can be converted to.

    @property
    def _gives_messages(self) -> bool:
        return self._type is self._message

    @property
    def _is_plain(self) -> bool:
        return self._type in (None, Any, object, dict)

    def decode(self, data: bytes) -> Any:
        """Return the record.

        Raises:
            ValueError: the bytes are no message of the class, or not of the declared type.
        """
        message = self._message()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(f"they are no {self._message.__name__}: {error}") from error
        if self._gives_messages:
            return message
        found = _fields_of(message)
        return found if self._is_plain else msgspec.convert(found, self._type)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a message or record; equal ones have equal bytes.

        Raises:
            ValueError: the record has fields that the message lacks, or values that do not fit.
        """
        try:
            message = value if isinstance(value, self._message) else self._build(value)
            data: bytes = message.SerializeToString(deterministic=True)
            return data
        except (TypeError, EncodeError) as error:
            raise ValueError(str(error)) from error

    def _build(self, value: Any) -> Message:
        found = msgspec.to_builtins(value, builtin_types=(bytes, bytearray))
        if not isinstance(found, Mapping):
            raise ValueError(f"a record of named fields is expected, found {type(value).__name__}")
        # A field that is None was not sent.
        return self._message(**_without_none(found))


def _fields_of(message: Message) -> dict[str, Any]:
    return {
        field.name: _value_of(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value_of(field: FieldDescriptor, value: Any) -> Any:
    is_nested = field.message_type is not None
    if is_nested and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _value_of(inner, item) for key, item in value.items()}
    if field.is_repeated:
        return [_fields_of(item) if is_nested else item for item in value]
    return _fields_of(value) if is_nested else value


def _without_none(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in found.items()
        if value is not None
    }
