"""The generator source: seven words in a cycle, one every ``rate_ms``.

The offset is the sequence number. The time of the first word is in the state, so that a restarted
job continues in the same rhythm instead of starting a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.connectors.settings import read_options
from bicycle_runtime.contract import (
    Budget,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Lag,
    Slice,
    SnapshotsState,
    Source,
    SourceBatch,
    SourceStatus,
    even_slices,
)
from bicycle_sdk.sources import GeneratorSourceOptions

SHARD = "words"
WORDS = ("hello", "world", "bicycle", "streaming", "data", "python", "spark")
BATCH_RECORD_COUNT = 4096
NEXT_POLL_MS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class GeneratorReader:
    """Makes words of sequence numbers."""

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the words of the range."""
        if part.start >= part.end:
            yield SourceBatch(values=[], offsets=(), next_offset=part.start)
        for start in range(part.start, part.end, BATCH_RECORD_COUNT):
            stop = min(start + BATCH_RECORD_COUNT, part.end)
            first = start % len(WORDS)
            circle = WORDS * ((first + stop - start) // len(WORDS) + 1)
            values = list(circle[first : first + stop - start])
            yield SourceBatch(values=values, offsets=range(start, stop), next_offset=stop)

    def close(self) -> None:
        """Do nothing: the reader has no resources."""


class GeneratorSource(SnapshotsState, Source):
    """Emits ``WORDS`` in turn; bounded when ``count`` is set."""

    guarantee = Guarantee.EXACTLY_ONCE
    options_class = GeneratorSourceOptions
    gives_times = False

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = read_options(GeneratorSourceOptions, spec)
        self._next = 0
        self._available = 0

    def start(
        self, services: DriverServices, offsets: Mapping[str, int], state: Mapping[str, Any]
    ) -> None:
        """Continue at the sealed number, in the rhythm of the first start."""
        self._clock = services.clock
        self._next = offsets.get(SHARD, 0)
        now_ms = self._clock.now_ms()
        self._started_ms = int(state.get("started_ms", now_ms))
        # The clock may have been set back meanwhile: earlier words were due by then.
        given_ms = (self._next - 1) * self._options.rate_ms
        self._elapsed_ms = max(now_ms - self._started_ms, given_ms)
        self._began = self._clock.monotonic()

    def poll(self) -> SourceStatus:
        """Return the number of words that are due now."""
        rate_ms, count = self._options.rate_ms, self._options.count
        due = self._rhythm_ms() // rate_ms + 1 if rate_ms else self._next + (1 << 62)
        self._available = max(due if count is None else min(due, count), self._next)
        left = self._available - self._next
        wait_ms = NEXT_POLL_MS_MAX
        if rate_ms and left == 0:
            wait_ms = self._next * rate_ms - self._rhythm_ms()
        return SourceStatus(
            has_input=left > 0,
            is_finished=count is not None and self._next >= count,
            lag=Lag(record_count=left if rate_ms or count is not None else None),
            next_poll_ms=min(max(wait_ms, 1), NEXT_POLL_MS_MAX),
            is_bounded=count is not None,
        )

    def plan(self, budget: Budget) -> list[Slice]:
        """Split the words that are due evenly into contiguous slices."""
        count = min(self._available - self._next, budget.record_count)
        return even_slices(SHARD, start=self._next, count=count, parallelism=budget.parallelism)

    def sealed(self, ends: Mapping[str, int]) -> None:
        """Move on."""
        self._next = ends.get(SHARD, self._next)

    def snapshot(self, planned: Sequence[Slice], ends: Mapping[str, int]) -> dict[str, Any]:
        """Return the time of the first word."""
        return {"started_ms": self._started_ms}

    def reader(self) -> GeneratorReader:
        """Return the reader."""
        return GeneratorReader()

    def stop(self) -> None:
        """Do nothing: the source has no resources."""

    def _rhythm_ms(self) -> int:
        """Return the time since the first word, whatever becomes of the wall clock."""
        return self._elapsed_ms + round((self._clock.monotonic() - self._began) * 1_000)

    def describe(self, shard: str, offset: int) -> str:
        """Name the sequence number."""
        return f"generated word {offset}"
