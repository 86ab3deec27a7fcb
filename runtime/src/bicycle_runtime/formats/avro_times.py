"""Times in values that are written as Avro: a number stands for ms, whatever unit the schema has.

The writer of Avro takes a number as it is, so that 1 would be a microsecond for one schema and a
millisecond for another. It also takes a datetime without a zone to be in the zone of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bicycle_runtime.formats.times import moment_of, time_of_day_of
from bicycle_runtime.formats.typed_values import Conversion, in_fields, in_items, in_turn, in_values

__all__ = ["times_of_schema"]

_NUMBERS = {"int", "long", "float", "double"}


def times_of_schema(schema: Any) -> Conversion | None:
    """Return a function that converts the times in a datum; None where the schema has none.

    Args:
        schema: As ``fastavro.parse_schema`` returns it.
    """
    return _Finder().find(schema)


class _Finder:
    """Makes the functions of a schema; a named type may hold itself."""

    def __init__(self) -> None:
        self._named: dict[str, Conversion | None] = {}

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
        elif isinstance(kind, (dict, list)):
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
        if any(each in _NUMBERS for each in members if isinstance(each, str)):
            # A number is a number where the union has one.
            found = [each for each in found if each not in (_moment, _time_of_day)]
        return in_turn(found)


def _moment(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return moment_of(value) if _is_number(value) else value


def _time_of_day(value: Any) -> Any:
    return time_of_day_of(value) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
