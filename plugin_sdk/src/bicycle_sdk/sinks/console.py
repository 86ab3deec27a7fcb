"""The console, and lists of the test harness, as sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from bicycle_sdk.connector_options import Conflict, SinkOptions, no_address, path_of, sink_call
from bicycle_sdk.options import option
from bicycle_sdk.sinks.tables import ColumnOptions

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "CollectSinkOptions",
    "ConsoleSinkOptions",
    "ConsoleTableSinkOptions",
    "collect_sink",
    "console_sink",
    "console_table_sink",
]


class ConsoleSinkOptions(ColumnOptions, SinkOptions, connector="console", call="console_sink"):
    """The options for printing records."""

    format: Literal["lines", "table"] = option(
        default="lines", doc="lines: [SINK] <record>; table: a table for each epoch."
    )
    rows: int = option(
        default=20, low=1, high=100_000, doc="Maximum number of rows of an epoch in a table."
    )

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return no options."""
        return no_address(parts)

    def conflicts(self) -> Iterator[Conflict]:
        """Yield options of a table that are set for lines."""
        for name in ("columns", "rows"):
            if self.format == "lines" and name in self.given_options():
                hint = "set format to table, or call console_table_sink"
                yield Conflict(name, f"{name} applies to the format table", hint)


class ConsoleTableSinkOptions(ConsoleSinkOptions, connector="console", call="console_table_sink"):
    """The options for printing a table for each epoch."""

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the format of tables."""
        return {"format": "table", **given}


class CollectSinkOptions(SinkOptions, connector="collect", call="collect_sink"):
    """The options of the collect sink."""

    name: str = option(
        default="collected", kw_only=False, doc="Name under which tests find the records."
    )

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the name."""
        return {"name": path_of(parts)}


console_sink = sink_call(
    ConsoleSinkOptions, "Return a sink that prints a line ``[SINK] <record>`` for each record."
)
console_table_sink = sink_call(
    ConsoleTableSinkOptions,
    "Return a sink that prints a table for each epoch with records, for trials.",
)
collect_sink = sink_call(
    CollectSinkOptions, "Return a sink to a list of that name in the test harness."
)
