"""The Iceberg sink: a commit contains rows, and the epoch of the run.

The epoch of a run is a property of the table, which the same commit changes: snapshots expire,
properties do not. A commit is made on the version that was looked at, and never by the library
again on another one, where the rows could already be.

Rows are replaced by key: files that hold a key are written again without it. The library's own
upsert compares rows in Python, and its filters by key grow with their number; here keys are
compared as columns, file by file, and only files whose bounds may have a key are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Any
from weakref import WeakSet

import pyarrow
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from sqlalchemy import event, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from bicycle_runtime.connectors.lakes.row_checks import RowChecks, iceberg_text, name_bytes_max
from bicycle_runtime.connectors.lakes.sink import LakeSink
from bicycle_runtime.connectors.lakes.table import (
    Commit,
    LakeTable,
    LakeVersion,
    MissingTableError,
    in_microseconds,
)
from bicycle_runtime.connectors.patience import close_socket
from bicycle_runtime.connectors.settings import option_error
from bicycle_runtime.connectors.tables.held_rows import in_groups
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.sinks import IcebergSinkOptions

_NO_RETRY = {"commit.retry.num-retries": "0"}
_COMPRESSION = "write.parquet.compression-codec"
_PIECE_ROWS = 1_000_000
# Else a crash of the server would lose a commit that counts as published.
_DURABLE = "-c synchronous_commit=on"


class IcebergSink(LakeSink):
    """Writes rows of an Iceberg table."""

    options_class = IcebergSinkOptions
    address_options = ("catalog", "catalog_name", "warehouse", "table")
    path_option = "warehouse"

    def table_of(self, options: IcebergSinkOptions) -> LakeTable:
        """Return the way to a table.

        Raises:
            CONNECTOR_OPTION_WRONG: its name, or the address of its catalog, is invalid.
        """
        return _IcebergTable(options, _address(options, self.spec))


class _IcebergTable(LakeTable):
    def __init__(self, options: IcebergSinkOptions, address: URL) -> None:
        self.name = options.table
        self._secret = options.catalog_password
        self._options = options
        self._address = address
        self._opened: SqlCatalog | None = None
        self._connections: WeakSet[Any] = WeakSet()

    def look(self) -> LakeVersion | None:
        file = self._address.database
        is_file = self._address.get_backend_name() == "sqlite" and file is not None
        if is_file and not Path(str(file)).exists():
            return None
        catalog = self._catalog(is_made=False)
        if not inspect(catalog.engine).has_table("iceberg_tables"):
            return None
        try:
            return _IcebergVersion(catalog.load_table(self.name))
        except NoSuchTableError:
            return None

    def make(self, schema: pyarrow.Schema) -> None:
        self.close()  # One that was opened to look makes no tables of its own.
        catalog = self._catalog(is_made=True)
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        if catalog.table_exists(self.name):
            return
        word = self._options.compression
        properties = {_COMPRESSION: "uncompressed" if word == "none" else word}
        try:
            with catalog.create_table_transaction(
                self.name, in_microseconds(schema), properties=properties
            ) as making:
                if self._options.partition_by:
                    with making.update_spec() as folders:
                        for column in self._options.partition_by:
                            folders.add_identity(column)
        except (TableAlreadyExistsError, CommitFailedException):
            if not catalog.table_exists(self.name):  # Another process has made it meanwhile.
                raise

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, CommitFailedException | OSError | OperationalError)

    def is_refusal(self, error: Exception) -> bool:
        expected = MissingTableError | SQLAlchemyError | ValidationException | ValueError
        return isinstance(error, expected) or _passed_library(error)

    def break_off(self) -> None:
        # An extra of its own, which only catalogs in PostgreSQL need.
        import psycopg

        for connection in list(self._connections):
            with contextlib.suppress(psycopg.Error):  # It is closed meanwhile.
                close_socket(connection.fileno())

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _catalog(self, *, is_made: bool) -> SqlCatalog:
        if self._opened is None:
            address = self._address
            if self._secret is not None:
                address = address.set(password=self._secret.reveal())
            self._opened = SqlCatalog(
                self._options.catalog_name,
                uri=address.render_as_string(hide_password=False),
                warehouse=str(self._options.warehouse),
                pool_pre_ping="true",
                init_catalog_tables="true" if is_made else "false",
            )
            if self._address.get_backend_name() == "postgresql":
                event.listen(self._opened.engine, "connect", self._note_connection)
                self._opened.engine.dispose()  # The library's current ones are not known.
        return self._opened

    def _note_connection(self, connection: Any, _: object) -> None:
        self._connections.add(connection)


def _passed_library(error: Exception) -> bool:
    """Return whether the library raised an error; its classes have no common base."""
    frames = walk_tb(error.__traceback__)
    return any(str(f.f_globals.get("__name__")).startswith("pyiceberg.") for f, _ in frames)


class _IcebergVersion(LakeVersion):
    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def schema(self) -> pyarrow.Schema:
        return _schema_of(self._table)

    def checks(self) -> RowChecks:
        schema = self._table.schema()
        names = [
            schema.find_column_name(each.source_id)
            for each in self._table.spec().fields
            if isinstance(each.transform, IdentityTransform)
        ]
        return RowChecks(
            folders={name: iceberg_text for name in names if name is not None},
            bytes_max=name_bytes_max(self._table.location()),
        )

    def last_epoch(self, run: str) -> int:
        return int(self._table.properties.get(_property(run), -1))

    def append(self, rows: pyarrow.RecordBatchReader, commit: Commit) -> None:
        with self._transaction(commit) as changes:
            _append(changes, rows, commit)

    def upsert(self, rows: pyarrow.Table, commit: Commit) -> None:
        with self._transaction(commit) as changes:
            for each in replace_rows(self._table, changes, rows, commit):
                _append(changes, each, commit)

    def _transaction(self, commit: Commit) -> Transaction:
        """Begin a commit on this version; the library tries it once."""
        metadata = self._table.metadata
        once = {**metadata.properties, **_NO_RETRY}
        self._table.metadata = metadata.model_copy(update={"properties": once})
        changes = self._table.transaction()
        changes.set_properties({_property(commit.run): str(commit.epoch)})
        return changes


def _append(changes: Transaction, rows: pyarrow.RecordBatchReader, commit: Commit) -> None:
    """Add rows as one more snapshot; in folders as one for each piece of so many rows."""
    if changes.table_metadata.spec().is_unpartitioned():
        changes.append(rows, snapshot_properties=commit.facts)
        return
    lacking = _folder_columns(changes.table_metadata, set(rows.schema.names))
    tables: Iterator[pyarrow.Table] = (_with_nulls(batch, lacking) for batch in rows)
    for piece in in_groups(tables, _PIECE_ROWS):
        changes.append(piece, snapshot_properties=commit.facts)


def _folder_columns(metadata: TableMetadata, known: Collection[str]) -> list[pyarrow.Field]:
    """Return the columns of the folders that rows lack; the library needs them."""
    schema = metadata.schema()
    needed = {schema.find_column_name(each.source_id) for each in metadata.spec().fields}
    return [each for each in schema.as_arrow() if each.name in needed and each.name not in known]


def _with_nulls(batch: pyarrow.RecordBatch, lacking: Sequence[pyarrow.Field]) -> pyarrow.Table:
    rows = pyarrow.Table.from_batches([batch])
    for field in lacking:
        rows = rows.append_column(field, pyarrow.nulls(rows.num_rows, field.type))
    return rows


def _property(run: str) -> str:
    return f"bicycle.epoch.{run}"


def _address(options: IcebergSinkOptions, spec: ConnectorSpec) -> URL:
    problem = ""
    try:
        found = make_url(options.catalog)
    except ArgumentError:
        problem = "it is not the address of a database"
    else:
        if found.get_backend_name() not in ("sqlite", "postgresql"):
            problem = f"{found.get_backend_name()!r} is not a supported catalog"
        elif found.password is not None:
            problem = "it contains a password, which would be stored in the graph"
    if problem:
        hint = "use e.g. catalog='sqlite:////data/lake.db' and table='shop.payments'"
        raise option_error(spec, "catalog", problem, hint)
    if found.get_backend_name() != "postgresql":
        return found
    if found.drivername == "postgresql":
        found = found.set(drivername="postgresql+psycopg")
    return found if "options" in found.query else found.update_query_dict({"options": _DURABLE})


_INDEX = "__index"
_low: Any = GreaterThanOrEqual  # Their types lack the form with places that their docs show.
_high: Any = LessThanOrEqual


def replace_rows(
    table: Table, changes: Transaction, rows: pyarrow.Table, commit: Commit
) -> list[pyarrow.RecordBatchReader]:
    """Take files with keys of rows out of the table, and return the rows to add.

    Args:
        table: As it was looked at.
        changes: Of the table; files are taken out there.
        rows: The new rows; each key is there once.
        commit: By which keys.

    Returns:
        The other rows of the files, read on demand, and the new rows. These have the columns that
        they lack from the rows that they replace.
    """
    schema, keys = _schema_of(table), rows.select(list(commit.keys))
    lacking = [name for name in schema.names if name not in rows.schema.names]
    found, replaced = [], []
    for task in table.scan(row_filter=_within(keys)).plan_files():
        file_keys = _read(table, task, keys.schema)
        indexes = _indexes(file_keys, keys, "left anti")
        if len(indexes) == file_keys.num_rows:
            continue
        found.append((task, indexes))
        if lacking:
            columns = pyarrow.schema([*keys.schema, *map(schema.field, lacking)])
            same = _read(table, task, columns)
            replaced.append(same.take(_indexes(file_keys, keys, "left semi")))
    if found:
        with changes.update_snapshot(snapshot_properties=commit.facts).overwrite() as removing:
            for task, _ in found:
                removing.delete_data_file(task.file)
    if replaced:
        rows = _fill(rows, pyarrow.concat_tables(replaced), commit.keys).select(schema.names)
    left = [(task, indexes) for task, indexes in found if len(indexes)]
    kept = pyarrow.RecordBatchReader.from_batches(schema, _rows_of(table, left, schema))
    return [kept, rows.to_reader()] if left else [rows.to_reader()]


def _rows_of(
    table: Table, left: Sequence[tuple[FileScanTask, pyarrow.Array]], schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    for task, indexes in left:
        yield from _read(table, task, schema).take(indexes).to_batches()


def _schema_of(table: Table) -> pyarrow.Schema:
    return pyarrow.schema([field.remove_metadata() for field in table.schema().as_arrow()])


def _read(table: Table, task: FileScanTask, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return columns of all rows of a file that are not deleted, in order."""
    columns = table.schema().select(*schema.names)
    scan = ArrowScan(table.metadata, table.io, columns, AlwaysTrue())
    return scan.to_table([task]).select(schema.names).cast(schema)


