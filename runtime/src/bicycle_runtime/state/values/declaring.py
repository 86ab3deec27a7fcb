"""States as the code of a job declares them: descriptors, and the accumulators of a reduce."""

from __future__ import annotations

from typing import Any

from bicycle_runtime.state.values.schemas import describe, describe_key
from bicycle_runtime.state.values.state_metadata import DeclaredState
from bicycle_sdk.state import MapStateDescriptor, StateDescriptor

__all__ = ["ACCUMULATOR", "LIST_KINDS", "SHAPES", "accumulator_state", "keyed_state"]

ACCUMULATOR = "$accumulator"
# How the entries of each kind of state lie; part of the state format.
SHAPES = {
    "value": "value",
    "reducing": "value",
    "aggregating": "value",
    "list": "list",
    "map": "map",
    "operator_list": "operator_list",
    "union_list": "union_list",
}

LIST_KINDS = ("operator_list", "union_list")  # Those of subtasks, which a restore divides.


def keyed_state(descriptor: StateDescriptor) -> DeclaredState:
    """Return what a descriptor says of its state."""
    key_type = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    return DeclaredState(
        name=descriptor.name,
        kind=SHAPES[descriptor.kind],
        schema=describe(descriptor.stored_type),
        keys=describe_key(key_type),
        version=descriptor.version,
        aliases=tuple(descriptor.aliases),
        migrates=descriptor.migrate is not None,
    )


def accumulator_state(value_type: Any) -> DeclaredState:
    """Return the state of a running reduce; its type is None when it is not known."""
    return DeclaredState(
        name=ACCUMULATOR, kind="accumulator", schema=describe(value_type), stored_name=ACCUMULATOR
    )
