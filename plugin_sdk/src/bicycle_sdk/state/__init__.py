"""The state of functions: values, lists and maps by key, and timers.

Handles come from a context: ``ctx.get_value_state("count", int, default=0)``. Everything here works
in plain memory; a runtime makes it durable.
"""

from bicycle_sdk.state.aliases import Aliases
from bicycle_sdk.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtl,
    TimeDomain,
    UnionListStateDescriptor,
    ValueStateDescriptor,
)
from bicycle_sdk.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReadOnlyMapState,
    ReducingState,
    ValueState,
)
from bicycle_sdk.state.timers import Timer, TimerService

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Aliases",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "OperatorListStateDescriptor",
    "ReadOnlyMapState",
    "ReducingState",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateTtl",
    "TimeDomain",
    "Timer",
    "TimerService",
    "UnionListStateDescriptor",
    "ValueState",
    "ValueStateDescriptor",
]
