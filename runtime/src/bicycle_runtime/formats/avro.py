"""Avro values by a schema that the job brings: binary, one datum for each, without container.

Whatever knows more schemas than one (a registry, a frame with an id) makes codecs of this kind.
"""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from bicycle_runtime.formats.avro_times import times_of_schema
from bicycle_runtime.formats.plain import refuse_options
from bicycle_runtime.formats.typed_values import Conversion, TypedConverter

__all__ = ["AvroCodec"]

# Types that Avro has itself: they stay as they are between records and plain data.
_NATIVE = (
    bytes, bytearray, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID,
)  # fmt: skip


class AvroCodec:
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
            msgspec.json.Decoder(record_type)  # Refuses a type that nothing can be converted to.
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
        return times_of_schema(self._parsed)

    @property
    def _is_plain(self) -> bool:
        return self._type in (None, Any, object, dict)

    def decode(self, data: bytes) -> Any:
        """Return the record.

        Raises:
            ValueError: the bytes are cut, longer than one datum, or not of the declared type.
        """
        buffer = io.BytesIO(data)
        try:
            found = fastavro.schemaless_reader(buffer, self._parsed, None)
        except (EOFError, IndexError, StopIteration) as error:
            raise ValueError(f"the {len(data)} bytes are no whole datum of the schema") from error
        if buffer.tell() != len(data):
            raise ValueError(f"the datum ends at byte {buffer.tell()} of {len(data)}")
        return found if self._is_plain else self._convert(found)

    def encode(self, value: Any) -> bytes:
        """Return the datum of a record.

        Raises:
            ValueError: the record does not fit the schema.
        """
        buffer = io.BytesIO()
        datum = msgspec.to_builtins(value, builtin_types=_NATIVE)
        try:
            if self._times is not None:
                datum = self._times(datum)
            # The writer by itself takes an int that the schema's int has no room for.
            validate(datum, self._parsed, raise_errors=True)
            fastavro.schemaless_writer(buffer, self._parsed, datum, strict_allow_default=True)
        except (ValidationError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return buffer.getvalue()
