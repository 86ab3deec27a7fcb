"""The PostgreSQL source: rows in the order of a growing column, exactly once.

An offset is a number of the column. Numbers are assigned before their rows are committed, so a row
may appear behind one with a larger number. Therefore the source reads up to a number only when
every transaction has ended that ran when that number was seen: their rows are visible then, and
later transactions get larger numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from bicycle_runtime.connectors.errors import POSTGRES_SOURCE_UNSUITABLE
from bicycle_runtime.connectors.postgres.server import PostgresServer
from bicycle_runtime.connectors.postgres.table import column_names, table_name
from bicycle_runtime.connectors.postgres.times import load_unreadable_times, unreadable_time
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.typed_rows import columns_for, records_of, row_text
from bicycle_runtime.contract import (
    BadRecord,
    Budget,
    ConnectorSpec,
    DriverServices,
    Slice,
    Source,
    SourceBatch,
    SourceStatus,
)
from bicycle_runtime.records.sizes import size_of
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.sources import PostgresSourceOptions

_SHARD = "rows"
_BATCH_ROWS = 4_096
_BATCH_BYTES = 16 << 20
_FIRST_ROWS = 64
_GROWTH = 4
_SAMPLES = 32
_WAITING_MS = 50
_WHOLE_NUMBERS = ("int2", "int4", "int8")
# Sessions that may still commit rows: all but this session, and sessions that write no rows of
# their own.
_RUNNING = """
    select array_agg(distinct l.virtualtransaction)
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
    where l.locktype in ('virtualxid', 'transactionid') and l.granted
      and l.mode = 'ExclusiveLock' and l.pid is distinct from pg_backend_pid()
      and (a.pid is null or a.datname = current_database()
           and coalesce(a.backend_type, '') not in ('autovacuum worker', 'walsender'))
