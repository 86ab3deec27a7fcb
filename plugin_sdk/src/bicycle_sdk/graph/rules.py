"""The rules of a runnable graph. Each broken rule is one sentence that names the vertices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bicycle_sdk.graph.kinds import PREPARED, Inputs, OperatorKind, Partitioning
from bicycle_sdk.graph.parts import (
    KEY_GROUP_COUNT_MAX,
    Edge,
    ErrorPolicy,
    JobConfig,
    Vertex,
)

__all__ = ["problems_of"]

_BOUNDS = f"1..{KEY_GROUP_COUNT_MAX}"


def problems_of(vertices: Sequence[Vertex], edges: Sequence[Edge], config: JobConfig) -> list[str]:
    """Return all violated rules, in the order of the rules, empty for a valid graph."""
    by_id = {vertex.id: vertex for vertex in vertices}
    sound = [edge for edge in edges if edge.source_id in by_id and edge.target_id in by_id]
    return [
        *_identity_problems(vertices),
        *_edge_end_problems(edges, by_id),
        *_end_problems(vertices, sound),
        *_parallelism_problems(vertices, config),
        *_failure_problems(vertices, config),
        *_edge_problems(sound, by_id),
        *_keyed_problems(vertices, sound),
        *_reach_problems(vertices, sound),
        *_cycle_problems(vertices, sound),
    ]


def _identity_problems(vertices: Sequence[Vertex]) -> Iterator[str]:
    for vertex_id, count in Counter(vertex.id for vertex in vertices).items():
        if count > 1:
            yield f"{count} vertices have the id {vertex_id!r}"
    uids: defaultdict[str, list[str]] = defaultdict(list)
    for vertex in vertices:
        if vertex.uid is not None:
            uids[vertex.uid].append(vertex.id)
    for uid, ids in uids.items():
        # Vertices of one id are reported above.
        if len(set(ids)) > 1:
            yield f"vertices {_names(ids)} have the same uid {uid!r}"


def _edge_end_problems(edges: Sequence[Edge], by_id: Mapping[str, Vertex]) -> Iterator[str]:
    for edge in edges:
        if edge.source_id not in by_id:
            yield f"edge source {edge.source_id!r} (of the edge to {edge.target_id!r}) not found"
        if edge.target_id not in by_id:
            yield f"edge target {edge.target_id!r} (of the edge from {edge.source_id!r}) not found"


def _end_problems(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[str]:
    names = _names([vertex.id for vertex in vertices]) or "no vertices"
    if not any(vertex.kind is OperatorKind.SOURCE for vertex in vertices):
        yield f"no source among the vertices ({names})"
    if not any(vertex.kind is OperatorKind.SINK for vertex in vertices):
        yield f"no sink among the vertices ({names})"
    with_input = {edge.target_id for edge in edges}
    with_output = {edge.source_id for edge in edges}
    for vertex in vertices:
        if vertex.descriptor.inputs is Inputs.NONE and vertex.id in with_input:
            yield f"source {vertex.title} has an input"
        if vertex.descriptor.ends_chain and vertex.id in with_output:
            yield f"sink {vertex.title} has an output"
        if not vertex.descriptor.ends_chain and vertex.id not in with_output:
            yield f"the output of {vertex.title} has no consumer"


def _parallelism_problems(vertices: Sequence[Vertex], config: JobConfig) -> Iterator[str]:
    if config.max_parallelism > KEY_GROUP_COUNT_MAX or config.max_parallelism < 1:
        yield f"max_parallelism {config.max_parallelism} of the job is outside {_BOUNDS}"
    for vertex in vertices:
        highest = vertex.max_parallelism
        if highest is not None and not 1 <= highest <= KEY_GROUP_COUNT_MAX:
            yield f"max_parallelism {highest} of {vertex.title} is outside {_BOUNDS}"
        bound = config.max_parallelism if highest is None else highest
        if vertex.parallelism < 1:
            yield f"parallelism {vertex.parallelism} of {vertex.title} is less than 1"
        elif vertex.parallelism > bound:
            yield f"{vertex.title} has parallelism {vertex.parallelism}, over its maximum {bound}"


def _failure_problems(vertices: Sequence[Vertex], config: JobConfig) -> Iterator[str]:
    strategy = config.restart_strategy
    if strategy.max_attempts < 0 or strategy.delay_ms < 0:
        yield (
            f"the restart strategy must not be negative, got {strategy.max_attempts} attempts and "
            f"{strategy.delay_ms} ms between them"
        )
    for vertex in vertices:
        if not vertex.descriptor.can_fail and vertex.on_error != ErrorPolicy():
            yield (
                f"on_error of {vertex.title} has no effect, since a {vertex.kind.value} runs no "
                "function: call it directly after the operator to which it applies"
            )
        if vertex.kind is OperatorKind.SOURCE and vertex.on_error.retries:
            yield (
                f"source {vertex.title} cannot retry, because decoding fails again; choose skip() "
                "or dead_letter()"
            )


def _edge_problems(edges: Sequence[Edge], by_id: Mapping[str, Vertex]) -> Iterator[str]:
    for edge in edges:
        source, target = by_id[edge.source_id], by_id[edge.target_id]
        path = f"{source.title} -> {target.title}"
        is_forward = edge.partitioning is Partitioning.FORWARD
        if is_forward and source.parallelism != target.parallelism:
            yield (
                f"forward edge {path} requires equal parallelism, got {source.parallelism} and "
                f"{target.parallelism}"
            )
        divides_by = source.descriptor.divides_by
        if edge.partitioning in PREPARED and edge.partitioning is not divides_by:
            yield (
                f"{edge.partitioning.value.lower()} edge {path} starts at a {source.kind.value}, "
                "which does not choose a partition"
            )
        if edge.output_tag is not None and not source.descriptor.has_side_outputs:
            yield (
                f"edge {path} reads side output {edge.output_tag!r}, but a {source.kind.value} "
                "has no side outputs"
            )


def _keyed_problems(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[str]:
    by_id = {vertex.id: vertex for vertex in vertices}
    keyed = {vertex.id: vertex for vertex in vertices if vertex.is_keyed}
    for edge in edges:
        if edge.target_id not in keyed or edge.partitioning is Partitioning.HASH:
            continue
        has_broadcast = keyed[edge.target_id].details.get("has_broadcast", False)
        if edge.partitioning is not Partitioning.BROADCAST or not has_broadcast:
            yield (
                f"{keyed[edge.target_id].title} is keyed, but its input from "
                f"{by_id[edge.source_id].title} is {edge.partitioning.value}, expected Hash"
            )


def _reach_problems(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[str]:
    sources = [vertex.id for vertex in vertices if vertex.kind is OperatorKind.SOURCE]
    downwards = _reached_from(sources, [(edge.source_id, edge.target_id) for edge in edges])
    for vertex in vertices:
        if vertex.id not in downwards:
            yield f"{vertex.title} is not reachable from any source"
    with_output = {edge.source_id for edge in edges}
    ends = [
        vertex.id
        for vertex in vertices
        if vertex.kind is OperatorKind.SINK or vertex.id not in with_output
    ]
    upwards = _reached_from(ends, [(edge.target_id, edge.source_id) for edge in edges])
    for vertex in vertices:
        if vertex.id not in upwards:
            yield f"the output of {vertex.title} forms a loop and reaches no sink"


def _reached_from(starts: Sequence[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    following: defaultdict[str, list[str]] = defaultdict(list)
    for here, there in steps:
        following[here].append(there)
    reached, waiting = set(starts), list(starts)
    while waiting:
        for vertex_id in following[waiting.pop()]:
            if vertex_id not in reached:
                reached.add(vertex_id)
                waiting.append(vertex_id)
    return reached


def _cycle_problems(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Iterator[str]:
    """Yield a problem for vertices on cycles, after removal of all others."""
    steps = [(edge.source_id, edge.target_id) for edge in edges if not edge.feedback]
    left = _peel({vertex.id for vertex in vertices}, steps)
    left = _peel(left, [(there, here) for here, there in steps])
    if left:
        names = ", ".join(vertex.title for vertex in vertices if vertex.id in left)
        yield f"vertices {names} form a cycle without a feedback edge"


def _peel(vertex_ids: set[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    following: defaultdict[str, list[str]] = defaultdict(list)
    open_inputs = dict.fromkeys(vertex_ids, 0)
    for here, there in steps:
        if here in vertex_ids and there in vertex_ids:
            following[here].append(there)
            open_inputs[there] += 1
    left, waiting = set(vertex_ids), [v for v, count in open_inputs.items() if count == 0]
    while waiting:
        vertex_id = waiting.pop()
        left.discard(vertex_id)
        for target in following[vertex_id]:
            open_inputs[target] -= 1
            if open_inputs[target] == 0:
                waiting.append(target)
    return left


def _names(vertex_ids: Sequence[str]) -> str:
    return ", ".join(repr(vertex_id) for vertex_id in vertex_ids)
