"""Rows of an Iceberg table replaced by key: files that hold a key are written again without it.

The library's own upsert compares rows in Python, and its filters by key grow with their number;
here keys are compared as columns, file by file, and only files whose bounds may have a key are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table, Transaction

from bicycle_runtime.connectors.lakes.table import Commit

__all__ = ["replace_rows"]

_PLACE = "__place"
_low: Any = GreaterThanOrEqual  # Their types lack the form with places that their docs show.
_high: Any = LessThanOrEqual


def replace_rows(
    table: Table, changes: Transaction, rows: pyarrow.Table, commit: Commit
) -> pyarrow.RecordBatchReader | None:
    """Take files with keys of rows out of the table, and return their other rows.

    Args:
        table: As it was looked at.
        changes: Of the table; files are taken out there.
        rows: What comes in their place; each key is there once.
        commit: By which keys.

    Returns:
        What must be added again, read as it is asked for; None for nothing.
    """
    keys = rows.select(list(commit.keys))
    found = []
    for task in table.scan(row_filter=_within(keys)).plan_files():
        file_keys = _read(table, task, commit.keys)
        places = _other_places(file_keys, keys)
        if len(places) < file_keys.num_rows:
            found.append((task, places))
    if not found:
        return None
    with changes.update_snapshot(snapshot_properties=commit.facts).overwrite() as removing:
        for task, _ in found:
            removing.delete_data_file(task.file)
    left = [(task, places) for task, places in found if len(places)]
    if not left:
        return None
    return pyarrow.RecordBatchReader.from_batches(rows.schema, _rows_of(table, left, rows.schema))


def _rows_of(
    table: Table, left: Sequence[tuple[FileScanTask, pyarrow.Array]], schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    for task, places in left:
        kept = _read(table, task, schema.names).take(places)
        yield from kept.cast(schema).to_batches()


def _read(table: Table, task: FileScanTask, names: Sequence[str]) -> pyarrow.Table:
    """Return all rows of a file that are not deleted, in order."""
    columns = table.schema().select(*names)
    scan = ArrowScan(table.metadata, table.io, columns, AlwaysTrue())
    return scan.to_table([task]).select(list(names))


def _other_places(file_keys: pyarrow.Table, keys: pyarrow.Table) -> pyarrow.Array:
    """Return which rows of a file have none of the keys, in order."""
    places = pyarrow.array(range(file_keys.num_rows), pyarrow.int64())
    numbered = file_keys.cast(keys.schema).append_column(_PLACE, places)
    others = numbered.join(keys, keys=keys.schema.names, join_type="left anti")
    found = others.column(_PLACE).combine_chunks()
    return found.take(pc.sort_indices(found))


def _within(keys: pyarrow.Table) -> BooleanExpression:
    """Return what holds for every row with one of the keys, and tells most other files apart."""
    found: BooleanExpression = AlwaysTrue()
    for name in keys.schema.names:
        bounds: dict[str, Any] = pc.min_max(keys.column(name)).as_py()
        low: BooleanExpression = _low(name, bounds["min"])
        found = And(found, low, _high(name, bounds["max"]))
    return found
