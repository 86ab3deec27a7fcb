"""The base of all joins: buffered rows, pairs before their results, late rows.

A user's function is called before anything is stored, so that a call which is repeated finds the
state as it was, and one which is left out leaves no row behind.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import GeneratorType
from typing import Any, ClassVar, Literal, TypedDict

from bicycle_sdk.connected import BuiltInFunction, InputRecords
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import FunctionObject, as_callable, full_name
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.state.entries import MISSING, MapEntries
from bicycle_sdk.state.timers import Timer
from bicycle_sdk.windows.panes import LateRecord, Window

__all__ = [
    "EVICTED_ROWS",
    "Arrivals",
    "How",
    "JoinBuffer",
    "JoinOptions",
    "Pair",
    "RowJoin",
    "RowKey",
    "Rows",
    "checked_function",
    "checked_how",
    "checked_limit",
    "times_by_key",
]

How = Literal["inner", "left", "right", "full"]
RowKey = tuple[int, int]  # event time, and which of the rows of that time
Pair = tuple[int, Any, Any]  # event time of the result, left row, right row
# The counter of rows that a join has forgotten since its buffer was full.
EVICTED_ROWS = "evicted_rows"
_FEW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """The options of all joins.

    ``function`` makes a result of two rows; ``left_type`` and ``right_type`` are the types of rows,
    None when unknown; ``late_tag`` is the side output for late rows. ``max_buffered`` is how many
    rows of a key each side may keep, None for all.
    """

    function: Any
    how: How = "inner"
    late_tag: str | None = None
    left_type: Any = None
    right_type: Any = None
    max_buffered: int | None = None

    @property
    def keeps_left(self) -> bool:
        """Return whether left rows without a match have a result."""
        return self.how in ("left", "full")

    @property
    def keeps_right(self) -> bool:
        """Return whether right rows without a match have a result."""
        return self.how in ("right", "full")


class JoinBuffer(TypedDict, total=False):
    """The limit of a join's buffers: ``max_buffered`` rows per key and side, or None."""

    max_buffered: int | None


class Arrivals:
    """Numbers of arrivals in one slot, with one count of the present rows per epoch.

    Many records may have one time; counting them at each record would take quadratic time. Places
    with few records are counted each time, since remembering them would take more space than they
    do.
    """

    def __init__(self) -> None:
        self._next: dict[Any, int] = {}

    def begin_epoch(self) -> None:
        """Forget the last epoch, which may not have been sealed."""
        self._next.clear()

    def number(self, slot: Any, there: Iterable[int]) -> int:
        """Return the number of an arrival, after all present ones.

        Args:
            slot: Its location.
            there: The numbers of records already at the place, in order; read only if the next
                number is not known. The first of them may have been evicted.
        """
        known = self._next.get(slot)
        number = max(there, default=-1) + 1 if known is None else known
        if number >= _FEW:
            self._next[slot] = number + 1
        return number


