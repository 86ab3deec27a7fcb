"""The child process of ``reports``: loads a bundle's functions and describes them.

It answers one question (``base.pipes``): with the bundle and its ``parallelism``, None for that of
the graph, or with the names of ``classes`` to describe.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any

import cloudpickle
import msgspec

from bicycle_runtime.base.pipes import answer_once
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.planning.setup import JobSetup, prepare_job
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.operators.functions.declarations import (
    asks_for_states,
    declared_states,
    reduced_type,
    saves_named_values,
    window_growth,
)
from bicycle_runtime.operators.preaggregation.aggregates import Folding
from bicycle_runtime.operators.spec import Link, OperatorSpec, RouteSpec, StateScope
from bicycle_runtime.operators.tasks.asking import ask_all
from bicycle_runtime.operators.tasks.declared_states import declared_operator
from bicycle_runtime.records.codecs import codec_name_of, type_name_of
from bicycle_runtime.state.memory.attributes import SNAPSHOT, describe_attributes
from bicycle_runtime.state.memory.undoing import is_frozen_attribute
from bicycle_runtime.state.undo import ATOMIC
from bicycle_runtime.state.values.codecs import ValueCodec
from bicycle_runtime.state.values.pickled import shapes_here
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.functions import KeyedProcessFunction, ProcessFunction, RichAsyncFunction
from bicycle_sdk.graph import Inputs, OperatorKind, StateShape
from bicycle_sdk.state import StateDescriptor
from bicycle_sdk.windows import WindowPlan


def main(arguments: list[str]) -> int:
    """Answer one question; a job that cannot run is an answer too."""
    return answer_once(arguments[0], _answer)


def _answer(question: dict[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    if "classes" in question:
        return shapes_here(question["classes"])
    try:
        bundle = JobBundle.from_bytes(blobs[0])
        return describe_job(bundle, parallelism=question["parallelism"])
    except BicycleError as error:
        return {"error": error.to_json()}


def describe_job(bundle: JobBundle, *, parallelism: int | None) -> dict[str, Any]:
    """Return connectors, states, exchanges and columns as plain data. Loads the plugin's code.

    Raises:
        BicycleError: the job cannot be prepared.
    """
    with tempfile.TemporaryDirectory(prefix="bicycle-plan-") as folder:
        setup = prepare_job(
            bundle, job_id="plan", storage=LocalStorage(folder), parallelism=parallelism
        )
    return {
        "connectors": _connectors(setup),
        "states": [
            _state(bundle, spec) | {"mixes": _mixes(bundle, spec, setup)}
            for spec in setup.plan.operators()
            if spec.scope is not StateScope.NONE
        ],
        "exchanges": [
            _exchange(setup, route)
            for chain in setup.plan.chains
            for route in chain.routes
            if route.link is not Link.DIRECT
        ],
        "columns": _columns(setup),
    }


def _columns(setup: JobSetup) -> list[dict[str, Any]]:
    """Return for each operator why it works on records, or None if it uses columns."""
    found = ask_all(
        setup.plan,
        lambda name: cloudpickle.loads(setup.bundle.payloads[name]),
        gives_fields=lambda uid: setup.sources[uid].gives_fields,
    )
    return [{"operator": uid, "because": because} for uid, because in found.items()]


def _connectors(setup: JobSetup) -> list[dict[str, Any]]:
    found: dict[str, Any] = {**setup.sources, **setup.sinks}
    return [
        {
            "operator": vertex.id,
            "role": "source" if vertex.kind is OperatorKind.SOURCE else "sink",
            "connector": vertex.details["connector"]["connector_type"],
            "guarantee": found[vertex.id].guarantee.value,
            "has_uid": vertex.uid is not None,
            "state_version": found[vertex.id].state_version,
        }
        for vertex in setup.graph.vertices
        if vertex.id in found
    ]


def _state(bundle: JobBundle, spec: OperatorSpec) -> dict[str, Any]:
    shape = spec.vertex.descriptor.state
    is_reduce, is_window = shape is StateShape.ACCUMULATOR, shape is StateShape.WINDOWS
    loaded = cloudpickle.loads(bundle.payloads[spec.vertex.payload_id("function")])
    function = loaded.process if is_window else loaded
    is_ours = not (is_reduce or is_window) and _is_ours(function)
    return {
        "operator": spec.uid,
        "scope": spec.scope.value,
        "group_count": spec.group_count,
        "attributes": (
            [_accumulator(bundle, spec)]
            if is_reduce
            else [_window(bundle, spec, loaded)]
            if is_window
            else _attributes(function)
        ),
        "copied": _copied_attributes(spec, function),
        "keyed": [_describe_keyed(state) for state in declared_states(function)],
        "has_undeclared": asks_for_states(function) and not declared_states(function),
        # The state of a window function is removed with its window.
        "has_named": not is_window and saves_named_values(function),
        "window_growth": window_growth(loaded) if is_window else None,
        "has_uid": spec.vertex.uid is not None,
        "join": spec.vertex.name if spec.vertex.details.get("settings") else "",
        "has_snapshot_hook": not is_reduce and _has_own(function, "snapshot_state"),
        "has_merge_hook": not is_reduce and _has_own(function, "merge_state"),
        "bound": getattr(function, "state_bound", "") if is_ours else "",
        "is_of_sdk": is_ours,
        "declared": _declared_states(bundle, spec),
    }


def _declared_states(bundle: JobBundle, spec: OperatorSpec) -> Any:
    """Return the declaration stored with an operator's state, as plain data."""
    found = declared_operator(spec, lambda name: cloudpickle.loads(bundle.payloads[name]))
    return msgspec.json.decode(msgspec.json.encode(found))


