"""The console sink: prints each published record as ``[SINK] <record>``, for people trying out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.lines import text_lines
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.staging import (
    StagedWriter,
    read_staged,
)
from bicycle_runtime.contract import (
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Sink,
    StagedPublication,
    WriterTask,
)

__all__ = ["ConsoleOptions", "ConsoleSink", "ConsoleWriterFactory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The console has no options."""


@dataclass(frozen=True, slots=True)
class ConsoleWriterFactory:
    """Opens writers that stage text lines."""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer of one line per record."""
        return StagedWriter(task, "records.txt", text_lines)


class ConsoleSink(StagedPublication, Sink):
    """Prints records at publish; an epoch may be printed again after a crash (at-least-once)."""

    guarantee = Guarantee.AT_LEAST_ONCE
    options_class = ConsoleOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        read_options(ConsoleOptions, spec)
        self._printed_epoch = -1

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Remember where to print."""
        self._services = services

    def writer(self) -> ConsoleWriterFactory:
        """Return the factory of text writers."""
        return ConsoleWriterFactory()

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Print the epoch's records, once per run."""
        if epoch <= self._printed_epoch:
            return
        for file in self.staged_files(state):
            text = read_staged(self._services.storage, file).decode()
            lines = [f"[SINK] {line}" for line in text.split("\n")[:-1]]
            if lines:
                self._services.console("\n".join(lines))
        self._printed_epoch = epoch

    def stop(self) -> None:
        """Nothing was opened."""