class Rows:
    """The rows of one side of a join, by key and event time.

    Args:
        entries: A map of each key from time and number to row.
        max_buffered: How many rows of a key may be kept here; None is without a limit.
    """

    def __init__(self, entries: MapEntries, max_buffered: int | None = None) -> None:
        self._entries = entries
        self._max_buffered = max_buffered
        self._row_keys: dict[
            Any, list[RowKey]
        ] = {}  # In order; of keys that got rows in this epoch.
        self.arrivals = Arrivals()

    def begin_epoch(self) -> None:
        """Clear data of the last epoch, which may not have been sealed."""
        self.arrivals.begin_epoch()
        self._row_keys.clear()

    def add(self, key: Any, time_ms: int, row: Any) -> RowKey:
        """Add a row of a key after rows of equal time, and return its row key."""
        entries, row_key = self._entries, (time_ms, 0)
        # hot path: without evictions, a time has a first row or no row.
        if self._max_buffered is None and entries.add(key, row_key, row):
            return row_key
        there = (number for (_, number), _ in entries.scan(key, prefix=(time_ms,)))
        row_key = (time_ms, self.arrivals.number((key, time_ms), there))
        entries.put(key, row_key, row)
        return row_key

    def add_all(self, key: Any, times_ms: Sequence[int], rows: Sequence[Any]) -> list[RowKey]:
        """Add rows of a key on a side without a limit, and return their row keys."""
        row_keys = [(time_ms, 0) for time_ms in times_ms]
        for index in self._entries.add_all(key, row_keys, rows):
            row_keys[index] = self.add(key, times_ms[index], rows[index])
        return row_keys

    def evict(self, key: Any, added: RowKey) -> list[RowKey]:
        """Forget the rows of a key with the oldest times that are beyond the limit.

        Called after each ``add``; the row that was added may be the oldest.
        """
        row_keys = self._row_keys.get(key)
        if row_keys is None:
            row_keys = self._row_keys[key] = [row_key for row_key, _ in self._entries.scan(key)]
        else:
            insort(row_keys, added)
        surplus = row_keys[: max(len(row_keys) - (self._max_buffered or 0), 0)]
        del row_keys[: len(surplus)]
        for row_key in surplus:
            self._entries.delete(key, row_key)
        return surplus

    def between(self, key: Any, first_ms: int | None, last_ms: int) -> list[tuple[RowKey, Any]]:
        """Return the rows of a key from ``first_ms`` to ``last_ms``, inclusive, in order."""
        start = MISSING if first_ms is None else (first_ms, 0)
        return self._entries.between(key, start, (last_ms + 1, 0))

    def around(
        self, key: Any, times_ms: Iterable[int], first_ms: int, last_ms: int
    ) -> list[tuple[RowKey, Any]]:
        """Return the rows from ``first_ms`` to ``last_ms`` after any of some times.

        Perhaps some between these, too, but not more than it takes to look for each time by itself.
        """
        ordered = sorted(times_ms)
        begin = end = ordered[0]
        found: list[tuple[RowKey, Any]] = []
        for time_ms in ordered:
            if time_ms - end > 2 * (last_ms - first_ms):
                found += self.between(key, begin + first_ms, end + last_ms)
                begin = time_ms
            end = time_ms
        return found + self.between(key, begin + first_ms, end + last_ms)

    def first_ms(self, key: Any) -> int | None:
        """Return the time of the first row of a key, or None."""
        row_key = self._entries.first(key)
        return None if row_key is MISSING else row_key[0]

    def take(self, key: Any, first_ms: int | None, last_ms: int) -> list[tuple[RowKey, Any]]:
        """Remove and return the rows from ``first_ms`` to ``last_ms``, inclusive."""
        self._row_keys.clear()
        start = MISSING if first_ms is None else (first_ms, 0)
        return self._entries.take(key, start, (last_ms + 1, 0))


