"""The functions of a pipeline on records with fields: keys, times, values, rows.

They are imported by workers. A record without a field has the value None there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any, NotRequired, TypedDict

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.endpoints.field_functions import (
    FieldText,  # noqa: F401 - Stored jobs name it here.
    OfField,
    PayloadSchema,  # noqa: F401 - As above.
    expression_of,
    field_of,
    text_of,
)
from bicycle_runtime.expressions.evaluation import HasExpression
from bicycle_runtime.formats.typed_values import exact_decimal
from bicycle_runtime.frames.schemas import VALUE_TYPES
from bicycle_runtime.pipelines.equal_values import equal_json, equal_text
from bicycle_runtime.pipelines.operator_keys import Split
from bicycle_runtime.records.times import time_of
from bicycle_sdk import AsyncFunction, Context, KeyedProcessFunction, ValueStateDescriptor
from bicycle_sdk.expressions import Expression, col, lit
from bicycle_sdk.option_values import decimal_digits
from bicycle_sdk.windows.panes import Window
from bicycle_sdk.windows.triggers import ProcessingTimeTrigger, TriggerContext, TriggerResult

# The types of values that need no conversion, and the types to which msgspec converts; the others
# are converted by _AsType: a time may be a text or a number, and a decimal has declared digits.
_KINDS = {found.word: found.takes for found in VALUE_TYPES if found.in_fields}
_TYPES: Mapping[str, Any] = {
    found.word: found.python if found.python in (found.takes or ()) else Any
    for found in VALUE_TYPES
    if found.in_fields
}
_TIMES = _KINDS["timestamp"] or frozenset()
_PLAIN = frozenset({int, float, str, bool, type(None)})


class FieldValue(OfField):
    """The value of a field."""

    __slots__ = ()

    def expression(self) -> Expression:
        return expression_of(self.field)

    @staticmethod
    def of(value: Any) -> Any:
        return value


class NumberOf(OfField):
    """The number in a field, None for null; texts are parsed, other values count as 0."""

    __slots__ = ()
    as_they_are = frozenset({int, float, Decimal})

    @staticmethod
    def of(value: Any) -> int | float | Decimal | None:
        if isinstance(value, (int, float, Decimal, NoneType)):
            return 0 if isinstance(value, bool) else value
        if not isinstance(value, str):
            return 0
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return 0


class FloatOf(NumberOf):
    """The number in a field as ``NumberOf``, with decimals as floats."""

    __slots__ = ()
    as_they_are = frozenset({int, float})

    @staticmethod
    def of(value: Any) -> int | float | None:
        found = NumberOf.of(value)
        return float(found) if isinstance(found, Decimal) else found


class EqualText(OfField):
    """A text of a field that is equal for equal values, or None."""

    __slots__ = ()

    of = staticmethod(equal_text)


class TimeOf(OfField):
    """The event time in a field: ms since 1970, or RFC 3339 with a zone."""

    __slots__ = ()
    as_they_are = frozenset({int})

    of = staticmethod(time_of)


class FieldKey(HasExpression):
    """The key of a record: a field, or several as a tuple; lists and tables as JSON."""

    __slots__ = ("fields",)

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)

    def __call__(self, record: Any) -> Any:
        values = tuple(_hashable(field_of(record, name)) for name in self.fields)
        return values if len(values) > 1 else values[0]

    def expression(self) -> Expression:
        parts = [Expression("converted", _PLAIN, None, expression_of(name)) for name in self.fields]
        return parts[0] if len(parts) == 1 else Expression("tuple", *parts)


class RecordKey:
    """The record itself as its key."""

    __slots__ = ()

    def __call__(self, record: Any) -> Any:
        return _hashable(record)


def _hashable(value: Any) -> Any:
    return equal_json(value) if isinstance(value, (dict, list)) else value


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


class _ResultRow:
    """A result as a record.

    Args:
        names: Fields of the results; of several aggregates in their order.
        key_name: Field of the key.
    """

    __slots__ = ("key_name", "names")

    def __init__(self, names: Sequence[str], key_name: str = "key") -> None:
        self.names, self.key_name = tuple(names), key_name

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        # State stored before keys had names has no names.
        self.names, self.key_name = state[1]["names"], state[1].get("key_name", "key")


class RunningRow(_ResultRow):
    """A running result as a record."""

    __slots__ = ()

    def __call__(self, result: tuple[Any, Any]) -> dict[str, Any]:
        values = result[1] if len(self.names) > 1 else result[1:]
        return dict(zip((self.key_name, *self.names), (result[0], *values), strict=True))


class WindowRow(_ResultRow, HasExpression):
    """The result of a window as a record."""

    __slots__ = ()

    def __call__(self, result: Any) -> dict[str, Any]:
        fields = (*_BOUNDS, self.key_name)
        row = dict(zip(fields, (result.start, result.end, result.key), strict=True))
        if len(self.names) == 1:
            row[self.names[0]] = result.value
        else:
            row.update(zip(self.names, result.value, strict=True))
        return row

    def expression(self) -> Expression:
        values = [col("value")]
        if len(self.names) > 1:
            indexes = range(len(self.names))
            values = [Expression("item", col("value"), lit(index)) for index in indexes]
        columns = [col("start"), col("end"), col("key"), *values]
        return Expression("record", (*_BOUNDS, self.key_name, *self.names), *columns)


_BOUNDS = ("window_start_ms", "window_end_ms")


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
    """One record of two; fields that both have get a prefix on the right.

    ``names`` are the known fields of left rows, also for a right row without a match.
    """

    names: Collection[str] = ()  # Stored functions may lack it.

    def __init__(self, on: Sequence[str], prefix: str, names: Iterable[str] = ()) -> None:
        self.on, self.prefix, self.names = frozenset(on), prefix, frozenset(names)

    def __call__(self, left: Any, right: Any) -> dict[str, Any]:
        row = dict(left or {})
        for name, value in (right or {}).items():
            if name not in row and (name in self.on or name not in self.names):
                row[name] = value
            elif name not in self.on:
                row[self.prefix + name] = value
        return row


class GoesTo(HasExpression):
    """A condition: whether a record goes to an output, by the value of a field.

    Args:
        field: The field.
        outputs: Outputs by values; without them the value is the output.
        default: Output for all other values.
        output: The output; None for any.
    """

    __slots__ = ("default", "field", "output", "outputs")

    def __init__(
        self,
        field: str,
        outputs: Mapping[str, Sequence[Any]] | None,
        default: str | None,
        output: str | None,
    ) -> None:
        self.field, self.default, self.output = field, default, output
        self.outputs = None if outputs is None else {k: list(v) for k, v in outputs.items()}

    def __call__(self, record: Any) -> bool:
        return self._holds(field_of(record, self.field))

    def expression(self) -> Expression:
        return Expression("apply", self._holds, expression_of(self.field))

    def _holds(self, value: Any) -> bool:
        found = self._outputs_of(value)
        return bool(found) if self.output is None else self.output in found

    def _outputs_of(self, value: Any) -> list[str]:
        if self.outputs is None:
            return [] if value is None else [text_of(value)]
        found = [name for name, values in self.outputs.items() if value in values]
        return found if found or self.default is None else [self.default]


class GoesByText(GoesTo):
    """The same, where outputs are called as the texts of their values."""

    __slots__ = ()

    def _outputs_of(self, value: Any) -> list[str]:
        return super()._outputs_of(None if value is None else text_of(value))


def goes_to(spec: Split, names: Sequence[str]) -> Callable[[str | None], GoesTo]:
    """Return a maker of conditions of outputs, by the names of all that are read.

    Without the names, no value would be another one, which goes to the default.
    """
    if spec.outputs is None and spec.default is not None:
        return partial(GoesByText, spec.field, {name: [name] for name in names}, spec.default)
    return partial(GoesTo, spec.field, spec.outputs, spec.default)


class _AsType:
    """A conversion to a declared type: a number may be a text, as in CSV."""

    __slots__ = ("digits", "empty", "is_open", "word")

    def __init__(self, word: str, *, empty: str | None = None) -> None:
        self.word, self.is_open = word.removesuffix("?"), word.endswith("?")
        self.digits = decimal_digits(self.word)
        self.empty = empty

    def __call__(self, value: Any) -> Any:
        if self.is_open and (value is None or value == self.empty):
            return None
        if self.digits is not None:
            return exact_decimal(value, *self.digits)
        if self.word == "timestamp" and type(value) not in _TIMES:
            raise TypeError(f"expected a time, got {type(value).__name__}")
        return msgspec.convert(value, _TYPES[self.word], strict=False)


class TypedRecord(HasExpression):
    """A record with exactly the declared fields and types, in the declared order.

    A number may come as text, as in CSV. A value of another type is a bad record. A field that may
    be missing is None then.

    Args:
        fields: Their types.
        is_csv: Whether records are rows of CSV: empty values that are no text may be missing.
    """

    __slots__ = ("_converted", "_kind", "_nullable", "fields", "is_csv")

    def __init__(self, fields: Mapping[str, str], *, is_csv: bool = False) -> None:
        self.fields, self.is_csv = dict(fields), is_csv
        own = {n: word for n, word in fields.items() if word.startswith(("timestamp", "decimal"))}
        self._converted = {name: _AsType(word) for name, word in own.items()}
        self._nullable = [
            name
            for name, word in fields.items()
            if is_csv and word.endswith("?") and word != "string?"
        ]
        self._kind: Any = None

    def __reduce__(self) -> Any:
        return partial(type(self), is_csv=self.is_csv), (self.fields,)

    def __call__(self, record: Any) -> dict[str, Any]:
        if self._kind is None:
            # Made here, because a type that is made at run time cannot travel.
            types = {name: _type_of(word) for name, word in self.fields.items()}
            made: Any = TypedDict
            self._kind = prepare_type(made("Record", types))
        if self._nullable and isinstance(record, dict):
            empty = {name: None for name in self._nullable if record.get(name) == ""}
            record = {**record, **empty}
        found = msgspec.convert(record, self._kind, strict=False)
        for name, convert in self._converted.items():
            found[name] = convert(found.get(name))
        return {name: found.get(name) for name in self.fields}

    def expression(self) -> Expression:
        columns = [
            _read_typed(name, word, empty="" if name in self._nullable else None)
            for name, word in self.fields.items()
        ]
        return Expression("record", tuple(self.fields), *columns)


def _base(word: str) -> str:
    """Return the name of a type without its digits and its question mark."""
    return word.removesuffix("?").partition("(")[0]


def _type_of(word: str) -> Any:
    declared = _TYPES[_base(word)]
    return NotRequired[declared | None] if word.endswith("?") else declared


def _read_typed(name: str, word: str, *, empty: str | None) -> Expression:
    is_open = word.endswith("?")
    value = expression_of(name) if is_open else col(name)
    kinds = _KINDS.get(_base(word))
    if kinds is None and empty is None:
        return value
    taken = kinds or frozenset()
    if empty is not None:
        taken -= {str}  # A time is text, too, but never empty.
    if is_open:
        taken |= {type(None)}
    return Expression("converted", taken, _AsType(word, empty=empty), value)


class FirstOfKey(KeyedProcessFunction[Any, Any, Any]):
    """The first record of each key; a key is known for ``ttl_ms``, or forever."""

    def __init__(self, ttl_ms: int | None) -> None:
        ttl = None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
        self.seen = ValueStateDescriptor("seen", bool, ttl=ttl)

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        state = ctx.get_value_state(self.seen)
        if state.value():
            return []
        state.update(True)
        return [value]


_PAYLOADS = ({"bytes"}, {"bytes_b64"})


class WithMessage(AsyncFunction[Any, Any]):
    """The record with the place of its message: topic, partition, offset."""

    def process(self, value: Any, ctx: Context) -> list[Any]:
        message = ctx.message
        # A message that was no object; an object may have more fields, or a number of bytes.
        is_payload = value.keys() in _PAYLOADS and isinstance(next(iter(value.values())), str)
        if message is None or is_payload:
            return [value]
        topic, _, partition = message.shard.rpartition("/")  # As the connector names its shards.
        index = {"_topic": topic, "_partition": int(partition), "_offset": message.offset}
        return [{**value, **index}]
