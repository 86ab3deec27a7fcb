"""Rows of a PostgreSQL table by key, requested together and kept for a while.

``bicycle_sdk.lookups`` opens it on workers. It changes nothing and promises nothing about time: a
caller gets a row as it is now, or was at most ``cache_ms`` ago.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from bicycle_runtime.connectors.postgres.table import column_names, table_name
from bicycle_runtime.connectors.postgres.times import load_unreadable_times, unreadable_time
from bicycle_sdk.clock import Clock, SystemClock

Row = dict[str, Any]


class LookupTable:
    """A table, its session and its cache: of one subtask.

    Args:
        url: Without a password.
        table: Its name, or ``schema.table``.
        key: Column of the lookup's values, or several, whose values are tuples; unique.
        columns: Columns of the rows, None for all.
        password: None where the library finds it.
        cache_rows: So many keys are kept, also keys without a row.
        cache_ms: For so long.
        clock: The time.
    """

    def __init__(
        self, url: str, table: str, key: str | Sequence[str], *, columns: Sequence[str] | None,
        password: str | None, cache_rows: int, cache_ms: int, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._url, self._table = url, table
        self._password = password
        keys = (key,) if isinstance(key, str) else tuple(key)
        self._key_of, self._key_count = itemgetter(*keys), len(keys)
        self._cache_rows = cache_rows
        self._cache_s = cache_ms / 1_000
        self._clock = clock or SystemClock()
        self._cache: OrderedDict[Any, tuple[float, Row | None]] = OrderedDict()
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._connecting = asyncio.Lock()
        names = None if columns is None else dict.fromkeys([*keys, *columns])
        self._statement = sql.SQL("select {} from {} where ({})").format(
            column_names(names), table_name(table), column_names(keys)
        )

    async def find(self, keys: Iterable[Any]) -> dict[Any, Row | None]:
        """Return the row of each key, or None for a missing row.

        Raises:
            psycopg.Error: the server does not answer; the next call connects again.
            ValueError: a row has a date or time that Python does not have.
        """
        now = self._clock.monotonic()
        found: dict[Any, Row | None] = {}
        missing = []
        for key in dict.fromkeys(keys):
            expires_s, row = self._cache.get(key, (0.0, None))
            if key in self._cache and expires_s > now:
                self._cache.move_to_end(key)
                found[key] = row
            else:
                missing.append(key)
        if missing:
            rows = await self._ask(missing)
            for key in missing:
                found[key] = rows.get(key)
                self._keep(key, now + self._cache_s, found[key])
        return found

    async def close(self) -> None:
        """Close the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(self, keys: Collection[Any]) -> dict[Any, Row]:
        connection = await self._connect()
        condition: sql.Composable = sql.SQL(" = any(%s)")
        values: list[Any] = [list(keys)]
        if self._key_count > 1:  # Arrays of several columns would need the types of the columns.
            one = sql.SQL("({})").format(_list([sql.Placeholder()] * self._key_count))
            condition = sql.SQL(" in ({})").format(_list([one] * len(keys)))
            values = [part for key in keys for part in key]
        cursor = connection.cursor()
        load_unreadable_times(cursor)
        try:
            await cursor.execute(self._statement + condition, values)
            rows = {self._key_of(row): row for row in await cursor.fetchall()}
        except psycopg.OperationalError:
            await connection.close()  # The next call connects again.
            raise
        for key, row in rows.items():
            if (problem := unreadable_time(row)) is not None:
                raise ValueError(f"row {key!r} of table {self._table}: {problem}")
        return rows

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        async with self._connecting:  # Several calls are in flight, and share one session.
            if self._connection is None or self._connection.closed:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._url, password=self._password, autocommit=True, row_factory=dict_row,
                    application_name="bicycle lookup", connect_timeout=5,
                )  # fmt: skip
            return self._connection

    def _keep(self, key: Any, expires_s: float, row: Row | None) -> None:
        self._cache[key] = expires_s, row
        self._cache.move_to_end(key)
        if len(self._cache) > self._cache_rows:
            self._cache.popitem(last=False)


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
