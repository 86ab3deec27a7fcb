"""Sinks that are tables of a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from bicycle_sdk.connector_options import Conflict, SinkOptions, sink_call
from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.tables import ColumnType, upsert_with_keys

__all__ = ["PostgresSinkOptions", "postgres_sink"]


class PostgresSinkOptions(
    SinkOptions, connector="postgres", extra="postgres", call="postgres_sink"
):
    """The options of the PostgreSQL sink: table, mode and time limits."""

    url: str = option(
        kw_only=False, doc="postgresql://user@host:port/database, without a password."
    )
    password: Secret | None = option(
        default=None,
        doc="A reference to the password. Default: PGPASSWORD or the password file of libpq.",
    )
    table: str = option(kw_only=False, doc="Name of the table, or schema.table.")
    mode: Literal["insert", "upsert"] = option(
        default="insert",
        doc=(
            "insert adds rows; upsert replaces the row with the same keys, and the last record "
            "wins. Default: upsert with keys, else insert."
        ),
    )
    keys: Sequence[str] = option(
        default=(),
        doc=(
            "Columns that identify a row; a unique index of the table has exactly these columns "
            "(upsert)."
        ),
    )
    delete_field: str = option(
        default="",
        doc=(
            "Field of the records that is not a column: if it is true, the row with the keys is "
            "deleted (upsert)."
        ),
    )
    columns: Mapping[str, ColumnType] | None = option(
        default=None,
        doc="Types of the columns, as for Parquet. Default: the fields of the record type.",
    )
    timestamp_field: str = option(
        default="",
        doc="Column for the event time of each record; a record without event time fails.",
        aliases=("time_field",),
    )
    create_table: bool = option(
        default=False, doc="Create the table if it is missing, with the keys as its primary key."
    )
    marker_table: str = option(
        default="bicycle_epochs",
        doc=(
            "Table for published epochs; it is created if it is missing, in the first schema of "
            "the search path."
        ),
    )
    publish_timeout_ms: int = option(
        default=900_000,
        low=1_000,
        high=86_400_000,
        doc="Time without the server after which the job ends; its output is kept. A session "
        "without a response for half of this time is closed, and the epoch is retried.",
    )
    connect_timeout_ms: int = option(
        default=30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of the server at a start.",
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        default="fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the mode that keys select."""
        return upsert_with_keys(given)

    def conflicts(self) -> Iterator[Conflict]:
        """Yield keys and a field of deletions that do not fit the mode."""
        hint = "set e.g. keys=('id',) with mode=upsert"
        if self.delete_field and self.mode == "insert":
            yield Conflict("keys", "delete_field requires an upsert, which needs keys", hint)
        elif self.mode == "upsert" and not self.keys:
            yield Conflict("keys", "an upsert needs keys", hint)
        if self.delete_field and self.delete_field in self.keys:
            hint = "name a field that is not a key"
            yield Conflict("delete_field", "delete_field must not be a key", hint)


postgres_sink = sink_call(
    PostgresSinkOptions, "Return a sink of rows of a PostgreSQL table, one transaction per epoch."
)
