"""The contents of a manifest, from the reports of all tasks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from bicycle_runtime.contract import HoldsBackOutput, Slice, SnapshotsState, StagedFile
from bicycle_runtime.engine.epoch.stats import lowest_watermark, read_counts
from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.engine.resuming.operator_ids import operator_ids_of
from bicycle_runtime.engine.resuming.restoring import connector_words
from bicycle_runtime.layouts.manifest import OperatorState, PlanRecord, TimeRecord
from bicycle_runtime.layouts.state import OperatorStateMetadata, RangeState
from bicycle_runtime.operators.tasks.orders import LetterOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.state.values.schema_registry import require_alike


def merge_ends(reports: Iterable[TaskReport], uid: str) -> dict[str, int]:
    """Return the furthest offset that was reached in each shard of a source."""
    ends: dict[str, int] = {}
    for report in reports:
        for shard, end in report.source_ends.get(uid, {}).items():
            ends[shard] = max(end, ends.get(shard, 0))
    return ends


def merge_offsets(before: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets of all shards after an epoch."""
    return {**before, **ends}


def merge_staged(reports: Iterable[TaskReport], uid: str) -> list[StagedFile]:
    """Return the staged files of all subtasks for a sink, in order of the subtasks."""
    staged = [file for report in reports for file in report.staged.get(uid, ())]
    return sorted(staged, key=lambda file: (file.subtask, file.path))


def merge_states(
    before: Mapping[str, OperatorState], reports: Iterable[TaskReport]
) -> dict[str, OperatorState]:
    """Return the state of every operator after an epoch."""
    ranges: dict[str, list[RangeState]] = {uid: list(state.ranges) for uid, state in before.items()}
    for report in reports:
        for uid, state in report.states.items():
            ranges[uid][report.subtask] = state
    return {
        uid: OperatorState(
            scope=state.scope, group_count=state.group_count, ranges=tuple(ranges[uid])
        )
        for uid, state in before.items()
    }


def merge_state_metadata(
    before: Mapping[str, OperatorStateMetadata], reports: Iterable[TaskReport]
) -> dict[str, OperatorStateMetadata]:
    """Return the metadata of states after an epoch, with newly requested ones.

    Raises:
        SCHEMA_REFUSED: two subtasks request one state with different types.
    """
    state_metadata = dict(before)
    for report in reports:
        for uid, asked in report.state_metadata.items():
            known = state_metadata.get(uid, OperatorStateMetadata())
            by_name = {(state.space, state.name): state for state in known.states}
            for state in asked:
                former = by_name.get((state.space, state.name))
                if former is not None:
                    require_alike(uid, former, state)
                by_name[state.space, state.name] = state
            if list(by_name.values()) != list(known.states):
                states = tuple(by_name.values())
                state_metadata[uid] = msgspec.structs.replace(known, states=states)
    return state_metadata


def merge_feedback(reports: Sequence[TaskReport]) -> dict[int, tuple[StagedFile, ...]]:
    """Return the staged records of each feedback edge."""
    edges = sorted({edge for report in reports for edge, files in report.feedback.items() if files})
    return {
        edge: tuple(
            sorted(
                (file for report in reports for file in report.feedback.get(edge, ())),
                key=lambda file: file.path,
            )
        )
        for edge in edges
    }


def merge_turns(
    before: Mapping[str, tuple[int, ...]], reports: Iterable[TaskReport], edges: Mapping[int, str]
) -> dict[str, tuple[int, ...]]:
    """Return whose turn is next on each edge that takes turns, by sending subtask.

    Args:
        before: The turns before the epoch.
        reports: The reports of all tasks; empty when no task ran.
        edges: The edges of the graph that take turns, with their identity.
    """
    told: dict[int, dict[int, int]] = {}
    for report in reports:
        for edge, turn in report.turns.items():
            told.setdefault(edge, {})[report.subtask] = turn
    turns = {
        edges[edge]: tuple(by_sender[i] for i in sorted(by_sender))
        for edge, by_sender in told.items()
    }
    return {words: before[words] for words in edges.values() if words in before} | turns


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWork:
    """An epoch that ran.

    Without reports no task did; ``replay`` is the record for a replay.

    ``letters`` are the dead letters that it gets beside its input.
    """

    epoch: int
    slices: Mapping[str, list[Slice]] = field(default_factory=dict)
    reports: list[TaskReport] = field(default_factory=list)
    replay: bytes = b""
    letters: Sequence[LetterOrder] = ()


def plan_record(setup: JobSetup, *, now_ms: int, is_finished: bool) -> PlanRecord:
    """Return the bundle and the parallelism of a run, and whether its input is read."""
    return PlanRecord(
        bundle_digest=setup.bundle.digest,
        parallelism={vertex.id: vertex.parallelism for vertex in setup.graph.vertices},
        now_ms=now_ms,
        is_finished=is_finished,
    )


def next_manifest(
    setup: JobSetup,
    last: Manifest,
    work: EpochWork,
    *,
    time: TimeRecord,
    plan: PlanRecord,
    is_last: bool,
) -> Manifest:
    """Return the manifest behind ``last``.

    Sinks prepare the publication of the epoch.

    Args:
        setup: The job.
        last: The last sealed manifest.
        work: The work of the epoch.
        time: How far event time came.
        plan: How it ran.
        is_last: Whether sinks close open output.
    """
    reports = work.reports
    ends = {uid: merge_ends(reports, uid) for uid in setup.sources}
    return Manifest(
        epoch=work.epoch,
        time=time,
        watermark_ms=lowest_watermark(time) or 0,
        plan=plan,
        event_count=last.event_count + sum(read_counts(reports).values()),
        offsets={uid: merge_offsets(last.offsets.get(uid, {}), ends[uid]) for uid in setup.sources},
        states=merge_states(last.states, reports),
        state_metadata=merge_state_metadata(last.state_metadata, reports),
        operator_ids=operator_ids_of(setup.graph),
        sinks={
            uid: sink.prepare(work.epoch, merge_staged(reports, uid), is_last=is_last)
            for uid, sink in setup.sinks.items()
        },
        sources={
            uid: source.snapshot(work.slices.get(uid, ()), ends[uid])
            if isinstance(source, SnapshotsState)
            else {}
            for uid, source in setup.sources.items()
        },
        feedback=merge_feedback(reports) if reports else last.feedback,
        turns=merge_turns(last.turns, reports, setup.plan.edges_with_turns()),
        replay=work.replay,
        connector_versions={
            uid: connector.state_version
            for uid, connector in (*setup.sources.items(), *setup.sinks.items())
            if connector.state_version > 1
        },
        connectors=connector_words(setup.graph),
        held=frozenset(  # As the sinks have just prepared it.
            uid
            for uid, sink in setup.sinks.items()
            if isinstance(sink, HoldsBackOutput) and sink.waiting() is not None
        ),
    )
