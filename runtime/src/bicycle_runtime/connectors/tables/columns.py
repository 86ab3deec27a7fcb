"""The columns of a sink, with errors that name its vertex."""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.connectors.errors import COLUMN_TYPE_UNKNOWN, COLUMNS_WRONG
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.frames.table_columns import ColumnTypeError, TableColumns
from bicycle_sdk.sinks import ColumnType


def columns_of(
    spec: ConnectorSpec, declared: Mapping[str, ColumnType] | None, time_name: str
) -> TableColumns:
    """Return the columns of the records of a sink.

    Args:
        spec: The sink.
        declared: Column -> word of its type, None if the record type decides.
        time_name: Column that gets the event time, or an empty text.

    Raises:
        COLUMN_TYPE_UNKNOWN: a word, or the type of a field, is no column type.
        COLUMNS_WRONG: there would be no column.
    """
    try:
        if declared is not None:
            found = TableColumns.declared(declared, time_name)
        else:
            found = TableColumns.of_type(spec.record_type, time_name)
    except ColumnTypeError as error:
        raise COLUMN_TYPE_UNKNOWN(
            vertex=spec.vertex_id, column=error.name, found=error.found, known=error.known
        ) from error
    if not found.schema.names:
        raise COLUMNS_WRONG(
            vertex=spec.vertex_id,
            problem="the records have no fields",
            hint="add at least one field to the records",
        )
    return found
