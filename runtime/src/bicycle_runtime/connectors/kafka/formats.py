"""Messages to records: values decoded by format and type, with metadata.

A batch is decoded in one sweep; only when that fails is it taken apart message by message, so that
each bad one is named and every good one kept. Times, keys and headers are taken out of the messages
on demand.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import methodcaller
from typing import Any, Protocol, TypeVar, overload

from confluent_kafka import Message

from bicycle_runtime.base.user_code import error_text, users_error
from bicycle_runtime.connectors.errors import CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.connectors.settings import codec_for, option_error, require_decodable
from bicycle_runtime.contract import BadRecord, ConnectorSpec, Headers, Raw, SourceBatch
from bicycle_runtime.formats.contract import BatchCodec, reads_fields
from bicycle_runtime.formats.typed_values import json_decoder, msgpack_decoder
from bicycle_sdk.formats import format_of, type_given_by
from bicycle_sdk.record_types import clash, type_name

_T = TypeVar("_T")
_NO_HEADERS: Headers = ()
# Called so, the interpreter notices the error that the client leaves behind beside its result.
_headers_of = methodcaller("headers")
_REFUSE_NONE = frozenset({"string", "json", "msgpack"})  # Their decoders raise for None.


class _Decoder(Protocol):
    """The decoder of bytes to records: an object of the job, or a format's codec."""

    def decode(self, data: bytes, /) -> Any:
        """Return the record. Called on workers, once per message; may raise anything."""


class Format:
    """The decoding of values or keys from bytes.

    Args:
        name: The word of the option.
        codec: The decoder of values.
        allows_none: Whether a message without value is a record.
    """

    def __init__(self, name: str, codec: _Decoder, *, allows_none: bool = True) -> None:
        self.name, self.codec, self.allows_none = name, codec, allows_none

    def decode_all(self, raws: list[bytes | None], *, gives_fields: bool = False) -> Sequence[Any]:
        """Return all values; raises when one of them needs a closer look.

        Args:
            raws: The bytes.
            gives_fields: Whether to return a frame.
        """
        # hot path: per value 79 ns for strings, 315 ns for a JSON object of four fields; one decode
        # of all joined by separators is slower for strings (213 ns) and 3 % faster for JSON.
        takes_none = self.name in _REFUSE_NONE or (self.name == "bytes" and self.allows_none)
        if not takes_none and None in raws:
            raise ValueError
        if self.name == "bytes":
            return raws
        several: Any = raws
        if gives_fields:
            assert isinstance(self.codec, BatchCodec)
            found = self.codec.decode_batch(several)
            if len(found) == len(several):
                return found
        return list(map(self.codec.decode, several))

    def decode_one(self, raw: bytes | None) -> tuple[Any, str | None]:
        """Return the value and None, or None and why there is no value."""
        if raw is None:
            if self.allows_none:
                return None, None
            return None, "the message has no value (a tombstone), and the record type has no None"
        try:
            return self.codec.decode(raw), None
        except BaseException as error:  # noqa: BLE001 - schemas are user code and may raise anything.
            text = error_text(users_error(error))
            return None, f"{self.name}: {type(error).__name__}: {text}"


class MessageDecoder:
    """Turns messages of one partition into batches.

    Args:
        values: Format of values.
        keys: Format of keys.
    """

    def __init__(self, values: Format, keys: Format) -> None:
        self.values = values
        self.keys = keys
        self._gives_fields = False

    def give_fields(self) -> bool:
        """Switch to frames; return whether the format and the type of records allow it."""
        self._gives_fields = reads_fields(self.values.codec)
        return self._gives_fields

    def batch(self, messages: list[Message], next_offset: int) -> SourceBatch:
        """Return the records of messages that carry no error."""
        # hot path: windows over fields take 2.4 us a message with all that the client does, and 4.5
        # over records. 15 ns a message for the value; on demand, 59 for the time and 20 for each
        # other column; the client itself takes 600 to 700. In all 0.81 of the rate of a bare
        # consume() loop for bytes, 0.72 for strings, 0.5 for JSON objects of four fields.
        try:
            raws = list(map(Message.value, messages))
            values = self.values.decode_all(raws, gives_fields=self._gives_fields)
        except BaseException as error:  # noqa: BLE001 - decoded one by one to find the culprit.
            users_error(error)
            return self._apart(messages, next_offset)
        keys: Sequence[Any] = _Column(messages, _all_keys)
        if self.keys.name != "bytes":
            try:
                decode = self.keys.codec.decode
                keys = [None if raw is None else decode(raw) for raw in map(Message.key, messages)]
            except BaseException as error:  # noqa: BLE001 - likewise.
                users_error(error)
                return self._apart(messages, next_offset)
        return _batch_of(messages, values, keys, next_offset)

    def _apart(self, messages: list[Message], next_offset: int) -> SourceBatch:
        good: list[Message] = []
        values: list[Any] = []
        keys: list[Any] = []
        failures: list[BadRecord] = []
        for message in messages:
            value, reason = self.values.decode_one(message.value())
            if reason is None:
                key, reason = self.keys.decode_one(message.key())
                reason = None if reason is None else f"key: {reason}"
            if reason is None:
                good.append(message)
                values.append(value)
                keys.append(key)
            else:
                failures.append(_bad_record(message, reason))
        batch = _batch_of(good, values, keys, next_offset)
        batch.failures = failures
        return batch


