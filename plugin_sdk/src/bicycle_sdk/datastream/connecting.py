"""The calls of a stream by which it meets others, without keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from bicycle_sdk import joins
from bicycle_sdk.aggregations import everything
from bicycle_sdk.datastream.base import joined_streams
from bicycle_sdk.datastream.transforms import Transforms
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.failures import Retry
from bicycle_sdk.function_vertices import async_io_vertex, concurrency
from bicycle_sdk.functions import full_name, refuse_class
from bicycle_sdk.record_types import function_types

if TYPE_CHECKING:
    from bicycle_sdk.connected import JoinFunction
    from bicycle_sdk.datastream.data_stream import DataStream
    from bicycle_sdk.joins import LookupCache

__all__ = ["Connecting"]

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")
A = TypeVar("A", bound=Hashable)
_Joiner: TypeAlias = "Callable[[T, V], R | Awaitable[R]] | JoinFunction[T, V, R]"
_LOOKUP_LIMIT = timedelta(seconds=30)


class Connecting(Transforms[T]):
    """The calls of a stream that take other streams."""

    @overload
    def lookup_join(
        self,
        key: Callable[[T], A],
        lookup: Callable[[A], Awaitable[V | None]],
        function: Callable[[T, V], R | Awaitable[R]],
        *,
        how: Literal["inner"] = "inner",
        timeout: timedelta = ...,
        capacity: int = ...,
        cache: LookupCache | None = ...,
        retry: Retry | None = ...,
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        key: Callable[[T], A],
        lookup: Callable[[A], Awaitable[V | None]],
        function: Callable[[T, V | None], R | Awaitable[R]],
        *,
        how: Literal["left"],
        timeout: timedelta = ...,
        capacity: int = ...,
        cache: LookupCache | None = ...,
        retry: Retry | None = ...,
    ) -> DataStream[R]: ...
    def lookup_join(
        self, key: Callable[[T], Any], lookup: Any, function: Callable[..., Any],
        *, how: str = "inner", timeout: timedelta = _LOOKUP_LIMIT, capacity: int = 100,
        cache: LookupCache | None = None, retry: Retry | None = None,
    ) -> DataStream[Any]:  # fmt: skip
        """Complete each row with data from another system; the order of rows is kept.

        Args:
            key: Returns the lookup key of a row.
            lookup: Returns the data of a key, or None without data: an async function, or an
                object with ``__call__``, ``open`` and ``close``.
            function: Makes a result of a row and the data.
            how: ``left`` also emits rows without data, with None; ``inner`` drops them.
            timeout: Time limit of a lookup, for all attempts together; after it, the row fails.
            capacity: Lookups in flight per subtask.
            cache: Number and lifetime of cached results; None is ``LookupCache()``.
            retry: ``retry(n, backoff=…)`` repeats a lookup after an exception; None does not.
        """
        for part in (key, lookup, function):
            refuse_class("lookup_join", part)
            if not callable(part):
                raise StreamDefinitionError(
                    call="lookup_join",
                    problem=f"{full_name(part)} is not callable",
                    hint="pass functions for key, lookup and result",
                )
        kind = joins.checked_how("lookup_join", how, "inner", "left")
        options = joins.LookupOptions(
            key=key, lookup=lookup, join=function, keeps_left=kind == "left",
            cache=joins.LookupCache() if cache is None else cache,
        )  # fmt: skip
        config = concurrency(ordered=True, timeout=timeout, capacity=capacity)
        vertex = async_io_vertex(joins.LookupJoin(options), config=config, retry=retry)
        vertex.name, vertex.plugin_function = "lookup_join", full_name(lookup)
        vertex.output_type = function_types(function, "join").gives
        return self._then(vertex)

    def merge_by_time(self, *others: DataStream[T], late_to: str | None = None) -> DataStream[T]:
        """Merge streams in the order of event time; equal times in the order of streams.

        A record waits until the watermark reaches it. All records go through one subtask, because
        only one subtask can order all records. Downstream operators in the same subtask keep the
        order.

        Args:
            others: The other streams.
            late_to: Side output for late records, as ``LateRecord``. Late records are always
                counted.
        """
        streams: list[Any] = [self, *others]
        types = [stream._record_type() for stream in streams]
        record_type = types[0] if all(found == types[0] for found in types) else None
        merge = joins.TimeMerge(record_type, late_to)
        vertex = joins.co_process_vertex(
            merge, "merge_by_time", is_keyed=True, output_type=record_type
        )
        for stream in others:
            self._check_same_draft("merge_by_time", stream)
        merged = joined_streams([stream.key_by(everything) for stream in streams], vertex)
        merged._vertex.parallelism = 1
        return merged

    @overload
    def broadcast_join(
        self,
        other: DataStream[V],
        key: Callable[[T], A],
        other_key: Callable[[V], A],
        function: _Joiner[T, V, R],
        *,
        how: Literal["inner"] = "inner",
        deleted_when: Callable[[V], bool] | None = None,
    ) -> DataStream[R]: ...
    @overload
    def broadcast_join(
        self,
        other: DataStream[V],
        key: Callable[[T], A],
        other_key: Callable[[V], A],
        function: _Joiner[T, V | None, R],
        *,
        how: Literal["left"],
        deleted_when: Callable[[V], bool] | None = None,
    ) -> DataStream[R]: ...
    def broadcast_join(
        self, other: DataStream[Any], key: Callable[[T], Any], other_key: Callable[[Any], Any],
        function: Any, *, how: str = "inner",
        deleted_when: Callable[[Any], bool] | None = None,
    ) -> DataStream[Any]:  # fmt: skip
        """Join each row at once with the row of a small stream, copied to all subtasks.

        This stream needs no shuffle. A row of the small stream replaces the earlier row with its
        key. Within an epoch, the rows of the small stream are processed first.

        Args:
            other: The small stream.
            key: Returns the join key of a row.
            other_key: Finds it in a row of the small stream.
            function: Makes a result of a left and a right row.
            how: ``left`` emits rows without a match, too.
            deleted_when: Returns whether a right row deletes the row with its key.
        """
        joins.checked_function("broadcast_join", function, "join")
        kind = joins.checked_how("broadcast_join", how, "inner", "left")
        options = joins.JoinOptions(
            function=function, how=kind, left_type=self._record_type(),
            right_type=other._record_type(),
        )  # fmt: skip
        join = joins.BroadcastJoin(options, key, other_key, is_deleted=deleted_when)
        vertex = joins.co_process_vertex(
            join, "broadcast_join",
            shown=function, is_keyed=self._is_keyed(), has_broadcast=True, settings={"how": kind},
            output_type=function_types(function, "join").gives,
        )  # fmt: skip
        return joined_streams([self, other.broadcast()], vertex)
