"""Transformations of single records: map, filter, functions, async calls, times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from bicycle_sdk.arguments import require_whole
from bicycle_sdk.datastream.base import Stream
from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.expressions import Expression, named
from bicycle_sdk.failures import Retry
from bicycle_sdk.function_vertices import (
    async_io_vertex,
    batch_size,
    concurrency,
    process_vertex,
    timestamps_vertex,
)
from bicycle_sdk.functions import (
    AsyncFunction,
    AsyncIOBatchFunction,
    AsyncIOFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    RichAsyncFunction,
)
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.installed import installed_function

if TYPE_CHECKING:
    from bicycle_sdk.datastream.data_stream import DataStream
    from bicycle_sdk.time import WatermarkStrategy

__all__ = ["Transforms"]

T = TypeVar("T")
R = TypeVar("R")
_RATE_MIN, _RATE_MAX = 0.001, 1e9  # records per second


class Transforms(Stream[T]):
    """The calls of a stream that take one record after the other."""

    @overload
    def map(self, function: Callable[[T], Awaitable[R]]) -> DataStream[R]: ...
    @overload
    def map(self, function: Callable[[T], R] | MapFunction[T, R]) -> DataStream[R]: ...
    @overload
    def map(
        self, function: None = None, **columns: Expression | float | str | None
    ) -> DataStream[dict[str, Any]]: ...
    def map(self, function: Any = None, **columns: Any) -> DataStream[Any]:
        """Replace each record by the function's result, or by a dict of named columns.

        Args:
            function: A callable, or an expression.
            columns: Expressions by name, and values that are the same for each record.

        Raises:
            StreamDefinitionError: there is neither, or both.

        Example:
            >>> from bicycle_sdk import StreamEnvironment, col
            >>> readings = StreamEnvironment().from_collection([{"celsius": 20.0}])
            >>> _ = readings.map(fahrenheit=col("celsius") * 1.8 + 32).print()
        """
        if (function is None) is not bool(columns):
            raise StreamDefinitionError(
                call="map",
                problem="both a function and named columns are given"
                if columns
                else "no function and no columns are given",
                hint="pass a function, or columns by name: map(total=col('price') * 2)",
            )
        return self._then_function(OperatorKind.MAP, named(columns) if columns else function)

    @overload
    def flat_map(self, function: Callable[[T], Awaitable[Iterable[R]]]) -> DataStream[R]: ...
    @overload
    def flat_map(
        self, function: Callable[[T], Iterable[R]] | FlatMapFunction[T, R]
    ) -> DataStream[R]: ...
    def flat_map(self, function: Any) -> DataStream[Any]:
        """Replace each record by the records that the function returns."""
        return self._then_function(OperatorKind.FLAT_MAP, function)

    def filter(
        self, function: Callable[[T], bool | Awaitable[bool]] | FilterFunction[T]
    ) -> DataStream[T]:
        """Keep the records for which the function is true."""
        return self._then_function(OperatorKind.FILTER, function)

    def map_batches(
        self, function: Callable[[list[T]], Iterable[R] | Awaitable[Iterable[R]]]
    ) -> DataStream[R]:
        """Replace whole batches, for numpy, Arrow or Polars. The size of batches may vary."""
        return self._then_function(OperatorKind.MAP_BATCHES, function)

    def process(self, function: AsyncFunction[T, R] | RichAsyncFunction[T, R]) -> DataStream[R]:
        """Call the function for one record after the other."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_rich(self, function: RichAsyncFunction[T, R]) -> DataStream[R]:
        """Call a function with state for one record after the other."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_fn(self, function: ProcessFunction[T, R]) -> DataStream[R]:
        """Call a function that sees event time and writes side outputs."""
        return self._then(process_vertex(function, is_keyed=self._is_keyed()))

    def process_plugin(self, name: str, *, type: type[R] | None = None) -> DataStream[R]:
        """Call the function class that another installed plugin brings, by its name.

        Args:
            name: Of the entry point in the group ``bicycle.plugins``.
            type: Type of the results; None: the type in its annotations.

        Raises:
            StreamDefinitionError: no function class is installed under this name.
        """
        vertex = process_vertex(installed_function(name), is_keyed=self._is_keyed())
        if type is not None:
            vertex.output_type = type
        return self._then(vertex)

    def process_ordered(
        self,
        function: AsyncFunction[T, R] | RichAsyncFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
    ) -> DataStream[R]:
        """Call the function with several calls in flight; results keep the input's order.

        Args:
            function: The function.
            timeout: A call that takes longer is an error of its record, 1 ms to 7 days.
            capacity: Calls in flight per subtask, 1 to 1 000 000.
        """
        return self._process_concurrently(
            function, ordered=True, timeout=timeout, capacity=capacity
        )

    def process_unordered(
        self,
        function: AsyncFunction[T, R] | RichAsyncFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
    ) -> DataStream[R]:
        """Call the function as ``process_ordered`` does, but pass results on as they come."""
        return self._process_concurrently(
            function, ordered=False, timeout=timeout, capacity=capacity
        )

    def async_io_ordered(
        self,
        function: AsyncIOFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
        retry: Retry | None = None,
    ) -> DataStream[R]:
        """Call another system for each record; results keep the input's order.

        Args:
            function: The call, and the result for a timed-out record.
            timeout: Limit of one record, all attempts together, 1 ms to 7 days.
            capacity: Calls in flight per subtask, 1 to 1 000 000.
            retry: ``retry(n, backoff=…)`` calls again after an exception; None does not.
        """
        config = concurrency(ordered=True, timeout=timeout, capacity=capacity)
        return self._then(async_io_vertex(function, config=config, retry=retry))

    def async_io_unordered(
        self,
        function: AsyncIOFunction[T, R],
        *,
        timeout: timedelta,
        capacity: int = 100,
        retry: Retry | None = None,
    ) -> DataStream[R]:
        """Call another system like ``async_io_ordered``, but emit results as they arrive."""
        config = concurrency(ordered=False, timeout=timeout, capacity=capacity)
        return self._then(async_io_vertex(function, config=config, retry=retry))

    def async_io_batches(
        self,
        function: AsyncIOBatchFunction[T, R],
        *,
        max_size: int,
        timeout: timedelta,
        capacity: int = 4,
        ordered: bool = True,
        retry: Retry | None = None,
    ) -> DataStream[R]:
        """Call another system, or a model, for many records at once.

        A call takes the records that are ready and never waits for more: with little input it has
        few records.

        Args:
            function: The call, and the result for a record of a timed-out call.
            max_size: Records of one call, 1 to 4 096.
            timeout: Limit of one call, all attempts together, 1 ms to 7 days.
            capacity: Calls in flight per subtask, 1 to 1 000 000.
            ordered: Whether results keep the input's order; else the results of a call stay
                together.
            retry: ``retry(n, backoff=…)`` calls again after an exception; None does not.
        """
        config = {
            **concurrency(ordered=ordered, timeout=timeout, capacity=capacity),
            "batch_size": batch_size(max_size),
        }
        return self._then(async_io_vertex(function, config=config, retry=retry))

    # --- rate --------------------------------------------------------------------------------

    def rate_limit(self, per_second: float, *, burst: int = 100) -> DataStream[T]:
        """Limit the rate to ``per_second`` records a second; others wait, without loss.

        An operator after it in the same chain, such as a call to another system, receives records
        at this rate; after an exchange, they arrive together. While records wait, the task waits,
        and epochs take fewer records. The subtasks share rate and burst evenly. A repeated epoch
        sends its records again, at the same rate.

        Args:
            per_second: The rate of all subtasks together, 0.001 to 1 000 000 000.
            burst: The number of records that may pass at once after a pause, 1 to 1 000 000. Each
                subtask passes at least one.

        Raises:
            StreamDefinitionError: rate or burst is out of bounds.

        Example:
            >>> from bicycle_sdk import StreamEnvironment
            >>> env = StreamEnvironment()
            >>> _ = env.from_collection(["ada", "bob"]).rate_limit(5, burst=1).print()
        """
        given: object = per_second  # Jobs need not be type-checked.
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not _RATE_MIN <= per_second <= _RATE_MAX:
            raise StreamDefinitionError(
                call="rate_limit",
                problem=f"expected a number in {_RATE_MIN:g}..{_RATE_MAX:g}, got {per_second!r}",
                hint="pass the rate in records per second of all subtasks together",
            )
        size = require_whole("rate_limit", burst, low=1, high=1_000_000)
        vertex = VertexDraft(
            kind=OperatorKind.RATE_LIMIT,
            name="rate_limit",
            details={"per_second": float(per_second), "burst": size},
            output_type=self._record_type(),
        )
        return self._then(vertex)

    # --- event time --------------------------------------------------------------------------

    def assign_timestamps(
        self, strategy: WatermarkStrategy[T] | Callable[[T], int | float | datetime]
    ) -> DataStream[T]:
        """Assign event times and watermarks.

        Args:
            strategy: A ``WatermarkStrategy``, or a function from a record to its time (ms since
                1970 or a datetime with time zone), with an out-of-orderness bound of 5 s.
        """
        return self._then(timestamps_vertex(strategy, record_type=self._record_type()))

    def _process_concurrently(
        self, function: object, *, ordered: bool, timeout: timedelta, capacity: int
    ) -> DataStream[Any]:
        config = concurrency(ordered=ordered, timeout=timeout, capacity=capacity)
        return self._then(process_vertex(function, is_keyed=self._is_keyed(), config=config))
