"""The states of an operator as its code declares them, found without running it.

States that a function only names while it runs are not among them; ``may_ask_for`` returns the
names in its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bicycle_runtime.layouts.state import UNTYPED, StateMetadata
from bicycle_runtime.operators.functions.declarations import declared_states, reduced_type, texts_in
from bicycle_runtime.operators.spec import OperatorSpec
from bicycle_runtime.state.memory.attributes import declared_attributes
from bicycle_runtime.state.values.schemas import describe_key
from bicycle_runtime.state.values.state_metadata import (
    DeclaredState,
    accumulator_state,
    keyed_state,
)
from bicycle_sdk.functions import RichAsyncFunction
from bicycle_sdk.graph import StateShape
from bicycle_sdk.record_types import function_types
from bicycle_sdk.windows import WindowPlan


class DeclaredOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The declared states and keys of one operator.

    ``texts`` are the texts in its code.
    """

    states: list[DeclaredState] = []
    keys: Any = UNTYPED
    texts: list[str] = []

    def may_ask_for(self, state: StateMetadata) -> bool:
        """Return whether the code may again request a state that it requested before.

        A name that is put together while the code runs, or that a function elsewhere knows, is no
        text of it and may come again.
        """
        return not state.is_told or state.name in self.texts


def declared_operator(spec: OperatorSpec, load: Callable[[str], Any]) -> DeclaredOperator:
    """Return the declarations in the code of an operator with state.

    Args:
        spec: The operator.
        load: Returns the object of a payload id.
    """
    keys = _key_schema(spec, load)
    function = load(spec.vertex.payload_id("function"))
    shape = spec.vertex.descriptor.state
    if shape is StateShape.ACCUMULATOR:
        return DeclaredOperator(states=[accumulator_state(reduced_type(spec, load))], keys=keys)
    if shape is StateShape.WINDOWS:
        record_type = load(spec.input_type) if spec.input_type is not None else None
        return _with_keyed(_window_states(function, record_type), function.process, keys)
    is_rich = isinstance(function, RichAsyncFunction)
    return _with_keyed(declared_attributes(function) if is_rich else [], function, keys)


def _window_states(plan: WindowPlan, record_type: Any) -> list[DeclaredState]:
    # All operators of windows: a start without windows need not wait for them.
    from bicycle_runtime.operators.preaggregation.aggregates import Folding
    from bicycle_runtime.operators.windows.build import window_table
    from bicycle_runtime.operators.windows.meaning import window_settings

    folding = Folding(plan, record_type)
    table = window_table(plan, folding, record_type)
    return table.declared(window_settings(plan, folding), keeps_records=plan.keeps_records)


def _with_keyed(states: list[DeclaredState], function: Any, keys: Any) -> DeclaredOperator:
    found = [*states, *map(keyed_state, declared_states(function))]
    return DeclaredOperator(states=found, keys=keys, texts=sorted(texts_in(function)))


def _key_schema(spec: OperatorSpec, load: Callable[[str], Any]) -> Any:
    payload = spec.key_selector or next(filter(None, spec.input_selectors), None)
    return (
        UNTYPED if payload is None else describe_key(function_types(load(payload), "get_key").gives)
    )
