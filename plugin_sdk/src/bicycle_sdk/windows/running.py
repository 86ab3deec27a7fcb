"""Aggregate functions without a window: the result so far after each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.functions import KeyedProcessFunction, full_name
from bicycle_sdk.record_types import accumulator_type
from bicycle_sdk.state import AggregatingStateDescriptor, StateTtl
from bicycle_sdk.state.separation import separate
from bicycle_sdk.windows.aggregates import ApproximateDistinct
from bicycle_sdk.windows.functions import AggregateFunction

if TYPE_CHECKING:
    from datetime import timedelta

    from bicycle_sdk.contexts import KeyedProcessContext

__all__ = ["RunningAggregate"]


class RunningAggregate(KeyedProcessFunction[Any, Any, tuple[Any, Any]]):
    """A function that keeps an accumulator per key, and emits key and result.

    Args:
        function: An object of an ``AggregateFunction``.
        ttl: How long an accumulator lives; None is forever.

    Raises:
        StreamDefinitionError: the function is something else, or needs a window.
    """

    def __init__(self, function: Any, ttl: StateTtl | timedelta | None) -> None:
        if not isinstance(function, AggregateFunction):
            raise StreamDefinitionError(
                call="aggregate",
                problem=f"{full_name(function)} is not an object of AggregateFunction",
                hint="derive the function from AggregateFunction and pass an object of it",
            )
        if isinstance(function, ApproximateDistinct):
            raise StreamDefinitionError(
                call="aggregate",
                problem="ApproximateDistinct has a memory bound only in windows",
                hint="use it in a window, or use Distinct",
            )
        self.name = function.name or type(function).__name__
        known = getattr(function, "accumulator_type", None) or accumulator_type(function)
        self.state = AggregatingStateDescriptor("aggregate", function, known, ttl)

    def process_element(self, value: Any, ctx: KeyedProcessContext[Any]) -> list[tuple[Any, Any]]:
        state = ctx.get_aggregating_state(self.state)
        state.add(value)
        return [(ctx.current_key(), separate(state.get()))]
