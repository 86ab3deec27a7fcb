"""Avro values with a schema from the job: binary, one datum each, no container.

Whatever knows more schemas than one (a registry, a frame with an id) makes codecs of this kind.
"""

from __future__ import annotations

import decimal
import io
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from functools import cached_property, partial
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate
from fastavro.write import LOGICAL_WRITERS

from bicycle_runtime.formats.binary_frames import avro_frames
from bicycle_runtime.formats.frame_codec import DecodeBatch, FrameCodec
from bicycle_runtime.formats.plain import refuse_options
from bicycle_runtime.formats.plain_values import as_single, as_text, to_plain
from bicycle_runtime.formats.typed_values import (
    Conversion,
    TypedConverter,
    in_fields,
    in_items,
    in_turn,
    in_values,
    json_decoder,
)
from bicycle_runtime.records.times import in_ms, moment_of, time_of_day_of, with_zone

# Types that Avro has itself: they stay as they are between records and plain data.
_NATIVE = (bytes, bytearray, datetime, date, time, timedelta, decimal.Decimal, uuid.UUID)


class AvroCodec(FrameCodec):
    """One Avro datum for each value.

    Records are plain data, dicts for Avro's records, or what is declared, by the names of fields.

    Args:
        record_type: Declared type of the records, or None.
        options: ``schema``: the schema, as plain data.

    Raises:
        ValueError: the schema is missing or is none.
    """

    def __init__(self, record_type: Any, options: Mapping[str, Any]) -> None:
        refuse_options(options, frozenset({"schema"}))
        if "schema" not in options:
            raise ValueError("the option 'schema' is missing")
        self._schema = options["schema"]
        self._type = record_type
        if not self._is_plain:
            json_decoder(record_type)  # Refuses a type that nothing can be converted to.
        try:
            _ = self._parsed
        except (SchemaParseException, UnknownType) as error:
            raise ValueError(f"the schema is wrong: {type(error).__name__}: {error}") from error

    def __getstate__(self) -> tuple[Any, ...]:
        return self._type, self._schema

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type, self._schema = state

    @cached_property
    def _parsed(self) -> Any:
        return fastavro.parse_schema(self._schema)

    @cached_property
    def _convert(self) -> TypedConverter:
        return TypedConverter(self._type)

    @cached_property
    def _times(self) -> Conversion | None:
        return _times_of_schema(self._parsed)

    @property
    def _is_plain(self) -> bool:
        return self._type in (None, Any, object, dict)

    def _find_decoder(self) -> DecodeBatch | None:
        return avro_frames(self._parsed, self._type)

    def decode(self, data: bytes) -> Any:
        """Return the record.

        Raises:
            ValueError: the bytes are cut, longer than one datum, or not of the declared type.
        """
        buffer = io.BytesIO(data)
        try:
            found = fastavro.schemaless_reader(buffer, self._parsed, None)
        except (EOFError, IndexError, StopIteration) as error:
            raise ValueError(
                f"the {len(data)} bytes are not a complete datum of the schema"
            ) from error
        if buffer.tell() != len(data):
            raise ValueError(f"the datum ends at byte {buffer.tell()} of {len(data)}")
        return found if self._is_plain else self._convert(found)

    def encode(self, value: Any) -> bytes:
        """Return the datum of a record.

        Raises:
            ValueError: the record does not fit the schema.
        """
        buffer = io.BytesIO()
        datum = to_plain(value, self._type, _NATIVE)
        try:
            if self._times is not None:
                datum = self._times(datum)
            # The writer by itself takes an int that the schema's int has no room for.
            validate(datum, self._parsed, raise_errors=True)
            fastavro.schemaless_writer(buffer, self._parsed, datum, strict_allow_default=True)
        except (ValidationError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return buffer.getvalue()


def _times_of_schema(schema: Any) -> Conversion | None:
    """Return a function that converts values that the writer refuses, or None.

    The writer of Avro takes a number as it is: 1 would be a microsecond for one schema, and a
    millisecond for another. It also takes a datetime without a zone to be in that of the machine,
    and writes a number that is too large for a float as infinity.

    Args:
        schema: As ``fastavro.parse_schema`` returns it.
    """
    return _TimeFinder().find(schema)


class _TimeFinder:
    """Makes the functions of a schema; a named type may hold itself."""

    def __init__(self) -> None:
        self._named: dict[str, Conversion | None] = dict(_PLAIN)

    def find(self, schema: Any) -> Conversion | None:
        if isinstance(schema, str):
            return self._named.get(schema)
        if isinstance(schema, list):
            return self._union(schema)
        word, kind = str(schema.get("logicalType", "")), schema["type"]
        convert: Conversion | None = None
        if word.removeprefix("local-").startswith("timestamp-"):
            convert = _moment
        elif word.startswith("time-"):
            convert = _time_of_day
        elif kind == "array":
            convert = in_items(self.find(schema["items"]))
        elif kind == "map":
            convert = in_values(self.find(schema["values"]))
        elif kind in ("record", "error"):
            convert = self._record(schema)
        elif word != "date":
            convert = self.find(kind)
        return convert

    def _record(self, schema: Mapping[str, Any]) -> Conversion | None:
        name = schema["name"]
        # Called only once all fields are known.
        self._named[name] = lambda datum: self._call(name, datum)
        found = {field["name"]: self.find(field["type"]) for field in schema["fields"]}
        self._named[name] = in_fields(found)
        return self._named[name]

    def _call(self, name: str, datum: Any) -> Any:
        convert = self._named[name]
        return datum if convert is None else convert(datum)

    def _union(self, members: list[Any]) -> Conversion | None:
        found = list(map(self.find, members))
        if any(isinstance(each, dict) and "logicalType" in each for each in members):
            # A value of a logical type stays as it is; none has durations.
            found = [partial(_span, each) if each in (in_ms, as_text) else each for each in found]
        if _NUMBERS & {each for each in members if isinstance(each, str)}:
            # A number is a number where the union has one.
            found = [each for each in found if each not in (_moment, _time_of_day)]
        return in_turn(found)


def _span(convert: Conversion, value: Any) -> Any:
    return convert(value) if isinstance(value, timedelta) else value


def _moment(value: Any) -> Any:
    if isinstance(value, datetime):
        return with_zone(value)
    return moment_of(value) if _is_number(value) else value


def _time_of_day(value: Any) -> Any:
    return time_of_day_of(value) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# What a type without a logical type takes.
_PLAIN: Mapping[str, Conversion] = {
    "int": in_ms, "long": in_ms, "double": in_ms, "float": as_single, "string": as_text,
}  # fmt: skip
_NUMBERS = {"int", "long", "float", "double"}


def _read_nanoseconds(read: Callable[..., Any], number: int, *schemas: Any) -> Any:
    return read(number // 1_000, *schemas)


def _write_nanoseconds(write: Callable[..., Any], value: Any, schema: Any) -> Any:
    return write(value, schema) * 1_000 if isinstance(value, datetime) else value


# The library leaves nanoseconds as a number, which a declared time would take as ms.
for _word in ("long-timestamp", "long-local-timestamp"):
    _read, _write = LOGICAL_READERS[f"{_word}-micros"], LOGICAL_WRITERS[f"{_word}-micros"]
    LOGICAL_READERS[f"{_word}-nanos"] = partial(_read_nanoseconds, _read)
    LOGICAL_WRITERS[f"{_word}-nanos"] = partial(_write_nanoseconds, _write)
