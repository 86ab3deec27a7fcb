"""The PostgreSQL sink: an epoch is a transaction that also writes its number.

Tasks stage rows as ``COPY`` takes them; publishing sends them as they are. The number is in a row
of the marker table for each *run*, and is read first, so an epoch is written once, however often it
is published. A job that continues elsewhere begins a run of its own: two jobs of one savepoint
never take each other's epochs for their own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import psycopg
from psycopg import sql

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.connectors.errors import (
    COLUMNS_WRONG,
    POSTGRES_HISTORY_AHEAD,
    POSTGRES_REFUSED,
    POSTGRES_TABLE_UNSUITABLE,
)
from bicycle_runtime.connectors.patience import AnswerLimit, Patience, PatientPublication
from bicycle_runtime.connectors.postgres.copy_rows import (
    ColumnLimits,
    CopyWriterFactory,
    values_of_row,
)
from bicycle_runtime.connectors.postgres.server import PostgresServer
from bicycle_runtime.connectors.postgres.table import (
    UnsuitableError,
    column_names,
    create_table,
    limits_of,
    table_name,
)
from bicycle_runtime.connectors.runs import is_rewind, run_of, storage_id_of
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.staging import staged_blocks
from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Refusal,
    Sink,
    StagedFile,
    StagedPublication,
)
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.sinks import PostgresSinkOptions

_LOG = logging.getLogger(__name__)
_PIECE_ROWS = 1_000
# Classes of SQLSTATE: data exceptions, constraints, and limits of the program, such as of an index.
_ROW_STATES = ("22", "23", "54")
_STAGE = sql.Identifier("bicycle_stage")
_NUMBER = sql.Identifier("bicycle_number")
# Else a crash of the server would lose an epoch that counts as published.
_DURABLE = (
    "select set_config('synchronous_commit', 'on', true) "
    "where current_setting('synchronous_commit') = 'off'"
)


class PostgresSink(StagedPublication, PatientPublication, ChecksBeforeStart, Sink):
    """Writes records as rows of one table."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = PostgresSinkOptions
    accepts = "frames"

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(PostgresSinkOptions, spec)
        columns = columns_of(spec, options.columns, options.timestamp_field)
        self._columns = columns.requiring(options.keys)
        self.takes_times = bool(self._columns.time_name)
        self._schema = self._columns.schema
        _check_keys(options, spec, self._schema.names)
        if options.delete_field:
            index = self._schema.get_field_index(options.delete_field)
            self._schema = self._schema.remove(index)
        self._server = PostgresServer(
            options.url, options.password, spec, connect_timeout_ms=options.connect_timeout_ms
        )
        self._patience = Patience(
            vertex=spec.vertex_id,
            timeout_ms=options.publish_timeout_ms,
            is_away=self._is_away,
            given_up=self._server.unreachable,
        )
        self._limit = AnswerLimit(options.publish_timeout_ms, self._server.break_off)
        self._settles = spec.on_error != "fail"
        self.refuses_records = spec.on_error == "dead_letter"
        self._limits: dict[str, ColumnLimits] = {}
        self._run = ""

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Look at server, table, rights and history; make nothing.

        Raises:
            POSTGRES_UNREACHABLE: the server cannot be used.
            POSTGRES_TABLE_UNSUITABLE: the table cannot.
            POSTGRES_HISTORY_AHEAD: the job begins behind the written epochs.
        """
        with self._server.opened(services.clock, self._patience.is_stopping) as connection:
            self._check_table(connection, may_miss=self._options.create_table)
            self._check_history(connection, state)

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Create the table if missing, end hanging sessions of this run, and take it over.

        Raises:
            POSTGRES_UNREACHABLE: the server cannot be used.
            POSTGRES_TABLE_UNSUITABLE: the table cannot.
            POSTGRES_HISTORY_AHEAD: the job begins behind the written epochs.
        """
        options = self._options
        self._services = services
        self._storage_id = storage_id_of(services)
        with self._server.opened(services.clock, self._patience.is_stopping) as connection:
            if options.create_table:
                self._guard(create_table, connection, options.table, self._schema, options.keys)
            self._check_table(connection, may_miss=False)
            self._guard(self._make_marker, connection)
            is_again = self._check_history(connection, state)
            self._run = run_of(state, self._storage_id, is_again=is_again)
            if self._run == state.get("run"):
                self._server.end_others(connection, self._run)
        self._server.name = self._run

    def writer(self) -> CopyWriterFactory:
        """Return the factory of writers, with the table's limits at the start."""
        deleted = self._options.delete_field
        return CopyWriterFactory(columns=self._columns, limits=self._limits, delete_field=deleted)

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Name the staged files, and where and how they are written."""
        options = self._options
        return {
            "epoch": epoch,
            "run": self._run,
            "place": self._storage_id,
            "table": options.table,
            "marker_table": options.marker_table,
            "columns": self._schema.names,
            "copied": self._columns.schema.names,
            "keys": list(options.keys) if options.mode == "upsert" else [],
            "delete_field": options.delete_field,
            **super().prepare(epoch, staged, is_last=is_last),
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Write the epoch in one transaction, unless it is written.

        A server that is away is waited for.

        Raises:
            POSTGRES_REFUSED: the table refuses rows.
            POSTGRES_UNREACHABLE: the server was away for too long.
            PublishInterruptedError: the job had to end meanwhile.
        """
        files = self.staged_files(state)
        if not files:
            return
        act = partial(self._write, epoch, state, files)
        try:
            with self._limit:
                self._patience.carry_out(
                    act, epoch=epoch, target=state["table"], clock=self._services.clock
                )
        except psycopg.Error as error:
            raise POSTGRES_REFUSED(
                vertex=self.spec.vertex_id,
                table=state["table"],
                epoch=epoch,
                reason=str(error).strip(),
            ) from error

    def stop(self) -> None:
        """Close the connection."""
        self.interrupt()
        self._server.close()

    def _is_away(self, error: Exception) -> bool:
        """Return whether the server may come back; the session is not used again."""
        if isinstance(error, psycopg.Error):
            self._server.close()
        away = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
        return isinstance(error, away) and not _is_about_rows(error)

    def _write(self, epoch: int, state: Mapping[str, Any], files: Sequence[StagedFile]) -> None:
        """Write an epoch.

        1. The row of the run is locked, and shows whether the epoch is written.
        2. The rows are sent; rows that the table refuses are settled by ``on_error``.
        3. The number is written, and all of it becomes visible at once.
        """
        refused: list[tuple[bytes, psycopg.Error]] = []
        connection = self._server.connection()
        marker = table_name(state["marker_table"])
        with connection.transaction():
            # 1. The row of the run is locked, and shows whether the epoch is written.
            fault_point("transaction_begun")
            connection.execute(_DURABLE)
            insert = sql.SQL(
                "insert into {} (run, job, epoch) values (%s, %s, -1) on conflict do nothing"
            )
            connection.execute(insert.format(marker), [state["run"], self._services.job])
            select = sql.SQL("select epoch from {} where run = %s for update").format(marker)
            [[written]] = connection.execute(select, [state["run"]]).fetchall()
            if written >= epoch:
                return
            # 2. The rows are sent; rows that the table refuses are settled by ``on_error``.
            if self._settles:
                self._send_settled(connection, state, files, refused)
            else:
                self._send(connection, state, self._blocks(files))
            if refused:
                self._keep(epoch, state, refused)
            fault_point("transaction_produced")
            # 3. The number is written, and all of it becomes visible at once.
            update = sql.SQL("update {} set epoch = %s, written_at = now() where run = %s")
            connection.execute(update.format(marker), [epoch, state["run"]])
            fault_point("transaction_marked")
        fault_point("transaction_committed")

    def _blocks(self, files: Sequence[StagedFile]) -> Iterator[bytes]:
        for file in files:
            for block in staged_blocks(self._services.storage, file):
                self._limit.note_progress()
                yield block

    def _send(
        self, connection: psycopg.Connection[Any], state: Mapping[str, Any], rows: Iterable[bytes]
    ) -> None:
        if state["keys"]:
            self._upsert(connection, state, rows)
        else:
            self._copy(connection, table_name(state["table"]), state["copied"], rows)

    def _send_settled(
        self, connection: psycopg.Connection[Any], state: Mapping[str, Any],
        files: Sequence[StagedFile], refused: list[tuple[bytes, psycopg.Error]],
    ) -> None:  # fmt: skip
        """Send all rows; only where the table refuses some, in pieces, to find out which."""
        connection.execute("set constraints all immediate")  # Else the commit would refuse them.
        try:
            with connection.transaction():
                self._send(connection, state, self._blocks(files))
        except psycopg.Error as error:
            if not _is_about_rows(error):
                raise
            rows = _lines_in(self._blocks(files))
            while piece := list(islice(rows, _PIECE_ROWS)):
                self._send_piece(connection, state, piece, refused)

    def _send_piece(
        self, connection: psycopg.Connection[Any], state: Mapping[str, Any],
        rows: Sequence[bytes], refused: list[tuple[bytes, psycopg.Error]],
    ) -> None:  # fmt: skip
        try:
            with connection.transaction():
                self._send(connection, state, rows)
        except psycopg.Error as error:
            if not _is_about_rows(error):
                raise
            if len(rows) == 1:
                refused.append((rows[0], error))
                return
            half = len(rows) // 2
            self._send_piece(connection, state, rows[:half], refused)
            self._send_piece(connection, state, rows[half:], refused)

    def _keep(
        self, epoch: int, state: Mapping[str, Any], refused: Sequence[tuple[bytes, psycopg.Error]]
    ) -> None:
        """Write refused rows as dead letters, where that was requested; again is harmless."""
        path = None
        if self.refuses_records and self._services.letters is not None:
            schema, run = self._columns.schema, state["run"]
            path = self._services.letters.keep(
                self.spec.vertex_id,
                epoch,
                f"refused-{run}",
                [
                    Refusal(
                        key=f"{run}-{epoch}-{number}",
                        exception=type(error).__name__,
                        message=f"table {state['table']!r} rejected the row: {str(error).strip()}",
                        record=self._columns.record_of(values_of_row(row, schema)),
                    )
                    for number, (row, error) in enumerate(refused)
                ],
            )
        log_event(
            _LOG, "records_refused", level=logging.WARNING, operator=self.spec.vertex_id,
            epoch=epoch, record_count=len(refused), path=path,
        )  # fmt: skip

    def _copy(
        self, connection: psycopg.Connection[Any], table: sql.Identifier,
        columns: Sequence[str], rows: Iterable[bytes],
    ) -> None:  # fmt: skip
        statement = sql.SQL("copy {} ({}) from stdin").format(table, column_names(columns))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for block in rows:
                copy.write(block)

    def _upsert(
        self, connection: psycopg.Connection[Any], state: Mapping[str, Any], rows: Iterable[bytes]
    ) -> None:
        """Bring rows into a table of the session, and from there the last one of each key."""
        table, keys, deleted = table_name(state["table"]), state["keys"], state["delete_field"]
        parts = {
            "table": table,
            "stage": _STAGE,
            "number": _NUMBER,
            "columns": column_names(state["columns"]),
            "keys": column_names(keys),
            "deleted": sql.SQL(", false as {}" if deleted else "").format(sql.Identifier(deleted)),
        }
        connection.execute(
            sql.SQL(
                "create temporary table {stage} on commit drop as "
                "select {columns}{deleted} from {table} with no data; "
                "alter table {stage} add column {number} bigint generated always as identity"
            ).format(**parts)
        )
        self._copy(connection, _STAGE, state["copied"], rows)
        last = sql.SQL(
            "select distinct on ({keys}) * from {stage} order by {keys}, {number} desc"
        ).format(**parts)
        kept: sql.Composable = sql.SQL("")
        if deleted:
            kept = sql.SQL(" where {} is not true").format(sql.Identifier(deleted))
            same = sql.SQL(" and ").join(
                sql.SQL("t.{0} = s.{0}").format(sql.Identifier(key)) for key in keys
            )
            connection.execute(
                sql.SQL("delete from {table} t using ({last}) s where {same} and s.{flag}").format(
                    last=last, same=same, flag=sql.Identifier(deleted), **parts
                )
            )
        others = [name for name in state["columns"] if name not in keys]
        action: sql.Composable = sql.SQL("nothing")
        if others:
            changes = sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
            )
            action = sql.SQL("update set {}").format(changes)
        connection.execute(
            sql.SQL(
                "insert into {table} ({columns}) select {columns} from ({last}) s{kept} "
                "on conflict ({keys}) do {action}"
            ).format(last=last, kept=kept, action=action, **parts)
        )
        connection.execute(sql.SQL("drop table {stage}").format(**parts))

    def _check_table(self, connection: psycopg.Connection[Any], *, may_miss: bool) -> None:
        options = self._options
        keys = options.keys if options.mode == "upsert" else ()
        try:
            self._limits = limits_of(connection, options.table, self._schema, keys)
        except UnsuitableError as error:
            if may_miss and error.is_missing:
                return
            raise self._unsuitable(str(error), error.hint) from error

    def _guard(self, make: Any, *arguments: Any) -> None:
        try:
            make(*arguments)
        except psycopg.OperationalError as error:
            raise self._server.unreachable(0, error) from error
        except psycopg.Error as error:
            hint = "create it manually, or grant the user the permission to create it"
            raise self._unsuitable(str(error).strip(), hint) from error

    def _make_marker(self, connection: psycopg.Connection[Any]) -> None:
        statement = sql.SQL(
            "create table if not exists {} (run text primary key, job text not null, "
            "epoch bigint not null, written_at timestamptz not null default now())"
        )
        connection.execute(statement.format(table_name(self._options.marker_table)))

    def _check_history(self, connection: psycopg.Connection[Any], state: Mapping[str, Any]) -> bool:
        """Return whether epochs are to be written again, as an older one was restored.

        Raises:
            POSTGRES_HISTORY_AHEAD: so it is, and that was not allowed.
        """
        if state.get("table") != self._options.table:
            return False
        marker = table_name(state["marker_table"])
        name = marker.as_string(connection)
        [[oid]] = connection.execute("select to_regclass(%s)::oid", [name]).fetchall()
        if oid is None:
            return False
        select = sql.SQL("select epoch from {} where run = %s").format(marker)
        found = connection.execute(select, [state["run"]]).fetchall()
        return bool(found) and is_rewind(
            state, found[0][0], self._options.on_rewind,
            POSTGRES_HISTORY_AHEAD, vertex=self.spec.vertex_id, table=state["table"],
        )  # fmt: skip

    def _unsuitable(self, problem: str, hint: str) -> BicycleError:
        return POSTGRES_TABLE_UNSUITABLE(
            vertex=self.spec.vertex_id, table=self._options.table, problem=problem, hint=hint
        )


def _is_about_rows(error: Exception) -> bool:
    """Return whether the server refuses a row: values, constraints, limits, triggers."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and (state[:2] in _ROW_STATES or state == "P0001")


def _lines_in(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield rows with their ends; a block may end within one."""
    left = b""
    for block in blocks:
        *lines, left = (left + block).split(b"\n")
        for line in lines:
            yield line + b"\n"


def _check_keys(options: PostgresSinkOptions, spec: ConnectorSpec, names: Sequence[str]) -> None:
    """Refuse keys and a field of deletions that cannot be."""
    unknown = [name for name in (*options.keys, options.delete_field) if name and name not in names]
    if unknown:
        problem = f"{unknown[0]!r} is not a column"
        hint = f"columns are {', '.join(names)}; set e.g. keys=('id',) with mode=upsert"
        raise COLUMNS_WRONG(vertex=spec.vertex_id, problem=problem, hint=hint)
