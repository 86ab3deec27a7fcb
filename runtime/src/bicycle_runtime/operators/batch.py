"""A batch of records in a chain, and the lineage that links each to its source.

Operators carry neither positions nor event times with records. Each notes how many outputs every
input had, and only on demand (a record failed, a window needs times) is the path walked back. So
lineage and event time cost nothing per record without demand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, compress, repeat
from typing import Any, Protocol

from bicycle_runtime.contract import Headers, Raw
from bicycle_runtime.frames.arrays import numpy
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.keys import Keys
from bicycle_runtime.frames.record_shapes import RecordShape
from bicycle_runtime.frames.vectors import Mask

NO_INPUT = -1  # The records came in nowhere: they are timers that fire, or windows.


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a record; after an exchange, the source span of its batch."""

    source: str
    shard: str
    offset: int
    end_offset: int | None = None


# Records up to an end come from a span.
Streak = tuple[int, Origin | None]


def _end_of(streak: Streak) -> int:
    return streak[0]


class MessageColumns(Protocol):
    """The messages of sources."""

    def at(self, position: int) -> tuple[SourceLineage, int] | None:
        """Return the batch of a source and the index in it; None when unknown."""


Messages = tuple[MessageColumns, Sequence[int]]


class Lineage(Protocol):
    """Leads from the position in a batch to the source."""

    def origin(self, index: int) -> Origin | None:
        """Return where record ``index`` came from; None when nothing is known."""

    def span(self) -> Origin | None:
        """Return the span of source positions that the whole batch covers; cheap."""

    def times(self) -> Sequence[int] | None:
        """Return the event time of each record in ms, or None without event time."""

    def messages(self) -> Messages | None:
        """Return the source's own batch and where in it each record came from.

        None behind an exchange: the source's metadata of a message stay with the task that read it.
        """


@dataclass(slots=True)
class SourceLineage:
    """The lineage of a batch from a source: offsets, perhaps times, keys and headers."""

    source: str
    shard: str
    offsets: Sequence[int]
    start: int
    end: int
    timestamps: Sequence[int] | None = None
    keys: Sequence[Any] | None = None
    headers: Sequence[Headers] | None = None
    raws: Sequence[Raw] | None = None

    def origin(self, index: int) -> Origin | None:
        return Origin(source=self.source, shard=self.shard, offset=self.offsets[index])

    def span(self) -> Origin | None:
        return Origin(source=self.source, shard=self.shard, offset=self.start, end_offset=self.end)

    def times(self) -> Sequence[int] | None:
        return self.timestamps

    def messages(self) -> Messages | None:
        return self, range(len(self.offsets))

    def at(self, position: int) -> tuple[SourceLineage, int]:
        """Return the batch itself and the position."""
        return self, position


@dataclass(slots=True)
class ExchangeLineage:
    """The lineage of a batch from an exchange, with the source span from the sender.

    For records of several shards it has the span of each streak, by the number of records up to its
    end; the batch begins with record ``first`` of them. Results of windows, timers and side outputs
    have such a lineage, too.
    """

    covered: Origin | None
    timestamps: Sequence[int] | None = None
    streaks: Sequence[Streak] = ()
    first: int = 0

    def origin(self, index: int) -> Origin | None:
        if not self.streaks:
            return self.covered
        return self.streaks[bisect_right(self.streaks, self.first + index, key=_end_of)][1]

    def span(self) -> Origin | None:
        return self.covered

    def times(self) -> Sequence[int] | None:
        return self.timestamps

    def messages(self) -> Messages | None:
        return None


@dataclass(slots=True)
class OriginLineage:
    """The records are of several batches: each has a time, and the number of a batch.

    ``origins`` are the spans of the source that these batches cover, None if unknown.
    """

    timestamps: Sequence[int]
    numbers: Sequence[int]
    origins: Sequence[Origin | None]

    def origin(self, index: int) -> Origin | None:
        return self.origins[self.numbers[index]]

    def span(self) -> Origin | None:
        return None

    def times(self) -> Sequence[int] | None:
        return self.timestamps

    def messages(self) -> Messages | None:
        return None


@dataclass(slots=True)
class StampedLineage:
    """The lineage of the parent's records, in order, with new event times.

    The times of records on columns are an array, and a list from the first use on.
    """

    parent: Lineage
    timestamps: Any

    def origin(self, index: int) -> Origin | None:
        return self.parent.origin(index)

    def span(self) -> Origin | None:
        return self.parent.span()

    def times(self) -> Sequence[int]:
        if not isinstance(self.timestamps, list):
            self.timestamps = self.timestamps.tolist()
        times: list[int] = self.timestamps
        return times

    def messages(self) -> Messages | None:
        return self.parent.messages()


