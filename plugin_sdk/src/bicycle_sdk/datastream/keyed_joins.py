"""The calls of a keyed stream by which it meets others under their keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

from bicycle_sdk import joins
from bicycle_sdk import windows as windowing  # parameters of calls here are named windows
from bicycle_sdk.datastream.base import Stream, check_same_keys, joined_streams
from bicycle_sdk.datastream.data_stream import DataStream
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.graph import Partitioning
from bicycle_sdk.record_types import function_types

if TYPE_CHECKING:
    from bicycle_sdk.connected import CoGroupFunction, JoinFunction
    from bicycle_sdk.datastream.connected import KeyedConnectedStreams
    from bicycle_sdk.datastream.keyed import KeyedStream
    from bicycle_sdk.joins import JoinBuffer, JoinOptions, RowJoin
    from bicycle_sdk.windows import AlignedWindows, SessionWindows, WindowAssigner
    from bicycle_sdk.windows.assigners import Duration

__all__ = ["JoinedStreams", "KeyedJoins"]

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
_Joiner: TypeAlias = "Callable[[T, V], R | Awaitable[R]] | JoinFunction[T, V, R]"


class KeyedJoins(DataStream[T], Generic[K, T]):
    """The calls of a keyed stream that take other keyed streams."""

    _default_partitioning = Partitioning.HASH

    # The keys of both must agree, which a call on a stream without keys cannot require.
    @overload
    def connect(self, other: KeyedStream[K, V]) -> KeyedConnectedStreams[K, T, V]: ...
    @overload
    def connect(self, other: DataStream[V]) -> KeyedConnectedStreams[K, T, V]: ...
    def connect(self, other: DataStream[V]) -> KeyedConnectedStreams[K, T, V]:
        """Connect this stream with another with equal keys, for one function.

        ``other.broadcast()`` needs no key: each subtask receives all its records.

        Raises:
            StreamDefinitionError: the other has no key, or keys of another type.
        """
        # Slow on the start path: few jobs have functions with two inputs.
        from bicycle_sdk.datastream.connected import KeyedConnectedStreams

        return KeyedConnectedStreams(self, other)

    @overload
    def interval_join(
        self,
        other: KeyedStream[K, V],
        lower: Duration,
        upper: Duration,
        function: _Joiner[T, V, R],
        *,
        how: Literal["inner"] = "inner",
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        late_to: str | None = None,
        **buffer: Unpack[JoinBuffer],
    ) -> DataStream[R]: ...
    @overload
    def interval_join(
        self,
        other: KeyedStream[K, V],
        lower: Duration,
        upper: Duration,
        function: _Joiner[T, V | None, R],
        *,
        how: Literal["left"],
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        late_to: str | None = None,
        **buffer: Unpack[JoinBuffer],
    ) -> DataStream[R]: ...
    @overload
    def interval_join(
        self,
        other: KeyedStream[K, V],
        lower: Duration,
        upper: Duration,
        function: _Joiner[T | None, V, R],
        *,
        how: Literal["right"],
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        late_to: str | None = None,
        **buffer: Unpack[JoinBuffer],
    ) -> DataStream[R]: ...
    @overload
    def interval_join(
        self,
        other: KeyedStream[K, V],
        lower: Duration,
        upper: Duration,
        function: _Joiner[T | None, V | None, R],
        *,
        how: Literal["full"],
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        late_to: str | None = None,
        **buffer: Unpack[JoinBuffer],
    ) -> DataStream[R]: ...
    def interval_join(  # one call has all parts: bounds, function, kind
        self,
        other: KeyedStream[K, Any],
        lower: Duration,
        upper: Duration,
        function: Any,
        *,
        how: str = "inner",
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        late_to: str | None = None,
        **buffer: Unpack[JoinBuffer],
    ) -> DataStream[Any]:
        """Join rows of a key with close times: ``left + lower <= right <= left + upper``.

        The time of a pair is the later of its two times. A row without a match is emitted when the
        watermark proves that no match can arrive; its time is the last time of a possible match.

        Args:
            other: The right side.
            lower: Smallest time of a matching right row minus the time of the left row, in ms or as
                a timedelta; negative for earlier rows.
            upper: Largest such difference.
            function: Makes a result of a left and a right row.
            how: The sides whose rows without a match are emitted, too: ``inner``, ``left``,
                ``right``, ``full``.
            lower_inclusive: Whether a row exactly at ``lower`` matches.
            upper_inclusive: Whether a row exactly at ``upper`` matches.
            late_to: Side output for late rows, as ``LateRecord``. Late rows are always counted.
            buffer: ``max_buffered``, the maximum number of buffered rows per key and side. Beyond
                it, the rows with the oldest times are dropped and counted. None buffers all rows
                that can still match.
        """
        first = windowing.duration_ms("lower", lower, low=None) + (not lower_inclusive)
        last = windowing.duration_ms("upper", upper, low=None) - (not upper_inclusive)
        if first > last:
            raise StreamDefinitionError(
                call="interval_join",
                problem=f"the lower bound {lower!r} must not exceed {upper!r}",
                hint="use a lower bound below the upper bound",
            )
        limit = joins.checked_limit("interval_join", **buffer)
        options = self._join_options(
            "interval_join", other, function, how=how, late_to=late_to, max_buffered=limit
        )
        settings = {"how": how, "lower_ms": first, "upper_ms": last}
        join = joins.IntervalJoin(options, lower_ms=first, upper_ms=last)
        return self._joined_with(other, join, "interval_join", settings=settings)

    @overload
    def window_join(
        self,
        other: KeyedStream[K, V],
        windows: WindowAssigner,
        function: _Joiner[T, V, R],
        *,
        how: Literal["inner"] = "inner",
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    @overload
    def window_join(
        self,
        other: KeyedStream[K, V],
        windows: WindowAssigner,
        function: _Joiner[T, V | None, R],
        *,
        how: Literal["left"],
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    @overload
    def window_join(
        self,
        other: KeyedStream[K, V],
        windows: WindowAssigner,
        function: _Joiner[T | None, V, R],
        *,
        how: Literal["right"],
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    @overload
    def window_join(
        self,
        other: KeyedStream[K, V],
        windows: WindowAssigner,
        function: _Joiner[T | None, V | None, R],
        *,
        how: Literal["full"],
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    def window_join(
        self, other: KeyedStream[K, Any], windows: WindowAssigner, function: Any, *,
        how: str = "inner", late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[Any]:  # fmt: skip
        """Join all rows of a key in the same window, once the watermark closes it.

        Args:
            other: The right side.
            windows: ``tumbling_windows``, ``sliding_windows`` or ``session_windows`` of
                ``bicycle_sdk.windows``; a session contains rows of both sides.
            function: Makes a result of a left and a right row.
            how: The sides whose rows without a match in the window are emitted, too: ``inner``,
                ``left``, ``right``, ``full``.
            late_to: Side output for rows whose windows were closed, as ``LateRecord``. Late rows
                are always counted.
            max_buffered: Maximum number of buffered rows per key and side, over all open windows.
                Beyond it, the rows with the oldest times are dropped and counted. None has no
                limit.
        """
        options = self._join_options(
            "window_join", other, function, how=how, late_to=late_to, max_buffered=max_buffered
        )
        assigner = _joinable("window_join", windows)
        settings = {"how": how, "windows": repr(assigner)}
        return self._joined_with(
            other, joins.WindowJoin(options, assigner), "window_join", settings=settings
        )

    def co_group(
        self, other: KeyedStream[K, V], windows: WindowAssigner,
        function: Callable[[list[T], list[V]], Iterable[R] | Awaitable[Iterable[R]]]
        | CoGroupFunction[T, V, R],
        *, late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]:  # fmt: skip
        """Call a function with all rows that both sides have of one key in one window.

        It is called for windows in which any side has a row; the other side is then ``[]``.
        """
        options = self._join_options(
            "co_group", other, function, how="full", late_to=late_to, method="co_group",
            max_buffered=max_buffered,
        )  # fmt: skip
        assigner = _joinable("co_group", windows)
        settings = {"windows": repr(assigner)}
        return self._joined_with(
            other, joins.WindowCoGroup(options, assigner), "co_group", settings=settings
        )

    @overload
    def as_of_join(
        self,
        other: KeyedStream[K, V],
        function: _Joiner[T, V, R],
        *,
        tolerance: Duration | None = None,
        how: Literal["inner"] = "inner",
        deleted_when: Callable[[V], bool] | None = None,
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    @overload
    def as_of_join(
        self,
        other: KeyedStream[K, V],
        function: _Joiner[T, V | None, R],
        *,
        tolerance: Duration | None = None,
        how: Literal["left"],
        deleted_when: Callable[[V], bool] | None = None,
        late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[R]: ...
    def as_of_join(
        self, other: KeyedStream[K, Any], function: Any, *,
        tolerance: Duration | None = None, how: str = "inner",
        deleted_when: Callable[[Any], bool] | None = None, late_to: str | None = None,
        max_buffered: int | None = None,
    ) -> DataStream[Any]:  # fmt: skip
        """Join each row with the last row of the other side whose time is not later.

        A row is emitted when the watermark reaches it, and keeps its time. So results do not depend
        on the order of arrival.

        Args:
            other: The right side: prices, rates, versions.
            function: Makes a result of a left and a right row.
            tolerance: Maximum age of the right row, relative to the left row; None has no limit.
            how: ``left`` emits rows without a match, too.
            deleted_when: Returns whether a right row is a deletion, so that no row is valid from
                its time on.
            late_to: Side output for late rows of both sides, as ``LateRecord``. Late rows are
                always counted.
            max_buffered: Maximum number of buffered rows per key and side. Beyond it, the rows with
                the oldest times are dropped and counted. None has no limit.
        """
        options = self._join_options(
            "as_of_join", other, function, how=how, late_to=late_to, kinds=("inner", "left"),
            max_buffered=max_buffered,
        )  # fmt: skip
        limit = None if tolerance is None else windowing.duration_ms("tolerance", tolerance, low=0)
        settings = {"how": how} | ({} if limit is None else {"tolerance_ms": limit})
        join = joins.AsOfJoin(options, tolerance_ms=limit, is_deleted=deleted_when)
        return self._joined_with(other, join, "as_of_join", settings=settings)

    @overload
    def table_join(
        self,
        other: KeyedStream[K, V],
        function: _Joiner[T, V, R],
        *,
        how: Literal["inner"] = "inner",
        deleted_when: Callable[[V], bool] | None = None,
    ) -> DataStream[R]: ...
    @overload
    def table_join(
        self,
        other: KeyedStream[K, V],
        function: _Joiner[T, V | None, R],
        *,
        how: Literal["left"],
        deleted_when: Callable[[V], bool] | None = None,
    ) -> DataStream[R]: ...
    def table_join(
        self, other: KeyedStream[K, Any], function: Any, *,
        how: str = "inner", deleted_when: Callable[[Any], bool] | None = None,
    ) -> DataStream[Any]:  # fmt: skip
        """Join each row at once with the last arrived row of its key on the other side.

        The join needs no event time: results depend on the order of arrival. The results of
        ``as_of_join`` do not.

        Args:
            other: The right side, a table: each row replaces the earlier row of its key.
            function: Makes a result of a left and a right row.
            how: ``left`` emits rows without a match, too.
            deleted_when: Returns whether a right row deletes the current row.
        """
        options = self._join_options(
            "table_join", other, function, how=how, late_to=None, kinds=("inner", "left")
        )
        join = joins.TableJoin(options, is_deleted=deleted_when)
        return self._joined_with(other, join, "table_join", settings={"how": how})

    def join(self, other: KeyedStream[K, V]) -> JoinedStreams[K, T, V]:
        """Begin an inner join by windows: ``join(other).window(size).apply(function)``."""
        return JoinedStreams(self, other)

    def _join_options(
        self, call: str, other: Stream[Any], function: object, *, how: str, late_to: str | None,
        kinds: tuple[str, ...] = ("inner", "left", "right", "full"), method: str = "join",
        max_buffered: int | None = None,
    ) -> JoinOptions:  # fmt: skip
        check_same_keys(call, self, other)
        joins.checked_function(call, function, method)
        return joins.JoinOptions(
            function=function,
            how=joins.checked_how(call, how, *kinds),
            late_tag=late_to,
            left_type=self._record_type(),
            right_type=other._record_type(),
            max_buffered=joins.checked_limit(call, max_buffered),
        )

    def _joined_with(
        self, other: Stream[Any], join: RowJoin, kind: str, *, settings: dict[str, Any]
    ) -> DataStream[Any]:
        gives_many = join.method == "co_group"
        shown = join.options.function
        if join.options.max_buffered is not None:
            settings = settings | {"max_buffered": join.options.max_buffered}
        found = function_types(shown, join.method, gives_many=gives_many).gives
        vertex = joins.co_process_vertex(
            join, kind, shown=shown, is_keyed=True, settings=settings, output_type=found
        )
        return joined_streams([self, other], vertex)

    def _key_type(self) -> Any:
        return function_types(self._vertex.payloads["function"], "get_key").gives


class JoinedStreams(Generic[K, T, V]):
    """Two keyed streams that are joined by windows; each call returns a copy.

    Args:
        left: One side.
        right: The other.
        windows: The windows, once ``window`` was called.
    """

    def __init__(
        self, left: KeyedJoins[K, T], right: KeyedStream[K, V],
        windows: WindowAssigner | None = None,
    ) -> None:  # fmt: skip
        check_same_keys("join", left, right)
        self._left, self._right, self._windows = left, right, windows

    def window(self, windows: WindowAssigner | Duration) -> JoinedStreams[K, T, V]:
        """Join the rows of these windows; a length alone makes tumbling windows."""
        is_length = isinstance(windows, int | timedelta)
        chosen = windowing.tumbling_windows(windows) if is_length else windows  # type: ignore[arg-type]  # distinguished by is_length
        return JoinedStreams(self._left, self._right, chosen)  # type: ignore[arg-type]  # distinguished by is_length

    def apply(
        self, function: _Joiner[T, V, R], *, max_buffered: int | None = None
    ) -> DataStream[R]:
        """Make a result of each pair of rows; ``max_buffered`` is as in ``window_join``.

        Raises:
            StreamDefinitionError: ``window`` was not called.
        """
        if self._windows is None:
            raise StreamDefinitionError(
                call="join(…).apply",
                problem="the join has no window",
                hint="call join(other).window(…).apply(…), or interval_join",
            )
        return self._left.window_join(
            self._right, self._windows, function, max_buffered=max_buffered
        )


def _joinable(call: str, windows: object) -> AlignedWindows | SessionWindows:
    """Return windows that both sides of a join can share.

    Raises:
        StreamDefinitionError: they have no bounds in time, or bounds that depend on the record.
    """
    has_gap = (
        isinstance(windows, windowing.SessionWindows)
        and windows.gap_ms is not None
        and windows.max_duration_ms is None
    )
    is_aligned = isinstance(windows, windowing.AlignedWindows)
    is_joinable = is_aligned and not isinstance(windows, windowing.CumulativeWindows)
    if not is_joinable and not has_gap:
        raise StreamDefinitionError(
            call=call,
            problem=f"{windows!r} cannot be used for a join of two streams",
            hint="use tumbling_windows, sliding_windows, or session_windows with only a gap",
        )
    return windows  # type: ignore[return-value]  # one of the two