def _number(rows: pyarrow.Table) -> pyarrow.Table:
    return rows.append_column(_INDEX, pyarrow.array(range(rows.num_rows), pyarrow.int64()))


def _indexes(file_keys: pyarrow.Table, keys: pyarrow.Table, kind: str) -> pyarrow.Array:
    """Return the positions of a file's rows with or without any of the keys, in order."""
    joined = _number(file_keys).join(keys, keys=keys.schema.names, join_type=kind)
    found = joined.column(_INDEX).combine_chunks()
    return found.take(pc.sort_indices(found))


def _fill(rows: pyarrow.Table, replaced: pyarrow.Table, keys: Sequence[str]) -> pyarrow.Table:
    """Return rows with the other columns of the rows that they replace."""
    names = list(keys)
    old = _number(replaced.select(names)).group_by(names).aggregate([(_INDEX, "max")])
    joined = _number(rows.select(names)).join(old, keys=names).sort_by(_INDEX)
    others = replaced.drop_columns(names).take(joined.column(f"{_INDEX}_max"))
    columns = [*rows.columns, *others.columns]
    return pyarrow.Table.from_arrays(columns, schema=pyarrow.schema([*rows.schema, *others.schema]))


def _within(keys: pyarrow.Table) -> BooleanExpression:
    """Return a filter that is true for rows with the keys, and false for most others."""
    found: BooleanExpression = AlwaysTrue()
    for name in keys.schema.names:
        bounds: dict[str, Any] = pc.min_max(keys.column(name)).as_py()
        low: BooleanExpression = _low(name, bounds["min"])
        found = And(found, low, _high(name, bounds["max"]))
    return found
