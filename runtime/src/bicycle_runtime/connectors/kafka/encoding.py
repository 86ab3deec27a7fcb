"""Kafka messages from records: key, value, headers, time, checked before use.

A message is a dict with ``value`` and, where there are such, ``key``, ``headers``, ``timestamp``
and ``partition``. Whatever a broker would refuse (too large, no such partition, no key in a
compacted topic, a time out of bounds) is refused here, record by record: behind the seal of an
epoch it would be too late to leave a record out.
This module sends nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

import msgspec

from bicycle_runtime.connectors.lines import json_lines
from bicycle_runtime.contract import Accepts, EventTimes
from bicycle_runtime.expressions.evaluation import evaluate
from bicycle_runtime.expressions.function_reading import read
from bicycle_runtime.expressions.symbols import Reading
from bicycle_runtime.formats.record_types import encode_model
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_shapes import shape_of_form
from bicycle_runtime.frames.vectors import Refused
from bicycle_sdk.clock import Clock, SystemClock

Message = dict[str, Any]
MessageColumns = dict[str, list[Any]]  # by field, as many values in each
# Formats whose values are encoded by columns; ``auto`` goes by the type of each value.
ENCODED_HERE = frozenset({"json", "string", "bytes", "msgpack", "auto"})
_HALF_LETTERS = re.compile("[\ud800-\udfff]")
_Column = Sequence[bytes | None]

# Varints, CRC and the like of a batch with one message: 61 + at most 40 bytes, and some to spare.
_OVERHEAD_BYTES = 256
_HEADER_OVERHEAD_BYTES = 10
_TIME_MS_MIN = 1  # The client takes 0 for no time, and writes the time of writing.
_TIME_MS_MAX = (1 << 63) - 1  # The client raises for a larger one.


class UnencodableError(Exception):
    """A record that cannot become a message; the text is the reason. Settled by ``on_error``."""


class EncodingSchema(Protocol):
    """The encoder of values to bytes: an object of the job, or a format's codec."""

    def encode(self, value: Any, /) -> bytes:
        """Return the bytes of one value. Called on a worker, once per record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The limits of a topic in its brokers; unknown ones are None or False.

    ``retention_ms`` is how long they keep a message from its timestamp on.
    """

    partition_count: int | None = None
    message_bytes_max: int = 1_000_000
    is_compacted: bool = False
    timestamp_before_ms_max: int | None = None
    timestamp_after_ms_max: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """The conversion of records to messages; picklable.

    ``functions`` are the user's, by role: key, value, headers, timestamp, partition. With
    ``has_event_times`` messages have the event times of their records.
    """

    value_format: str
    key_format: str
    functions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    schemas: Mapping[str, EncodingSchema] = field(default_factory=dict)
    limits: TopicLimits = TopicLimits()
    has_event_times: bool = False


def input_of(plan: MessagePlan) -> Accepts:
    """Return the input of which messages are made without creating records."""
    if plan.functions.keys() - {"key"} or plan.value_format not in _OF_ROWS:
        return "records"
    try:
        is_read = "key" not in plan.functions or read(plan.functions["key"]) is not None
    except Reading:
        is_read = False
    return "frames" if is_read else "records"


_OF_ROWS = frozenset({"json", "msgpack", "auto"})


def columns_of(messages: Sequence[Message]) -> MessageColumns:
    """Return messages by column, as they are staged and sent.

    Args:
        messages: One or more; all have the same fields.
    """
    return {name: list(map(itemgetter(name), messages)) for name in messages[0]}


