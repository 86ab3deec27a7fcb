"""Options of the PostgreSQL connectors, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_sdk.options import option

__all__ = ["PostgresSinkOptions", "PostgresSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSinkOptions:
    """The options of the PostgreSQL sink: table, mode and time limits."""

    url: str = option(doc="postgresql://user@host:port/database, without a password.")
    password: object = option(
        None,
        doc="A reference to the password. Default: PGPASSWORD or the password file of libpq.",
    )
    table: str = option(doc="Name of the table, or schema.table.")
    mode: Literal["insert", "upsert"] = option(
        "insert",
        doc=(
            "insert adds rows; upsert replaces the row with the same keys, and the last record "
            "wins."
        ),
    )
    keys: tuple[str, ...] = option(
        (),
        doc=(
            "Columns that identify a row; a unique index of the table has exactly these columns "
            "(upsert)."
        ),
    )
    delete_field: str = option(
        "",
        doc=(
            "Field of the records that is not a column: if it is true, the row with the keys is "
            "deleted (upsert)."
        ),
    )
    columns: object = option(
        None,
        doc="{column: type}, as for Parquet. Default: the fields of the record type.",
    )
    timestamp_field: str = option(
        "",
        doc="Column for the event time of each record; a record without event time fails.",
        aliases=("time_field",),
    )
    create_table: bool = option(
        default=False, doc="Create the table if it is missing, with the keys as its primary key."
    )
    marker_table: str = option(
        "bicycle_epochs",
        doc=(
            "Table for published epochs; it is created if it is missing, in the first schema of "
            "the search path."
        ),
    )
    publish_timeout_ms: int = option(
        900_000,
        low=1_000,
        high=86_400_000,
        doc="Time without the server after which the job ends; its output is kept. A session "
        "without a response for half of this time is closed, and the epoch is retried.",
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of the server at a start.",
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc=(
            "Reaction when an older epoch than the published output is restored: fail, or write "
            "again."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSourceOptions:
    """The options of the PostgreSQL source: table, column and rows."""

    url: str = option(doc="postgresql://user@host:port/database, without a password.")
    password: object = option(
        None,
        doc="A reference to the password. Default: PGPASSWORD or the password file of libpq.",
    )
    table: str = option(doc="Name of the table, or schema.table.")
    column: str = option(
        doc=(
            "Column of whole numbers, unique and never null, that grows with each new row: an "
            "identity, or a sequence without cached numbers."
        )
    )
    start_at: int = option(
        0, low=0, high=1 << 62, doc="Rows with smaller numbers in the column are skipped."
    )
    follow: bool = option(
        default=False,
        doc="Wait for new rows; otherwise the source ends after the rows that exist at the start.",
    )
    poll_ms: int = option(1_000, low=10, high=3_600_000, doc="Interval of the search for new rows.")
    timestamp_field: str = option(
        "",
        doc="Field with the event time: a time with a zone, or ms since 1970.",
        aliases=("time_field",),
    )
    connect_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for the first response of the server at a start.",
    )
