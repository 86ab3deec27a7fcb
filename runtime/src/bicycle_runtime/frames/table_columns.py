"""The columns of a table: from a record type, declared, or a time and payload.

Sinks of tables get their records as Arrow columns. A record that does not fit its columns raises,
so that the sink's ``on_error`` settles it; no conversion loses a part of a value.
"""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from enum import Enum
from operator import attrgetter
from types import NoneType, SimpleNamespace
from typing import Any, SupportsIndex
from uuid import UUID

import msgspec
import pyarrow
import pyarrow.compute as pc

from bicycle_runtime.frames.arrays import listed_values
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_fields import fields_of, types_of, without_none
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.schemas import VALUE_TYPES, Field, Schema, arrow_type
from bicycle_runtime.frames.vectors import Vector
from bicycle_runtime.records.times import date_of, duration_of, moment_of, time_of_day_of
from bicycle_sdk.record_types import annotations_of

TIMES = arrow_type("timestamp")
# Times in ms that a column in microseconds has room for, and Python, too.
_TIME_MS_MIN, _TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
_PLAIN: Mapping[Any, pyarrow.DataType] = {
    found.python: arrow_type(found.word) for found in VALUE_TYPES if found.python
}
_WORDS = [found.column_word for found in VALUE_TYPES if found.in_columns]
_LISTS = (list, set, frozenset, Sequence, tuple)
# The arrays that are columns of a type without conversion.
_ARRAYS = {arrow_type(found.word): found.array for found in VALUE_TYPES if found.array}
_UNTYPED = (Any, object, dict, list, tuple)
_EVENT_TIME, _PAYLOAD = "event_time", "payload"
_encode = msgspec.json.Encoder().encode
Conversion = Callable[[Any], Any] | None
_EventTimes = Sequence[int | None] | None
# Conversions of a value to a time. Arrow would take a number in the unit of its column.
_CONVERSIONS: Mapping[pyarrow.DataType, Conversion] = {
    _PLAIN[datetime]: moment_of,
    _PLAIN[date]: date_of,
    _PLAIN[time]: time_of_day_of,
    _PLAIN[timedelta]: duration_of,
}
_WHOLE = frozenset({int, NoneType})
# The types that Arrow takes as they are.
_TAKEN = {_PLAIN[kind]: {kind, NoneType} for kind in (datetime, date, time, timedelta)}


class _NoColumnError(Exception):
    """A type that no column can hold."""


class ColumnTypeError(ValueError):
    """A column with an unknown type: its name, the type, and the known types."""

    def __init__(self, name: str, found: str, known: str) -> None:
        super().__init__(f"column {name!r}: {found} is not a column type; known are {known}")
        self.name, self.found, self.known = name, found, known


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Column(Field):
    """A column; ``convert`` returns a value that Arrow accepts, None if all are."""

    convert: Conversion = None