class MessageEncoder:
    """Turns records into messages, a batch at a time.

    Args:
        plan: How.
        clock: For the bounds of timestamps.
    """

    def __init__(self, plan: MessagePlan, clock: Clock | None = None) -> None:
        self._plan = plan
        self._limits = plan.limits
        self._clock = clock or SystemClock()
        functions = plan.functions
        self._value, self._key = functions.get("value"), functions.get("key")
        self._more = {
            role: functions[role]
            for role in ("headers", "timestamp", "partition")
            if role in functions
        }
        self._encode_values = _column_encoder(plan.value_format, plan.schemas.get("value"))
        self._encode_keys = _column_encoder(plan.key_format, plan.schemas.get("key"))

    def encode(self, records: Sequence[Any], times: EventTimes = None) -> list[Message]:
        """Return one message per record.

        Args:
            records: The records.
            times: Their event times.

        Raises:
            Exception: a record cannot be encoded, or user code raised; which one it was is found
                by calling ``encode_one``.
        """
        # hot path: whole columns at C speed: 360 ns for a keyed JSON object, 1,900 one by one.
        values = self._values_of(records)
        sizes = _size_max(values)
        lacks_key = self._limits.is_compacted
        if self._key is None:
            messages: list[Message] = [{"value": value} for value in values]
        else:
            keys = self._encode_keys(_each_of(self._key, records))
            sizes += _size_max(keys)
            lacks_key = lacks_key and None in keys
            messages = [
                {"key": key, "value": value} for key, value in zip(keys, values, strict=True)
            ]
        if len(messages) != len(records):
            raise UnencodableError("a function ended the batch early: it raised StopIteration")
        is_doubtful = sizes > self._limits.message_bytes_max - _OVERHEAD_BYTES
        if self._plan.has_event_times and times is not None:
            for message, time_ms in zip(messages, times, strict=True):
                message["timestamp"] = time_ms
            is_doubtful = is_doubtful or not self._are_taken(times)
        if self._more or is_doubtful or lacks_key:
            for record, message in zip(records, messages, strict=True):
                self._complete(record, message)
        return messages

    def _values_of(self, records: Sequence[Any]) -> _Column:
        if self._value is not None:
            return self._encode_values(list(map(self._value, records)))
        if not isinstance(records, Frame):
            return self._encode_values(records)
        is_json = self._plan.value_format != "msgpack"
        if is_json and (form := records.form) and form.kind is not None:
            # hot path: 130 ns a message with three fields, 620 where dicts are made.
            return json_lines(records).splitlines()
        return self._encode_values(list(records.rows()))

    def encode_one(self, record: Any, time_ms: int | None = None) -> Message:
        """Return the message of one record.

        Args:
            record: The record.
            time_ms: Its event time.

        Raises:
            UnencodableError: it cannot be written, and why.
            Exception: the exception of user code.
        """
        given = record if self._value is None else self._value(record)
        message: Message = {}
        if self._key is not None:
            message["key"] = _one(
                self._encode_keys, self._key(record), "key", self._plan.key_format
            )
        message["value"] = _one(self._encode_values, given, "value", self._plan.value_format)
        if self._plan.has_event_times:
            message["timestamp"] = time_ms
        self._complete(record, message)
        return message

    def _complete(self, record: Any, message: Message) -> None:
        """Add the results of the other functions, and check the topic's limits."""
        for role, function in self._more.items():
            message[role] = _CHECKS[role](function(record))
        limits = self._limits
        size = _message_bytes(message)
        if size > limits.message_bytes_max:
            raise UnencodableError(
                f"the message has about {size:,} bytes, but topic and producer accept at most "
                f"{limits.message_bytes_max:,} (max.message.bytes, message.max.bytes)"
            )
        if limits.is_compacted and message.get("key") is None:
            raise UnencodableError("the topic is compacted, so messages without a key are rejected")
        partition = message.get("partition")
        count = limits.partition_count
        if partition is not None and count is not None and partition >= count:
            raise UnencodableError(
                f"the partition is {partition}, but the topic has {count} partitions"
            )
        if message.get("timestamp") is not None:
            self._check_time(message["timestamp"])

    def _are_taken(self, times: Sequence[int | None]) -> bool:
        """Return whether all times are within the bounds of the topic."""
        known = [time_ms for time_ms in times if time_ms is not None]
        ends = (min(known), max(known)) if known else ()
        return all(self._time_problem(time_ms) is None for time_ms in ends)

    def _check_time(self, timestamp_ms: int) -> None:
        problem = self._time_problem(timestamp_ms)
        if problem is not None:
            is_own = self._plan.has_event_times
            hint = "; with message_time('written'), messages have the time of writing"
            raise UnencodableError(
                f"the timestamp {timestamp_ms} {problem}{hint if is_own else ''}"
            )

    def _time_problem(self, timestamp_ms: int) -> str | None:
        limits, now_ms = self._limits, self._clock.now_ms()
        after, before = limits.timestamp_after_ms_max, limits.timestamp_before_ms_max
        if not _TIME_MS_MIN <= timestamp_ms <= _TIME_MS_MAX:
            return (
                f"is not a valid message time: it must be at least {_TIME_MS_MIN} and at most "
                f"{_TIME_MS_MAX} (ms since 1970)"
            )
        if after is not None and timestamp_ms > now_ms + after:
            ahead = timestamp_ms - now_ms
            return (
                f"is {ahead:,} ms in the future, but the topic accepts at most {after:,} "
                "(message.timestamp.after.max.ms)"
            )
        age = now_ms - timestamp_ms
        if before is not None and age > before:
            return (
                f"is {age:,} ms old, but the topic accepts at most {before:,} "
                "(message.timestamp.before.max.ms)"
            )
        kept = limits.retention_ms if self._plan.has_event_times else None
        if kept is not None and age > kept:
            return f"is {age:,} ms old, but the topic retains only {kept:,} ms (retention.ms)"
        return None