class RowJoin(BuiltInFunction, ABC):
    """A join by event time: rows of both sides, a function of two rows, late rows.

    Args:
        options: The options common to all joins.
    """

    stamps: ClassVar[bool] = True
    needs_times: ClassVar[bool] = True
    timer_lead_ms: ClassVar[int] = 1
    method: ClassVar[str] = "join"

    def __init__(self, options: JoinOptions) -> None:
        self.options = options
        self.name = getattr(options.function, "name", "")
        self._call = as_callable(options.function, self.method)
        self.awaits = inspect.iscoroutinefunction(self._call)
        self.left_rows = MapStateDescriptor("left", tuple[int, int], options.left_type)
        self.right_rows = MapStateDescriptor("right", tuple[int, int], options.right_type)
        self._fired: tuple[Any, list[Pair]] | None = None
        self._complete: dict[tuple[Any, int], Any] = {}
        self._plain_types: set[type] = set()

    def begin_epoch(self) -> None:
        """Forget the timer that fired last: state is now as it was sealed."""
        super().begin_epoch()
        self._fired = None
        self._complete.clear()
        for side in (self.left, self.right):
            side.begin_epoch()

    def open(self, ctx: Any) -> Any:
        """Get the rows, and open the user's function."""
        limit = self.options.max_buffered
        self.left = Rows(ctx.state_entries(self.left_rows), limit)
        self.right = Rows(ctx.state_entries(self.right_rows), limit)
        self.timers = ctx.timer_service.event_timers
        self._evicted = None if limit is None else ctx.metrics.counter(EVICTED_ROWS)
        opening = getattr(self.options.function, "open", None)
        return None if opening is None else opening(ctx)

    def close(self) -> Any:
        """Close the user's function."""
        closing = getattr(self.options.function, "close", None)
        return None if closing is None else closing()

    def process_element1(self, value: Any, ctx: Any) -> Any:
        """Take a left row."""
        return self.take_row(value, ctx.current_key(), ctx.timestamp, ctx, is_left=True)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        """Take a right row."""
        return self.take_row(value, ctx.current_key(), ctx.timestamp, ctx, is_left=False)

    def process_each(self, records: InputRecords, results: list[Any], ctx: Any) -> None:
        """Take rows one after the other, as ``process_element1`` and its sister do."""
        take_row, append, is_left = self.take_row, results.append, records.ordinal == 0
        rest = slice(len(results), None)
        times = repeat(None) if records.times is None else records.times[rest]
        for value, key, time in zip(records.values[rest], records.keys[rest], times, strict=False):
            append(take_row(value, key, time, ctx, is_left=is_left))

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Any:
        """Return the results that the watermark completes, and remove their rows.

        A call that is repeated finds the pairs of the first.
        """
        slot = ctx.current_key(), timestamp_ms
        if self._fired is None or self._fired[0] != slot:
            complete = self._complete
            if slot not in complete:
                complete = self.complete([Timer("event", timestamp_ms, slot[0])])
            found = complete.pop(slot, None)
            self._fired = slot, [] if found is None else self.pairs_of(found, timestamp_ms)
        return self.results(self._fired[1])

    def wait_each(
        self, records: InputRecords, results: list[Any], ctx: Any, is_late: Callable[[int], bool]
    ) -> dict[Any, list[int]]:
        """Buffer rows on a side without a limit, if they cause no result at once.

        Args:
            records: The rows; only rows after the results are processed.
            results: Gets a result for each.
            ctx: The context of the calls.
            is_late: Returns whether rows of a time may be late; they are taken one by one.

        Returns:
            The times of waiting rows, by key.
        """
        kept: dict[Any, tuple[list[int], list[Any]]] = {}
        rest, is_left = slice(len(results), None), records.ordinal == 0
        times = (records.times or ())[rest]
        for value, key, time in zip(records.values[rest], records.keys[rest], times, strict=True):
            if is_late(time):
                results.append(self.take_row(value, key, time, ctx, is_left=is_left))
                continue
            results.append(())
            known = kept.get(key)
            if known is None:
                known = kept[key] = [], []
            known[0].append(time)
            known[1].append(value)
        side = self.left if is_left else self.right
        for key, (its_times, rows) in kept.items():
            side.add_all(key, its_times, rows)
        return {key: its_times for key, (its_times, _) in kept.items()}

    def complete_each(self, timers: Sequence[Timer]) -> Sequence[Timer]:
        """Compute completed results, and return the timers that have any.

        That is no part of an attempt: a failed attempt's changes to state are undone, but not this.
        """
        complete = self._complete = self.complete(timers)
        return [timer for timer in timers if (timer[2], timer[1]) in complete] if complete else []

    def fire_each(self, timers: Iterable[tuple[Any, int]], results: list[Any]) -> None:
        """Fire timers in turn, given by key and time, like ``on_timer``."""
        append, complete, pairs_of = results.append, self._complete, self.pairs_of
        results_of = self.results
        for timer in timers:
            pairs = pairs_of(complete.pop(timer), timer[1])
            self._fired = (timer, pairs)
            append(results_of(pairs))

    def keep(self, side: Rows, value: Any, key: Any, time_ms: int) -> tuple[RowKey, list[RowKey]]:
        """Buffer a row. Return its row key, and the row keys of evicted rows."""
        row_key = side.add(key, time_ms, value)
        if self._evicted is None:
            return row_key, []
        evicted = side.evict(key, row_key)
        self._evicted.inc(len(evicted))
        return row_key, evicted

    @abstractmethod
    def take_row(self, value: Any, key: Any, time: Any, ctx: Any, *, is_left: bool) -> Any:
        """Return the results that follow from a row.

        Args:
            value: The row.
            key: Its key.
            time: Its event time in ms; None if the join needs no time.
            ctx: The context of the call.
            is_left: Whether it is of the left side.
        """

    @abstractmethod
    def complete(self, timers: Sequence[Timer]) -> dict[tuple[Any, int], Any]:
        """Return results completed by timers, by key and time, and remove their rows.

        Of a timer by which nothing is complete there is no entry; of others ``pairs_of`` makes the
        pairs.
        """

    def pairs_of(self, complete: Any, time_ms: int) -> list[Pair]:  # noqa: ARG002  # for subclasses
        """Return the pairs of a result of ``complete`` for a timer of this time."""
        pairs: list[Pair] = complete
        return pairs

    def results(
        self, pairs: Sequence[Pair], store: Callable[..., None] = lambda: None, *details: Any
    ) -> Any:
        """Return the results of pairs with their times; then call ``store`` with details."""
        if self.awaits:
            return self._results_later(pairs, store, details)
        if not pairs:
            store(*details)
            return ()
        call = self._call
        found = [(time, call(left, right)) for time, left, right in pairs]
        if (later := self.awaited(found, store, *details)) is not None:
            return later
        store(*details)
        return found

    def refuse_late(self, value: Any, time_ms: int, window: Window, ctx: Any) -> Any:
        """Count a late row, and send it to the late output, if there is one."""
        self.late += 1
        if self.options.late_tag is not None:
            watermark = ctx.current_watermark()
            late = LateRecord(value, time_ms, window, watermark, watermark - time_ms)
            ctx.side_output(self.options.late_tag, late)
        return self.results(())

    def awaited(
        self, found: list[tuple[int, Any]], store: Callable[..., None], *details: Any
    ) -> Any | None:
        """Return an awaitable that then calls ``store``, or None with plain results."""
        plain_types = self._plain_types
        for _, result in found:
            if type(result) not in plain_types:
                break
        else:
            return None
        if any(map(self._is_awaitable, found)):
            return _all_awaited(found, store, details)
        return None

    def _is_awaitable(self, result: tuple[int, Any]) -> bool:
        # hot path: a type that cannot be awaited is looked at once.
        kind = type(result[1])
        if kind in self._plain_types:
            return False
        if inspect.isawaitable(result[1]):
            return True
        if kind is not GeneratorType:  # Of these some can be awaited.
            self._plain_types.add(kind)
        return False

    async def _results_later(
        self, pairs: Iterable[Pair], store: Callable[..., None], details: tuple[Any, ...]
    ) -> Any:
        found = [(time, await self._call(left, right)) for time, left, right in pairs]
        store(*details)
        return found


