"""Sinks that are tables of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bicycle_sdk.connectors import SinkDescriptor
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.tables import ColumnType, column_words, given, keys_of

__all__ = ["postgres_sink"]


def postgres_sink(
    url: str,
    table: str,
    *,
    password: Secret | None = None,
    keys: Sequence[str] = (),
    delete_field: str | None = None,
    columns: Mapping[str, ColumnType] | None = None,
    create_table: bool | None = None,
    on_rewind: Literal["fail", "publish_again"] | None = None,
) -> SinkDescriptor[Any]:
    """Return a sink of rows of a PostgreSQL table, one transaction per epoch.

    Args:
        url: ``postgresql://user@host:port/database``, without a password.
        table: Its name, or ``schema.table``.
        password: The location of the password; None for libpq's own search (PGPASSWORD, a password
            file).
        keys: Columns that identify a row: a record replaces the row with its keys. Without keys
            each record is one row more.
        delete_field: Field of the records; where it is true, the row with the keys is deleted.
        columns: Type of each column; None for the fields of the record type.
        create_table: Make the table when it is missing.
        on_rewind: The action if a restored epoch is older than the last written epoch.
    """
    properties = {"url": url, "table": table, **keys_of("postgres_sink", keys)}
    if password is not None:
        properties["password"] = password.to_json()
    if columns is not None:
        properties["columns"] = column_words("postgres_sink", columns)
    properties |= given(
        "postgres_sink",
        delete_field=delete_field,
        create_table=create_table,
        on_rewind=on_rewind,
    )
    return SinkDescriptor(connector_type="postgres", properties=properties)
