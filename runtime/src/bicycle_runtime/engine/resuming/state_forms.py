"""From what is sealed and what the code declares to the forms of states that a run begins with.

It is decided before connectors are started and before anything is written: what cannot be read is
refused, with both schemas; what would be lost is refused unless somebody allows it.
"""

from __future__ import annotations

from collections.abc import Mapping

import cloudpickle
from msgspec.structs import replace

from bicycle_runtime.operators.calling.policy import user_hook
from bicycle_runtime.operators.spec import StagePlan, StateScope
from bicycle_runtime.operators.tasks.declared_forms import DeclaredOperator, declared_operator
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.attributes import SNAPSHOT
from bicycle_runtime.state.values.forms import (
    OperatorForms,
    StateChange,
    StateForm,
    StateForms,
    evolve,
)
from bicycle_runtime.state.values.pickled import Shapes, declared_classes, shapes_here
from bicycle_runtime.state.values.reading import refusal_of

__all__ = ["begun_forms", "compared_states", "declared_operators"]


def declared_operators(
    plan: StagePlan, payloads: Mapping[str, bytes]
) -> dict[str, DeclaredOperator]:
    """Return what the code of each operator with state declares, by uid. Loads the functions.

    Args:
        plan: The operators.
        payloads: Functions and types, by payload id.

    Raises:
        FunctionHookError: a function cannot be loaded here.
    """
    found = {}
    for spec in plan.operators():
        if spec.scope is not StateScope.NONE:
            with user_hook(spec.uid, "loading or open()"):
                found[spec.uid] = declared_operator(
                    spec, lambda payload_id: cloudpickle.loads(payloads[payload_id])
                )
    return found


def compared_states(
    manifest: Manifest, declared: Mapping[str, DeclaredOperator], shapes: Shapes
) -> tuple[dict[str, OperatorForms], list[StateChange]]:
    """Return what is known of all states from now on, and what becomes of each.

    Args:
        manifest: What is sealed.
        declared: What the code declares, by operator.
        shapes: Tells how classes look of which objects are pickled.
    """
    forms: dict[str, OperatorForms] = {}
    changes: list[StateChange] = []
    for uid, operator in declared.items():
        stored = _stored(manifest, uid, operator)
        known, found = evolve(
            uid,
            stored,
            [*operator.states, *declared_classes(stored.states, shapes)],
            keys=operator.keys,
            may_ask=operator.may_ask_for,
        )
        changes += found
        if known != OperatorForms():
            forms[uid] = known
    return forms, changes


def _stored(manifest: Manifest, uid: str, declared: DeclaredOperator) -> OperatorForms:
    """Return what is known of an operator; of snapshots older manifests know nothing."""
    stored = manifest.forms.get(uid, OperatorForms())
    sealed = manifest.states.get(uid)
    snapshots = [state for state in declared.states if state.place == SNAPSHOT]
    if sealed is None or not any(part.files for part in sealed.ranges):
        return stored
    untold = tuple(
        StateForms(name=state.name, place=SNAPSHOT, kind=state.kind, forms=(StateForm(),))
        for state in snapshots
        if stored.find(state) is None
    )
    return replace(stored, states=(*stored.states, *untold)) if untold else stored


def begun_forms(
    manifest: Manifest, plan: StagePlan, payloads: Mapping[str, bytes],
    *, job: str, allows_dropped: bool,
) -> dict[str, OperatorForms]:  # fmt: skip
    """Return the forms that a run begins with.

    Args:
        manifest: What is sealed.
        plan: The operators of this run.
        payloads: Their functions and types, by payload id.
        job: Name of the job.
        allows_dropped: Whether states may be given up.

    Raises:
        SCHEMA_REFUSED: sealed state cannot be read as it is declared now.
        STATE_LOST: a state is not declared any more, and that is not allowed.
    """
    forms, changes = compared_states(manifest, declared_operators(plan, payloads), shapes_here)
    refused = [change for change in changes if change.verdict == "refused"]
    if refused:
        raise refusal_of(refused)
    dropped = [change for change in changes if change.verdict == "dropped"]
    if dropped and not allows_dropped:
        lost = ", ".join(f"{change.state!r} of operator {change.operator!r}" for change in dropped)
        raise STATE_LOST(job=job, lost=lost, instead="")
    return forms
