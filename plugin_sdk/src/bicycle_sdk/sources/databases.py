"""Sources that are tables of a database."""

from __future__ import annotations

from typing import Any

from bicycle_sdk.client_options import EventTime, GrowingInput
from bicycle_sdk.connector_options import SourceOptions, source_call
from bicycle_sdk.database_options import PostgresTable
from bicycle_sdk.options import option

__all__ = ["PostgresSourceOptions", "postgres_source"]


class PostgresSourceOptions(
    PostgresTable,
    EventTime,
    GrowingInput,
    SourceOptions[Any],
    connector="postgres",
    extra="postgres",
    call="postgres_source",
):
    """The options of the PostgreSQL source: table, column and rows.

    Rows are added to the table, and neither changed nor deleted before they are read. ``type`` is
    the type of records, whose fields are the columns.
    """

    type: Any = dict
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
    poll_interval_ms: int = option(
        default=1_000,
        low=10,
        high=3_600_000,
        doc="Interval of the search for new rows.",
        aliases=("poll_ms",),
    )

    def output_type(self) -> Any:
        """Return the type of the records."""
        return dict[str, Any] if self.type is dict else self.type


postgres_source = source_call(
    PostgresSourceOptions,
    "Return a source of a PostgreSQL table's rows, ordered by a growing column.",
)
