"""Sinks that are tables of lakes: Delta Lake and Iceberg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bicycle_sdk.connector_options import Conflict, OutputPath, path_of, sink_call
from bicycle_sdk.database_options import MarkerTable, TableName, UpsertOptions
from bicycle_sdk.options import option, shared_options
from bicycle_sdk.secrets import Secret
from bicycle_sdk.sinks.tables import TableSinkOptions

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "CatalogAddress",
    "DeltaSinkOptions",
    "DuckdbSinkOptions",
    "FolderSinkOptions",
    "IcebergCatalog",
    "IcebergSinkOptions",
    "LakeSinkOptions",
    "Rolling",
    "delta_sink",
    "duckdb_sink",
    "iceberg_sink",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """The bounds at which waiting rows are committed; an earlier form of ``roll_…``.

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
    """A catalog of Iceberg tables; an earlier form of the options of ``iceberg_sink``.

    Args:
        address: ``sqlite:////data/lake.db``, or ``postgresql://user@host:port/database``, without
            a password.
        warehouse: Directory or URL below which new tables are created.
        password: Where the password is.
        name: Of the catalog within its database.
    """

    address: str
    warehouse: str | os.PathLike[str]
    password: Secret | None = None
    name: str | None = None


class LakeSinkOptions(UpsertOptions, TableSinkOptions):
    """The options for writing rows to a lake table."""

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with ``rolling`` as options, and the mode that keys select."""
        options = super().from_arguments(given)
        rolling = options.pop("rolling", None)
        if isinstance(rolling, Rolling):
            bounds = {
                "roll_rows": rolling.rows,
                "roll_bytes": rolling.size_bytes,
                "roll_ms": rolling.age_ms,
            }
            options = {name: found for name, found in bounds.items() if found is not None} | options
        return options

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a mode that does not fit the keys."""
        if (self.mode == "upsert") != bool(self.keys):
            problem = "keys must be set for an upsert, and only for an upsert"
            yield Conflict("keys", problem, "set e.g. keys=('id',) with mode=upsert")


class FolderSinkOptions(LakeSinkOptions):
    """The options for writing rows to a lake table with folders."""

    partition_by: Sequence[str] = option(default=(), doc="Partition columns of a new table.")


class DeltaSinkOptions(
    OutputPath, FolderSinkOptions, connector="delta", extra="delta", call="delta_sink"
):
    """The options of the Delta sink: the table. Each epoch is one commit."""


@shared_options
class CatalogAddress:
    """The catalog of an Iceberg table."""

    catalog: str = option(
        kw_only=False,
        doc=(
            "Address of an SQL catalog, without a password: sqlite:////data/lake.db, or "
            "postgresql://user@host/database."
        ),
    )


class IcebergSinkOptions(
    TableName,
    CatalogAddress,
    FolderSinkOptions,
    connector="iceberg",
    extra="iceberg",
    call="iceberg_sink",
):
    """The options of the Iceberg sink: the catalog and the table. Each epoch is one commit."""

    catalog_password: Secret | None = option(
        default=None, doc="A reference to the password of the catalog."
    )
    catalog_name: str = option(default="bicycle", doc="Name of the catalog within its database.")
    warehouse: str | os.PathLike[str] = option(
        doc="Directory or URL below which new tables are created."
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with an ``IcebergCatalog`` as four options."""
        catalog = given.get("catalog")
        if isinstance(catalog, IcebergCatalog):
            given = given | {
                "catalog": catalog.address,
                "warehouse": catalog.warehouse,
                "catalog_password": catalog.password,
                "catalog_name": catalog.name,
            }
        return super().from_arguments(given)

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the table: ``iceberg:namespace.table``."""
        return {"table": path_of(parts)}

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a table without a namespace, and a mode that does not fit the keys."""
        yield from super().conflicts()
        if not all(self.table.partition(".")):
            problem = f"the table {self.table!r} has no namespace"
            yield Conflict("table", problem, "set e.g. table='shop.payments'")


class DuckdbSinkOptions(
    TableName,
    OutputPath,
    MarkerTable,
    LakeSinkOptions,
    connector="duckdb",
    extra="duckdb",
    call="duckdb_sink",
):
    """The options of the DuckDB sink: the file and the table."""

    def conflicts(self) -> Iterator[Conflict]:
        """Yield a database in memory, and a mode that does not fit the keys."""
        yield from super().conflicts()
        if str(self.path).startswith(":memory:"):
            hint = "set the path of a file"
            yield Conflict("path", "a database in memory ends with its connection", hint)


delta_sink = sink_call(
    DeltaSinkOptions, "Return a sink of rows of a Delta table, one commit per epoch."
)
iceberg_sink = sink_call(
    IcebergSinkOptions, "Return a sink of rows of an Iceberg table, one commit per epoch."
)
duckdb_sink = sink_call(
    DuckdbSinkOptions,
    "Return a sink of rows of a table in a DuckDB file, one transaction per epoch.",
)