def value_format(spec: ConnectorSpec, name: str | None, options: object = None) -> Format:
    """Return the format of a source's values, checked against its record type.

    A message without value is a record when the record type allows None, or is not declared.

    Args:
        spec: The source.
        name: Name of the format; None or empty for the format of the record type.
        options: Of the format.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it and the record type contradict.
        CONNECTOR_PAYLOAD_WRONG: the type cannot be decoded, or the schema is missing.
    """
    inner, allows_none = _without_none(spec.record_type)
    name = name or format_of(inner)
    _check_pair(spec, name, inner)
    codec = _codec(spec, "value", name, record_type=inner, options=options)
    return Format(name, codec, allows_none=allows_none)


def key_format(spec: ConnectorSpec, name: str, options: object = None) -> Format:
    """Return the format of a source's keys; errors as in ``value_format``."""
    return Format(name, _codec(spec, "key", name, record_type=None, options=options))


class _Column(Sequence[_T]):
    """An attribute of all messages, read on access."""

    def __init__(self, messages: list[Message], take: Callable[[list[Message]], list[Any]]) -> None:
        self._messages = messages
        self._take = take

    @cached_property
    def _items(self) -> list[Any]:
        return self._take(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        item: _T | Sequence[_T] = self._items[index]
        return item


class _HeaderColumn(Sequence[Headers]):
    """The headers of all messages, each decoded when it is looked at.

    A name that is not UTF-8 is an error of its message alone, when its headers are read.
    """

    def __init__(self, messages: list[Message], unreadable: dict[int, str] | None = None) -> None:
        self._messages = messages
        # At a second call, the client returns headers without names, and reading these crashes.
        self._unreadable: dict[int, str] = {} if unreadable is None else unreadable

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Headers: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Headers]: ...
    def __getitem__(self, index: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(index, slice):
            return _HeaderColumn(self._messages[index], self._unreadable)
        message = self._messages[index]
        known = self._unreadable.get(id(message))
        if known is not None:
            raise ValueError(known)
        try:
            return _headers(message)
        except ValueError as error:
            self._unreadable[id(message)] = str(error)
            raise


def _batch_of(
    messages: list[Message], values: Sequence[Any], keys: Sequence[Any], next_offset: int
) -> SourceBatch:
    return SourceBatch(
        values=values,
        offsets=_Column(messages, _all_offsets),
        next_offset=next_offset,
        timestamps=_Column(messages, _all_timestamps),
        keys=keys,
        headers=_HeaderColumn(messages),
        raws=_Column(messages, _all_raws),
    )


def _all_offsets(messages: list[Message]) -> list[Any]:
    return list(map(Message.offset, messages))


def _all_timestamps(messages: list[Message]) -> list[Any]:
    return [timestamp for _, timestamp in map(Message.timestamp, messages)]


def _all_keys(messages: list[Message]) -> list[Any]:
    return list(map(Message.key, messages))


def _all_raws(messages: list[Message]) -> list[Raw]:
    return [(message.key(), message.value()) for message in messages]


def _bad_record(message: Message, reason: str) -> BadRecord:
    offset = message.offset()
    assert offset is not None
    headers = _NO_HEADERS
    try:
        headers = _headers(message)
    except ValueError as error:
        reason = f"{reason}; {error}"
    return BadRecord(
        offset=offset,
        raw=message.value() or b"",
        reason=reason,
        key=message.key(),
        headers=headers,
        timestamp_ms=message.timestamp()[1],
    )


def _headers(message: Message) -> Headers:
    try:
        found: Any = _headers_of(message)  # None without headers.
    except (UnicodeDecodeError, SystemError):
        raise ValueError("the name of a header is not UTF-8") from None
    return tuple(found) if found else _NO_HEADERS


def _without_none(record_type: Any) -> tuple[Any, bool]:
    """Return the type beside None, and whether None is a record."""
    if record_type in (None, Any, object):
        return None, True
    if typing.get_origin(record_type) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(record_type) if arm is not types.NoneType]
        if len(arms) < len(typing.get_args(record_type)):
            return (arms[0], True) if len(arms) == 1 else (record_type, True)
    return record_type, False


def _check_pair(spec: ConnectorSpec, name: str, record_type: Any) -> None:
    wanted = type_given_by(name)
    if clash(wanted, record_type):
        problem = f"{name!r} returns {type_name(wanted)}, but the record type is {record_type}"
        hint = f"declare {type_name(wanted)}, or choose another format"
        raise option_error(spec, "value_format", problem, hint)
    if name in ("json", "msgpack"):
        new_decoder = json_decoder if name == "json" else msgpack_decoder
        require_decodable(spec, Any if record_type is None else record_type, new_decoder)


def _codec(
    spec: ConnectorSpec, side: str, name: str, *, record_type: Any, options: object
) -> _Decoder:
    """Return the codec of a format, or the decoder object of the job."""
    if name != "schema":
        return codec_for(spec, side, name, record_type=record_type, options=options)
    role = f"{side}_schema"
    found = spec.payloads.get(role)
    if found is None or not callable(getattr(found, "decode", None)):
        raise CONNECTOR_PAYLOAD_WRONG(
            vertex=spec.vertex_id,
            connector=spec.connector_type,
            role=role,
            found="absent" if found is None else type(found).__name__,
            expected="an object with decode(data: bytes)",
        )
    decoder: _Decoder = found
    return decoder
