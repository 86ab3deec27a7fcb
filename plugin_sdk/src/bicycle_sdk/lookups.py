"""Look-ups of records in database tables, many per query, with a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

from bicycle_sdk.contexts import Context
from bicycle_sdk.database_options import PostgresLookupOptions
from bicycle_sdk.functions import AsyncIOBatchFunction
from bicycle_sdk.secrets import Secret

__all__ = ["PostgresLookup"]

T = TypeVar("T")
# By name: it is installed where the function runs, and the SDK does not require it.
_HOME = "bicycle_runtime.connectors.postgres.lookup"


class PostgresLookup(AsyncIOBatchFunction[T, tuple[T, dict[str, Any] | None]], Generic[T]):
    """A lookup of PostgreSQL rows by key, for ``async_io_batches``.

    Returns ``(record, row)``, with None for a missing row. Rows are cached, so a change of
    the table may show ``cache_ms`` later, and another attempt of an epoch may find another row: the
    sealed attempt counts.

    Args:
        url: ``postgresql://user@host:port/database``, without a password.
        table: Its name, or ``schema.table``.
        key: Column that has each key once, or several columns.
        key_of: The key of a record: a value, or a tuple of the values of several columns.
        columns: Columns of a row; None for all.
        password: The location of the password on the hosts of workers; None for libpq's own search.
        cache_rows: So many keys are kept by each subtask, at most.
        cache_ms: The lifetime of a cached row; 0 disables the cache.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: str | Sequence[str],
        key_of: Callable[[T], Any],
        columns: Sequence[str] | None = None,
        password: Secret | None = None,
        cache_rows: int = 10_000,
        cache_ms: int = 60_000,
    ) -> None:
        options = PostgresLookupOptions(
            url=url, table=table, password=password, cache_rows=cache_rows, cache_ms=cache_ms
        )
        self.url, self.table, self.key, self.key_of = options.url, options.table, key, key_of
        self.columns = None if columns is None else tuple(columns)
        self.password = options.password
        self.cache_rows, self.cache_ms = options.cache_rows, options.cache_ms

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - as every function has it.
        """Prepare the cache; the server is asked with the first record."""
        self.found_in = import_module(_HOME).LookupTable(
            self.url,
            self.table,
            self.key,
            columns=self.columns,
            password=None if self.password is None else self.password.reveal(),
            cache_rows=self.cache_rows,
            cache_ms=self.cache_ms,
        )

    async def async_invoke_batch(
        self, values: list[T]
    ) -> list[list[tuple[T, dict[str, Any] | None]]]:
        """Request all keys that are not known, in one question."""
        keys = [self.key_of(value) for value in values]
        rows = await self.found_in.find(keys)
        return [[(value, rows[key])] for value, key in zip(values, keys, strict=True)]

    async def close(self) -> None:
        """Close the session."""
        await self.found_in.close()