class TableColumns:
    """The columns of a table, and how they are taken from records; picklable.

    Args:
        columns: In order.
        shape: How a record has its fields: ``attributes``, ``keys``, ``places``, ``value`` (it is
            the only one), ``either`` (keys or attributes), or ``payload``.
        time_name: Column of the event time, or an empty text.
    """

    def __init__(self, columns: Sequence[_Column], shape: str, time_name: str) -> None:
        self._columns = [column for column in columns if column.name != time_name]
        self._shape = shape
        self.time_name = time_name
        self._requires_time = time_name != _EVENT_TIME
        times = [pyarrow.field(time_name, TIMES)] if time_name else []
        own = [pyarrow.field(column.name, column.type) for column in self._columns]
        is_first = shape == "payload"
        self.schema = pyarrow.schema([*times, *own] if is_first else [*own, *times])

    @classmethod
    def declared(cls, words: Mapping[str, Any], time_name: str) -> TableColumns:
        """Return declared columns; records have them by key or attribute, null if absent.

        Args:
            words: The word of its type by column.
            time_name: Column of the event time, or an empty text.

        Raises:
            ColumnTypeError: a word is not a type of columns.
        """
        found = {name: str(word).strip().lower() for name, word in words.items()}
        for name, word in found.items():
            if word.partition("(")[0] not in _WORDS or arrow_type(word) is None:
                known = ", ".join([*_WORDS, "decimal(12,2)"])
                raise ColumnTypeError(name, repr(words[name]), known)
        columns = [
            _Column(
                name=each.name, type=each.type,
                convert=_payload if found[each.name] == "json" else _CONVERSIONS.get(each.type),
            )
            for each in Schema.of_words(found)
        ]  # fmt: skip
        return cls(columns, "either", time_name)

    @classmethod
    def of_type(cls, record_type: Any, time_name: str) -> TableColumns:
        """Return the fields of a type, or ``payload``: the JSON text of other records.

        Raises:
            ColumnTypeError: the type of a field is not a type of columns.
        """
        if record_type in (None, Any, object, dict) or typing.get_origin(record_type) is dict:
            payload = _Column(name=_PAYLOAD, type=pyarrow.string(), is_nullable=False)
            return cls([payload], "payload", time_name or _EVENT_TIME)
        shape, fields = _fields_of(record_type)
        return cls([_make_column(name, each) for name, each in fields.items()], shape, time_name)

    def record_of(self, values: Mapping[str, Any]) -> Any:
        """Return a record that has these values, by column, and fits these columns."""
        own = {column.name: values.get(column.name) for column in self._columns}
        match self._shape:
            case "payload" | "value":
                return next(iter(own.values()))
            case "places":
                return tuple(own.values())
            case "attributes":
                return SimpleNamespace(**own)
        return own

    def requiring(self, names: Collection[str]) -> TableColumns:
        """Return columns that do not take null for these names."""
        found = copy.copy(self)
        found._columns = [
            dataclasses.replace(column, is_nullable=column.is_nullable and column.name not in names)
            for column in self._columns
        ]
        found._requires_time = self._requires_time or self.time_name in names
        return found

    def batch(self, values: Sequence[Any], times: _EventTimes) -> pyarrow.RecordBatch:
        """Return records as columns.

        Raises:
            ValueError: a record lacks a field, or has a value that does not fit its column.
            TypeError: likewise.
        """
        is_named = self._shape in ("keys", "either")
        form = values.form if isinstance(values, Frame) and is_named else None
        if isinstance(values, Frame) and form is not None and form.kind is dict:
            lists = self._of_dicts(values, form)
        else:
            lists = self._items(values)
        found = {
            column.name: _array(column, items)
            for column, items in zip(self._columns, lists, strict=True)
        }
        if self.time_name:
            found[self.time_name] = self._time_array(len(values), times)
        arrays = [found[name] for name in self.schema.names]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _time_array(self, count: int, times: _EventTimes) -> pyarrow.Array:
        found = pyarrow.array(times if times is not None else [None] * count, TIMES)
        if found.null_count and self._requires_time:
            raise ValueError(
                f"the record has no event time for the column {self.time_name!r}; call "
                "assign_timestamps(…) on the stream"
            )
        bounds = pc.min_max(found.cast(pyarrow.int64())).as_py()
        for time_ms in bounds.values():
            if time_ms is not None and not _TIME_MS_MIN <= time_ms <= _TIME_MS_MAX:
                raise ValueError(f"the event time {time_ms} is outside the years 1 to 9999")
        return found

    def _items(self, values: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """Return the values of each column."""
        match self._shape:
            case "payload":
                return [[_payload(value) for value in values]]
            case "value":
                return [list(values)]
            case "places":
                return self._by_index(values)
            case "attributes":
                return [list(map(attrgetter(column.name), values)) for column in self._columns]
            case "keys":
                return [self._by_key(column, values) for column in self._columns]
        return [[_field(value, column.name) for value in values] for column in self._columns]

    def _of_dicts(self, records: Frame, form: RecordForm) -> Iterable[Sequence[Any]]:
        """Return the values of dicts, from their columns."""
        found = dict(zip(form.names, records.columns(), strict=True))
        for column in self._columns:
            if column.name not in found:
                if self._shape == "keys" and not column.is_nullable:
                    raise ValueError(f"a record has no field {column.name!r}")
                found[column.name] = Vector.constant(None, len(records))
        return [found[column.name].as_they_lie for column in self._columns]

    def _by_index(self, values: Sequence[Any]) -> Iterable[Sequence[Any]]:
        count = len(self.schema) - bool(self.time_name)
        columns: list[Sequence[Any]]
        if isinstance(values, Frame) and (form := values.form) and form.kind is not None:
            columns = [column.as_they_lie for column in values.columns()]
        else:
            columns = list(zip(*values, strict=True))
        if columns and len(columns) != count:
            raise ValueError(f"a record has {len(columns)} fields, the table {count} columns")
        return columns or [()] * count

    def _by_key(self, column: _Column, values: Sequence[Any]) -> list[Any]:
        if column.is_nullable:
            return [value.get(column.name) for value in values]
        try:
            return [value[column.name] for value in values]
        except KeyError:
            raise ValueError(f"a record has no field {column.name!r}") from None


def _fields_of(record_type: Any) -> tuple[str, dict[str, Any]]:
    """Return how records of a type have their fields, and the type of each."""
    declared = fields_of(record_type)
    if declared is not None:
        return declared.how, types_of(record_type)
    found = typing.get_origin(record_type) or record_type
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return "attributes", annotations_of(record_type)
    arguments = typing.get_args(record_type)
    if typing.get_origin(record_type) is tuple and arguments and Ellipsis not in arguments:
        return "places", {f"field_{index}": each for index, each in enumerate(arguments, 1)}
    return "value", {"value": record_type}


def _make_column(name: str, found: Any) -> _Column:
    plain, is_optional = without_none(found)
    try:
        data_type, convert = _arrow(plain)
    except _NoColumnError as error:
        known = ", ".join(kind.__name__ for kind in _PLAIN)
        raise ColumnTypeError(name, str(error), known) from error
    return _Column(name=name, type=data_type, is_nullable=is_optional, convert=convert)


def _arrow(found: Any) -> tuple[pyarrow.DataType, Conversion]:
    """Return the column type for a type, and the conversion of its values."""
    if found in _PLAIN:
        return _PLAIN[found], _CONVERSIONS.get(_PLAIN[found])
    if found is UUID:
        return pyarrow.string(), str
    origin, arguments = typing.get_origin(found), typing.get_args(found)
    if origin is typing.Literal:
        return _arrow_of_values(arguments)
    if isinstance(found, type) and issubclass(found, Enum):
        return _arrow_of_members(found)
    if origin is not None or found in _UNTYPED:
        return _arrow_of_many(found, origin, arguments)
    return _struct(found)


def _arrow_inside(found: Any) -> tuple[pyarrow.DataType, Conversion]:
    """Return the type and conversion of values in a list, a map or a struct.

    Arrow itself takes 1.5 for the integer 1.
    """
    data_type, convert = _arrow(without_none(found)[0])
    is_integer = convert is None and data_type == pyarrow.int64()
    return data_type, _whole if is_integer else convert


def _whole(value: Any) -> Any:
    """Return an integer, also for a float without a fraction.

    Raises:
        ValueError: it is another value.
    """
    if isinstance(value, SupportsIndex):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(f"{value!r} is not a whole number")


def _arrow_of_many(
    found: Any, origin: Any, arguments: tuple[Any, ...]
) -> tuple[pyarrow.DataType, Conversion]:
    if origin in _LISTS and (origin is not tuple or Ellipsis in arguments):
        inner_type, convert = _arrow_inside(arguments[0])
        return pyarrow.list_(inner_type), _list_of(convert)
    if origin in (dict, Mapping) and arguments[0] is str:
        inner_type, convert = _arrow_inside(arguments[1])
        return pyarrow.map_(pyarrow.string(), inner_type), _map_of(convert)
    if found in _UNTYPED or origin in (dict, Mapping):
        return pyarrow.string(), _payload
    return _struct(found)


def _arrow_of_values(values: Sequence[Any]) -> tuple[pyarrow.DataType, Conversion]:
    kinds = {type(value) for value in values}
    return _arrow(kinds.pop()) if len(kinds) == 1 else (pyarrow.string(), _payload)


def _arrow_of_members(kind: type[Enum]) -> tuple[pyarrow.DataType, Conversion]:
    data_type, convert = _arrow_of_values([member.value for member in kind])
    if convert is None:
        return data_type, attrgetter("value")
    return data_type, lambda member: _convert(convert, member.value)


def _struct(kind: Any) -> tuple[pyarrow.DataType, Conversion]:
    shape, fields = _fields_of(kind)
    if shape == "value":
        raise _NoColumnError(str(kind))
    found = {name: _arrow_inside(each) for name, each in fields.items()}
    data_type = pyarrow.struct([(name, inner) for name, (inner, _) in found.items()])

    def convert(value: Any) -> dict[str, Any]:
        items = dict(zip(found, value, strict=True)) if shape == "places" else None
        return {
            name: _convert(inner, items[name] if items is not None else _field(value, name))
            for name, (_, inner) in found.items()
        }

    return data_type, convert


def _list_of(convert: Conversion) -> Conversion:
    """Return a conversion of collections to lists, with converted items."""

    def convert_all(values: Any) -> list[Any]:
        # hot path: 15 ns an integer, a call for each takes 60.
        if convert is _whole and set(map(type, values)) <= _WHOLE:
            return list(values)
        return [_convert(convert, value) for value in values]

    return convert_all


def _map_of(convert: Conversion) -> Conversion:
    """Return a conversion of dicts to pairs, with converted values."""
    return lambda values: [(key, _convert(convert, value)) for key, value in values.items()]


def _convert(convert: Conversion, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _array(column: _Column, items: Any) -> pyarrow.Array:
    """Return a list, an array of numbers, or Arrow texts as a column."""
    if hasattr(items, "dtype"):
        if column.convert is None and _ARRAYS.get(column.type) == items.dtype.name:
            return pyarrow.array(items)
        items = items.tolist()
    if isinstance(items, pyarrow.Array):
        if column.convert is None and column.type == items.type:
            return _check_nulls(column, items)
        items = listed_values(items)
    if column.convert is not None and not _are_taken(column, items):
        try:
            items = [_convert(column.convert, item) for item in items]
        except ValueError as error:
            raise ValueError(f"field {column.name!r} does not match its column: {error}") from error
    return _check_nulls(column, _make_array(column, items))


def _are_taken(column: _Column, items: Iterable[Any]) -> bool:
    """Return whether Arrow accepts all values unchanged, though the type is converted.

    hot path: 15 ns a time, a call for each takes 60.
    """
    taken = _TAKEN.get(column.type)
    return taken is not None and set(map(type, items)) <= taken


def _make_array(column: _Column, items: Any) -> pyarrow.Array:
    try:
        if column.type == pyarrow.int64():  # Else 1.5 would be 1, untold.
            return _cast_whole(pyarrow.array(items))
        return pyarrow.array(items, column.type)
    except (pyarrow.ArrowException, OverflowError) as error:
        raise ValueError(f"field {column.name!r} does not match its column: {error}") from error


def _check_nulls(column: _Column, found: pyarrow.Array) -> pyarrow.Array:
    if found.null_count and not column.is_nullable:
        raise ValueError(f"field {column.name!r} is None, but its column does not allow null")
    return found


def _cast_whole(found: pyarrow.Array) -> pyarrow.Array:
    kinds = pyarrow.types
    is_number = kinds.is_integer(found.type) or kinds.is_floating(found.type)
    if is_number or found.type == pyarrow.null():
        return found.cast(pyarrow.int64())
    raise pyarrow.ArrowTypeError(f"it has values of the type {found.type}")


def _payload(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
