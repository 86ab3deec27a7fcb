"""Messages to records: values decoded by format and type, with metadata.

A batch is decoded in one sweep; only when that fails is it taken apart message by message, so that
each bad one is named and every good one kept. Times, keys and headers are taken out of the messages
on demand.
"""

from __future__ import annotations

import contextlib
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from operator import methodcaller
from typing import Any, Protocol, TypeVar, overload

import msgspec
from confluent_kafka import Message

from bicycle_runtime.base.user_code import error_text, users_error
from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG, CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.connectors.settings import codec_for, require_decodable
from bicycle_runtime.contract import BadRecord, ConnectorSpec, Headers, Raw, SourceBatch
from bicycle_runtime.formats.contract import BatchCodec
from bicycle_runtime.formats.typed_values import json_decoder, msgpack_decoder
from bicycle_runtime.frames.frame import FieldRows, Frame
from bicycle_runtime.frames.rows import (
    OpenRows,
    is_mapping,
    is_open_mapping,
    plain_fields,
    row_type_of,
)
from bicycle_sdk.formats import format_of, type_given_by
from bicycle_sdk.record_types import clash, type_name

_T = TypeVar("_T")
_NO_HEADERS: Headers = ()
# Called so, the interpreter notices the error that the client leaves behind beside its result.
_headers_of = methodcaller("headers")
_DECODED_HERE = frozenset({"bytes", "string", "json", "msgpack"})


class Schema(Protocol):
    """The decoder of bytes to records: an object of the job, or a format's codec."""

    def decode(self, data: bytes) -> Any:
        """Return the record. Called on workers, once per message; may raise anything."""


