"""Records that wait for the watermark, so that a function sees them and its timers in time order.

Records of an epoch are gathered; once event time has moved, those up to the watermark are sorted
and called one after the other, and before each the timers of earlier times fire. Those behind the
watermark are kept as state of their keys, a chunk for each epoch; the times at which the first of a
chunk is due lie in a queue beside those of timers. Of equal times the records of the first input
come first, then those that arrived first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from bicycle_runtime.operators.batch import Batch, Origin, OriginLineage, emitted
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

__all__ = ["TimeOrder"]

_RECORDS_PER_CHUNK = 4_096


# Times and records by input and key.
_Chunks = defaultdict[tuple[int, Any], tuple[list[int], list[Any]]]


@dataclass(slots=True)
class _Records:
    """Records with all that is known of them, by column."""

    times: list[int] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    origins: list[Origin | None] = field(default_factory=list)

    def columns(self) -> tuple[list[Any], ...]:
        """Return the columns, in the order of the fields."""
        return self.times, self.ordinals, self.values, self.keys, self.groups, self.origins

    def extend(self, columns: Iterable[Iterable[Any]]) -> None:
        """Add records, given by column."""
        for column, others in zip(self.columns(), columns, strict=True):
            column.extend(others)

    def picked(self, places: Sequence[int]) -> _Records:
        """Return the records at some places."""
        return _Records(*(list(map(column.__getitem__, places)) for column in self.columns()))


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
        """Let the records of a batch wait for event time to move.

        Raises:
            NO_EVENT_TIME: they have no event time.
        """
        times = batch.times()
        if times is None:
            raise NO_EVENT_TIME(operator=self._operator.spec.uid)
        assert batch.groups is not None
        count = len(batch.values)
        # hot path: columns are filled and put in order by loops in C.
        self._gathered.extend((
            times, repeat(batch.ordinal, count), batch.values, self._context.batch_keys(),
            batch.groups, repeat(batch.lineage.span(), count),
        ))  # fmt: skip

    def next_event_ms(self) -> int | None:
        """Return the least watermark for which a record waits; None for never."""
        return self._context.timers.waiting.next_time_ms()

    def advance(self, advance: Advance) -> Iterator[Batch]:
        """Call the function for what is due, timers between; yield what comes out, in order."""
        due = self._due(advance.watermark)
        for start in range(0, len(due.times), _RECORDS_PER_CHUNK):
            places = range(start, min(start + _RECORDS_PER_CHUNK, len(due.times)))
            yield self._called(due.picked(places), advance)
            self._context.begin_batch()
        self._context.batch = None
        last = self._operator.fire(advance, due_ms=advance.watermark, follows_time=True)
        self._operator.take_sent(last)
        yield last
        self._context.watermark = advance.watermark

    def _due(self, watermark: int) -> _Records:
        """Return the records up to the watermark in order, and keep the others."""
        found = _Records()
        left = self._take(found, watermark)
        found.extend(self._gathered.columns())
        self._gathered = _Records()
        places: Sequence[int] = range(len(found.times))
        if any(found.ordinals):
            places = sorted(places, key=found.ordinals.__getitem__)
        places = sorted(places, key=found.times.__getitem__)
        count = bisect_right(places, watermark, key=found.times.__getitem__)
        self._keep(found.picked(places[count:]), left)
        return found.picked(places[:count])

    def _keep(self, records: _Records, left: _Chunks) -> None:
        """Put records into the state of their keys, behind what is left of older chunks."""
        columns = zip(records.times, records.ordinals, records.keys, records.values, strict=True)
        for time, ordinal, key, value in columns:
            times, values = left[ordinal, key]
            times.append(time)
            values.append(value)
        inputs = self._inputs()
        for (ordinal, key), chunk in left.items():
            inputs[ordinal].put(key, self._epoch, chunk)
            self._context.timers.waiting.set(key, min(chunk[0]))

    def _take(self, found: _Records, watermark: int) -> _Chunks:
        """Take records of former epochs up to the watermark, and return the rest of their chunks.

        All of a chunk are written again while one of them waits.
        """
        context, inputs = self._context, self._inputs()
        left: _Chunks = defaultdict(lambda: ([], []))
        rows = []
        while (moment := context.timers.waiting.pop_due(watermark)) is not None:
            key, group = moment.key, context.groups[moment.key]
            for ordinal, entries in enumerate(inputs):
                for epoch, chunk in sorted(entries.items(key)):
                    entries.delete(key, epoch)
                    for time, value in zip(*chunk, strict=True):
                        if time <= watermark:
                            rows.append((time, ordinal, value, key, group, None))
                        else:
                            times, values = left[ordinal, key]
                            times.append(time)
                            values.append(value)
        found.extend(zip(*rows, strict=True) if rows else ((),) * 6)
        return left

    def _inputs(self) -> list[MapEntries]:
        """Return for each input where its records wait: chunks, by key and epoch."""
        found = []
        for state in self._waiting:
            entries = self._context.keyed.entries_of(state)
            assert not isinstance(entries, ValueEntries)
            found.append(entries)
        return found

    def _called(self, records: _Records, advance: Advance) -> Batch:
        """Call the function for some records in a row, with the timers that fire before each."""
        operator, context = self._operator, self._context
        times, ordinals, values, keys, groups, origins = records.columns()
        batch = Batch(values, OriginLineage(times, origins), groups)
        methods, awaits, is_direct = operator.methods_in_order(groups, ordinals)
        calls = Calls(dict(enumerate(methods)), values, range(len(values)), context, is_direct)
        results: list[Any] = []
        fired: list[tuple[int, Batch]] = []
        while True:
            context.batch = operator.policy.batch = batch
            context.take_keys(keys)
            due = self._until_a_timer(
                values, methods, times, start=len(results), previous=advance.previous
            )
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
        self, values: Sequence[Any], methods: Sequence[Any], times: Sequence[int],
        *, start: int, previous: int,
    ) -> Iterator[tuple[Any, Any]]:  # fmt: skip
        """Yield records with their methods, up to one before which a timer is due."""
        context, is_due = self._context, self._context.timers.event.is_due
        for index in range(start, len(values)):
            before = times[index] - 1
            if is_due(before):
                return
            context.watermark = before if before > previous else previous
            yield values[index], methods[index]

    def _in_order(
        self, results: list[Any], times: list[int], fired: list[tuple[int, Batch]]
    ) -> Batch:
        """Return what records and timers gave, in the order in which they did."""
        operator = self._operator
        listed = as_sequences(
            results, function=full_name(operator.function), policy=operator.policy
        )
        if not fired:
            outputs = list(chain.from_iterable(listed))
            return emitted(outputs, list(chain.from_iterable(map(repeat, times, map(len, listed)))))
        outputs, done = [], 0
        output_times: list[int] = []
        for position, batch in [*fired, (len(listed), None)]:
            part = listed[done:position]
            outputs += chain.from_iterable(part)
            output_times += chain.from_iterable(map(repeat, times[done:position], map(len, part)))
            if batch is not None:
                outputs += batch.values
                output_times += batch.times() or ()
            done = position
        return emitted(outputs, output_times)


def _chunk_of(record_type: Any) -> Any:
    """Return the type of times and records."""
    if record_type is None:
        return None
    return GenericAlias(tuple, (list[int], GenericAlias(list, (record_type,))))