@dataclass(slots=True)
class SpreadLineage:
    """The lineage of a batch in which input i has ``len(results[i])`` outputs."""

    parent: Lineage
    results: Sequence[Sequence[Any]]
    order: Sequence[int] | None = None

    def origin(self, index: int) -> Origin | None:
        ends = list(accumulate(map(len, self.results)))
        position = bisect_right(ends, index)
        return self.parent.origin(self.order[position] if self.order is not None else position)

    def span(self) -> Origin | None:
        return self.parent.span()

    def times(self) -> Sequence[int] | None:
        times = self.parent.times()
        return None if times is None else self._repeat(times)

    def messages(self) -> Messages | None:
        found = self.parent.messages()
        return None if found is None else (found[0], self._repeat(found[1]))

    def _repeat(self, column: Sequence[int]) -> list[int]:
        ordered = column if self.order is None else map(column.__getitem__, self.order)
        # hot path: 30 ns a record, all of it in C.
        return list(chain.from_iterable(map(repeat, ordered, map(len, self.results))))


@dataclass(slots=True)
class PickLineage:
    """Output i was input ``picked()[i]``; computed on demand.

    ``rows`` has the same numbers as an array, for records on columns.
    """

    parent: Lineage
    picked: Callable[[], Sequence[int]]
    rows: Any = None

    def origin(self, index: int) -> Origin | None:
        return self.parent.origin(self.picked()[index])

    def span(self) -> Origin | None:
        return self.parent.span()

    def times(self) -> Sequence[int] | None:
        times = self.parent.times()
        return None if times is None else list(map(times.__getitem__, self.picked()))

    def messages(self) -> Messages | None:
        found = self.parent.messages()
        return found and (found[0], list(map(found[1].__getitem__, self.picked())))


