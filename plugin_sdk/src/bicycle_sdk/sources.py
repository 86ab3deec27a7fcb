"""Sources of records beyond the methods of ``StreamEnvironment``."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.secrets import Secret

__all__ = ["postgres_source"]


def postgres_source(
    url: str,
    table: str,
    column: str,
    *,
    type: Any = dict,
    password: Secret | None = None,
    follow: bool = False,
    start_at: int | None = None,
    timestamp_field: str | None = None,
) -> SourceDescriptor[Any]:
    """Return a source of a PostgreSQL table's rows, ordered by a growing column.

    Args:
        url: ``postgresql://user@host:port/database``, without a password.
        table: Its name, or ``schema.table``. Rows are added, and neither changed nor deleted
            before they are read.
        column: Whole numbers, unique and never null, larger for each new row, such as an identity.
        type: The type of records; columns are taken by name.
        password: The location of the password; None for libpq's own search (PGPASSWORD, a password
            file).
        follow: Wait for new rows; else the source ends with the rows at the start.
        start_at: Rows with smaller numbers are not read.
        timestamp_field: Field with the event time.
    """
    if start_at is not None and start_at < 0:
        raise StreamDefinitionError(
            call="postgres_source", problem=f"start_at is {start_at}", hint="give 0 or more"
        )
    properties: dict[str, Any] = {"url": url, "table": table, "column": column, "follow": follow}
    if password is not None:
        properties["password"] = password.to_json()
    if start_at is not None:
        properties["start_at"] = start_at
    if timestamp_field is not None:
        properties["timestamp_field"] = timestamp_field
    output_type = dict[str, Any] if type is dict else type
    return SourceDescriptor(
        connector_type="postgres", properties=properties, output_type=output_type
    )
