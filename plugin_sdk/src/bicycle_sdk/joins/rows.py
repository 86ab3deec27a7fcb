"""The base of all joins: buffered rows, pairs before their results, late rows.

A user's function is called before anything is stored, so that a call which is repeated finds the
state as it was, and one which is left out leaves no row behind.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import GeneratorType
from typing import Any, ClassVar, Literal, TypedDict

from bicycle_sdk.connected import BuiltInFunction, InputRecords
from bicycle_sdk.contexts import WATERMARK_MIN
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import FunctionObject, as_callable, full_name, refuse_class
from bicycle_sdk.joins.kept_rows import Arrived, RowKey, Rows, RowsOfKey, merged
from bicycle_sdk.state import MapStateDescriptor
from bicycle_sdk.state.timers import Timer
from bicycle_sdk.windows.panes import LateRecord, Window

__all__ = [
    "EVICTED_ROWS",
    "How",
    "JoinBuffer",
    "JoinOptions",
    "Pair",
    "RowJoin",
    "checked_function",
    "checked_how",
    "checked_limit",
    "times_by_key",
]

How = Literal["inner", "left", "right", "full"]
Pair = tuple[int, Any, Any]  # event time of the result, left row, right row
# The counter of rows that a join has forgotten since its buffer was full.
EVICTED_ROWS = "evicted_rows"


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


class RowJoin(BuiltInFunction, ABC):
    """A join by event time: rows of both sides, a function of two rows, late rows.

    Args:
        options: The options common to all joins.
    """

    stamps: ClassVar[bool] = True
    needs_times: ClassVar[bool] = True
    timer_lead_ms: ClassVar[int] = 1
    method: ClassVar[str] = "join"
    arrived_max: ClassVar[int] = 65_536  # More rows of an epoch are stored before it ends.

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
        self.fires_in_context = hasattr(options.function, "open")
        # Of the right side and of the left: rows that no state holds yet.
        self.arrived: tuple[Arrived, Arrived] = ({}, {})
        self._arrived_count = 0

    def begin_epoch(self) -> None:
        """Forget the timer that fired last: state is now as it was sealed."""
        super().begin_epoch()
        self._fired = None
        self._complete.clear()
        self.arrived = ({}, {})
        self._arrived_count = 0
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
                complete = self.complete([Timer("event", timestamp_ms, slot[0])], timestamp_ms)
            found = complete.pop(slot, None)
            self._fired = slot, [] if found is None else self.pairs_of(found, timestamp_ms)
        return self.results(self._fired[1])

    def wait_each(
        self, records: InputRecords, results: list[Any], ctx: Any, is_late: Callable[[int], bool]
    ) -> None:
        """Buffer rows on a side without a limit, if they cause no result at once.

        Args:
            records: The rows; only rows after the results are processed.
            results: Gets a result for each.
            ctx: The context of the calls.
            is_late: Returns whether rows of a time may be late; they are taken one by one.
        """
        rest, is_left = slice(len(results), None), records.ordinal == 0
        arrived, times = self.arrived[is_left], (records.times or ())[rest]
        for value, key, time in zip(records.values[rest], records.keys[rest], times, strict=True):
            if is_late(time):
                results.append(self.take_row(value, key, time, ctx, is_left=is_left))
                continue
            results.append(())
            known = arrived.get(key)
            if known is None:
                known = arrived[key] = [], []
            known[0].append(time)
            known[1].append(value)
        self.bound_arrived(len(times))

    def bound_arrived(self, added: int) -> None:
        """Count rows that arrived; store all of them if they are too many."""
        self._arrived_count += added
        if self._arrived_count > self.arrived_max:
            for is_left, arrived in enumerate(self.take_arrived()):
                for key, (times, rows) in arrived.items():
                    self.store_all(key, times, rows, is_left=bool(is_left))

    def take_arrived(self) -> tuple[Arrived, Arrived]:
        """Return the rows of the right and the left side that arrived, and forget them."""
        arrived, self.arrived, self._arrived_count = self.arrived, ({}, {}), 0
        return arrived

    def store_all(
        self, key: Any, times: Sequence[int], rows: Sequence[Any],
        *, is_left: bool, due_ms: int = WATERMARK_MIN,
    ) -> None:  # fmt: skip
        """Store rows of a key on a side without a limit, and set timers after ``due_ms``."""
        (self.left if is_left else self.right).add_all(key, times, rows)
        self.wait_for(key, times, is_left=is_left, due_ms=due_ms)

    def store_from(
        self, key: Any, arrived: RowsOfKey | None, first_ms: int,
        *, is_left: bool, due_ms: int,
    ) -> None:  # fmt: skip
        """Store the rows of a key that arrived, from a time on."""
        times, rows = merged((), arrived)
        first = bisect_left(times, first_ms)
        if first < len(times):
            self.store_all(key, times[first:], rows[first:], is_left=is_left, due_ms=due_ms)

    @property
    def is_complete(self) -> bool:
        """Return whether no row arrived that ``complete_each`` has not seen."""
        return not any(self.arrived)

    def complete_each(self, timers: Sequence[Timer], due_ms: int) -> Iterable[tuple[Any, int]]:
        """Compute completed results, and return the key and time of each.

        That is no part of an attempt: a failed attempt's changes to state are undone, but not this.
        """
        self._complete = self.complete(timers, due_ms)
        return list(self._complete)

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
    def complete(self, timers: Sequence[Timer], due_ms: int) -> dict[tuple[Any, int], Any]:
        """Return the results that timers complete, by key and time, and remove their rows.

        A row that arrived in this epoch counts as a row with timers; it is stored if a later
        epoch needs it. ``timers`` holds all timers up to ``due_ms``, or one timer of that time. A
        key and time without a result has no entry; ``pairs_of`` returns the pairs of an entry.
        """

    @abstractmethod
    def wait_for(self, key: Any, times: Iterable[int], *, is_left: bool, due_ms: int) -> None:
        """Set the timers after ``due_ms`` of rows with these times."""

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
    refuse_class(call, function)
    is_object = isinstance(function, FunctionObject) and hasattr(function, method)
    if not callable(function) and not is_object:
        raise StreamDefinitionError(
            call=call,
            problem=f"{full_name(function)} is not callable and has no method {method!r}",
            hint="pass a function of two rows, or an object of the function class",
        )