def _accumulator(bundle: JobBundle, spec: OperatorSpec) -> dict[str, Any]:
    declared = reduced_type(spec, lambda name: cloudpickle.loads(bundle.payloads[name]))
    return _attribute("accumulator", declared, ValueCodec(declared), is_per_entry=True)


def _window(bundle: JobBundle, spec: OperatorSpec, plan: WindowPlan) -> dict[str, Any]:
    """Describe the state of a window: its records, or the accumulators of aggregates."""
    declared = cloudpickle.loads(bundle.payloads[spec.input_type]) if spec.input_type else None
    if plan.keeps_records:
        return _attribute("records", declared, ValueCodec(declared), is_per_entry=True)
    kept = Folding(plan, declared).state_type
    return _attribute("accumulators", kept, ValueCodec(kept), is_per_entry=True)


def _attributes(function: Any) -> list[dict[str, Any]]:
    """Describe attributes, or of a function that makes its own snapshots these."""
    parts = describe_attributes(function)
    if parts and parts[-1].name == SNAPSHOT:
        parts = [dataclasses.replace(parts[-1], name="snapshot_state()")]
    fixed = fixed_attributes(function)
    return [
        _attribute(part.name, part.declared, part.codec, is_per_entry=part.tracked is not None)
        | {"is_fixed": part.name in fixed}
        for part in parts
    ]


def _copied_attributes(spec: OperatorSpec, function: Any) -> list[str]:
    """Return the attributes that are copied per record, to undo an attempt."""
    if not spec.vertex.on_error.goes_on or not isinstance(function, RichAsyncFunction):
        return []
    return [
        part.name
        for part in describe_attributes(function)
        if part.name != SNAPSHOT
        and part.tracked is None
        and not is_frozen_attribute(part)
        and type(getattr(function, part.name)) not in ATOMIC
    ]


def _describe_keyed(state: StateDescriptor) -> dict[str, Any]:
    ttl = state.time_to_live
    return {
        "name": state.name,
        "kind": state.kind,
        "type": type_name_of(state.stored_type),
        "codec": "typed" if ValueCodec(state.stored_type).is_typed else "untyped",
        "ttl_ms": None if ttl is None else ttl.duration_ms,
    }


def _attribute(
    name: str, declared: Any, codec: ValueCodec, *, is_per_entry: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "type": type_name_of(declared),
        "codec": "typed" if codec.is_typed else "untyped",
        "is_per_entry": is_per_entry,
    }


