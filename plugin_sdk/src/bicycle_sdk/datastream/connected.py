"""Two streams that meet in one function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from bicycle_sdk.connected import (
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    MappedPair,
    input_methods,
)
from bicycle_sdk.datastream.base import check_same_keys, joined_streams
from bicycle_sdk.datastream.data_stream import DataStream
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.function_vertices import check_result
from bicycle_sdk.functions import KeySelector, full_name
from bicycle_sdk.graph import Partitioning
from bicycle_sdk.joins.vertices import check_record_type, co_process_vertex, common_output_type
from bicycle_sdk.record_types import function_types

__all__ = ["ConnectedStreams", "KeyedConnectedStreams"]

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


class ConnectedStreams(Generic[T, V]):
    """Two streams of different record types that share one function, by ``connect``.

    Example:
        >>> from bicycle_sdk import CoMapFunction, StreamEnvironment
        >>> class Text(CoMapFunction[int, str, str]):
        ...     def map1(self, value):
        ...         return f"number {value}"
        ...
        ...     def map2(self, value):
        ...         return f"text {value}"
        >>> env = StreamEnvironment()
        >>> both = env.from_collection([1]).connect(env.from_collection(["a"]))
        >>> _ = both.map(Text()).print()
    """

    def __init__(self, first: DataStream[T], second: DataStream[V]) -> None:
        first._check_same_draft("connect", second)
        self._first: DataStream[T] = first
        self._second: DataStream[V] = second
        self._has_broadcast = second._partitioning is Partitioning.BROADCAST

    def map(self, function: CoMapFunction[T, V, R]) -> DataStream[R]:
        """Replace each record by the result of ``map1`` or ``map2``."""
        self._require("map", function, CoMapFunction)
        self._check_types("map", function, ("map1", "map2"))
        gives = [function_types(function, name).gives for name in ("map1", "map2")]
        vertex = co_process_vertex(
            MappedPair(function), "co_map", shown=function, is_keyed=self._is_keyed(),
            output_type=gives[0] if gives[0] == gives[1] else None,
        )  # fmt: skip
        return joined_streams([self._first, self._second], vertex)

    def process(
        self, function: CoProcessFunction[T, V, R] | BroadcastProcessFunction[T, V, R]
    ) -> DataStream[R]:
        """Call a function that sees event time and side outputs, and has state.

        With ``connect(other.broadcast())`` it is a ``BroadcastProcessFunction``.
        """
        return self._process(function, CoProcessFunction)

    def key_by(
        self,
        first: Callable[[T], K] | KeySelector[T, K],
        second: Callable[[V], K] | KeySelector[V, K],
    ) -> KeyedConnectedStreams[K, T, V]:
        """Assign keys to the records of both streams; a key's records meet in one subtask.

        Raises:
            StreamDefinitionError: the keys are of different types and never equal.
        """
        return KeyedConnectedStreams(self._first.key_by(first), self._second.key_by(second))

    def _is_keyed(self) -> bool:
        return False

    def _process(self, function: Any, *kinds: type) -> DataStream[Any]:
        self._require(
            "process", function, *((BroadcastProcessFunction,) if self._has_broadcast else kinds)
        )
        names = [name for name, _ in input_methods(function, 2)]
        self._check_types("process", function, names)
        for name in names:
            check_result(function, name)
        vertex = co_process_vertex(
            function, "broadcast" if self._has_broadcast else "co_process",
            is_keyed=self._is_keyed(), has_broadcast=self._has_broadcast,
            output_type=common_output_type(function),
        )  # fmt: skip
        return joined_streams([self._first, self._second], vertex)

    def _require(self, call: str, function: object, *kinds: type) -> None:
        if not isinstance(function, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise StreamDefinitionError(
                call=f"connect(…).{call}",
                problem=f"{full_name(function)} is not an object of {names}",
                hint=(
                    "derive the function from such a class and pass an object; "
                    "KeyedCoProcessFunction needs key_by(…) on both streams, "
                    "BroadcastProcessFunction connect(b.broadcast())"
                ),
            )

    def _check_types(self, call: str, function: object, methods: Sequence[str]) -> None:
        streams: list[DataStream[Any]] = [self._first, self._second]
        for stream, method in zip(streams, methods, strict=True):
            check_record_type(f"connect(…).{call}", function, method, stream._record_type())


class KeyedConnectedStreams(ConnectedStreams[T, V], Generic[K, T, V]):
    """Two keyed streams that share one function, with its state and timers per key."""

    def __init__(self, first: DataStream[T], second: DataStream[V]) -> None:
        super().__init__(first, second)
        check_same_keys("connect", *((first,) if self._has_broadcast else (first, second)))

    def process(
        self,
        function: CoProcessFunction[T, V, R]
        | KeyedCoProcessFunction[K, T, V, R]
        | BroadcastProcessFunction[T, V, R],
    ) -> DataStream[R]:
        """Call a function that sees event time, and has state and timers per key.

        With ``connect(other.broadcast())`` it is a ``BroadcastProcessFunction``.
        """
        return self._process(function, CoProcessFunction, KeyedCoProcessFunction)

    def _is_keyed(self) -> bool:
        return True
