"""Reading the input of an earlier epoch: readers of unstarted sources, slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bicycle_runtime.base.storage import ObjectMissingError
from bicycle_runtime.contract import RereadsEarlierSlices, Slice, SourceBatch, SourceReader
from bicycle_runtime.engine.errors import REPLAY_INPUT_GONE
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_sdk.clock import ManualClock


def rereaders(setup: JobSetup) -> dict[str, SourceReader]:
    """Return a reader for each source, without starting any.

    Input that is kept nowhere any more is REPLAY_INPUT_GONE when it is read.
    """
    readers: dict[str, SourceReader] = {}
    for uid, source in setup.sources.items():
        services = setup.services(
            uid, clock=ManualClock(), collected={}, console=None, epoch_interval_ms=0
        )
        if isinstance(source, RereadsEarlierSlices):
            reader = source.rereader(services)
        else:
            reader = source.reader()
        readers[uid] = _StrictReader(reader, uid)
    return readers


def within(parts: Sequence[Slice], ends: Mapping[str, int]) -> list[Slice]:
    """Truncate slices at the epoch's ends, since readers may have stopped earlier."""
    return [replace(part, end=min(part.end, ends.get(part.shard, part.end))) for part in parts]


class _StrictReader:
    """A reader that reports missing input as an error of the replay."""

    def __init__(self, reader: SourceReader, uid: str) -> None:
        self._reader = reader
        self._uid = uid

    def read(self, part: Slice) -> Iterator[SourceBatch]:
        """Yield the records of a slice.

        Raises:
            REPLAY_INPUT_GONE: they are kept nowhere any more.
        """
        try:
            yield from self._reader.read(part)
        except ObjectMissingError as error:
            raise REPLAY_INPUT_GONE(
                source=self._uid, shard=part.shard, start=part.start, end=part.end,
                reason=error.summary,
            ) from error  # fmt: skip

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
