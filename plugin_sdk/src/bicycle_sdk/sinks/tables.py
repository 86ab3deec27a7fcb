"""Sinks whose output has columns, in files of Parquet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.errors import StreamDefinitionError

__all__ = [
    "ColumnType",
    "Compression",
    "Folders",
    "by_date",
    "by_field",
    "column_words",
    "console_table_sink",
    "given",
    "keys_of",
    "parquet_sink",
]

Compression = Literal["snappy", "zstd", "gzip", "none"]
ColumnType = type | str
_TYPES = (bool, int, float, str, bytes, datetime, date, time, Decimal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The partitioning of rows into folders; ``by_field`` and ``by_date`` make it."""

    kind: Literal["field", "date"]
    field: str = ""
    date_format: str = "%Y-%m-%d"


def by_field(name: str) -> Folders:
    """Return folders ``name=value`` for each value of a field.

    Args:
        name: The field. Readers take it from the name of the folder; it is not in the files.
    """
    if not name:
        raise StreamDefinitionError(
            call="by_field", problem="the name of the field is empty", hint="give by_field('city')"
        )
    return Folders(kind="field", field=name)


def by_date(date_format: str = "%Y-%m-%d", *, field: str = "") -> Folders:
    """Return folders ``dt=date`` for each day, or for each text of the format, in UTC.

    Args:
        date_format: As of ``strftime``.
        field: Field with a time, a date, or ms since 1970; empty for the event time of the record.
    """
    if "%" not in date_format:
        raise StreamDefinitionError(
            call="by_date",
            problem=f"{date_format!r} is not a date format",
            hint="use a format such as '%Y-%m-%d' or '%Y-%m'",
        )
    return Folders(kind="date", field=field, date_format=date_format)


def parquet_sink(
    path: str | os.PathLike[str],
    *,
    folders: Folders | None = None,
    columns: Mapping[str, ColumnType] | None = None,
    timestamp_field: str | None = None,
    compression: Compression | None = None,
    roll_rows: int | None = None,
    roll_bytes: int | None = None,
    roll_ms: int | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of Parquet files in a directory or at a URL, visible when sealed.

    Args:
        path: The directory, or a URL such as ``s3://bucket/folder``.
        folders: ``by_field`` or ``by_date``; None for no folders.
        columns: Type of each column; None for the fields of the record type, or ``event_time`` and
            ``payload`` if the records have no fields.
        timestamp_field: Column that gets the event time of each record.
        compression: The compression of files; snappy by default.
        roll_rows: A part is complete when it has this many rows; None: as the connector decides.
        roll_bytes: A part is complete when it has about this many bytes.
        roll_ms: Everything is completed this long after its first record.
    """
    properties: dict[str, Any] = {"path": os.fspath(path)}
    if folders is not None:
        properties["partition_by"] = folders.kind
        properties["partition_field"] = folders.field
        if folders.kind == "date":
            properties["partition_format"] = folders.date_format
    if columns is not None:
        properties["columns"] = column_words("parquet_sink", columns)
    properties |= given(
        "parquet_sink",
        timestamp_field=timestamp_field,
        compression=compression,
        roll_rows=roll_rows,
        roll_bytes=roll_bytes,
        roll_ms=roll_ms,
    )
    return SinkDescriptor(connector_type="parquet_file", properties=properties)


def console_table_sink(
    *, columns: Mapping[str, ColumnType] | None = None, rows: int | None = None
) -> SinkDescriptor[Any]:
    """Return a sink that prints a table for each epoch with records, for trials.

    Args:
        columns: Type of each column; None for the fields of the record type.
        rows: So many rows of an epoch are shown, and how many more there are; None for 20.
    """
    properties: dict[str, Any] = {"format": "table"}
    if columns is not None:
        properties["columns"] = column_words("console_table_sink", columns)
    properties |= given("console_table_sink", rows=rows)
    return SinkDescriptor(connector_type="console", properties=properties)


def column_words(call: str, columns: Mapping[str, ColumnType]) -> list[list[str]]:
    """Return name and word for the type of each column, in their order.

    A list, because the names of a JSON object have no order in a graph.

    Raises:
        StreamDefinitionError: there is no column, or a type has no word.
    """
    words = []
    for name, found in columns.items():
        if isinstance(found, type) and found not in _TYPES:
            known = ", ".join(each.__name__ for each in _TYPES)
            raise StreamDefinitionError(
                call=call,
                problem=f"column {name!r} has the type {found.__name__}",
                hint=f"use one of {known}, or a type name such as 'decimal(12,2)' or 'json'",
            )
        words.append([name, found if isinstance(found, str) else found.__name__.lower()])
    if not words:
        raise StreamDefinitionError(
            call=call,
            problem="columns is empty",
            hint="name at least one column, or remove columns",
        )
    return words


def keys_of(call: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return keys as properties, or an empty dict without keys.

    Raises:
        StreamDefinitionError: they are one text.
    """
    if isinstance(keys, str):
        raise StreamDefinitionError(
            call=call,
            problem=f"keys must be a tuple, got the text {keys!r}",
            hint=f"give ({keys!r},)",
        )
    return {"mode": "upsert", "keys": list(keys)} if keys else {}


def given(call: str, **properties: Any) -> dict[str, Any]:
    """Return the properties with a value; a number must be at least 1.

    Raises:
        StreamDefinitionError: one is less.
    """
    found = {name: value for name, value in properties.items() if value is not None}
    for name, value in found.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise StreamDefinitionError(
                call=call, problem=f"{name} is {value}, expected 1 or more", hint="give more"
            )
    return found
