"""Records that wait for the watermark, for functions that follow event time.

Records of an epoch are gathered; once event time has moved, records up to the watermark are sorted
and called one after the other, and before each the timers of earlier times fire. Records behind the
watermark are kept as state of their keys, a chunk for each epoch; the times at which the first of a
chunk is due are in a queue beside the times of timers. Of equal times the records of the first
input come first, then records in the order of arrival.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import itemgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from bicycle_runtime.operators.batch import Batch, Origin, OriginLineage, new_batch
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_runtime.operators.functions.operator import Advance, as_sequences
from bicycle_runtime.operators.user_calls.batches import call_on
from bicycle_runtime.operators.user_calls.calls import Calls
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.functions import full_name
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.state.entries import MapEntries, ValueEntries

if TYPE_CHECKING:
    from bicycle_runtime.operators.functions.process import StatefulOperator

_RECORDS_PER_CHUNK = 4_096


_Chunk = tuple[list[int], list[Any]]  # times and records
_Chunks = defaultdict[tuple[int, Any], _Chunk]  # by input and key
_Call = tuple[Any, Callable[..., Any], int]  # record, method, time of the record


@dataclass(slots=True)
class _Records:
    """Records with all that is known of them, by column.

    ``parts`` has for each record which of ``sources`` it came with: an input, and its known origin.
    """

    times: Sequence[int] = field(default_factory=list)
    parts: Sequence[int] = field(default_factory=list)
    values: Sequence[Any] = field(default_factory=list)
    keys: Sequence[Any] = field(default_factory=list)
    groups: Sequence[int] = field(default_factory=list)
    sources: list[tuple[int, Origin | None]] = field(default_factory=list)

    def columns(self) -> tuple[Any, ...]:
        """Return the columns, in the order of the fields."""
        return self.times, self.parts, self.values, self.keys, self.groups

    def extend(self, columns: Iterable[Iterable[Any]]) -> None:
        """Add records, given by column."""
        for column, others in zip(self.columns(), columns, strict=True):
            column.extend(others)

    def put_before(self, records: _Records) -> None:
        """Add records of the same sources in front."""
        for column, others in zip(self.columns(), records.columns(), strict=True):
            column[:0] = others

    def add_source(self, ordinal: int, origin: Origin | None = None) -> int:
        """Return the part of records that came with it."""
        self.sources.append((ordinal, origin))
        return len(self.sources) - 1

    def take(self, indexes: Sequence[int]) -> _Records:
        """Return the records at some places, at least one."""
        # hot path: 16 ns a value; nor does garbage collection look at tuples of numbers and texts.
        pick = itemgetter(*indexes) if len(indexes) > 1 else lambda column: (column[indexes[0]],)
        times, parts, values, keys, groups = map(pick, self.columns())
        return _Records(times, parts, values, keys, groups, self.sources)

    def ordinals(self) -> list[int]:
        """Return on which input each came."""
        known = [ordinal for ordinal, _ in self.sources]
        return list(map(known.__getitem__, self.parts)) if any(known) else [0] * len(self.parts)

    def lineage(self) -> OriginLineage:
        """Return the lineage of the records."""
        return OriginLineage(self.times, self.parts, [origin for _, origin in self.sources])

    def in_order(self) -> Sequence[int]:
        """Return the places of all records in the order in which the function sees them."""
        indexes: Sequence[int] = range(len(self.times))
        ordinals = self.ordinals()
        if any(ordinals):
            indexes = sorted(indexes, key=ordinals.__getitem__)
        # hot path: near to each other, times are small ints, which are sorted in half the time.
        base = -self.times[0] if self.times else 0
        indexes = sorted(indexes, key=[*map(base.__add__, self.times)].__getitem__)
        return array("q", indexes)  # which garbage collection does not look at


class TimeOrder:
    """Calls the function of one operator in the order of event time.

    Args:
        operator: Whose function, timers and state.
        input_types: Types of the records of each input, None when unknown.
    """

    def __init__(self, operator: StatefulOperator, input_types: Sequence[Any]) -> None:
        self._operator = operator
        self._context = operator.context
        self._waiting = [
            MapStateDescriptor[int, Any](f"$waiting.{ordinal}", int, _chunk_of(record_type))
            for ordinal, record_type in enumerate(input_types)
        ]
        self._gathered = _Records()
        self._epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        """Forget the last epoch, which may not have been sealed."""
        self._gathered = _Records()
        self._epoch = epoch

    def gather(self, batch: Batch) -> None:
        """Buffer the records of a batch until event time moves.

        Raises:
            NO_EVENT_TIME: they have no event time.
        """
        times = batch.times()
        if times is None:
            raise NO_EVENT_TIME(operator=self._operator.spec.uid)
        assert batch.groups is not None
        count = len(batch.values)
        # hot path: columns are filled and put in order by loops in C.
        part = self._gathered.add_source(batch.ordinal, batch.lineage.span())
        self._gathered.extend((
            times, repeat(part, count), batch.values, self._context.batch_keys(), batch.groups,
        ))  # fmt: skip

    def next_event_ms(self) -> int | None:
        """Return the least watermark for which a record waits; None for never."""
        return self._context.timers.waiting.next_time_ms()

    def advance(self, advance: Advance) -> Iterator[Batch]:
        """Call the function for due records and timers; yield outputs in time order."""
        records, indexes, count = self._due(advance.watermark)
        for start in range(0, count, _RECORDS_PER_CHUNK):
            chunk = indexes[start : min(start + _RECORDS_PER_CHUNK, count)]
            yield self._call(records.take(chunk), advance)
            self._context.begin_batch()
        self._context.batch = None
        last = self._operator.fire(advance, due_ms=advance.watermark, follows_time=True)
        self._operator.take_sent(last)
        yield last
        self._context.watermark = advance.watermark

    def _due(self, watermark: int) -> tuple[_Records, Sequence[int], int]:
        """Return records, their places in order, and how many are due; keep the others."""
        records, self._gathered = self._gathered, _Records()
        former = _Records(sources=records.sources)
        left = self._take(former, watermark)
        records.put_before(former)
        indexes = records.in_order()
        count = bisect_right(indexes, watermark, key=records.times.__getitem__)
        others = indexes[count:]
        self._keep(records.take(others) if others else _Records(), left)
        return records, indexes, count

    def _keep(self, records: _Records, left: _Chunks) -> None:
        """Store records under their keys, after the rest of older chunks."""
        columns = zip(records.times, records.ordinals(), records.keys, records.values, strict=True)
        for time, ordinal, key, value in columns:
            times, values = left[ordinal, key]
            times.append(time)
            values.append(value)
        inputs = self._inputs()
        for (ordinal, key), chunk in left.items():
            inputs[ordinal].put(key, self._epoch, chunk)
            self._context.timers.waiting.set(key, min(chunk[0]))

    def _take(self, found: _Records, watermark: int) -> _Chunks:
        """Remove records of earlier epochs up to the watermark; return their chunks' rest.

        All of a chunk are written again while one of them waits.
        """
        context, inputs = self._context, self._inputs()
        left: _Chunks = defaultdict(lambda: ([], []))
        parts = [found.add_source(ordinal) for ordinal in range(len(inputs))]
        while (moment := context.timers.waiting.pop_due(watermark)) is not None:
            key, group = moment.key, context.groups[moment.key]
            for ordinal, entries in enumerate(inputs):
                for epoch, chunk in sorted(entries.items(key)):
                    entries.delete(key, epoch)
                    due, others = _split(chunk, watermark)
                    found.extend((due[0], repeat(parts[ordinal], len(due[0])), due[1],
                        repeat(key, len(due[0])), repeat(group, len(due[0])),
                    ))  # fmt: skip
                    if others[0]:
                        for column, added in zip(left[ordinal, key], others, strict=True):
                            column.extend(added)
        return left

    def _inputs(self) -> list[MapEntries]:
        """Return for each input where its records wait: chunks, by key and epoch."""
        found = []
        for state in self._waiting:
            entries = self._context.keyed.entries_of(state)
            assert not isinstance(entries, ValueEntries)
            found.append(entries)
        return found

    def _call(self, records: _Records, advance: Advance) -> Batch:
        """Call the function for some records in order, each after its due timers."""
        operator, context = self._operator, self._context
        times, _, values, keys, groups = records.columns()
        ordinals = records.ordinals()
        batch = Batch(values, records.lineage(), list(groups), ordinals=ordinals)
        methods, awaits, is_direct = operator.methods_in_order(groups, ordinals)
        rest, held = zip(values, methods, times, strict=True), list[_Call]()
        calls = Calls(methods, values, range(len(values)), context, is_direct)
        results: list[Any] = []
        fired: list[tuple[int, Batch]] = []
        while True:
            context.batch = operator.policy.batch = batch
            context.take_keys(keys)
            due = self._until_a_timer(held, rest, advance.previous)
            call_on(calls, due, results, operator.settle_in_order(ordinals), awaits=awaits)
            if len(results) == len(values):
                break
            context.batch = None
            before = times[len(results)] - 1
            fired.append((len(results), operator.fire(
                Advance(watermark=before, previous=advance.previous, now_ms=WATERMARK_MIN),
                due_ms=before, follows_time=True,
            )))  # fmt: skip
        operator.policy.batch = batch
        output = self._in_order(results, times, fired)
        operator.take_sent(output)
        return output

    def _until_a_timer(
        self, held: list[_Call], rest: Iterator[_Call], previous: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield records with methods until a timer is due, and hold the next record."""
        context, timers = self._context, self._context.timers.event
        timers.is_due(previous)  # from here on the queue has no earlier time than it reports
        first, held[:] = held[:], []
        # hot path: a call of the queue for each record would cost more than all of this.
        for call in chain(first, rest):
            value, method, time_ms = call
            before = time_ms - 1
            if timers.earliest_ms <= before and timers.is_due(before):
                held.append(call)
                return
            context.watermark = before if before > previous else previous
            yield value, method

    def _in_order(
        self, results: list[Any], times: Sequence[int], fired: list[tuple[int, Batch]]
    ) -> Batch:
        """Return the outputs of records and timers in call order."""
        operator = self._operator
        listed = as_sequences(
            results, function=full_name(operator.function), policy=operator.policy
        )
        outputs: list[Any] = []
        output_times: list[int] = []
        done = 0
        for position, batch in [*fired, (len(listed), None)]:
            part = listed[done:position]
            outputs += chain.from_iterable(part)
            output_times += _repeat(times[done:position], [*map(len, part)])
            if batch is not None:
                outputs += batch.values
                output_times += batch.times() or ()
            done = position
        return new_batch(outputs, output_times)


def _split(chunk: _Chunk, watermark: int) -> tuple[_Chunk, _Chunk]:
    """Return the records of a chunk up to a watermark, and the others."""
    times, values = chunk
    if max(times) <= watermark:
        return chunk, ([], [])
    is_due = [time <= watermark for time in times]
    is_later = [time > watermark for time in times]
    return (
        ([*compress(times, is_due)], [*compress(values, is_due)]),
        ([*compress(times, is_later)], [*compress(values, is_later)]),
    )


def _repeat(times: Sequence[int], counts: list[int]) -> Iterable[int]:
    """Return each time repeated by its count."""
    # hot path: most functions have one result per record.
    if counts.count(1) == len(counts):
        return times
    return chain.from_iterable(map(repeat, times, counts))


def _chunk_of(record_type: Any) -> Any:
    """Return the type of times and records."""
    if record_type is None:
        return None
    return GenericAlias(tuple, (list[int], GenericAlias(list, (record_type,))))
