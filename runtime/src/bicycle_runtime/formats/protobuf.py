"""Protobuf messages of the job's class, as messages or records of named fields.

A field without presence has its default when it was not sent; one with presence is left out then.
Bytes of another message often parse: the library keeps values that do not fit a field as unknown
fields, and returns the default. The codec rejects such messages; only numbers that the class does
not declare are unknown fields.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from bicycle_runtime.formats.binary_frames import protobuf_frames
from bicycle_runtime.formats.frame_codec import DecodeBatch, FrameCodec
from bicycle_runtime.formats.plain import refuse_options
from bicycle_runtime.formats.plain_values import as_single, as_text, to_plain
from bicycle_runtime.formats.typed_values import TypedConverter, json_decoder
from bicycle_runtime.records.times import duration_of, in_ms, moment_of, with_zone

_NATIVE = (bytes, bytearray, datetime, time, timedelta)
_TEXT_OR_SINGLE = {FieldDescriptor.TYPE_STRING: as_text, FieldDescriptor.TYPE_FLOAT: as_single}
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


class ProtobufCodec(FrameCodec):
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
            raise ValueError(f"{options['message']!r} is not a message class")
        self._message: type[Message] = found
        self._type = record_type
        if not self._gives_messages and not self._is_plain:
            json_decoder(record_type)  # Refuses a type that nothing can be converted to.

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state, without decoders."""
        unpicklable = ("_convert", "_decode_batch")
        return {name: value for name, value in vars(self).items() if name not in unpicklable}

    @cached_property
    def _convert(self) -> TypedConverter:
        return TypedConverter(self._type, moment=_moment, duration=_duration)

    @property
    def _gives_messages(self) -> bool:
        return self._type is self._message

    @property
    def _is_plain(self) -> bool:
        return self._type in (None, Any, object, dict)

    def _find_decoder(self) -> DecodeBatch | None:
        return protobuf_frames(self._message.DESCRIPTOR, self._type)

    def decode(self, data: bytes) -> Any:
        """Return the record.

        Raises:
            ValueError: the bytes are not a message of the class, lack a required field, have a
                value of another kind for a field, or do not fit the declared type.
        """
        message = self._message()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(
                f"the bytes are not a message {self._message.__name__}: {error}"
            ) from error
        if not message.IsInitialized():
            missing = ", ".join(map(repr, message.FindInitializationErrors()))
            raise ValueError(f"message {self._message.__name__} lacks the required field {missing}")
        if self._gives_messages:
            _require_kinds(message)
            return message
        found = _fields_of(message)
        return found if self._is_plain else self._convert(found)

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
        found = to_plain(value, self._type, _NATIVE)
        if not isinstance(found, Mapping):
            raise ValueError(f"a record of named fields is expected, found {type(value).__name__}")
        # A field that is None was not sent.
        return self._message(**_fields_to_send(self._message.DESCRIPTOR, found))


def _require_kinds(message: Message) -> None:
    """Reject a message with a value of another kind for one of its fields."""
    # hot path: 114 ns a message if it has no unknown fields.
    fields = message.DESCRIPTOR.fields_by_number
    for found in UnknownFieldSet(message):
        field = fields.get(found.field_number)
        # A number that a closed enum does not declare is an unknown field of the right kind.
        if field is not None and (field.enum_type is None or found.wire_type != 0):
            raise ValueError(
                f"field {field.name!r} of message {message.DESCRIPTOR.name} has a value of another "
                f"kind (wire type {found.wire_type})"
            )


def _fields_of(message: Message) -> dict[str, Any]:
    _require_kinds(message)
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
        return [_fields_of(item) if is_nested else _scalar_of(field, item) for item in value]
    return _fields_of(value) if is_nested else _scalar_of(field, value)


def _scalar_of(field: FieldDescriptor, value: Any) -> Any:
    # The library checks texts of proto3 alone, and returns bytes for other bad texts.
    if isinstance(value, bytes) and field.type == FieldDescriptor.TYPE_STRING:
        raise ValueError(f"field {field.name!r} is not UTF-8")
    return value


def _moment(value: Any) -> datetime:
    """Return a declared ``datetime``, from ``Timestamp`` fields or ms since 1970."""
    if not isinstance(value, Mapping):
        return moment_of(value)
    try:
        return datetime.fromtimestamp(0, UTC) + _duration(value)
    except OverflowError:
        raise ValueError(f"{value} is out of bounds") from None


def _duration(value: Any) -> timedelta:
    """Return a declared ``timedelta``, from ``Duration`` fields or ms."""
    if not isinstance(value, Mapping):
        return duration_of(value)
    try:
        seconds, nanoseconds = int(value.get("seconds", 0)), int(value.get("nanos", 0))
        return timedelta(seconds=seconds, microseconds=nanoseconds // 1_000)
    except OverflowError:
        raise ValueError(f"{value} is out of bounds") from None


def _fields_to_send(message: Descriptor, found: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the fields of a message that are not None, times as the message needs."""
    return {
        name: _value_to_send(message.fields_by_name.get(name), value)
        for name, value in found.items()
        if value is not None
    }


def _value_to_send(field: FieldDescriptor | None, value: Any) -> Any:
    if field is None:  # The class of the message refuses it by name.
        return value
    inner = field.message_type
    if isinstance(value, Mapping):
        if inner is None:
            return value
        if inner.GetOptions().map_entry:
            item = inner.fields_by_name["value"]
            return {
                key: _value_to_send(item, each) for key, each in value.items() if each is not None
            }
        return _fields_to_send(inner, value)
    if isinstance(value, (list, tuple)):
        return [_value_to_send(field, each) for each in value]
    return _scalar_to_send(field, value)


def _scalar_to_send(field: FieldDescriptor, value: Any) -> Any:
    name = "" if field.message_type is None else field.message_type.full_name
    if name in (_TIMESTAMP, _DURATION):
        return _time_to_send(value, is_time=name == _TIMESTAMP)
    if field.type in _TEXT_OR_SINGLE:
        return _TEXT_OR_SINGLE[field.type](value)
    return bytes(value) if isinstance(value, bytearray) else in_ms(value)


def _time_to_send(value: Any, *, is_time: bool) -> dict[str, int]:
    """Return the fields of a ``Timestamp`` or a ``Duration``."""
    moment = with_zone(value) if isinstance(value, datetime) else value
    span = moment_of(moment) - moment_of(0) if is_time else duration_of(value)
    microseconds = span // timedelta(microseconds=1)
    if not is_time and microseconds < 0:  # Both parts of a duration have one sign.
        return {"seconds": -(-microseconds // 1_000_000),
                "nanos": -(-microseconds % 1_000_000) * 1_000}  # fmt: skip
    return {"seconds": microseconds // 1_000_000, "nanos": microseconds % 1_000_000 * 1_000}