def _each_of(function: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    """Return a function's results for records, computed from columns if possible."""
    if isinstance(records, Frame) and (form := records.form):
        with contextlib.suppress(Reading, Refused):
            expression = read(function)
            if shape_of_form(form.kind, form.names).problem(expression) is None:
                return evaluate(expression, records).items
    return list(map(function, records))


def _column_encoder(name: str, schema: EncodingSchema | None) -> Callable[[Sequence[Any]], _Column]:
    """Return an encoder of lists of values; None remains None in every format."""
    if schema is not None:
        return _by_function(schema.encode)
    match name:
        case "json":
            return _by_encoder(msgspec.json.Encoder(enc_hook=encode_model).encode, none=b"null")
        case "msgpack":
            return _by_encoder(msgspec.msgpack.Encoder(enc_hook=encode_model).encode, none=b"\xc0")
        case "string":
            return _by_function(str.encode)
        case "bytes":
            return _by_function(_as_is)
        case _:
            return _auto


def _by_encoder(
    encode: Callable[[Any], bytes], *, none: bytes
) -> Callable[[Sequence[Any]], _Column]:
    def column(values: Sequence[Any]) -> _Column:
        encoded: _Column = list(map(encode, values))
        # hot path: looking for the encoded None compares bytes; `None in values` may run user code.
        if none in encoded:
            return [
                None if value is None else data for value, data in zip(values, encoded, strict=True)
            ]
        return encoded

    return column


def _by_function(encode: Callable[[Any], Any]) -> Callable[[Sequence[Any]], _Column]:
    def column(values: Sequence[Any]) -> _Column:
        if type(None) in set(map(type, values)):
            encoded = [None if value is None else encode(value) for value in values]
        else:
            encoded = list(map(encode, values))
        if not set(map(type, encoded)) <= _BYTES_OR_NONE:
            raise TypeError("it did not return bytes")
        return encoded

    return column


_BYTES_OR_NONE = frozenset({bytes, type(None)})
_json = msgspec.json.Encoder(enc_hook=encode_model).encode


def _as_is(value: Any) -> bytes:
    return value if type(value) is bytes else bytes(memoryview(value))


def _auto(values: Sequence[Any]) -> _Column:
    """Encode text as UTF-8, bytes as they are, everything else as JSON."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return list(map(str.encode, values))
    if kinds <= _BYTES_OR_NONE:
        return values
    return [_auto_one(value) for value in values]


def _auto_one(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    return _as_is(value) if isinstance(value, bytes | bytearray | memoryview) else _json(value)


def _one(
    encode: Callable[[Sequence[Any]], _Column], value: Any, role: str, name: str
) -> bytes | None:
    try:
        return encode([value])[0]
    except (TypeError, ValueError, OverflowError) as error:
        if inspect.iscoroutine(value):
            value.close()
        if name == "schema":
            raise
        raise UnencodableError(
            f"{role}_format {name!r} cannot write a {role} of type "
            f"{type(value).__qualname__}: {error}"
        ) from None


def _headers(found: Any) -> list[tuple[str, bytes | None]]:
    pairs = found.items() if isinstance(found, Mapping) else found
    if pairs is None:
        return []
    checked = []
    for pair in pairs:
        if isinstance(pair, str | bytes) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UnencodableError(f"headers must be pairs of text and bytes, got {pair!r}")
        name, value = pair
        if not name.isascii() and _HALF_LETTERS.search(name):  # The client would end the process.
            raise UnencodableError(f"the name of a header is not valid Unicode: {name!r}")
        data = value.encode() if isinstance(value, str) else value
        if data is not None and not isinstance(data, bytes):
            kind = type(value).__qualname__
            raise UnencodableError(f"header {name!r} must be bytes, got {kind}")
        checked.append((name, data))
    return checked


def _whole_number(what: str) -> Callable[[Any], int | None]:
    def check(found: Any) -> int | None:
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise UnencodableError(
                f"the {what} must be a whole number of at least 0, got {found!r}"
            )
        return found

    return check


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "headers": _headers,
    "timestamp": _whole_number("timestamp"),
    "partition": _whole_number("partition"),
}


def _size_max(column: _Column) -> int:
    """Return the size of the longest; hot path: 25 ns a message."""
    return max(map(len, filter(None, column)), default=0)


def _message_bytes(message: Message) -> int:
    """Return at least the bytes that the message takes in a batch of its own."""
    headers = sum(
        len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES
        for name, value in message.get("headers", ())
    )
    payload = len(message.get("key") or b"") + len(message["value"] or b"")
    return payload + headers + _OVERHEAD_BYTES