@dataclass(slots=True)
class Batch:
    """A batch of records with lineage, and with key groups after ``key_by``.

    ``ordinal`` is the input on which the operator gets the batch; for records of several inputs,
    ``ordinals`` has the input of each. ``keys`` are the keys of the records, from ``key_by`` to the
    step after it that reads them, and no further; a column of keys has no ``groups``. ``shape`` is
    the known shape of the records of a frame.
    """

    values: Sequence[Any]
    lineage: Lineage
    groups: bytes | list[int] | None = None
    ordinal: int = 0
    keys: list[Any] | Keys | None = None
    ordinals: Sequence[int] = ()
    shape: RecordShape | None = None

    def take(self, mask: Mask) -> Batch:
        """Return the records of a mask."""
        rows, keys, groups = numpy().flatnonzero(mask.array), self.keys, self.groups
        values: Sequence[Any] = (
            self.values.take(mask)
            if isinstance(self.values, Frame)
            else list(compress(self.values, mask.listed))
        )
        if isinstance(keys, Keys):
            keys = keys.take(rows)
        return replace(
            self,
            values=values,
            lineage=PickLineage(self.lineage, rows.tolist, rows),
            groups=groups and type(groups)(compress(groups, mask.listed)),
            keys=list(compress(keys, mask.listed)) if isinstance(keys, list) else keys,
            ordinals=list(compress(self.ordinals, mask.listed)),
        )

    def split(self) -> list[Batch]:
        """Return the first and the second half of at least two records."""
        first = Mask(numpy().arange(len(self.values)) < len(self.values) // 2)
        return [self.take(first), self.take(first.others())]

    def input_of(self, index: int) -> int:
        """Return the index of a record's input, or ``NO_INPUT``."""
        return self.ordinals[index] if self.ordinals else self.ordinal

    def to_list(self) -> list[Any]:
        """Return the records as a list, without a copy if they are in one."""
        if isinstance(self.values, Frame):
            return self.values.records
        return self.values if isinstance(self.values, list) else list(self.values)

    def as_records(self) -> Batch:
        """Return the batch with its records in a list."""
        return replace(self, values=self.to_list(), shape=None)

    def times(self) -> list[int] | None:
        """Return the event time of each record in ms, or None without event time.

        It is computed at each call; ask once per batch.
        """
        times = self.lineage.times()
        return times if times is None or isinstance(times, list) else list(times)


def time_array(lineage: Lineage) -> Any:
    """Return the event times as an array of ints, or None without event time."""
    if isinstance(lineage, StampedLineage) and not isinstance(lineage.timestamps, list):
        return lineage.timestamps
    if isinstance(lineage, PickLineage) and lineage.rows is not None:
        times = time_array(lineage.parent)
        return None if times is None else times[lineage.rows]
    listed = lineage.times()
    return None if listed is None else numpy().array(listed, numpy().int64)


class JoinedLineage:
    """The lineage of records of several batches, one after another.

    Args:
        parts: The batches, each with at least one record.
    """

    __slots__ = ("_messages", "_times", "ends", "parts")

    def __init__(self, parts: Sequence[Batch]) -> None:
        self.parts = parts
        self.ends = list(accumulate(len(part.values) for part in parts))
        self._times: Sequence[int | None] | None = None
        self._messages: list[Messages | None] | None = None

    def part_of(self, index: int) -> int:
        """Return the number of the batch that holds record ``index``."""
        return bisect_right(self.ends, index)

    def start_of(self, number: int) -> int:
        """Return the index of the first record of a batch."""
        return self.ends[number - 1] if number else 0

    def origin(self, index: int) -> Origin | None:
        number = self.part_of(index)
        return self.parts[number].lineage.origin(index - self.start_of(number))

    def span(self) -> Origin | None:
        """Return the span of the batches in one shard; None for several shards."""
        first, last = self.parts[0].lineage.span(), self.parts[-1].lineage.span()
        shards = {
            None if span is None else (span.source, span.shard)
            for span in (part.lineage.span() for part in self.parts)
        }
        if first is None or last is None or len(shards) > 1:
            return None
        return Origin(
            source=first.source, shard=first.shard, offset=first.offset, end_offset=last.end_offset
        )

    def times(self) -> Sequence[Any] | None:
        """Return the event times, computed once; None for a record without one."""
        if self._times is None:
            columns = [part.lineage.times() for part in self.parts]
            if all(column is None for column in columns):
                return None
            self._times = list(chain.from_iterable(
                repeat(None, len(part.values)) if column is None else column
                for part, column in zip(self.parts, columns, strict=True)
            ))  # fmt: skip
        return self._times

    def messages(self) -> Messages | None:
        if self._messages is None:
            self._messages = [part.lineage.messages() for part in self.parts]
        return (self, range(self.ends[-1])) if any(self._messages) else None

    def at(self, position: int) -> tuple[SourceLineage, int] | None:
        """Return the batch of a source and the index in it; None when unknown."""
        assert self._messages is not None
        number = self.part_of(position)
        found = self._messages[number]
        return None if found is None else found[0].at(found[1][position - self.start_of(number)])


def join_batches(parts: Sequence[Batch]) -> Batch:
    """Return one batch with the records of several batches, in their order."""
    if len(parts) == 1:
        return parts[0]
    ordinals = [part.ordinal for part in parts]
    groups = [part.groups for part in parts]
    joined: bytes | list[int] | None = None
    if groups[0] is not None:
        whole = chain.from_iterable(column or () for column in groups)
        joined = bytes(whole) if isinstance(groups[0], bytes) else list(whole)
    return Batch(
        list(chain.from_iterable(part.values for part in parts)),
        JoinedLineage(parts),
        joined,
        ordinals[0],
        ordinals=() if len(set(ordinals)) == 1 else list(chain.from_iterable(
            repeat(part.ordinal, len(part.values)) for part in parts
        )),
    )  # fmt: skip


def split_output(output: Batch, joined: Batch) -> Iterator[Batch]:
    """Yield the output of each batch of a joined batch.

    Args:
        output: Results of calls over the joined batch; its lineage is a ``SpreadLineage``.
        joined: The result of ``join_batches``.
    """
    lineage, spread = joined.lineage, output.lineage
    if not isinstance(lineage, JoinedLineage):
        yield output
        return
    assert isinstance(spread, SpreadLineage)
    results: list[list[Sequence[Any]]] = [[] for _ in lineage.parts]
    orders: list[list[int]] = [[] for _ in lineage.parts]
    if spread.order is None:
        for number, end in enumerate(lineage.ends):
            results[number] = list(spread.results[lineage.start_of(number) : end])
    else:
        for index, result in zip(spread.order, spread.results, strict=True):
            number = lineage.part_of(index)
            results[number].append(result)
            orders[number].append(index - lineage.start_of(number))
    for part, found, order in zip(lineage.parts, results, orders, strict=True):
        its_order = None if spread.order is None else order
        yield Batch(list(chain.from_iterable(found)), SpreadLineage(part.lineage, found, its_order))


def new_batch(values: Sequence[Any], times: list[int], span: Origin | None = None) -> Batch:
    """Return a batch of new records with event times, as windows and timers make them."""
    return Batch(values, ExchangeLineage(span, times))


def without_gaps(times: Sequence[int | None]) -> list[int] | None:
    """Return the event time of each record, or None without any.

    A batch has times for all records or for none: one without a time gets the earliest time.
    """
    known = [time for time in times if time is not None]
    if not known or len(known) == len(times):
        return known or None
    first = min(known)
    return [first if time is None else time for time in times]
