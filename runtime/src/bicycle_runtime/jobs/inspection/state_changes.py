"""The effect of new code on sealed state, computed before any start.

The savepoint, or the checkpoint directory, is only read, and a job that runs on it is not touched.
The code's declarations come from the child process of ``reports``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.engine.planning.setup import makes_letters
from bicycle_runtime.engine.resuming.operator_ids import lost_loops
from bicycle_runtime.engine.resuming.restoring import (
    lost_state,
    replaced_connectors,
    without_replaced,
)
from bicycle_runtime.engine.resuming.state_metadata import compared_states
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.jobs.errors import STATE_WOULD_BE_LOST
from bicycle_runtime.jobs.inspection.reports import JobReport, StateReport, class_shapes
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.operators.spec import DEAD_LETTERS
from bicycle_runtime.operators.tasks.declared_states import DeclaredOperator
from bicycle_runtime.recovery.adoption import AdoptedEpoch
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.values.state_metadata import StateChange, Verdict
from bicycle_sdk.graph import JobGraph, OperatorKind
from bicycle_sdk.quantities import amount

_REASONS_MAX = 5
# The verdict of an operator from its states: the worst counts.
_WORST: tuple[Verdict, ...] = ("refused", "dropped", "migrated", "kept", "new")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """The future of one operator; ``details`` are about the whole operator."""

    operator: str
    verdict: Verdict
    details: tuple[str, ...] = ()
    states: tuple[StateChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges:
    """The future of all states of an epoch; ``url`` is its location."""

    url: str
    epoch: int
    is_savepoint: bool
    operators: tuple[OperatorChange, ...]

    @property
    def refused_count(self) -> int:
        """The number of operators that cannot continue."""
        return sum(operator.verdict == "refused" for operator in self.operators)

    @property
    def dropped_count(self) -> int:
        """The number of states or operators that would be lost."""
        return sum(
            sum(state.verdict == "dropped" for state in operator.states)
            or int(operator.verdict == "dropped")
            for operator in self.operators
        )


def state_changes(origin: AdoptedEpoch, bundle: JobBundle, report: JobReport) -> StateChanges:
    """Return the future of each operator of an epoch, or of the current job.

    Args:
        origin: The epoch.
        bundle: The job of now.
        report: The report on it.
    """
    manifest = origin.manifest
    reports = {state.operator: state for state in report.states}
    declared = {
        uid: msgspec.convert(state.declared, prepare_type(DeclaredOperator))
        for uid, state in reports.items()
    }
    _, changes = compared_states(manifest, declared, class_shapes)
    found = [
        _operator(manifest, reports[uid], [each for each in changes if each.operator == uid])
        for uid in declared
    ]
    newer = _newer_connectors(without_replaced(manifest, bundle.graph), report)
    found += newer
    refused = {each.operator for each in newer}
    lost = lost_state(manifest, bundle.graph, sinks=_sinks(bundle.graph))
    found += [
        OperatorChange(
            operator=uid,
            verdict="kept",
            details=(f"continues at {_offset_words(shards)}",),
        )
        for uid, shards in manifest.offsets.items()
        if shards and uid not in lost and uid not in refused
    ]
    found += [
        OperatorChange(
            operator=uid, verdict="dropped", details=(_lost_words(manifest, bundle.graph, uid),)
        )
        for uid in lost
    ]  # fmt: skip
    found += [
        OperatorChange(
            operator=words, verdict="dropped",
            details=("it has records, but the graph has no such loop",),
        )
        for words in lost_loops(manifest, bundle.graph).values()
    ]  # fmt: skip
    return StateChanges(
        url=origin.storage.url,
        epoch=manifest.epoch,
        is_savepoint=origin.is_savepoint,
        operators=tuple(sorted(found, key=lambda each: each.operator)),
    )


def require_no_loss(changes: StateChanges, *, allows_dropped: bool) -> None:
    """Fail where a start from the epoch would.

    Raises:
        STATE_WOULD_BE_LOST: state is refused, or would be lost and that is not allowed.
    """
    lost_count = 0 if allows_dropped else changes.dropped_count
    if changes.refused_count or lost_count:
        raise STATE_WOULD_BE_LOST(
            url=changes.url,
            epoch=changes.epoch,
            refused_count=changes.refused_count,
            lost_count=lost_count,
            reasons=_reasons(changes, "refused" if changes.refused_count else "dropped"),
            changes=asdict(changes),
        )


def _reasons(changes: StateChanges, verdict: Verdict) -> str:
    """Return operator, state and field of the first changes with a verdict."""
    found = []
    for operator in changes.operators:
        states = [state for state in operator.states if state.verdict == verdict]
        found += [
            f"operator {operator.operator!r}, state {state.state!r}: "
            f"{'; '.join(state.details) or verdict}"
            for state in states
        ]
        if operator.verdict == verdict and not states:
            details = "; ".join(operator.details) or verdict
            found.append(f"operator {operator.operator!r}: {details}")
    more = len(found) - _REASONS_MAX
    return "; ".join(found[:_REASONS_MAX]) + (f"; and {more} more" if more > 0 else "")


def _operator(
    manifest: Manifest, report: StateReport, changes: list[StateChange]
) -> OperatorChange:
    uid = report.operator
    sealed = manifest.states.get(uid)
    if sealed is None or not _has_files(sealed):
        return OperatorChange(operator=uid, verdict="new", states=tuple(_as_new(changes)))
    details = _scope_problems(sealed, report)
    verdicts = {change.verdict for change in changes}
    if verdicts == {"new"} and uid not in manifest.state_metadata:
        verdicts = {"kept"}
    worst: Verdict = next((verdict for verdict in _WORST if verdict in verdicts), "kept")
    # A state that is new beside others makes no new operator.
    verdict: Verdict = "dropped" if details else "kept" if worst == "new" else worst
    return OperatorChange(operator=uid, verdict=verdict, details=details, states=tuple(changes))


def _as_new(changes: list[StateChange]) -> list[StateChange]:
    return [change for change in changes if change.verdict == "new"]


def _scope_problems(sealed: OperatorState, report: StateReport) -> tuple[str, ...]:
    was, now = (sealed.scope, sealed.group_count), (report.scope, report.group_count)
    if was == now:
        return ()
    return (
        f"its state is divided by {was[0]} with {was[1]} groups; the job has {now[0]}, {now[1]}",
    )


def _newer_connectors(manifest: Manifest, report: JobReport) -> list[OperatorChange]:
    """Return the sources and sinks whose sealed state this version does not read."""
    return [
        OperatorChange(
            operator=each.operator,
            verdict="refused",
            details=(
                f"its sealed state has format version {found}, but this {each.role} supports "
                f"versions up to {each.state_version}",
            ),
        )
        for each in report.connectors
        if (found := manifest.connector_versions.get(each.operator, 1)) > each.state_version
    ]


def _sinks(graph: JobGraph) -> set[str]:
    found = {vertex.id for vertex in graph.vertices if vertex.kind is OperatorKind.SINK}
    return found | ({DEAD_LETTERS} if makes_letters(graph) else set())


def _offset_words(shards: Mapping[str, int]) -> str:
    if len(shards) == 1:
        return f"offset {next(iter(shards.values()))}"
    return f"the offsets of {amount(len(shards), 'shard')}"


def _lost_words(manifest: Manifest, graph: JobGraph, uid: str) -> str:
    if uid in manifest.states and _has_files(manifest.states[uid]):
        return "it has state, but the graph has no operator of this uid with state"
    if uid not in manifest.offsets:
        return "it holds back output, but the graph has no sink of this uid and connector"
    if uid in (replaced := replaced_connectors(manifest, graph)):
        return "it has read input with connector {!r}, but has {!r} now".format(*replaced[uid])
    return "it has read input, but the graph has no source of this uid"


def _has_files(state: OperatorState) -> bool:
    return any(part.files for part in state.ranges)
