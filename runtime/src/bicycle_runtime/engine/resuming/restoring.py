"""The state that operators of a graph begin with, from a sealed manifest. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from bicycle_runtime.connectors.registry import ConnectorRegistry, default_registry
from bicycle_runtime.contract import Sink, Source
from bicycle_runtime.contract.vertex import Connector
from bicycle_runtime.layouts.manifest import OperatorState
from bicycle_runtime.operators.shard_times import source_shard
from bicycle_runtime.operators.spec import StagePlan, StateScope
from bicycle_runtime.recovery.errors import CONNECTOR_STATE_NEWER, STATE_LOST
from bicycle_runtime.recovery.manifest import Manifest
from bicycle_runtime.recovery.rescale import restore_ranges
from bicycle_runtime.state.values.state_metadata import LIST_KINDS
from bicycle_sdk.graph import JobGraph, OperatorKind, StateShape

T = TypeVar("T")


def restored_states(
    manifest: Manifest, plan: StagePlan, *, job: str, is_start: bool = True,
    allows_dropped: bool = False,
) -> dict[str, OperatorState]:  # fmt: skip
    """Return the state of each stateful operator, divided for its new parallelism.

    Args:
        manifest: The sealed manifest.
        plan: The operators of this run.
        job: Name of the job.
        is_start: Whether the job starts again; then lists of subtasks are divided whatever the
            parallelism.
        allows_dropped: Whether an operator whose state is divided otherwise starts empty.

    Raises:
        STATE_LOST: scope or number of key groups of an operator differ from the sealed state.
    """
    restored = {}
    for spec in plan.operators():
        if spec.scope is StateScope.NONE:
            continue
        sealed = manifest.states.get(spec.uid)
        division = (spec.scope.value, spec.group_count)
        if allows_dropped and sealed and (sealed.scope, sealed.group_count) != division:
            sealed = None
        is_wider = sealed is not None and len(sealed.ranges) != spec.vertex.parallelism
        ranges = restore_ranges(
            sealed,
            scope=spec.scope,
            group_count=spec.group_count,
            parallelism=spec.vertex.parallelism,
            owner=(job, spec.uid),
            divides_lists=(is_start or is_wider) and _has_lists(manifest, spec.uid),
        )
        restored[spec.uid] = OperatorState(
            scope=spec.scope.value, group_count=spec.group_count, ranges=ranges
        )
    return restored


def _has_lists(manifest: Manifest, uid: str) -> bool:
    state_metadata = manifest.state_metadata.get(uid)
    return state_metadata is not None and any(
        state.kind in LIST_KINDS for state in state_metadata.states
    )


def refuse_lost_state(
    manifest: Manifest, graph: JobGraph, *, job: str, allows_dropped: bool = False,
    sinks: Collection[str] | None = None, is_published: bool = True,
) -> None:  # fmt: skip
    """Refuse a graph that lacks operators with sealed state, offsets or output.

    Args:
        manifest: The sealed manifest.
        graph: The graph of this run.
        job: Name of the job.
        allows_dropped: Whether it may be gone.
        sinks: The sinks of this run; None leaves output out.
        is_published: Whether the epoch is published; then only output that is held back waits.

    Raises:
        STATE_LOST: an operator, a source or such a sink is gone, or has another uid or connector.
    """
    lost = lost_state(manifest, graph, sinks=sinks, is_published=is_published)
    if lost and not allows_dropped:
        former = dict(manifest.operator_ids.operators)
        known = {*former, *manifest.states, *manifest.offsets, *manifest.sinks}
        fresh = [
            vertex.title for vertex in graph.vertices if vertex.id not in known and vertex.made
        ]
        raise STATE_LOST(
            job=job,
            lost=", ".join(f"{uid!r}{f' ({note})' if note else ''}" for uid, note in lost.items()),
            instead=f" (it has {', '.join(fresh)} instead)" if fresh else "",
        )


def lost_state(
    manifest: Manifest, graph: JobGraph, *, sinks: Collection[str] | None,
    is_published: bool = True,
) -> dict[str, str]:  # fmt: skip
    """Return the uids whose sealed state, offsets or output nothing takes, with notes."""
    former = dict(manifest.operator_ids.operators)
    replaced = replaced_connectors(manifest, graph)
    waiting = {
        uid
        for uid, output in manifest.sinks.items()
        if sinks is not None
        and (uid not in sinks or uid in replaced)
        and (uid in manifest.held or (output and not is_published))
    }
    found = {}
    for uid in sorted({*lost_operators(manifest, graph), *waiting}):
        notes = [f"{former[uid]}, without uid"] if uid in former else []
        notes += ["with unpublished output"] if uid in waiting else []
        if uid in replaced:
            notes.append("of connector {!r}, now {!r}".format(*replaced[uid]))
        found[uid] = "; ".join(notes)
    return found


def connector_words(graph: JobGraph) -> dict[str, str]:
    """Return the word of each connector by uid; in tests that of the replaced one."""
    words = {}
    for vertex in graph.vertices:
        if vertex.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            connector = vertex.details["connector"]
            word = connector.get("stands_for", connector["connector_type"])
            words[vertex.id] = ConnectorRegistry.current_word(word)
    return words


def replaced_connectors(manifest: Manifest, graph: JobGraph) -> dict[str, tuple[str, str]]:
    """Return the sealed and the current word of connectors that another one replaces.

    Manifests of earlier versions have no words: then each connector is the same.
    """
    sealed = manifest.connectors
    return {
        uid: (sealed[uid], word)
        for uid, word in connector_words(graph).items()
        if uid in sealed and not default_registry().is_same(sealed[uid], word)
    }


def without_replaced(manifest: Manifest, graph: JobGraph) -> Manifest:
    """Return a manifest without the offsets, states and times of replaced connectors."""
    gone = replaced_connectors(manifest, graph).keys()
    if not gone:
        return manifest

    def rest(sealed: Mapping[str, T]) -> dict[str, T]:
        return {uid: each for uid, each in sealed.items() if uid not in gone}

    prefixes = tuple(source_shard(uid, "") for uid in gone)
    shards = {
        uid: {name: time for name, time in times.items() if not name.startswith(prefixes)}
        for uid, times in rest(manifest.time.shards).items()
    }
    return replace(
        manifest,
        offsets=rest(manifest.offsets),
        sinks=rest(manifest.sinks),
        sources=rest(manifest.sources),
        connector_versions=rest(manifest.connector_versions),
        connectors=rest(manifest.connectors),
        held=frozenset(manifest.held) - gone,
        time=msgspec.structs.replace(manifest.time, shards=shards),
    )


def newer_connectors(
    manifest: Manifest, connectors: Mapping[str, Connector]
) -> dict[str, tuple[int, int]]:
    """Return sealed and known versions of connectors whose sealed state is newer."""
    return {
        uid: (found, connectors[uid].state_version)
        for uid, found in manifest.connector_versions.items()
        if uid in connectors and found > connectors[uid].state_version
    }


def refuse_newer_connectors(
    manifest: Manifest, sources: Mapping[str, Source], sinks: Mapping[str, Sink], job: str
) -> None:
    """Refuse sources and sinks whose sealed state is of a newer version.

    Raises:
        CONNECTOR_STATE_NEWER: a newer version of it wrote that.
    """
    newer = newer_connectors(manifest, {**sources, **sinks})
    for uid, (found, known) in newer.items():
        role = "source" if uid in sources else "sink"
        raise CONNECTOR_STATE_NEWER(role=role, operator=uid, job=job, found=found, known=known)


def lost_operators(manifest: Manifest, graph: JobGraph) -> list[str]:
    """Return the uids with state or offsets that no vertex of the graph takes."""
    replaced = replaced_connectors(manifest, graph).keys()
    vertices = graph.vertices
    stateful = {each.id for each in vertices if each.descriptor.state is not StateShape.NONE}
    sources = {each.id for each in vertices if each.kind is OperatorKind.SOURCE}
    with_state = {
        uid for uid, state in manifest.states.items() if any(part.files for part in state.ranges)
    }
    with_offsets = {uid for uid, shards in manifest.offsets.items() if shards}
    return sorted((with_state - stateful) | (with_offsets - (sources - replaced)))
