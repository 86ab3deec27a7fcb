"""Sinks that are tables of lakes: Delta Lake and Iceberg."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.tables import ColumnType, Compression, column_words, given, keys_of

__all__ = ["IcebergCatalog", "Rolling", "delta_sink", "iceberg_sink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """The bounds at which waiting rows are committed; None is the connector's default.

    Args:
        rows: So many rows.
        size_bytes: About so many bytes.
        age_ms: So long after the first row.
    """

    rows: int | None = None
    size_bytes: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergCatalog:
    """A catalogue of Iceberg tables in a database.

    Args:
        address: ``sqlite:////data/lake.db``, or ``postgresql://user@host:port/database``, without
            a password.
        warehouse: Directory or URL below which new tables are created.
        password: Where the password is.
        name: Of the catalogue within its database.
    """

    address: str
    warehouse: str | os.PathLike[str]
    password: Secret | None = None
    name: str | None = None


def delta_sink(
    path: str | os.PathLike[str],
    *,
    keys: Sequence[str] = (),
    columns: Mapping[str, ColumnType] | None = None,
    partition_by: Sequence[str] = (),
    timestamp_field: str | None = None,
    compression: Compression | None = None,
    rolling: Rolling | None = None,
    on_rewind: Literal["fail", "publish_again"] | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of rows of a Delta table, one commit per epoch.

    Args:
        path: Directory of the table, or a URL such as ``s3://bucket/payments``.
        keys: Columns that identify a row: a record replaces the row with its keys. Without keys
            each record is one row more.
        columns: Type of each column; None for the fields of the record type.
        partition_by: Columns by which a table that is made is put into folders.
        timestamp_field: Column that gets the event time of each record.
        compression: The compression of files; snappy by default.
        rolling: When rows that wait are committed.
        on_rewind: The action if a restored epoch is older than the last written epoch.
    """
    call = "delta_sink"
    properties = {"path": os.fspath(path), **keys_of(call, keys)}
    properties |= _table_properties(call, columns, partition_by, rolling)
    properties |= given(
        call, timestamp_field=timestamp_field, compression=compression, on_rewind=on_rewind
    )
    return SinkDescriptor(connector_type="delta", properties=properties)


def iceberg_sink(
    catalog: IcebergCatalog,
    table: str,
    *,
    keys: Sequence[str] = (),
    columns: Mapping[str, ColumnType] | None = None,
    partition_by: Sequence[str] = (),
    timestamp_field: str | None = None,
    rolling: Rolling | None = None,
    on_rewind: Literal["fail", "publish_again"] | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of rows of an Iceberg table, one commit per epoch.

    Args:
        catalog: Where the table is known.
        table: ``namespace.table``.
        keys: Columns that identify a row: a record replaces the row with its keys. Without keys
            each record is one row more.
        columns: Type of each column; None for the fields of the record type.
        partition_by: Columns by which a table that is made is put into folders.
        timestamp_field: Column that gets the event time of each record.
        rolling: When rows that wait are committed.
        on_rewind: The action if a restored epoch is older than the last written epoch.
    """
    call = "iceberg_sink"
    if not all(table.partition(".")):
        raise StreamDefinitionError(
            call=call, problem=f"the table {table!r} has no namespace", hint="give 'shop.payments'"
        )
    properties: dict[str, Any] = {
        "catalog": catalog.address,
        "warehouse": os.fspath(catalog.warehouse),
        "table": table,
        **keys_of(call, keys),
    }
    if catalog.password is not None:
        properties["catalog_password"] = catalog.password.to_json()
    properties |= _table_properties(call, columns, partition_by, rolling)
    properties |= given(
        call,
        catalog_name=catalog.name,
        timestamp_field=timestamp_field,
        on_rewind=on_rewind,
    )
    return SinkDescriptor(connector_type="iceberg", properties=properties)


def _table_properties(
    call: str,
    columns: Mapping[str, ColumnType] | None,
    partition_by: Sequence[str],
    rolling: Rolling | None,
) -> dict[str, Any]:
    """Return the properties of both kinds of tables."""
    if isinstance(partition_by, str):
        raise StreamDefinitionError(
            call=call,
            problem=f"partition_by must be a tuple, got the text {partition_by!r}",
            hint=f"give ({partition_by!r},)",
        )
    properties: dict[str, Any] = {}
    if columns is not None:
        properties["columns"] = column_words(call, columns)
    if partition_by:
        properties["partition_by"] = list(partition_by)
    if rolling is not None:
        properties |= given(
            call,
            roll_rows=rolling.rows,
            roll_bytes=rolling.size_bytes,
            roll_ms=rolling.age_ms,
        )
    return properties
