"""Writers that record their input without writing, for invisible epochs.

If the real writer prepares records, it does so: its checks, and user code, may be the failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.contract import (
    EventTimes,
    PreparingWriter,
    StagedFile,
    WriterFactory,
    WriterTask,
)


@dataclass(slots=True)
class SinkInput:
    """The input of one sink: the number of records, and the first of them."""

    record_count: int = 0
    shown: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordingFactory:
    """A factory of writers that record their input without writing."""

    real: WriterFactory
    noted: SinkInput
    shown_count: int

    def open(self, task: WriterTask) -> _RecordingWriter:
        """Return a recording writer, which uses the real writer to prepare records."""
        real = self.real.open(task)
        if isinstance(real, PreparingWriter):
            return _PreparingRecordingWriter(real, self.noted, self.shown_count)
        return _RecordingWriter(self.noted, self.shown_count)


class _RecordingWriter:
    """A writer that records its input."""

    def __init__(self, noted: SinkInput, shown_count: int) -> None:
        self._noted = noted
        self._shown_count = shown_count

    def write(self, values: list[Any]) -> None:
        """Count the records and keep the first of them."""
        self._noted.record_count += len(values)
        left = self._shown_count - len(self._noted.shown)
        self._noted.shown += values[: max(left, 0)]

    def finish(self) -> list[StagedFile]:
        """Return nothing: nothing was staged."""
        return []

    def abort(self) -> None:
        """Keep the recorded input: a failed epoch shows its progress."""


class _PreparingRecordingWriter(_RecordingWriter):
    """A writer that runs the preparation of the real writer, which may fail."""

    def __init__(self, real: PreparingWriter, noted: SinkInput, shown_count: int) -> None:
        super().__init__(noted, shown_count)
        self._real = real

    def prepare(self, values: list[Any], times: EventTimes) -> list[Any]:
        """Return the prepared records of the real writer."""
        return self._real.prepare(values, times)

    def prepare_one(self, value: Any, time_ms: int | None) -> Any:
        """Return a prepared record of the real writer."""
        return self._real.prepare_one(value, time_ms)
