"""Sinks whose output has columns, in files of Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicycle_sdk.client_options import EventTime, PartSize
from bicycle_sdk.connector_options import Conflict, OutputPath, SinkOptions, sink_call
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.options import option, shared_options

__all__ = [
    "ColumnOptions",
    "ColumnType",
    "Compression",
    "Folders",
    "ParquetSinkOptions",
    "TableSinkOptions",
    "by_date",
    "by_field",
    "parquet_sink",
]

ColumnType = type | str
Compression = Literal["snappy", "zstd", "gzip", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """The partitioning of rows into folders, created by ``by_field`` or ``by_date``."""

    kind: Literal["field", "date"]
    field: str = ""
    date_format: str = "%Y-%m-%d"


def by_field(name: str) -> Folders:
    """Return folders ``name=value`` for each value of a field.

    Args:
        name: The field. Readers read it from the name of the folder; files do not contain it.
    """
    if not name:
        raise StreamDefinitionError(
            call="by_field", problem="the name of the field is empty", hint="give by_field('city')"
        )
    return Folders(kind="field", field=name)


def by_date(date_format: str = "%Y-%m-%d", *, field: str = "") -> Folders:
    """Return folders ``dt=date`` for each day, or for each text of the format, in UTC.

    Args:
        date_format: As of ``strftime``.
        field: Field with a time, a date, or ms since 1970; empty for the event time of the record.
    """
    if "%" not in date_format:
        raise StreamDefinitionError(
            call="by_date",
            problem=f"{date_format!r} is not a date format",
            hint="use a format such as '%Y-%m-%d' or '%Y-%m'",
        )
    return Folders(kind="date", field=field, date_format=date_format)


@shared_options
class ColumnOptions:
    """The columns of the output of a sink."""

    columns: Mapping[str, ColumnType] | None = option(
        default=None,
        doc=(
            "Types of the columns: int, float, bool, str, bytes, datetime, date, time, decimal, "
            "decimal(12,2), json. Default: the fields of the record type; event_time and payload "
            "for records without fields."
        ),
    )


class TableSinkOptions(ColumnOptions, EventTime, PartSize, SinkOptions):
    """The options of tables: columns, and when rows become visible."""

    compression: Compression = option(
        default="snappy",
        doc="Compression of files, including staged files.",
    )
    roll_rows: int = option(
        default=1_000_000,
        low=1,
        high=1 << 31,
        doc="Number of rows at which a part is complete.",
        words=("max_rows",),
    )
    open_bytes_max: int = option(
        default=1 << 30,
        low=1,
        high=1 << 40,
        doc="Total size of open parts at which all of them are complete.",
    )


class ParquetSinkOptions(
    OutputPath, TableSinkOptions, connector="parquet_file", call="parquet_sink"
):
    """The options of the Parquet sink: location, folders, and bounds of parts.

    The sink writes files in a directory or at a URL; a file is visible when its epoch is sealed.
    """

    partition_by: Literal["none", "field", "date"] | Folders = option(
        default="none",
        doc=(
            "Subfolders: `none`, field=value for each value of a field, or dt=date. Calls also "
            "accept `by_field(…)` and `by_date(…)`."
        ),
        aliases=("folders",),
    )
    partition_field: str = option(
        default="",
        doc="Partition field; for dates it may be empty to use the event time of the record.",
    )
    partition_format: str = option(
        default="%Y-%m-%d", doc="Date format in UTC, as in strftime: e.g. %Y-%m or %Y-%m-%dT%H."
    )

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the folders as three options."""
        folders = given.get("partition_by")
        if not isinstance(folders, Folders):
            return given
        options = {"partition_by": folders.kind, "partition_field": folders.field}
        if folders.kind == "date":
            options["partition_format"] = folders.date_format
        return given | options

    def conflicts(self) -> Iterator[Conflict]:
        """Yield options of folders that contradict each other."""
        by, name, given = self.partition_by, self.partition_field, self.given_options()
        if by == "field" and not name:
            hint = "set partition_field to the name of a column"
            yield Conflict("partition_field", "it must be set for folders by field", hint)
        if by != "date" and "partition_format" in given:
            hint = "remove it, or set partition_by to date"
            problem = f"partition_format applies to folders by date, not {by}"
            yield Conflict("partition_format", problem, hint)
        if by == "none" and name:
            hint = "set partition_by to field or date"
            problem = "partition_field is set, but partition folders are disabled"
            yield Conflict("partition_field", problem, hint)
        if by == "date" and "%" not in self.partition_format:
            hint = "use a format such as '%Y-%m-%d' or '%Y-%m'"
            problem = f"{self.partition_format!r} is not a date format"
            yield Conflict("partition_format", problem, hint)


parquet_sink = sink_call(
    ParquetSinkOptions,
    "Return a sink of Parquet files in a directory or at a URL, visible when sealed.",
)
