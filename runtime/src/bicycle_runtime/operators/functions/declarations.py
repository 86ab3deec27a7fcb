"""The keyed states that a function declares, found without running it.

A state is known beforehand when its descriptor is a field of the function or its class. A state
that is only named in a call (``ctx.get_value_state("count", int)``) is known once the call is made;
the names in a function's code show whether it makes such calls.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, Literal

from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_sdk.record_types import function_types
from bicycle_sdk.state import StateDescriptor
from bicycle_sdk.windows import (
    AlignedWindows,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SessionWindows,
    Trigger,
    WindowPlan,
)

# The growth of a window's state: by nothing that lasts; by the number of keys; by the number of
# records, because nothing removes them; or the window has no result at all.
WindowGrowth = Literal["none", "keys", "records", "silent"]

_GETTERS = frozenset(
    {
        "get_aggregating_state",
        "get_list_state",
        "get_map_state",
        "get_operator_list_state",
        "get_reducing_state",
        "get_union_list_state",
        "get_value_state",
    }
)

_PURGING = frozenset({"PURGE", "FIRE_AND_PURGE"})


def declared_states(function: Any) -> list[StateDescriptor]:
    """Return the descriptors in fields of a function or its class, by state name."""
    fields: dict[str, Any] = {}
    for owner in (*reversed(type(function).__mro__), function):
        fields |= getattr(owner, "__dict__", {})  # A derived class counts by its own attributes.
    found = {each.name: each for each in fields.values() if isinstance(each, StateDescriptor)}
    return [found[name] for name in sorted(found)]


def asks_for_states(function: Any) -> bool:
    """Return whether the code of a function's class calls a state getter."""
    return bool(_names_in(function) & _GETTERS)


def saves_named_values(function: Any) -> bool:
    """Return whether the code of a function's class names ``save_state``."""
    return "save_state" in _names_in(function)


def texts_in(function: Any) -> set[str]:
    """Return the texts in the code of a function's class, such as names of states."""
    return {text for code in _codes_of(function) for text in _texts(code)}


def window_growth(plan: WindowPlan) -> WindowGrowth:
    """Return how the state of a window grows while the job runs."""
    if isinstance(plan.assigner, AlignedWindows | SessionWindows):
        return "none"
    if not isinstance(plan.assigner, GlobalWindows):
        return "keys"
    trigger = plan.trigger
    if trigger is None or isinstance(trigger, NeverTrigger):
        return "silent"
    if _purges(trigger) or plan.evictor is not None or not plan.keeps_records:
        return "keys"
    return "records"


def _purges(trigger: Trigger) -> bool:
    """Return whether a trigger may remove records, judged by its code if custom."""
    return isinstance(trigger, PurgingTrigger) or bool(_names_in(trigger) & _PURGING)


def _names_in(function: Any) -> set[str]:
    return {name for code in _codes_of(function) for name in _names(code)}


def _codes_of(function: Any) -> list[CodeType]:
    """Return the code of all methods of a function's class that are not the SDK's."""
    owners = [
        owner
        for owner in type(function).__mro__
        if owner.__module__.partition(".")[0] != "bicycle_sdk"
    ]
    codes = [
        getattr(getattr(value, "__func__", value), "__code__", None)
        for owner in owners
        for value in vars(owner).values()
    ]
    return [code for code in codes if isinstance(code, CodeType)]


def _texts(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    own = {part for part in code.co_consts if isinstance(part, str)}
    return own.union(*map(_texts, inner))


def _names(code: CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def reduced_type(spec: OperatorSpec, load: Callable[[str], Any]) -> Any:
    """Return the annotated type of the accumulators of a reduce, or None.

    Args:
        spec: The operator.
        load: Returns the object of a payload id.
    """
    if "initial" in spec.vertex.payloads:
        return function_types(load(spec.vertex.payload_id("initial")), "get_key").gives
    return None if spec.input_type is None else load(spec.input_type)
