"""The collection source: exactly the items of a list, then the end.

The items travel with the job as a payload; the offset is the index, so nothing needs to be
remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pickle import loads
from typing import Any

from bicycle_runtime.connectors.errors import CONNECTOR_PAYLOAD_WRONG
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
from bicycle_runtime.records.codecs import pickle_any
from bicycle_runtime.records.exactness import PLAIN

SHARD = "items"
BATCH_RECORD_COUNT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionOptions:
    """A collection has no options; its items are the payload ``items``."""


@dataclass(frozen=True, slots=True)
class CollectionReader:
    """Holds all items; a slice is a range of indexes.

    It returns copies: a task that runs again must not get objects that a function has changed in
    place.
    """

    items: Sequence[Any]

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the items of the range."""
        end = min(part.end, len(self.items))
        if part.start >= end:
            yield SourceBatch(values=[], offsets=(), next_offset=part.start)
        for start in range(part.start, end, BATCH_RECORD_COUNT):
            stop = min(start + BATCH_RECORD_COUNT, end)
            yield SourceBatch(
                values=_copy(list(self.items[start:stop])),
                offsets=range(start, stop),
                next_offset=stop,
            )

    def close(self) -> None:
        """Do nothing: the reader has no resources."""


def _copy(items: list[Any]) -> list[Any]:
    if PLAIN.issuperset(map(type, items)):
        return items
    copies: list[Any] = loads(pickle_any(items))
    return copies


class CollectionSource(Source):
    """Reads payload ``items`` (a list); bounded."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = CollectionOptions
    gives_times = False

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        read_options(CollectionOptions, spec)
        items = spec.payloads.get("items")
        if not isinstance(items, list | tuple):
            raise CONNECTOR_PAYLOAD_WRONG(
                vertex=spec.vertex_id,
                connector=spec.connector_type,
                role="items",
                found="absent" if items is None else f"a {type(items).__name__}",
                expected="a list",
            )
        self._items = items
        self._next = 0

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Continue at the sealed index."""
        self._next = offsets.get(SHARD, 0)

    def poll(self) -> SourceStatus:
        """Return the items that are not sealed as available input."""
        left = max(len(self._items) - self._next, 0)
        return SourceStatus(
            has_input=left > 0, is_finished=left == 0, lag=Lag(record_count=left), is_bounded=True
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Split the next range evenly into contiguous slices, one per subtask."""
        count = min(len(self._items) - self._next, budget.record_count)
        return even_slices(SHARD, start=self._next, count=count, parallelism=budget.parallelism)

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on."""
        self._next = ends.get(SHARD, self._next)

    def reader(self) -> CollectionReader:
        """Return a reader that holds the items."""
        return CollectionReader(self._items)

    def stop(self) -> None:
        """Do nothing: the source has no resources."""

    def describe(self, shard: str, offset: int) -> str:
        """Name the index."""
        return f"item {offset} of the collection"
