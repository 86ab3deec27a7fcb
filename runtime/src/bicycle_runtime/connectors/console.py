"""The console sink: prints each published record, for people trying out.

A line ``[SINK] <record>`` for each, or a table for each epoch, which shows its first rows.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from bicycle_runtime.connectors.lines import json_lines, text_lines
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.staging import StagedWriter, read_staged
from bicycle_runtime.connectors.tables.columns import columns_of
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    EventTimes,
    Guarantee,
    Sink,
    StagedPublication,
    WriterTask,
)
from bicycle_runtime.frames.arrays import listed_values
from bicycle_runtime.frames.table_columns import TableColumns
from bicycle_sdk.quantities import amount
from bicycle_sdk.sinks import ConsoleSinkOptions

_ENTRY_LETTERS_MAX = 60
_TABLE_LETTERS = 160


@dataclass(frozen=True, slots=True)
class ConsoleWriterFactory:
    """Opens writers that stage text lines, or rows where there are columns."""

    columns: TableColumns | None = None

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one line per record."""
        if self.columns is None:
            return StagedWriter(task, "records.txt", text_lines)
        return _RowWriter(task, self.columns)


class _RowWriter(StagedWriter):
    """Stages the entries of each record as a JSON list."""

    def __init__(self, task: WriterTask, columns: TableColumns) -> None:
        super().__init__(task, "rows.jsonl", b"".join)
        self._columns = columns

    def prepare(self, values: Sequence[Any], times: EventTimes) -> list[bytes]:
        batch = self._columns.batch(values, times)
        rows = zip(*map(listed_values, batch.columns), strict=True)
        return [json_lines([list(map(_entry, row))]) for row in rows]


class ConsoleSink(StagedPublication, Sink):
    """A sink that prints records at publish; a crash may repeat an epoch."""

    guarantee = Guarantee.AT_LEAST_ONCE
    options_class = ConsoleSinkOptions
    accepts = "frames"

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(ConsoleSinkOptions, spec)
        self._columns: TableColumns | None = None
        if options.format == "table":
            self._columns = columns_of(spec, options.columns, "")
            self.takes_times = bool(self._columns.time_name)
        self._printed_epoch = -1

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Remember where to print."""
        self._services = services

    def writer(self) -> ConsoleWriterFactory:
        """Return the factory of writers."""
        return ConsoleWriterFactory(self._columns)

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Print the epoch's records, once per run."""
        if epoch <= self._printed_epoch:
            return
        if self._columns is None:
            self._print_lines(state)
        else:
            self._print_table(epoch, self._columns.schema.names, state)
        self._printed_epoch = epoch

    def stop(self) -> None:
        """Do nothing: the sink has no resources."""

    def _print_lines(self, state: Mapping[str, Any]) -> None:
        for file in self.staged_files(state):
            text = read_staged(self._services.storage, file).decode()
            lines = [f"[SINK] {line}" for line in text.split("\n")[:-1]]
            if lines:
                self._services.console("\n".join(lines))

    def _print_table(self, epoch: int, names: Sequence[str], state: Mapping[str, Any]) -> None:
        files = self.staged_files(state)
        count = sum(file.record_count for file in files)
        if not count:
            return
        lines = (
            line
            for file in files
            for line in read_staged(self._services.storage, file).splitlines()
        )
        rows = [msgspec.json.decode(line) for line in islice(lines, self._options.rows)]
        shown = (
            amount(count, "row")
            if count == len(rows)
            else f"{len(rows):,} of {amount(count, 'row')}"
        )
        self._services.console(_table(f"epoch {epoch}: {shown}", names, rows))


def _entry(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _ENTRY_LETTERS_MAX else f"{text[: _ENTRY_LETTERS_MAX - 1]}…"


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text."""
    # A slow library, which only jobs that print tables wait for.
    from rich import box, console, table, text

    found = table.Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in names:
        found.add_column(text.Text(name), overflow="fold")
    for row in rows:
        found.add_row(*map(text.Text, row))
    out = io.StringIO()
    console.Console(file=out, width=_TABLE_LETTERS, color_system=None).print(found)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines() if line.strip())