class Format:
    """The decoding of values or keys from bytes.

    Args:
        name: The word of the option.
        record_type: The type to which it is decoded; None for any.
        schema: The schema for decoding; required by each format but the four that are decoded here.
        allows_none: Whether a message without value is a record.
    """

    def __init__(
        self,
        name: str,
        record_type: Any = None,
        *,
        schema: Schema | None = None,
        allows_none: bool = True,
    ) -> None:
        self.name = name
        self.record_type = record_type
        self.schema = schema
        self.allows_none = allows_none

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the pickled state, without the decoder."""
        return self.name, self.record_type, self.schema, self.allows_none

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name, self.record_type, self.schema, self.allows_none = state

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        """The decoder of one value; raises any error on bad bytes."""
        inner = Any if self.record_type is None else self.record_type
        match self.name:
            case "bytes":
                return bytes
            case "string":
                return bytes.decode
            case "json":
                return json_decoder(inner).decode
            case "msgpack":
                return msgpack_decoder(inner).decode
            case _:
                assert self.schema is not None
                return self.schema.decode

    def decode_all(self, raws: list[bytes | None]) -> list[Any]:
        """Return all values; raises when one of them needs a closer look."""
        # hot path: per value 79 ns for strings, 315 ns for a JSON object of four fields; one decode
        # of all joined by separators is slower for strings (213 ns) and 3 % faster for JSON.
        is_opaque = self.name == "bytes" or self.schema is not None
        if is_opaque and None in raws and not self._takes_none:
            raise ValueError
        if self.name == "bytes":
            return raws
        return list(map(self.decode, raws))  # type: ignore[arg-type]  # a None among them raises.

    @property
    def _takes_none(self) -> bool:
        return self.name == "bytes" and self.allows_none

    def decode_one(self, raw: bytes | None) -> tuple[Any, str | None]:
        """Return the value and None, or None and why there is no value."""
        if raw is None:
            if self.allows_none:
                return None, None
            return None, "the message has no value (a tombstone), and the record type has no None"
        try:
            return self.decode(raw), None
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
        self._rows: Format | None = None
        self._open: OpenRows | None = None
        self._gives_dicts = False
        self._kinds = plain_fields(values.record_type)

    def give_fields(self) -> bool:
        """Switch to frames; return whether the format and the type of records allow it."""
        record_type = self.values.record_type
        if self.values.name != "json":
            return isinstance(self.values.schema, BatchCodec)
        row_type = row_type_of(record_type)
        if is_open_mapping(record_type):
            self._open = OpenRows()
        elif row_type is not None:
            self._rows = Format("json", row_type)
        self._gives_dicts = row_type is None and is_mapping(record_type)
        return self._gives_dicts or row_type is not None

    def batch(self, messages: list[Message], next_offset: int) -> SourceBatch:
        """Return the records of messages that carry no error."""
        # hot path: 15 ns a message for the value; on demand, 59 for the time and 20 for each other
        # column; the client itself takes 600 to 700. In all 0.81 of the rate of a bare consume()
        # loop for bytes, 0.72 for strings, 0.5 for JSON objects of four fields.
        try:
            values = self._values(list(map(Message.value, messages)))
        except BaseException as error:  # noqa: BLE001 - decoded one by one to find the culprit.
            users_error(error)
            return self._apart(messages, next_offset)
        keys: Sequence[Any] = _Column(messages, _all_keys)
        if self.keys.name != "bytes":
            try:
                raws = [message.key() for message in messages]
                keys = [None if raw is None else self.keys.decode(raw) for raw in raws]
            except BaseException as error:  # noqa: BLE001 - likewise.
                users_error(error)
                return self._apart(messages, next_offset)
        return _batch_of(messages, values, keys, next_offset)

    def _values(self, raws: list[bytes | None]) -> Sequence[Any]:
        # hot path: windows over fields take 2.4 us a message with all that the client does, and
        # 4.5 over records.
        if self._rows is not None:
            rows = self._rows.decode_all(raws)
            make = partial(self.values.decode_all, raws)
            return Frame.of_rows(FieldRows(objects=rows, make=make, kinds=self._kinds))
        if self._open is not None and raws and raws[0] is not None:
            found = self._open.like(raws[0])
            # If one has other fields, or no fields, all are decoded below.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, TypeError):
                if found is not None:
                    rows = found.decode(lambda decoder: list(map(decoder.decode, raws)))  # type: ignore[arg-type]  # a None among them raises.
                    made = partial(self.values.decode_all, raws)
                    names = cache(lambda: found.names_in(rows, b"\n".join(raws)))  # type: ignore[arg-type]  # No value is None.
                    return Frame.of_rows(FieldRows(
                        objects=rows, make=made, getter=found.getter, names=names,
                        are_written=True, kinds=found.kinds(rows),
                    ))  # fmt: skip
        schema = self.values.schema
        if isinstance(schema, BatchCodec) and None not in raws:
            decoded = schema.decode_batch(raws)  # type: ignore[arg-type]  # No value is None.
            if len(decoded) == len(raws):
                return decoded
        values = self.values.decode_all(raws)
        return Frame.of_dicts(values, self._kinds) if self._gives_dicts else values

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
    schema = _schema(spec, "value", name, record_type=inner, options=options)
    return Format(name, inner, schema=schema, allows_none=allows_none)


def key_format(spec: ConnectorSpec, name: str, options: object = None) -> Format:
    """Return the format of a source's keys; errors as in ``value_format``."""
    return Format(name, schema=_schema(spec, "key", name, record_type=None, options=options))


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
        raise CONNECTOR_OPTION_WRONG(
            vertex=spec.vertex_id,
            connector=spec.connector_type,
            name="value_format",
            problem=f"{name!r} returns {type_name(wanted)}, but the record type is {record_type}",
            hint=f"declare {type_name(wanted)}, or choose another format",
        )
    if name in ("json", "msgpack"):
        new_decoder = json_decoder if name == "json" else msgpack_decoder
        require_decodable(spec, Any if record_type is None else record_type, new_decoder)


def _schema(
    spec: ConnectorSpec,
    side: str,
    name: str,
    *,
    record_type: Any,
    options: object,
) -> Schema | None:
    """Return the decoder object for other formats: of the job, or a format's codec."""
    if name in _DECODED_HERE and not options:
        return None
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
    schema: Schema = found
    return schema
