"""The scripted source: records pushed by a test, read like any source's records.

The script is the outside world: pushed records stay there, whatever happens to the job, and are
read again from the sealed offset after a crash. Records travel to workers inside slices, so that
the same source serves the harness and Spark.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Any, TypeVar

from bicycle_runtime.connectors.hooks import connector_hook
from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Lag,
    Slice,
    Source,
    SourceBatch,
    SourceStatus,
    even_slices,
)
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_sdk.connectors import SourceDescriptor
from bicycle_sdk.options import option

SHARD = "script"
SCRIPT_TYPE = "script"
T = TypeVar("T")


class Mark(Enum):
    """A word of a script that is no record."""

    EPOCH = "epoch"
    CRASH = "crash"
    END = "end"


EPOCH = Mark.EPOCH  # Run an epoch over the records pushed since the last one.
CRASH = Mark.CRASH  # Run that epoch, but die before it is sealed, and start again.
END = Mark.END  # No more input will come: run to the end.


def script_source(record_type: type[T] | None = None) -> SourceDescriptor[T]:
    """Return a source whose records a test pushes with ``Harness.push``.

    Args:
        record_type: Type of the records; None when unknown.
    """
    return SourceDescriptor(connector_type=SCRIPT_TYPE, output_type=record_type)


@dataclass(slots=True)
class Script:
    """The pushed records of one source, and whether more may follow."""

    values: list[Any] = field(default_factory=list)
    timestamps: dict[int, int] = field(default_factory=dict)  # event time in ms, by index
    is_ended: bool = False
    read_count: int = 0  # Records handed to tasks, each attempt counted.

    def push(self, values: Iterable[Any], timestamps: Iterable[int] | int | None = None) -> None:
        """Add records, perhaps with event times: one for all of them, or one for each."""
        added = list(values)
        times = [timestamps] * len(added) if isinstance(timestamps, int) else timestamps
        if times is not None:
            first = len(self.values)
            indexes = range(first, first + len(added))
            self.timestamps |= dict(zip(indexes, times, strict=True))
        self.values += added


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """The options of a scripted source: the batch size."""

    batch_records: int = option(
        1_024, low=1, high=1_000_000, doc="Maximum number of records per task."
    )


@dataclass(frozen=True, slots=True)
class ScriptReader:
    """A reader that unpacks the records of a slice."""

    batch_records: int
    record_type: Any = None

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of the slice in batches, each with or without event times."""
        data = base64.b64decode(part.details["records"])
        values = RecordCodec(self.record_type).decode(part.details["codec"], data)
        times = part.details["times"] or [None] * len(values)
        if not values:
            yield SourceBatch(values=[], offsets=(), next_offset=part.start)
        first = 0
        for is_timed, run in groupby(times, key=lambda time: time is not None):
            end = first + sum(1 for _ in run)
            for start in range(first, end, self.batch_records):
                some = slice(start, min(start + self.batch_records, end))
                offsets = range(part.start + some.start, part.start + some.stop)
                yield SourceBatch(
                    values=values[some],
                    offsets=offsets,
                    next_offset=offsets.stop,
                    timestamps=times[some] if is_timed else None,
                )
            first = end

    def close(self) -> None:
        """Do nothing: the reader has no resources."""


class ScriptSource(Source):
    """A source that reads a ``Script``, attached before the start."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = ScriptOptions

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(ScriptOptions, spec)
        self._record_type = spec.record_type
        self._codec = RecordCodec(spec.record_type, sender="a script")
        self._script = Script()
        self._next = 0

    def attach(self, script: Script) -> None:
        """Read this script from now on."""
        self._script = script

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Continue at the sealed index."""
        self._next = offsets.get(SHARD, 0)

    def poll(self) -> SourceStatus:
        """Return pushed records that are not sealed as available input."""
        left = len(self._script.values) - self._next
        return SourceStatus(
            has_input=left > 0,
            is_finished=left <= 0 and self._script.is_ended,
            lag=Lag(record_count=max(left, 0)),
            is_bounded=True,  # A test ends it at some time.
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Split the next records evenly into contiguous slices, one per subtask."""
        script = self._script
        count = min(len(script.values) - self._next, budget.record_count)
        script.read_count += count
        parts = even_slices(SHARD, start=self._next, count=count, parallelism=budget.parallelism)
        return [replace(part, details=self._pack(part.start, part.end)) for part in parts]

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on."""
        self._next = ends.get(SHARD, self._next)

    def reader(self) -> ScriptReader:
        """Return a reader; the records come with the slices."""
        return ScriptReader(self._options.batch_records, self._record_type)

    def stop(self) -> None:
        """Do nothing: the source has no resources."""

    def describe(self, shard: str, offset: int) -> str:
        """Name the index."""
        return f"record {offset} of the script"

    def _pack(self, start: int, end: int) -> dict[str, Any]:
        """Return the details of a slice: its records, and their times where one has any."""
        known = self._script.timestamps
        values = self._script.values[start:end]
        codec, data = self._codec.encode(values)
        if codec == "pickle" and b"__main__" in data:
            data = pickle_by_value(values)  # That module is another one where tasks are.
        return {
            "records": base64.b64encode(data).decode("ascii"),
            "codec": codec,
            "times": [known.get(index) for index in range(start, end)] if known else None,
        }


@connector_hook
def bicycle_sources() -> dict[str, str]:
    """Name the source, as any extension does."""
    return {SCRIPT_TYPE: f"{__name__}:ScriptSource"}