async def _all_awaited(
    found: list[tuple[int, Any]], store: Callable[..., None], details: tuple[Any, ...]
) -> Any:
    results = [(time, await r if inspect.isawaitable(r) else r) for time, r in found]
    store(*details)
    return results


def times_by_key(timers: Iterable[Timer]) -> dict[Any, list[int]]:
    """Return the times of timers by key, in their order."""
    found: dict[Any, list[int]] = {}
    for timer in timers:
        found.setdefault(timer.key, []).append(timer.time_ms)
    return found


def checked_how(call: str, how: str, *allowed: str) -> How:
    """Return a kind of join.

    Raises:
        StreamDefinitionError: this join has no such kind.
    """
    if how not in allowed:
        raise StreamDefinitionError(
            call=call,
            problem=f"how={how!r}, expected one of {', '.join(map(repr, allowed))}",
            hint="choose one of these",
        )
    return how  # type: ignore[return-value]  # one of the words


def checked_limit(call: str, max_buffered: int | None = None) -> int | None:
    """Return the maximum number of rows per key and side.

    Raises:
        StreamDefinitionError: it is no positive whole number.
    """
    if max_buffered is None or (type(max_buffered) is int and max_buffered > 0):
        return max_buffered
    raise StreamDefinitionError(
        call=call,
        problem=f"max_buffered={max_buffered!r}, expected 1 or more",
        hint="set how many rows of a key each side may keep, or omit it to keep all rows",
    )


def checked_function(call: str, function: object, method: str) -> None:
    """Refuse a function that cannot join rows.

    Raises:
        StreamDefinitionError: it is neither callable nor an object of a function class.
    """
    is_object = isinstance(function, FunctionObject) and hasattr(function, method)
    if not callable(function) and not is_object:
        raise StreamDefinitionError(
            call=call,
            problem=f"{full_name(function)} is not callable and has no method {method!r}",
            hint="pass a function of two rows, or an object of the function class",
        )
