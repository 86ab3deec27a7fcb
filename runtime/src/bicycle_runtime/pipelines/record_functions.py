"""The functions of a pipeline on records with fields: keys, times, values, rows of results.

They are imported by workers. A record without a field has the value None there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

import msgspec

from bicycle_runtime.pipelines.builtin_functions import text_of
from bicycle_runtime.pipelines.values import FieldType
from bicycle_sdk import AsyncFunction, Context, KeyedProcessFunction, ValueStateDescriptor
from bicycle_sdk.time import as_ms
from bicycle_sdk.windows.panes import Window
from bicycle_sdk.windows.triggers import ProcessingTimeTrigger, TriggerContext, TriggerResult

__all__ = [
    "ClockTrigger",
    "CountRow",
    "CountText",
    "FieldKey",
    "FieldText",
    "FieldValue",
    "FirstOfKey",
    "JoinedRow",
    "JsonText",
    "LateRow",
    "NumberOf",
    "PayloadSchema",
    "RecordKey",
    "RunningRow",
    "SplitBy",
    "TimeOf",
    "TypedRecord",
    "WindowRow",
    "WithMessage",
    "lower_text",
]


_TYPES: Mapping[FieldType, Any] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "timestamp": str | int,
    "json": Any,
}


def field_of(record: Any, name: str) -> Any:
    """Return a field of a record, None where it has none."""
    return record.get(name) if isinstance(record, dict) else None


class _OfField:
    """A function of one field."""

    __slots__ = ("field",)

    def __init__(self, field: str) -> None:
        self.field = field


class FieldValue(_OfField):
    """The value of a field."""

    __slots__ = ()

    def __call__(self, record: Any) -> Any:
        return field_of(record, self.field)


class NumberOf(_OfField):
    """The number in a field: a text may be one, anything else counts as 0."""

    __slots__ = ()

    def __call__(self, record: Any) -> int | float:
        value = field_of(record, self.field)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        if not isinstance(value, str):
            return 0
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return 0


class JsonText(_OfField):
    """The JSON text of a field, by which values are told apart."""

    __slots__ = ()

    def __call__(self, record: Any) -> str:
        return msgspec.json.encode(field_of(record, self.field), order="sorted").decode()


class FieldText(_OfField):
    """A field as text; None where there is none."""

    __slots__ = ()

    def __call__(self, record: Any) -> str | None:
        value = field_of(record, self.field)
        return None if value is None else text_of(value)


class TimeOf(_OfField):
    """The event time in a field: ms since 1970, or RFC 3339 with a zone."""

    __slots__ = ()

    def __call__(self, record: Any) -> int:
        value = field_of(record, self.field)
        if isinstance(value, str):
            digits = value.removeprefix("-")
            value = int(value) if digits.isdigit() else datetime.fromisoformat(value)
        return as_ms(value)


class FieldKey:
    """The key of a record: one field, or several as a tuple; lists and tables are their JSON."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)

    def __call__(self, record: Any) -> Any:
        values = tuple(_hashable(field_of(record, name)) for name in self.fields)
        return values if len(values) > 1 else values[0]


class RecordKey:
    """The record itself as its key."""

    __slots__ = ()

    def __call__(self, record: Any) -> Any:
        return _hashable(record)


def _hashable(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, order="sorted").decode()
    return value


def lower_text(record: Any) -> str:
    """Return the text of a record in lower case."""
    return text_of(record).lower()


class CountText:
    """A running count as ``text:count``."""

    __slots__ = ()

    def __call__(self, counted: tuple[str, int]) -> str:
        return f"{counted[0]}:{counted[1]}"


class CountRow:
    """A running count as a record."""

    __slots__ = ()

    def __call__(self, counted: tuple[Any, int]) -> dict[str, Any]:
        return {"key": counted[0], "count": counted[1]}


