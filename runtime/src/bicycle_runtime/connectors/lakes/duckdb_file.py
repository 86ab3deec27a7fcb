"""The DuckDB sink: a transaction contains rows, and the epoch of the run.

The last epoch of each run is a row of a table in the same file, which the same transaction changes.
The file is open only while it is read or written, because DuckDB lets one process write at a time:
between epochs, other programs can query it. An epoch waits while another program holds the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

from bicycle_runtime.connectors.lakes.row_checks import RowChecks
from bicycle_runtime.connectors.lakes.sink import LakeSink
from bicycle_runtime.connectors.lakes.table import (
    Commit,
    LakeTable,
    LakeVersion,
    MissingTableError,
    in_microseconds,
)
from bicycle_sdk.sinks import DuckdbSinkOptions

_ROWS = "bicycle_rows"  # The name of new rows in statements.
_CONFLICTS = (duckdb.IOException, duckdb.TransactionException, duckdb.ConnectionException)


class DuckdbSink(LakeSink):
    """Writes rows of a table in a DuckDB file."""

    options_class = DuckdbSinkOptions
    address_options = ("path", "table")

    def table_of(self, options: DuckdbSinkOptions) -> LakeTable:
        """Return the way to a table."""
        return _DuckdbTable(options)


class _DuckdbTable(LakeTable):
    def __init__(self, options: DuckdbSinkOptions) -> None:
        self._options = options
        self.keys = options.keys
        self._path = Path(options.path).absolute()
        self._table = ".".join(map(_quote, options.table.split(".")))
        self.name = f"{options.table} in {options.path}"

    def look(self) -> LakeVersion | None:
        if not self._path.exists():
            return None
        with self.opened() as file:
            if not _has_table(file, self._table):
                return None
            columns = file.sql(f"from {self._table} limit 0").to_arrow_table().schema
            required = {row[0] for row in _run(file, f"describe {self._table}") if row[2] == "NO"}
            epochs = self._epochs(file)
            keys = self._unique_keys(file)
        schema = pyarrow.schema(
            [field.with_nullable(field.name not in required) for field in columns]
        )
        return _DuckdbVersion(self, schema, epochs, keys)

    def make(self, schema: pyarrow.Schema) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self.opened() as file:
            is_there = _has_table(file, self._table)
            with _transaction(file):
                self._make(file, schema, is_there=is_there)

    def _make(
        self, file: duckdb.DuckDBPyConnection, schema: pyarrow.Schema, *, is_there: bool
    ) -> None:
        if "." in self._options.table:
            _run(file, f"create schema if not exists {self._table.rpartition('.')[0]}")
        if not is_there:
            file.register(_ROWS, in_microseconds(schema).empty_table())
            _run(file, f"create table {self._table} as from {_ROWS} limit 0")
            if self._options.keys:
                keys = _names(self._options.keys)
                _run(file, f"alter table {self._table} add primary key ({keys})")
        self.marker(file)

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, (*_CONFLICTS, OSError))

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, duckdb.Error | MissingTableError)

    @contextmanager
    def opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection, which holds the lock of the file."""
        with closing(duckdb.connect(self._path)) as file:
            _run(file, "set timezone = 'UTC'")  # Arrow has the zone in the type of a column.
            yield file

    def write(self, rows: Any, commit: Commit, *, end: str = "") -> None:
        """Insert rows and the epoch in one transaction.

        Args:
            rows: Of Arrow.
            commit: The epoch; nothing is written again.
            end: The end of the statement.
        """
        with self.opened() as file, _transaction(file):
            marker = self.marker(file)
            last = f"select epoch from {marker} where run = ?"
            if any(epoch >= commit.epoch for (epoch,) in _run(file, last, commit.run)):
                return
            file.register(_ROWS, rows)
            names = _names(rows.schema.names)
            insert = f"insert into {self._table} ({names}) select {names} from {_ROWS}"
            _run(file, f"{insert} {end}")
            _run(
                file,
                f"insert into {marker} values (?, ?, ?) on conflict (run) do update set "
                "job = excluded.job, epoch = excluded.epoch",
                commit.run,
                commit.job,
                commit.epoch,
            )

    def marker(self, file: duckdb.DuckDBPyConnection) -> str:
        """Return the table with the last epoch of each run; make it where it is missing."""
        name = _quote(self._options.marker_table)
        columns = "run varchar primary key, job varchar, epoch bigint"
        _run(file, f"create table if not exists {name} ({columns})")
        return name

    def _epochs(self, file: duckdb.DuckDBPyConnection) -> dict[str, int]:
        """Return the last epoch of each run; empty before the first write."""
        name = _quote(self._options.marker_table)
        return dict(_run(file, f"select run, epoch from {name}")) if _has_table(file, name) else {}

    def _unique_keys(self, file: duckdb.DuckDBPyConnection) -> list[set[str]]:
        schema, _, name = self._options.table.rpartition(".")
        found = _run(
            file,
            "select constraint_column_names from duckdb_constraints() where table_name = ? and "
            "schema_name = ? and constraint_type in ('PRIMARY KEY', 'UNIQUE')",
            name,
            schema or "main",
        )
        return [set(names) for (names,) in found]


class _DuckdbVersion(LakeVersion):
    def __init__(
        self,
        table: _DuckdbTable,
        schema: pyarrow.Schema,
        epochs: dict[str, int],
        unique_keys: Sequence[set[str]],
    ) -> None:
        self._table = table
        self._schema = schema
        self._epochs = epochs
        self._unique_keys = unique_keys

    @property
    def schema(self) -> pyarrow.Schema:
        return self._schema

    def checks(self) -> RowChecks:
        keys = self._table.keys
        if keys and set(keys) not in self._unique_keys:
            raise ValueError(f"it has no primary key or unique constraint ({', '.join(keys)})")
        return RowChecks()

    def last_epoch(self, run: str) -> int:
        return self._epochs.get(run, -1)

    def append(self, rows: pyarrow.RecordBatchReader, commit: Commit) -> None:
        self._table.write(rows, commit)

    def upsert(self, rows: pyarrow.Table, commit: Commit) -> None:
        others = [name for name in rows.schema.names if name not in commit.keys]
        changes = ", ".join(f"{_quote(name)} = excluded.{_quote(name)}" for name in others)
        action = f"update set {changes}" if others else "nothing"
        end = f"on conflict ({_names(commit.keys)}) do {action}"
        self._table.write(rows, commit, end=end)


def _run(file: duckdb.DuckDBPyConnection, statement: str, *values: object) -> list[Any]:
    """Execute a statement and return all its rows: unread rows block the connection."""
    return file.execute(statement, list(values)).fetchall()


def _has_table(file: duckdb.DuckDBPyConnection, name: str) -> bool:
    try:
        _run(file, f"describe {name}")
    except duckdb.CatalogException:
        return False
    return True


@contextmanager
def _transaction(file: duckdb.DuckDBPyConnection) -> Iterator[None]:
    file.begin()
    try:
        yield
    except BaseException:
        file.rollback()
        raise
    file.commit()


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_quote, names))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
