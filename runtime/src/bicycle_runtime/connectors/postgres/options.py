"""Options of the PostgreSQL connectors, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import option

__all__ = ["PostgresSinkOptions", "PostgresSourceOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSinkOptions:
    """The options of the PostgreSQL sink: table, mode and time limits."""

    url: str = option(doc="postgresql://user@host:port/database, without a password.")
    password: object = option(
        None, doc="A reference to the password. Default: PGPASSWORD or the password file of libpq."
    )
    table: str = option(doc="Name of the table, or schema.table.")
    mode: Literal["insert", "upsert"] = option(
        "insert",
        doc="insert adds rows; upsert replaces the row with the same keys, the last record wins.",
    )
    keys: tuple[str, ...] = option(
        (), doc="Columns that identify a row; a unique index of the table has just them (upsert)."
    )
    delete_field: str = option(
        "",
        doc="Field of the records, no column of the table: where it is true, the row with the keys "
        "is deleted (upsert).",
    )
    columns: object = option(
        None, doc="{column: type}, as for Parquet. Default: the fields of the record type."
    )
    timestamp_field: str = option(
        "", doc="Column that gets the event time of each record; a record without one fails."
    )
    create_table: bool = option(
        default=False, doc="Make the table when it is missing, with the keys as its primary key."
    )
    marker_table: str = option(
        "bicycle_epochs",
        doc="Table of epochs that are written; it is made when it is missing, in the first schema "
        "of the search path.",
    )
    publish_timeout_ms: int = option(
        900_000,
        low=1_000,
        high=86_400_000,
        doc="A server that is away for longer ends the job; its output is kept. A session without "
        "an answer for half of this time is closed, and the epoch is tried again.",
    )
    connect_timeout_ms: int = option(
        30_000, low=1_000, high=3_600_000, doc="A start fails when no server answers in this time."
    )
    on_rewind: Literal["fail", "publish_again"] = option(
        "fail",
        doc="What to do when an older epoch was restored than was written: fail, or write again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSourceOptions:
    """The options of the PostgreSQL source: table, column and rows."""

    url: str = option(doc="postgresql://user@host:port/database, without a password.")
    password: object = option(
        None, doc="A reference to the password. Default: PGPASSWORD or the password file of libpq."
    )
    table: str = option(doc="Name of the table, or schema.table.")
    column: str = option(
        doc="Column of whole numbers, unique and never null, that grows with each new row: an "
        "identity or a sequence that hands out one number at a time."
    )
    start_at: int = option(
        0, low=0, high=1 << 62, doc="Rows with smaller numbers in the column are not read."
    )
    follow: bool = option(
        default=False, doc="Wait for new rows; else the source ends with those of the start."
    )
    poll_ms: int = option(
        1_000, low=10, high=3_600_000, doc="How long to wait before looking for new rows again."
    )
    timestamp_field: str = option(
        "", doc="Field with the event time: a time with a zone, or ms since 1970."
    )
    connect_timeout_ms: int = option(
        30_000, low=1_000, high=3_600_000, doc="A start fails when no server answers in this time."
    )
