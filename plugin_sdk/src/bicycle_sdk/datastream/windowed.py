"""Streams in windows: settings first, then computations over each window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar, overload

from bicycle_sdk.aggregations import sum_type
from bicycle_sdk.datastream.data_stream import DataStream
from bicycle_sdk.drafts import GraphDraft, VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.expression_types import check_expression
from bicycle_sdk.expressions import is_expression
from bicycle_sdk.function_vertices import check_callable, check_result
from bicycle_sdk.functions import FunctionObject, ReduceFunction, full_name
from bicycle_sdk.graph import Partitioning
from bicycle_sdk.record_types import function_types
from bicycle_sdk.windows.aggregates import (
    ApproximateDistinct,
    Average,
    Count,
    Distinct,
    Maximum,
    Minimum,
    Reduction,
    Sum,
)
from bicycle_sdk.windows.assigners import Duration, duration_ms
from bicycle_sdk.windows.evictors import Evictor
from bicycle_sdk.windows.functions import AggregateFunction, WindowContext, WindowFunction
from bicycle_sdk.windows.panes import WindowResult
from bicycle_sdk.windows.plan import WindowPlan
from bicycle_sdk.windows.triggers import Trigger
from bicycle_sdk.windows.vertices import combine_vertex, window_vertex

__all__ = ["WindowedStream"]

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
K = TypeVar("K", bound=Hashable)
_PRECISION_MIN, _PRECISION_MAX = 5, 21


class WindowedStream(Generic[K, T]):
    """Records of a keyed stream in windows. Each setting returns a changed copy.

    Windows fire when the watermark proves that no record of them can come; results carry the event
    time ``end - 1``.

    Example:
        >>> from bicycle_sdk import StreamEnvironment
        >>> env = StreamEnvironment()
        >>> words = env.from_collection(["a", "b"]).assign_timestamps(lambda word: 0)
        >>> counts = words.key_by(lambda word: word).tumbling_window(10_000).count()
        >>> _ = counts.uid("counts").print()
    """

    def __init__(
        self, draft: GraphDraft, key_by: VertexDraft, plan: WindowPlan, *, key_type: Any
    ) -> None:
        self._draft = draft
        self._key_by = key_by
        self._plan = plan
        self._key_type = key_type

    # --- settings ----------------------------------------------------------------------------

    def allowed_lateness(self, lateness: Duration) -> WindowedStream[K, T]:
        """Keep windows for a time after they fired; late records cause updated results.

        Args:
            lateness: Milliseconds or a timedelta; 0 by default.
        """
        return self._with(lateness_ms=duration_ms("allowed_lateness", lateness, low=0))

    def late_to(self, tag: str) -> WindowedStream[K, T]:
        """Send records that come too late to a side output, as ``LateRecord``.

        Read it with ``result.side_output(tag)`` on the stream of results. Without this they are
        counted and left out.
        """
        return self._with(late_tag=tag)

    def trigger(self, trigger: Trigger) -> WindowedStream[K, T]:
        """Set the trigger that decides when windows fire."""
        return self._with(trigger=trigger)

    def evictor(self, evictor: Evictor) -> WindowedStream[K, T]:
        """Set the evictor that removes records of a firing window."""
        return self._with(evictor=evictor)

    def pre_combine(self, enabled: bool) -> WindowedStream[K, T]:
        """Set whether records are folded before they are sent to the subtask of their key.

        They are by default if the results are the same; it spreads the work on a frequent key over
        all subtasks. It has little effect if hardly any two records share key and window.
        """
        return self._with(is_pre_combined=enabled)

    # --- the computation ----------------------------------------------------------------------

    def count(self) -> DataStream[WindowResult[K, int]]:
        """Count the records."""
        return self._aggregate("count", Count(), value_type=int)

    def sum(self, selector: Callable[[T], V]) -> DataStream[WindowResult[K, V]]:
        """Compute the sum of the selected values; of floats the exact sum, rounded once."""
        aggregate: AggregateFunction[T, Any, V] = Sum(selector)
        gives = sum_type(selector)
        return self._aggregate("sum", aggregate, function=selector, value_type=gives)

    def avg(self, selector: Callable[[T], float]) -> DataStream[WindowResult[K, float]]:
        """Compute the average of the selected values."""
        return self._aggregate("avg", Average(selector), function=selector, value_type=float)

    def min(self, selector: Callable[[T], V]) -> DataStream[WindowResult[K, V]]:
        """Compute the least selected value."""
        return self._aggregate_selected("min", Minimum(selector), selector)

    def max(self, selector: Callable[[T], V]) -> DataStream[WindowResult[K, V]]:
        """Compute the greatest selected value."""
        return self._aggregate_selected("max", Maximum(selector), selector)

    def distinct(
        self, selector: Callable[[T], Any], *, approximate: bool = False, precision: int = 12
    ) -> DataStream[WindowResult[K, int]]:
        """Count the distinct values of the selector.

        Args:
            selector: Finds a hashable value; a str, bytes, int or float when approximate.
            approximate: Keep a theta sketch instead of all values.
            precision: Of the sketch, 5 to 21: at most ``8 * 2 ** precision`` bytes per key and
                window, relative standard error about ``1 / 2 ** (precision / 2)``, 1.6 % at 12.
        """
        if not approximate:
            return self._aggregate(
                "distinct", Distinct(selector), function=selector, value_type=int
            )
        if not _PRECISION_MIN <= precision <= _PRECISION_MAX:
            raise StreamDefinitionError(
                call="distinct",
                problem=f"precision {precision}, expected {_PRECISION_MIN}..{_PRECISION_MAX}",
                hint="give a value within the bounds",
            )
        aggregate: AggregateFunction[T, Any, int] = ApproximateDistinct(
            selector, precision=precision
        )
        return self._aggregate("distinct", aggregate, function=selector, value_type=int)

    def reduce(
        self,
        function: Callable[[T, T], T | Awaitable[T]] | ReduceFunction[T],
        *,
        associative: bool = True,
    ) -> DataStream[WindowResult[K, T]]:
        """Join the records of a window two by two.

        Args:
            function: Joins two records into one.
            associative: ``f(f(a, b), c)`` equals ``f(a, f(b, c))``. Where it does not, the records
                of a window are kept and joined when it fires, in the order of event time.
        """
        check_callable("reduce", function, "reduce")
        stream = self if associative else self._with(is_associative=False)
        return stream._aggregate(
            "reduce",
            Reduction(function),
            function=function,
            value_type=self._key_by.output_type,
        )

    @overload
    def aggregate(
        self, first: AggregateFunction[T, Any, R], /
    ) -> DataStream[WindowResult[K, R]]: ...
    @overload
    def aggregate(
        self, first: AggregateFunction[T, Any, A], second: AggregateFunction[T, Any, B], /
    ) -> DataStream[WindowResult[K, tuple[A, B]]]: ...
    @overload
    def aggregate(
        self,
        first: AggregateFunction[T, Any, A],
        second: AggregateFunction[T, Any, B],
        third: AggregateFunction[T, Any, C],
        /,
    ) -> DataStream[WindowResult[K, tuple[A, B, C]]]: ...
    @overload
    def aggregate(
        self, *functions: AggregateFunction[T, Any, Any]
    ) -> DataStream[WindowResult[K, tuple[Any, ...]]]: ...
    def aggregate(self, *functions: AggregateFunction[T, Any, Any]) -> DataStream[Any]:
        """Aggregate with one function, or with several for a tuple of results.

        Ready-made aggregates are in ``bicycle_sdk.windows``: ``Count()``, ``Sum(selector)``,
        ``Average(selector)``, ``Minimum``, ``Maximum``, ``Distinct``.
        """
        given: tuple[object, ...] = functions
        wrong = [f for f in given if not isinstance(f, AggregateFunction)]
        if wrong or not functions:
            found = full_name(wrong[0]) if wrong else "nothing"
            raise StreamDefinitionError(
                call="aggregate",
                problem=f"{found} is not an object of AggregateFunction",
                hint="derive the function from AggregateFunction and pass an object of it",
            )
        name = type(functions[0]).__name__ if len(functions) == 1 else "aggregate"
        gives = [function_types(function, "get_result").gives for function in functions]
        is_known = len(functions) == 1 and gives[0] is not None
        return self._build(
            self._plan_of(aggregates=functions, is_tuple=len(functions) > 1),
            name=name,
            function=functions[0],
            output_type=self._result_type(gives[0]) if is_known else None,
        )

    def process(
        self,
        function: WindowFunction[K, T, R]
        | Callable[[list[T], WindowContext[K]], Iterable[R] | Awaitable[Iterable[R]]],
    ) -> DataStream[R]:
        """Compute a result from all records of a window, in the order of event time."""
        is_object = isinstance(function, WindowFunction)
        is_callable = callable(function) and not isinstance(function, FunctionObject | type)
        if not is_object and not is_callable:
            raise StreamDefinitionError(
                call="process",
                problem=f"{full_name(function)} is not a WindowFunction and not a plain callable",
                hint="derive the function from WindowFunction, or pass f(elements, ctx)",
            )
        check_result(function, "process")
        gives = function_types(function, "process", gives_many=True).gives
        name = type(function).__name__ if is_object else getattr(function, "__name__", "process")
        return self._build(
            self._plan_of(process=function),
            name="process" if name.startswith("<") else name,
            function=function,
            output_type=gives,
        )

    # --- how vertices are added --------------------------------------------------------------

    def _with(self, **changes: Any) -> WindowedStream[K, T]:
        plan = replace(self._plan, **changes)
        return WindowedStream(self._draft, self._key_by, plan, key_type=self._key_type)

    def _plan_of(self, **changes: Any) -> WindowPlan:
        return replace(self._plan, **changes).checked()

    def _aggregate_selected(
        self, name: str, aggregate: AggregateFunction[T, Any, Any], selector: Any
    ) -> DataStream[Any]:
        gives = function_types(selector, "get_key").gives
        return self._aggregate(name, aggregate, function=selector, value_type=gives)

    def _aggregate(
        self,
        name: str,
        aggregate: AggregateFunction[T, Any, Any],
        *,
        function: object = None,
        value_type: Any = None,
    ) -> DataStream[Any]:
        return self._build(
            self._plan_of(aggregates=(aggregate,)),
            name=name,
            function=aggregate if function is None else function,
            output_type=self._result_type(value_type),
        )

    def _result_type(self, value_type: Any) -> Any:
        if self._key_type is None or value_type is None:
            return None
        return WindowResult.__class_getitem__((self._key_type, value_type))

    def _build(
        self, plan: WindowPlan, *, name: str, function: object, output_type: Any
    ) -> DataStream[Any]:
        for aggregate in plan.aggregates:
            selector = getattr(aggregate, "selector", None)
            if is_expression(selector):
                check_expression(name, selector, self._key_by.output_type)
        window = window_vertex(plan, name=name, function=function, output_type=output_type)
        self._draft.add_vertex(window)
        sender, partitioning = self._key_by, Partitioning.HASH
        if plan.combines_early:
            combine = combine_vertex(plan, window=window, key_by=self._key_by)
            self._draft.add_vertex(combine)
            self._draft.connect(self._key_by, combine, Partitioning.FORWARD)
            sender = combine
        self._draft.connect(sender, window, partitioning)
        return DataStream(self._draft, window)
