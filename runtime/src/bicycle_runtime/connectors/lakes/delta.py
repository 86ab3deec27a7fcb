"""The Delta Lake sink: a commit contains run and epoch as a transaction.

The log of the table has the last epoch of each run, and refuses a commit of a run that began beside
another one of it; ``deltalake`` does both.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Any

import pyarrow
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from bicycle_runtime.connectors.lakes.row_checks import RowChecks, delta_text, name_bytes_max
from bicycle_runtime.connectors.lakes.sink import LakeSink
from bicycle_runtime.connectors.lakes.table import (
    Commit,
    LakeTable,
    LakeVersion,
    MissingTableError,
    in_microseconds,
)
from bicycle_runtime.expressions.conditions import Conditions
from bicycle_sdk.sinks import DeltaSinkOptions

_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
_CONSTRAINT = "delta.constraints."
_COMPRESSIONS: Mapping[str, Any] = {
    "snappy": "SNAPPY", "zstd": "ZSTD", "gzip": "GZIP", "none": "UNCOMPRESSED",
}  # fmt: skip


class DeltaSink(LakeSink):
    """Writes rows of a Delta table."""

    options_class = DeltaSinkOptions
    address_options = ("path",)

    def table_of(self, options: DeltaSinkOptions) -> LakeTable:
        """Return the way to a table."""
        return _DeltaTable(options)


class _DeltaTable(LakeTable):
    def __init__(self, options: DeltaSinkOptions) -> None:
        self.name = str(options.path)
        self._options = options

    def look(self) -> LakeVersion | None:
        if not DeltaTable.is_deltatable(self.name):
            return None
        return _DeltaVersion(DeltaTable(self.name), self._options)

    def make(self, schema: pyarrow.Schema) -> None:
        DeltaTable.create(
            self.name,
            Schema.from_arrow(in_microseconds(schema)),
            mode="ignore",
            partition_by=list(self._options.partition_by) or None,
        )

    def unsupported(self, schema: pyarrow.Schema) -> str:
        for field in in_microseconds(schema):
            try:
                Schema.from_arrow(pyarrow.schema([field]))
            except Exception:  # noqa: BLE001 - the library has no class for it.
                return str(field.name)
        return ""

    def folder_problem(self, schema: pyarrow.Schema) -> str:
        names = self._options.partition_by
        if names and {*names} >= {*schema.names}:
            return "all columns are in partition_by, but a file of Delta needs at least one more"
        for name in names:
            # The library reads other bytes from the name of a folder than it wrote there.
            if pyarrow.types.is_binary(schema.field(name).type):
                return f"{name!r} has the type binary, which cannot be a Delta partition"
        return ""

    def is_away(self, error: Exception) -> bool:
        # Its writer raises errors of the storage, such as a full disk, as other errors.
        number = _SYSTEM_ERROR.search(str(error)) if isinstance(error, DeltaError) else None
        is_storage = number is not None and int(number[1]) != errno.ENAMETOOLONG
        return is_storage or isinstance(error, CommitFailedError | OSError)

    def is_refusal(self, error: Exception) -> bool:
        # The engine below the library raises plain exceptions, too.
        return isinstance(error, DeltaError | MissingTableError) or type(error) is Exception


class _DeltaVersion(LakeVersion):
    def __init__(self, table: DeltaTable, options: DeltaSinkOptions) -> None:
        self._table = table
        self._writing = WriterProperties(compression=_COMPRESSIONS[options.compression])

    @property
    def schema(self) -> pyarrow.Schema:
        return pyarrow.schema(self._table.schema().to_arrow())

    def checks(self) -> RowChecks:
        metadata = self._table.metadata()
        texts = {
            name.removeprefix(_CONSTRAINT): text
            for name, text in metadata.configuration.items()
            if name.startswith(_CONSTRAINT) and text is not None
        }
        return RowChecks(
            folders=dict.fromkeys(metadata.partition_columns, delta_text),
            bytes_max=name_bytes_max(self._table.table_uri),
            conditions=Conditions(texts, self.schema) if texts else None,
        )

    def last_epoch(self, run: str) -> int:
        found: int | None = self._table.transaction_version(_application(run))
        return -1 if found is None else found

    def append(self, rows: pyarrow.RecordBatchReader, commit: Commit) -> None:
        write_deltalake(
            self._table,
            rows,
            mode="append",
            schema_mode="merge",  # Columns that rows lack are null.
            commit_properties=_properties(commit),
            writer_properties=self._writing,
        )

    def upsert(self, rows: pyarrow.Table, commit: Commit) -> None:
        same = " and ".join(f"t.{_quote(key)} = s.{_quote(key)}" for key in commit.keys)
        merge = self._table.merge(
            rows,
            predicate=same,
            source_alias="s",
            target_alias="t",
            commit_properties=_properties(commit),
            writer_properties=self._writing,
        )
        changes = {_quote(name): f"s.{_quote(name)}" for name in rows.schema.names}
        merge.when_matched_update(changes).when_not_matched_insert(changes).execute()


def _properties(commit: Commit) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(commit.facts),
        app_transactions=[Transaction(_application(commit.run), commit.epoch)],
    )


def _application(run: str) -> str:
    return f"bicycle-{run}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
