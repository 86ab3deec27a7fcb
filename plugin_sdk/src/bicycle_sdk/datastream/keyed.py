"""Streams whose records have a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from bicycle_sdk import aggregations, windows
from bicycle_sdk.datastream.data_stream import DataStream
from bicycle_sdk.datastream.keyed_joins import KeyedJoins
from bicycle_sdk.function_vertices import process_vertex, reduce_vertex
from bicycle_sdk.functions import (
    KeyedProcessFunction,
    ProcessFunction,
    ReduceFunction,
    full_name,
)
from bicycle_sdk.record_types import function_types, pair_type

if TYPE_CHECKING:
    from datetime import timedelta

    from bicycle_sdk.datastream.windowed import WindowedStream
    from bicycle_sdk.state import StateTtl
    from bicycle_sdk.windows.assigners import Duration, WindowAssigner
    from bicycle_sdk.windows.functions import AggregateFunction

__all__ = ["KeyedStream"]

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


class KeyedStream(KeyedJoins[K, T]):
    """A stream with a key: all records of one key go to the same subtask."""

    def process_fn(
        self, function: KeyedProcessFunction[K, T, R] | ProcessFunction[T, R]
    ) -> DataStream[R]:
        """Call a function that sees event time, its key and state per key."""
        return self._then(process_vertex(function, is_keyed=True))

    def reduce(
        self, function: Callable[[T, T], T | Awaitable[T]] | ReduceFunction[T]
    ) -> DataStream[T]:
        """Combine the records of a key, with the result so far after each record."""
        return self._then(reduce_vertex("reduce", function, output_type=self._vertex.output_type))

    def sum(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, sum so far of the selected values)`` after each record."""
        total = aggregations.Total(selector)
        return self._aggregate("sum", total, aggregations.FirstOfTotal(selector))

    def min(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, least selected value so far)`` after each record."""
        return self._aggregate("min", aggregations.Minimum(selector), selector)

    def max(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, greatest selected value so far)`` after each record."""
        return self._aggregate("max", aggregations.Maximum(selector), selector)

    def min_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """Keep the record with the least selected value so far, the earliest of equals."""
        return self._then(
            reduce_vertex(
                "min_by", aggregations.KeepLowest(selector), output_type=self._vertex.output_type
            )
        )

    def max_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """Keep the record with the greatest selected value so far, the earliest of equals."""
        return self._then(
            reduce_vertex(
                "max_by", aggregations.KeepHighest(selector), output_type=self._vertex.output_type
            )
        )

    # A count per key is a pair, a count of a whole stream a number.
    def count(self) -> DataStream[tuple[K, int]]:  # type: ignore[override]
        """``(key, number of records so far)`` after each record."""
        return self._then(
            reduce_vertex(
                "count",
                aggregations.increment,
                initial=aggregations.one,
                emits_key=True,
                output_type=pair_type(self._key_type(), int),
            )
        )

    def aggregate(
        self, function: AggregateFunction[T, Any, R], *, ttl: StateTtl | timedelta | None = None
    ) -> DataStream[tuple[K, R]]:
        """Return key and running result of an aggregate function, for each record.

        Args:
            function: An object of an ``AggregateFunction`` without ``async`` methods: your own, or
                one of ``bicycle_sdk.windows``.
            ttl: Time to live of an accumulator; None keeps it forever.
        """
        # Slow on the start path: only jobs with aggregate functions need it.
        from bicycle_sdk.windows.running import RunningAggregate

        vertex = process_vertex(RunningAggregate(function, ttl), is_keyed=True)
        vertex.plugin_function = full_name(function)
        gives = function_types(function, "get_result").gives
        vertex.output_type = pair_type(self._key_type(), gives)
        return self._then(vertex)

    # --- windows -----------------------------------------------------------------------------

    def tumbling_window(self, size: Duration, *, offset: Duration = 0) -> WindowedStream[K, T]:
        """Assign adjacent windows of event time: ``[offset + n * size, … + size)``.

        Args:
            size: Milliseconds or a timedelta, at least 1 ms.
            offset: Start of one of the windows, relative to 1970-01-01 UTC: -8 hours with a size
                of one day are the days of China.
        """
        return self._window(windows.tumbling_windows(size, offset=offset))

    def sliding_window(
        self, size: Duration, slide: Duration, *, offset: Duration = 0
    ) -> WindowedStream[K, T]:
        """Assign windows of event time of one size that begin every ``slide``.

        If the slide is longer than the size, records between two windows are dropped.
        """
        return self._window(windows.sliding_windows(size, slide, offset=offset))

    def cumulative_window(
        self, step: Duration, size: Duration, *, offset: Duration = 0
    ) -> WindowedStream[K, T]:
        """Assign windows of event time that begin every ``size`` and grow by ``step``.

        A window of a day with steps of an hour has 24 results, of which each contains the records
        since the begin of the day. The size is a multiple of the step.
        """
        return self._window(windows.cumulative_windows(step, size, offset=offset))

    def session_window(
        self,
        gap: Duration | Callable[[T], Duration],
        *,
        min_records: int = 1,
        max_duration: Duration | None = None,
    ) -> WindowedStream[K, T]:
        """Assign windows of event time that end after a gap without records of the key.

        A record exactly one gap after the last one still belongs to the session.

        Args:
            gap: Milliseconds, a timedelta, or a function that returns the gap of a record.
            min_records: Sessions with fewer records have no result.
            max_duration: Maximum length of a session: it ends at this time after its first record,
                and the next record starts another session.
        """
        return self._window(
            windows.session_windows(gap, min_records=min_records, max_duration=max_duration)
        )

    def global_window(self) -> WindowedStream[K, T]:
        """Assign one window to all records of a key; it fires as ``trigger(…)`` decides."""
        return self._window(windows.GlobalWindows())

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[K, T]:
        """Assign windows of ``size`` records of a key by arrival, one every ``slide``.

        An incomplete last window has no result.
        """
        # Slow on the start path: only jobs with windows need them.
        from bicycle_sdk.windows.assigners import count_windows

        return self._window(count_windows(size, slide))

    def _window(self, assigner: WindowAssigner) -> WindowedStream[K, T]:
        # Slow on the start path: only jobs with windows need them.
        from bicycle_sdk.datastream.windowed import WindowedStream

        plan = windows.WindowPlan(assigner=assigner)
        return WindowedStream(self._draft, self._vertex, plan, key_type=self._key_type())

    def into_stream(self) -> DataStream[T]:
        """Return the same records without keys."""
        return DataStream(self._draft, self._vertex)

    def _aggregate(
        self, word: str, function: object, selector: Callable[[T], V]
    ) -> DataStream[tuple[K, V]]:
        selected = function_types(selector, "get_key").gives
        vertex = reduce_vertex(
            word,
            function,
            initial=selector,
            emits_key=True,
            output_type=pair_type(self._key_type(), selected),
        )
        return self._then(vertex)
