"""Sinks that are tables of a database."""

from __future__ import annotations

from collections.abc import Iterator

from bicycle_sdk.client_options import EventTime
from bicycle_sdk.connector_options import Conflict, SinkOptions, sink_call
from bicycle_sdk.database_options import MarkerTable, PostgresTable, UpsertOptions
from bicycle_sdk.options import option
from bicycle_sdk.sinks.tables import ColumnOptions

__all__ = ["PostgresSinkOptions", "postgres_sink"]


class PostgresSinkOptions(
    PostgresTable,
    UpsertOptions,
    ColumnOptions,
    EventTime,
    MarkerTable,
    SinkOptions,
    connector="postgres",
    extra="postgres",
    call="postgres_sink",
):
    """The options of the PostgreSQL sink: table, mode and time limits.

    A session without a response for half of ``publish_timeout_ms`` is closed, and the epoch is
    retried.
    """

    delete_field: str = option(
        default="",
        doc=(
            "Field of the records that is not a column: if it is true, the row with the keys is "
            "deleted (upsert)."
        ),
    )
    create_table: bool = option(
        default=False, doc="Create the table if it is missing, with the keys as its primary key."
    )

    def conflicts(self) -> Iterator[Conflict]:
        """Yield keys and a field of deletions that do not fit the mode."""
        hint = "set e.g. keys=('id',) with mode=upsert"
        if self.delete_field and self.mode != "upsert":
            yield Conflict("keys", "delete_field requires an upsert, which needs keys", hint)
        elif self.mode == "upsert" and not self.keys:
            yield Conflict("keys", "an upsert needs keys", hint)
        if self.delete_field and self.delete_field in self.keys:
            hint = "name a field that is not a key"
            yield Conflict("delete_field", "delete_field must not be a key", hint)


postgres_sink = sink_call(
    PostgresSinkOptions, "Return a sink of rows of a PostgreSQL table, one transaction per epoch."
)