"""
_COLUMN = """
    select t.typname, a.attnotnull, exists (
             select from pg_index i where i.indrelid = a.attrelid and i.indisunique
             and i.indisvalid and i.indpred is null and i.indnatts = 1 and i.indkey[0] = a.attnum)
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %s and a.attname = %s and a.attnum > 0 and not a.attisdropped
"""


@dataclass
class PostgresReader:
    """Reads ranges of rows; picklable, and opens its session when it is first used."""

    spec: ConnectorSpec
    options: PostgresSourceOptions
    password: str | None = field(repr=False)

    def __post_init__(self) -> None:
        self._server: PostgresServer | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state, without a session."""
        return {**vars(self), "_server": None}

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the rows of the range; a server that is away is waited for.

        Raises:
            POSTGRES_UNREACHABLE: the login is refused.
        """
        if self._server is None:
            self._server = PostgresServer(
                self.options.url, None, self.spec, connect_timeout_ms=None
            )
            self._server.revealed = self.password
        begin, is_last, has_unreadable = part.start, False, False
        while not is_last:
            with self._server.opened(SystemClock(), threading.Event()) as connection:
                if has_unreadable:
                    load_unreadable_times(connection)
                try:
                    for rows, is_last in _pieces(connection, self._statement(), (begin, part.end)):
                        begin = part.end if is_last else rows[-1][self.options.column] + 1
                        yield self._batch(rows, begin, has_unreadable=has_unreadable)
                except psycopg.OperationalError:
                    if not connection.closed:  # Else the rows that are left are read again.
                        raise
                except psycopg.DataError:  # Such as infinity: its row is found at the second time.
                    if has_unreadable:
                        raise
                    has_unreadable = True

    def _batch(
        self, rows: list[dict[str, Any]], next_offset: int, *, has_unreadable: bool
    ) -> SourceBatch:
        column = self.options.column
        bad = [failure for row in rows if has_unreadable for failure in _failures_of(row, column)]
        unreadable = {failure.offset for failure in bad}
        good = [row for row in rows if row[column] not in unreadable] if bad else rows
        batch = records_of(
            good,
            self.spec.record_type,
            [row[column] for row in good],
            next_offset,
            timestamp_field=self.options.timestamp_field,
        )
        batch.failures = sorted([*batch.failures, *bad], key=attrgetter("offset"))
        return batch

    def close(self) -> None:
        """Do nothing: the reader keeps no session."""

    def _statement(self) -> sql.Composed:
        names = columns_for(self.spec.record_type)
        wanted = None if names is None else dict.fromkeys([*names, self.options.column])
        return sql.SQL(
            "select {found} from {table} where {column} >= %s and {column} < %s order by {column}"
        ).format(
            found=column_names(wanted),
            table=table_name(self.options.table),
            column=sql.Identifier(self.options.column),
        )


def _pieces(
    connection: psycopg.Connection[Any], statement: sql.Composed, bounds: tuple[int, int]
) -> Iterator[tuple[list[dict[str, Any]], bool]]:
    """Yield rows, some at a time, and whether they are the last; at least once."""
    connection.execute("set time zone 'UTC'")
    with (
        connection.transaction(),
        connection.cursor("bicycle_rows", row_factory=dict_row) as cursor,
    ):
        cursor.execute(statement, bounds)
        count = _FIRST_ROWS
        rows = cursor.fetchmany(count)
        while True:
            count = _next_count(rows, count)
            following = cursor.fetchmany(count) if rows else []
            yield rows, not following
            if not following:
                return
            rows = following


def _next_count(rows: list[dict[str, Any]], count: int) -> int:
    """Return how many rows to fetch next, so that large rows do not fill the memory.

    Args:
        rows: The rows that were fetched last.
        count: How many were asked for.
    """
    samples = rows[:: max(len(rows) // _SAMPLES, 1)]
    row_bytes = sum(map(size_of, samples)) / max(len(samples), 1)
    fitting = int(_BATCH_BYTES / max(row_bytes, 1))
    return max(min(fitting, _GROWTH * count, _BATCH_ROWS), 1)


def _failures_of(row: dict[str, Any], column: str) -> list[BadRecord]:
    """Return the failure of a row with an unreadable date or time, or nothing."""
    reason = unreadable_time(row)
    if reason is None:
        return []
    return [BadRecord(offset=row[column], raw=row_text(row), reason=reason)]


class PostgresSource(Source):
    """Reads rows of one table."""

    options_class = PostgresSourceOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(PostgresSourceOptions, spec)
        self.gives_times = bool(options.timestamp_field)
        self._server = PostgresServer(
            options.url, options.password, spec, connect_timeout_ms=options.connect_timeout_ms
        )
        self._next = options.start_at
        self._safe_end: int | None = None  # All before it is committed; None: not known yet.
        self._seen_end = options.start_at  # All before it was seen, while ``_running`` ran.
        self._running: frozenset[str] | None = None
        self._newest_end = options.start_at  # Behind the last row that is committed.

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Look at server, table and column.

        Raises:
            POSTGRES_UNREACHABLE: the server cannot be used.
            POSTGRES_SOURCE_UNSUITABLE: the table cannot be read so.
        """
        self._next = offsets.get(_SHARD, self._options.start_at)
        with self._server.opened(services.clock, threading.Event()) as connection:
            self._check(connection)

    def poll(self) -> SourceStatus:
        """Find out up to which number rows can be read."""
        is_reachable = True
        try:
            is_caught_up = self._safe_end is None or self._next >= self._safe_end
            if is_caught_up and (self._options.follow or self._safe_end is None):
                self._look()
        except psycopg.OperationalError:
            self._server.close()
            is_reachable = False
        has_input = self._safe_end is not None and self._next < self._safe_end
        is_waiting = self._running is not None
        has_unread = has_input or self._next < self._newest_end
        return SourceStatus(
            has_input=has_input,
            is_finished=not (self._options.follow or has_input or self._safe_end is None),
            next_poll_ms=_WAITING_MS if is_waiting else self._options.poll_interval_ms,
            waiting_shards=frozenset({_SHARD} if has_unread else ()),
            is_bounded=not self._options.follow,
            is_reachable=is_reachable,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Divide the next rows among subtasks, by their numbers."""
        if self._safe_end is None or self._next >= self._safe_end:
            return []
        statement = sql.SQL(
            "select max(number) from (select number, ntile(%s) over (order by number) as part "
            "from (select {column} as number from {table} where {column} >= %s and {column} < %s "
            "order by {column} limit %s) as ready) as parts group by part order by part"
        ).format(**self._names())
        values = [budget.parallelism, self._next, self._safe_end, budget.record_count]
        try:
            found = self._server.connection().execute(statement, values).fetchall()
        except psycopg.OperationalError:
            self._server.close()
            return []
        if not found:
            self._safe_end = self._next  # The rows that were seen were deleted.
        ends = [self._next, *(number + 1 for (number,) in found)]
        return [Slice(shard=_SHARD, start=start, end=end) for start, end in pairwise(ends)]

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on."""
        self._next = ends.get(_SHARD, self._next)

    def reader(self) -> PostgresReader:
        """Return a reader, with the password."""
        return PostgresReader(self.spec, self._options, self._server.reveal())

    def stop(self) -> None:
        """Close the session."""
        self._server.close()

    def describe(self, shard: str, offset: int) -> str:
        """Name the row."""
        return f"the row of {self._options.table} whose {self._options.column} is {offset}"

    def _look(self) -> None:
        """Find new rows, and wait for rows that may still appear before them.

        1. The largest number that is committed is seen: its row waits, and holds event time back.
        2. Then the transactions that run are noted: only they can have smaller numbers.
        3. When all of them have ended, all rows up to that number can be read.
        """
        connection = self._server.connection()
        # 1. The largest number that is committed is seen: its row waits, and holds event time back.
        statement = sql.SQL("select max({column}) from {table}").format(**self._names())
        [[number]] = connection.execute(statement).fetchall()
        self._newest_end = max(self._next, -1 if number is None else number + 1)
        if self._running is None:
            self._seen_end = self._newest_end
            # 2. Then the transactions that run are noted: only they can have smaller numbers.
            self._running = self._running_now(connection)
        else:
            self._running &= self._running_now(connection)
        # 3. When all of them have ended, all rows up to that number can be read.
        if not self._running:
            self._safe_end, self._running = self._seen_end, None

    def _running_now(self, connection: psycopg.Connection[Any]) -> frozenset[str]:
        [[found]] = connection.execute(_RUNNING).fetchall()
        return frozenset(found or ())

    def _names(self) -> dict[str, sql.Composable]:
        return {
            "table": table_name(self._options.table),
            "column": sql.Identifier(self._options.column),
        }

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        name = table_name(self._options.table).as_string(connection)
        column = self._options.column
        [[oid]] = connection.execute("select to_regclass(%s)::oid", [name]).fetchall()
        if oid is None:
            raise self._unsuitable("it is missing, or not visible to the user", "create it")
        found = connection.execute(_COLUMN, [oid, column]).fetchall()
        if not found:
            raise self._unsuitable(f"it has no column {column!r}", "choose an existing column")
        [(kind, is_required, is_unique)] = found
        if kind not in _WHOLE_NUMBERS or not is_required or not is_unique:
            raise self._unsuitable(
                f"column {column!r} must be a whole number, NOT NULL and unique, got {kind}",
                "choose the primary key, or add an identity column",
            )
        try:
            statement = sql.SQL("select {found} from {table} limit 0")
            columns = column_names(columns_for(self.spec.record_type))
            connection.execute(statement.format(found=columns, table=self._names()["table"]))
        except psycopg.errors.Error as error:
            hint = "map the record type to existing columns, and grant select on the table"
            raise self._unsuitable(str(error).strip().splitlines()[0], hint) from error

    def _unsuitable(self, problem: str, hint: str) -> BicycleError:
        return POSTGRES_SOURCE_UNSUITABLE(
            vertex=self.spec.vertex_id, table=self._options.table, problem=problem, hint=hint
        )
