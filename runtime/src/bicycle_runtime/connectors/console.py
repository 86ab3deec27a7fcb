"""The console sink: prints each published record as ``[SINK] <record>``, for people trying out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.contract import ConnectorSpec, DriverServices, Guarantee, Sink
from bicycle_runtime.connectors.lines import text_lines
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.connectors.staging import (
    StagedWriter,
    in_subtask_order,
    read_staged,
    staged_from_json,
    staged_to_json,
)
from bicycle_runtime.operators.io import StagedFile, WriterTask

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


class ConsoleSink(Sink):
    """Prints records at publish; an epoch may be printed again after a crash (at-least-once)."""

    guarantee = Guarantee.AT_LEAST_ONCE
    options_class = ConsoleOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        read_options(ConsoleOptions, spec)
        self._printed_epoch = -1

    def start(self, services: DriverServices, memo: Mapping[str, Any]) -> None:
        """Remember where to print."""
        self._services = services

    def writer(self) -> ConsoleWriterFactory:
        """Return the factory of text writers."""
        return ConsoleWriterFactory()

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Name the staged files."""
        return {"files": [staged_to_json(file) for file in in_subtask_order(staged)]}

    def publish(self, epoch: int, memo: Mapping[str, Any]) -> None:
        """Print the epoch's records, once per run."""
        if epoch <= self._printed_epoch:
            return
        for entry in memo.get("files", []):
            text = read_staged(self._services.storage, staged_from_json(entry)).decode()
            for line in text.split("\n")[:-1]:
                self._services.console(f"[SINK] {line}")
        self._printed_epoch = epoch

    def stop(self) -> None:
        """Nothing was opened."""

    def referenced_paths(self, memo: Mapping[str, Any]) -> set[str]:
        """The epoch's own staged files."""
        return {entry["path"] for entry in memo.get("files", [])}