def _mixes(bundle: JobBundle, spec: OperatorSpec, setup: JobSetup) -> str | None:
    """Return the input whose order for a function depends on the cuts of epochs.

    None where that is nothing, or where it could not be put in order: without a key or event time.
    """
    vertex = spec.vertex
    mixes = vertex.descriptor.mixes
    assigners = {
        other.id for other in setup.graph.vertices if other.kind is OperatorKind.ASSIGN_TIMESTAMPS
    }
    if (
        spec.scope is not StateScope.KEY_GROUPS
        or vertex.details.get("in_event_time_order")
        or not assigners.intersection(spec.generators)
    ):
        return None
    if mixes is None or vertex.details.get("has_broadcast"):
        return None
    if vertex.descriptor.inputs is Inputs.APART:
        return mixes
    function = cloudpickle.loads(bundle.payloads[vertex.payload_id("function")])
    base = {ProcessFunction.on_timer, KeyedProcessFunction.on_timer}
    return None if _is_ours(function) or type(function).on_timer in base else mixes


def _is_ours(function: Any) -> bool:
    """Return whether a function is of SDK or runtime, such as a join of SQL."""
    return type(function).__module__.partition(".")[0] in ("bicycle_sdk", "bicycle_runtime")


def _has_own(function: Any, method: str) -> bool:
    own = getattr(type(function), method, None)
    return own is not None and own is not getattr(RichAsyncFunction, method, None)


def _exchange(setup: JobSetup, route: RouteSpec) -> dict[str, Any]:
    edge = setup.graph.edges[route.edge]
    data = setup.bundle.payloads[route.type_payload] if route.type_payload else None
    declared = cloudpickle.loads(data) if data is not None else None
    return {
        "source": edge.source_id,
        "target": edge.target_id,
        "partitioning": route.partitioning.value,
        "codec": codec_name_of(declared),
        "type": type_name_of(declared),
    }


# Attributes of a function that its constructor sets and nothing changes: parameters, not state.
#
# Read off the code of the class. An attribute that any method assigns is state, and so is one whose
# value can be changed in place, unless the constructor was given it under its name.

_MAKING = frozenset({"__init__", "__post_init__", "__new__"})
_ASSIGNING = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_UNCHANGING = (
    *(str, bytes, int, float, complex, type(None), Enum, timedelta, PurePath),
    *(type, FunctionType, MethodType),
)


def fixed_attributes(function: Any) -> frozenset[str]:
    """Return the names of attributes that are stored as state but are no state.

    Example:
        >>> class Above:
        ...     def __init__(self, limit):
        ...         self.limit, self.seen = limit, 0
        ...     def process(self, value, ctx):
        ...         self.seen += 1
        ...         return [value] if value > self.limit else []
        >>> sorted(fixed_attributes(Above(3)))
        ['limit']
    """
    assigned = set(_assigned_names(type(function)))
    given = _parameters(type(function))
    return frozenset(
        name
        for name, value in getattr(function, "__dict__", {}).items()
        if name not in assigned and (_is_unchanging(value) or name.lstrip("_") in given)
    )


def _assigned_names(cls: type) -> Iterator[str]:
    for owner in cls.__mro__:
        for name, value in vars(owner).items():
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if name not in _MAKING and isinstance(code, CodeType):
                yield from _assigned_in(code)


def _assigned_in(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in _ASSIGNING:
            yield str(step.argval)
        elif step.opname == "LOAD_CONST" and isinstance(step.argval, str):
            yield step.argval  # setattr(self, "name", …) may be behind it.
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _assigned_in(part)


def _parameters(cls: type) -> frozenset[str]:
    """Return the required parameters of the constructor; defaults may be the state."""
    if dataclasses.is_dataclass(cls):
        fields = (field for field in dataclasses.fields(cls) if field.init)
        missing = dataclasses.MISSING
        return frozenset(f.name for f in fields if f.default is f.default_factory is missing)
    parameters = inspect.signature(cls).parameters.values()
    return frozenset(each.name for each in parameters if each.default is each.empty)


def _is_unchanging(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_unchanging, value))
    settings = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, _UNCHANGING) or (settings is not None and settings.frozen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