class RunningRow:
    """A running result as a record."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, result: tuple[Any, Any]) -> dict[str, Any]:
        return {"key": result[0], self.name: result[1]}


class WindowRow:
    """The result of a window as a record.

    Args:
        names: Fields of the results; of several aggregates in their order.
    """

    __slots__ = ("names",)

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def __call__(self, result: Any) -> dict[str, Any]:
        row = {
            "window_start_ms": result.start,
            "window_end_ms": result.end,
            "key": result.key,
        }
        if len(self.names) == 1:
            row[self.names[0]] = result.value
        else:
            row.update(zip(self.names, result.value, strict=True))
        return row


class ClockTrigger(ProcessingTimeTrigger):
    """Fires so long after the first record of a window, and at the end of the input."""

    def on_element(
        self, value: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.end)
        return super().on_element(value, timestamp, window, ctx)

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002 - the contract
        return TriggerResult.FIRE


class LateRow:
    """A record that came too late as a record."""

    __slots__ = ()

    def __call__(self, late: Any) -> dict[str, Any]:
        return {
            "record": late.value,
            "event_time_ms": late.timestamp,
            "late_by_ms": late.lateness_ms,
            "window_start_ms": late.window.start,
            "window_end_ms": late.window.end,
        }


class JoinedRow:
    """One record of two; fields that both have get a prefix on the right."""

    __slots__ = ("on", "prefix")

    def __init__(self, on: Sequence[str], prefix: str) -> None:
        self.on, self.prefix = frozenset(on), prefix

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        row = dict(left or {})
        for name, value in (right or {}).items():
            if name not in row:
                row[name] = value
            elif name not in self.on:
                row[self.prefix + name] = value
        return row


class SplitBy:
    """The outputs of a record, by the value of a field."""

    __slots__ = ("default", "field", "outputs")

    def __init__(
        self, field: str, outputs: Mapping[str, Sequence[Any]] | None, default: str | None
    ) -> None:
        self.field, self.default = field, default
        self.outputs = None if outputs is None else {k: list(v) for k, v in outputs.items()}

    def __call__(self, record: Any) -> list[str]:
        value = field_of(record, self.field)
        if self.outputs is None:
            return [] if value is None else [text_of(value)]
        found = [name for name, values in self.outputs.items() if value in values]
        return found if found or self.default is None else [self.default]


class TypedRecord:
    """A record whose fields have the declared types; others than these are left out.

    A number may come as text, as in CSV. What does not fit is a bad record.
    """

    __slots__ = ("_kind", "fields")

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self.fields = dict(fields)
        self._kind: Any = None

    def __reduce__(self) -> Any:
        return type(self), (self.fields,)

    def __call__(self, record: Any) -> dict[str, Any]:
        if self._kind is None:
            # Made here, because a type that is made at run time cannot travel.
            types = {name: _TYPES[word] for name, word in self.fields.items()}
            made: Any = TypedDict
            self._kind = made("Record", types)
        found: dict[str, Any] = msgspec.convert(record, self._kind, strict=False)
        return found


class FirstOfKey(KeyedProcessFunction[Any, Any, Any]):
    """The first record of each key; a key is known for ``ttl_ms``, or for ever."""

    def __init__(self, ttl_ms: int | None) -> None:
        ttl = None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
        self.seen = ValueStateDescriptor("seen", bool, ttl=ttl)

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        state = ctx.get_value_state(self.seen)
        if state.value():
            return []
        state.update(True)
        return [value]


class PayloadSchema:
    """A message of Kafka as a record: a JSON object, else its text, else its bytes in base64."""

    __slots__ = ()

    def decode(self, data: bytes) -> dict[str, Any]:
        r"""Return the record.

        Example:
            >>> [PayloadSchema().decode(data) for data in (b'{"a": 1}', b"hi", b"\xff")]
            [{'a': 1}, {'bytes': 'hi'}, {'bytes_b64': '/w=='}]
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"bytes_b64": base64.b64encode(data).decode()}
        try:
            found = msgspec.json.decode(data)
        except msgspec.DecodeError:
            found = None
        return found if isinstance(found, dict) else {"bytes": text}


class WithMessage(AsyncFunction[Any, Any]):
    """The record with the place of its message: topic, partition, offset."""

    def process(self, value: Any, ctx: Context) -> list[Any]:
        message = ctx.message
        if message is None or "bytes" in value or "bytes_b64" in value:
            return [value]
        topic, _, partition = message.shard.rpartition("/")  # As the connector names its shards.
        place = {"_topic": topic, "_partition": int(partition), "_offset": message.offset}
        return [{**value, **place}]
