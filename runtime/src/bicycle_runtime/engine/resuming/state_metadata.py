"""The manifest that a run begins with, and its state metadata.

It is decided before connectors are started and before anything is written: unreadable state is
refused, with both schemas; a loss of state is refused unless it is allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import cloudpickle
from msgspec.structs import replace

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.resuming.operator_ids import renumbered_loops
from bicycle_runtime.engine.resuming.restoring import (
    refuse_lost_state,
    refuse_newer_connectors,
    restored_states,
    without_replaced,
)
from bicycle_runtime.layouts.state import OperatorStateMetadata, SchemaVersion, StateMetadata
from bicycle_runtime.operators.spec import StagePlan, StateScope
from bicycle_runtime.operators.tasks.declared_states import DeclaredOperator, declared_operator
from bicycle_runtime.operators.user_calls.policy import user_hook
from bicycle_runtime.recovery.errors import STATE_LOST
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.memory.attributes import SNAPSHOT
from bicycle_runtime.state.values.pickled import Shapes, declared_classes, shapes_here
from bicycle_runtime.state.values.schema_registry import refusal_of
from bicycle_runtime.state.values.state_metadata import StateChange, evolve, find


def declared_operators(
    plan: StagePlan, payloads: Mapping[str, bytes]
) -> dict[str, DeclaredOperator]:
    """Return the declarations of each stateful operator's code, by uid. Loads the functions.

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
) -> tuple[dict[str, OperatorStateMetadata], list[StateChange]]:
    """Return the new metadata of all states, and the change of each.

    Args:
        manifest: The sealed manifest.
        declared: The code's declarations, by operator.
        shapes: Returns the form of classes of pickled objects.
    """
    state_metadata: dict[str, OperatorStateMetadata] = {}
    changes: list[StateChange] = []
    for uid, operator in declared.items():
        stored = _read_stored(manifest, uid, operator)
        known, found = evolve(
            uid,
            stored,
            [*operator.states, *declared_classes(stored.states, shapes)],
            keys=operator.keys,
            may_ask=operator.may_ask_for,
        )
        changes += found
        if known != OperatorStateMetadata():
            state_metadata[uid] = known
    return state_metadata, changes


def _read_stored(manifest: Manifest, uid: str, declared: DeclaredOperator) -> OperatorStateMetadata:
    """Return an operator's metadata, extended by snapshots of older manifests."""
    stored = manifest.state_metadata.get(uid, OperatorStateMetadata())
    sealed = manifest.states.get(uid)
    snapshots = [state for state in declared.states if state.stored_name == SNAPSHOT]
    if sealed is None or not any(part.files for part in sealed.ranges):
        return stored
    untold = tuple(
        StateMetadata(
            name=state.name,
            stored_name=SNAPSHOT,
            kind=state.kind,
            schema_versions=(SchemaVersion(),),
        )
        for state in snapshots
        if find(stored, state) is None
    )
    return replace(stored, states=(*stored.states, *untold)) if untold else stored


def initial_state_metadata(
    manifest: Manifest,
    plan: StagePlan,
    payloads: Mapping[str, bytes],
    *,
    job: str,
    allows_dropped: bool,
) -> dict[str, OperatorStateMetadata]:
    """Return the schema versions that a run begins with.

    Args:
        manifest: The sealed manifest.
        plan: The operators of this run.
        payloads: Their functions and types, by payload id.
        job: Name of the job.
        allows_dropped: Whether states may be dropped.

    Raises:
        SCHEMA_REFUSED: sealed state cannot be read as it is declared now.
        STATE_LOST: a state is not declared any more, and that is not allowed.
    """
    state_metadata, changes = compared_states(
        manifest, declared_operators(plan, payloads), shapes_here
    )
    refused = [change for change in changes if change.verdict == "refused"]
    if refused:
        raise refusal_of(refused)
    dropped = [change for change in changes if change.verdict == "dropped"]
    if dropped and not allows_dropped:
        lost = ", ".join(f"{change.state!r} of operator {change.operator!r}" for change in dropped)
        raise STATE_LOST(job=job, lost=lost, instead="")
    return state_metadata


def first_manifest(
    setup: JobSetup, sealed: Manifest, *, is_published: bool = True, has_outputs: bool = True
) -> Manifest:
    """Return the manifest that a run begins with; reject one that does not fit.

    Args:
        setup: The job.
        sealed: The last sealed manifest.
        is_published: Whether that is published.
        has_outputs: Whether its output is that of this job; otherwise another job publishes it.

    Raises:
        CONNECTOR_STATE_NEWER: a newer version of a source or sink wrote its state.
        STATE_LOST: the job would lose state, offsets or output, and that is not allowed.
        SCHEMA_REFUSED: it cannot read a state.
    """
    job, allows_dropped = setup.job_id, setup.allows_dropped_state
    refuse_lost_state(
        sealed, setup.graph, job=job, allows_dropped=allows_dropped,
        sinks=setup.sinks if has_outputs else None, is_published=is_published,
    )  # fmt: skip
    own = without_replaced(sealed, setup.graph)
    refuse_newer_connectors(own, setup.sources, setup.sinks, job)
    return dataclasses.replace(
        own if has_outputs else sealed,
        state_metadata=initial_state_metadata(
            sealed, setup.plan, setup.bundle.payloads, job=job, allows_dropped=allows_dropped
        ),
        states=restored_states(sealed, setup.plan, job=job, allows_dropped=allows_dropped),
        feedback=renumbered_loops(sealed, setup.graph, job=job, allows_dropped=allows_dropped),
    )
