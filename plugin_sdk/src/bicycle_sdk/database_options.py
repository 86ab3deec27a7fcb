"""Options of tables, for sources and sinks of databases and lakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from bicycle_sdk.client_options import ConnectTimeout, Publication, Rewinding, ServerUrl
from bicycle_sdk.connector_options import SourceOptions
from bicycle_sdk.options import option, shared_options
from bicycle_sdk.passwords import PasswordReference

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["MarkerTable", "PostgresLookupOptions", "PostgresTable", "TableName", "UpsertOptions"]


@shared_options
class TableName:
    """The name of a table."""

    table: str = option(
        kw_only=False,
        doc="Name of the table, or schema.table; for Iceberg always namespace.table.",
    )


@shared_options
class PostgresTable(ConnectTimeout, PasswordReference, TableName, ServerUrl):
    """A table of a PostgreSQL database."""

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the database: ``postgresql://user@host:port/database``."""
        return {"url": f"{parts.scheme}://{parts.netloc}{parts.path}"}


class PostgresLookupOptions(
    PostgresTable, SourceOptions[Any], connector="postgres", extra="postgres", call="PostgresLookup"
):
    """The options of a PostgreSQL table whose rows are found by key: table and cache."""

    cache_rows: int = option(
        default=10_000, low=1, high=1_000_000_000, doc="Maximum number of cached keys per subtask."
    )
    cache_ms: int = option(
        default=60_000, low=0, high=36_600 * 86_400_000,
        doc="Lifetime of a cached row; 0 disables the cache.",
    )  # fmt: skip
    timeout_ms: int = option(
        default=30_000, low=1, high=7 * 86_400_000, doc="Time limit of a request."
    )


@shared_options
class MarkerTable:
    """The table in which a database records published epochs."""

    marker_table: str = option(
        default="bicycle_epochs",
        doc=(
            "Table for published epochs in the same database; it is created if it is missing, in "
            "PostgreSQL in the first schema of the search path."
        ),
    )


@shared_options
class UpsertOptions(Publication, Rewinding):
    """The options of tables whose rows are added or replaced."""

    mode: Literal["append", "upsert", "insert"] = option(
        default="append",
        doc=(
            "append adds rows (alias: insert); upsert replaces the row with the "
            "same keys, and the last record wins. Default: upsert with keys, else append."
        ),
    )
    keys: Sequence[str] = option(
        default=(),
        doc=(
            "Columns that identify a row (upsert); they must not be null. A table of PostgreSQL "
            "has a unique index of exactly these columns."
        ),
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the mode upsert, if there are keys and no mode."""
        keys = given.get("keys")
        if isinstance(keys, str) or given.get("mode") is not None:
            return dict(given)
        if not keys:
            return {name: value for name, value in given.items() if name != "keys"}
        return given | {"mode": "upsert"}
