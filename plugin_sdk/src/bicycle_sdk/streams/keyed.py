"""Streams whose records have a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from bicycle_sdk import aggregations
from bicycle_sdk.function_vertices import process_vertex, reduce_vertex
from bicycle_sdk.functions import KeyedProcessFunction, ProcessFunction, ReduceFunction
from bicycle_sdk.graph import Partitioning
from bicycle_sdk.record_types import function_types, pair_type
from bicycle_sdk.streams.data_stream import DataStream

__all__ = ["KeyedStream"]

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


class KeyedStream(DataStream[T], Generic[K, T]):
    """Records with a key: whatever follows sees all records of one key in one subtask."""

    _default_partitioning = Partitioning.HASH

    def process_fn(
        self, function: KeyedProcessFunction[K, T, R] | ProcessFunction[T, R]
    ) -> DataStream[R]:
        """Call a function that sees event time, its key and state per key."""
        return self._then(process_vertex(function, is_keyed=True))

    def reduce(
        self, function: Callable[[T, T], T | Awaitable[T]] | ReduceFunction[T]
    ) -> DataStream[T]:
        """Join the records of a key; the result so far follows each record, the first as it is."""
        return self._then(reduce_vertex("reduce", function, output_type=self._vertex.output_type))

    def sum(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, sum so far of the selected values)`` after each record."""
        return self._aggregate("sum", aggregations.Total(selector), selector)

    def min(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, least selected value so far)`` after each record."""
        return self._aggregate("min", aggregations.Minimum(selector), selector)

    def max(self, selector: Callable[[T], V]) -> DataStream[tuple[K, V]]:
        """``(key, greatest selected value so far)`` after each record."""
        return self._aggregate("max", aggregations.Maximum(selector), selector)

    def min_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """The record with the least selected value so far, the earliest of equals."""
        return self._then(
            reduce_vertex(
                "min_by", aggregations.KeepLowest(selector), output_type=self._vertex.output_type
            )
        )

    def max_by(self, selector: Callable[[T], Any]) -> DataStream[T]:
        """The record with the greatest selected value so far, the earliest of equals."""
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

    def into_stream(self) -> DataStream[T]:
        """The same records without keys."""
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

    def _key_type(self) -> Any:
        return function_types(self._vertex.payloads["function"], "get_key").gives
