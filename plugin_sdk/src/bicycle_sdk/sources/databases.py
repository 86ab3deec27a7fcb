"""Sources that are tables of a database."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.connector_options import SourceOptions, source_call
from bicycle_sdk.options import option
from bicycle_sdk.secrets import Secret

__all__ = ["PostgresSourceOptions", "postgres_source"]


class PostgresSourceOptions(
    SourceOptions[Any], connector="postgres", extra="postgres", call="postgres_source"
):
    """The options of the PostgreSQL source: table, column and rows.

    Rows are added to the table, and neither changed nor deleted before they are read. ``type`` is
    the type of records, whose fields are the columns.
    """

    type: Any = dict
    url: str = option(
        kw_only=False, doc="postgresql://user@host:port/database, without a password."
    )
    password: Secret | None = option(
        default=None,
        doc="A reference to the password. Default: PGPASSWORD or the password file of libpq.",
    )
    table: str = option(kw_only=False, doc="Name of the table, or schema.table.")
    column: str = option(
        kw_only=False,
        doc=(
            "Column of whole numbers, unique and never null, that grows with each new row: an "
            "identity, or a sequence without cached numbers."
        ),
    )
    start_at: int = option(
        default=0, low=0, high=1 << 62, doc="Rows with smaller numbers in the column are skipped."
    )
    follow: bool = option(
        default=False,
        doc="Wait for new rows; otherwise the source ends after the rows that exist at the start.",
    )
    poll_ms: int = option(
        default=1_000, low=10, high=3_600_000, doc="Interval of the search for new rows."
    )
    timestamp_field: str = option(
        default="",
        doc="Field with the event time: a time with a zone, or ms since 1970.",
        aliases=("time_field",),
    )
    connect_timeout_ms: int = option(
        default=30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of the server at a start.",
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the end of the source, which graphs always have."""
        return {"follow": cls.follow, **given}

    def output_type(self) -> Any:
        """Return the type of the records."""
        return dict[str, Any] if self.type is dict else self.type


postgres_source = source_call(
    PostgresSourceOptions,
    "Return a source of a PostgreSQL table's rows, ordered by a growing column.",
)
