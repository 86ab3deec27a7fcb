"""Operator chaining: vertices that run in one task, and pass records as objects.

``optimize`` is a pure function of the graph; the runtime plans its stages from the result, and
people read its ``summary()``. It changes no graph and knows nothing of stages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bicycle_sdk.graph import Edge, Inputs, JobGraph, Partitioning, Vertex

__all__ = ["Chain", "ChainEdge", "ChainingStats", "OptimizedGraph", "optimize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Vertices that run in one task, in the order of the records.

    ``id`` is that of the first one; ``max_parallelism`` is the smallest that any of them sets.
    """

    id: str
    name: str
    operator_ids: tuple[str, ...]
    operator_uids: tuple[str | None, ...]
    parallelism: int
    max_parallelism: int | None
    slot_sharing_group: str
    is_source: bool
    is_sink: bool

    @property
    def task_count(self) -> int:
        """The number of tasks: one per subtask."""
        return self.parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEdge:
    """The edges between two chains; ``edges`` are edges of the graph."""

    source_chain_id: str
    target_chain_id: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainingStats:
    """The savings of chaining. ``min_slots_needed`` counts each slot sharing group once."""

    operators_before: int
    chains_after: int
    tasks_before: int
    tasks_after: int
    slot_sharing_groups: int
    min_slots_needed: int
    min_slots_without_sharing: int

    @property
    def task_reduction_percent(self) -> float:
        """The share of tasks that chaining saves, in percent; 0 for an empty graph."""
        if self.tasks_before == 0:
            return 0.0
        return (1 - self.tasks_after / self.tasks_before) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedGraph:
    """A graph with its chains, in the order of their first vertices."""

    graph: JobGraph
    chains: tuple[Chain, ...]
    edges: tuple[ChainEdge, ...]
    stats: ChainingStats

    def chain_of(self, operator_id: str) -> Chain:
        """Return the chain that contains a vertex; raise KeyError if it is missing."""
        for chain in self.chains:
            if operator_id in chain.operator_ids:
                return chain
        raise KeyError(operator_id)

    def summary(self) -> str:
        """Return a report for people."""
        stats = self.stats
        lines = [
            f"Job: {self.graph.name}",
            f"Operators: {stats.operators_before} -> {stats.chains_after} chains",
            f"Tasks: {stats.tasks_before} -> {stats.tasks_after} "
            f"({stats.task_reduction_percent:.1f}% reduction)",
            f"Slot sharing groups: {stats.slot_sharing_groups}",
            f"Min slots needed: {stats.min_slots_needed}",
            "Chains:",
        ]
        for number, chain in enumerate(self.chains, start=1):
            lines.append(f"  [{number}] {chain.name} (p={chain.parallelism})")
        return "\n".join(lines)


def optimize(graph: JobGraph) -> OptimizedGraph:
    """Return the chains of a valid graph.

    An edge joins two vertices into a chain when it is a forward edge, neither a feedback edge nor a
    side output, the only output of its source and the only input of its target; when both ends have
    the same parallelism and slot sharing group and allow chaining; and when the target does not
    start a chain.

    Source: the chaining rules of the job graph that Bicycle shares with its clients.
    """
    by_id = {vertex.id: vertex for vertex in graph.vertices}
    outputs: defaultdict[str, list[Edge]] = defaultdict(list)
    inputs: defaultdict[str, list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        outputs[edge.source_id].append(edge)
        inputs[edge.target_id].append(edge)
    # A vertex with several outputs ends its chain: each target then starts a chain.
    following = {
        edge.source_id: edge.target_id
        for edge in graph.edges
        if len(outputs[edge.source_id]) == 1
        and len(inputs[edge.target_id]) == 1
        and _can_chain(edge, by_id[edge.source_id], by_id[edge.target_id])
    }
    joined = set(following.values())
    chains = tuple(
        _chain([by_id[operator_id] for operator_id in _walk(vertex.id, following)])
        for vertex in graph.vertices
        if vertex.id not in joined
    )
    return OptimizedGraph(
        graph=graph,
        chains=chains,
        edges=_chain_edges(chains, graph.edges),
        stats=_stats(graph, chains),
    )


def _can_chain(edge: Edge, source: Vertex, target: Vertex) -> bool:
    return (
        edge.partitioning is Partitioning.FORWARD
        and not edge.feedback
        and edge.output_tag is None
        and source.parallelism == target.parallelism
        and source.chaining_enabled
        and target.chaining_enabled
        and not target.starts_new_chain
        and source.slot_sharing_group == target.slot_sharing_group
        and not source.descriptor.ends_chain
        and target.descriptor.inputs is not Inputs.NONE
    )


def _walk(operator_id: str, following: dict[str, str]) -> Iterable[str]:
    here: str | None = operator_id
    while here is not None:
        yield here
        here = following.get(here)


def _chain(vertices: Sequence[Vertex]) -> Chain:
    head = vertices[0]
    limits = [v.max_parallelism for v in vertices if v.max_parallelism is not None]
    return Chain(
        id=head.id,
        name=" -> ".join(vertex.label for vertex in vertices),
        operator_ids=tuple(vertex.id for vertex in vertices),
        operator_uids=tuple(vertex.uid for vertex in vertices),
        parallelism=head.parallelism,
        max_parallelism=min(limits, default=None),
        slot_sharing_group=head.slot_sharing_group,
        is_source=any(vertex.descriptor.inputs is Inputs.NONE for vertex in vertices),
        is_sink=any(vertex.descriptor.ends_chain for vertex in vertices),
    )


def _chain_edges(chains: Sequence[Chain], edges: Sequence[Edge]) -> tuple[ChainEdge, ...]:
    chain_of = {operator_id: chain.id for chain in chains for operator_id in chain.operator_ids}
    between: defaultdict[tuple[str, str], list[Edge]] = defaultdict(list)
    for edge in edges:
        source, target = chain_of[edge.source_id], chain_of[edge.target_id]
        # A feedback edge may lead back into its own chain and is still an edge.
        if source != target or edge.feedback:
            between[source, target].append(edge)
    return tuple(
        ChainEdge(source_chain_id=source, target_chain_id=target, edges=tuple(found))
        for (source, target), found in between.items()
    )


def _stats(graph: JobGraph, chains: Sequence[Chain]) -> ChainingStats:
    slots: defaultdict[str, int] = defaultdict(int)
    for chain in chains:
        slots[chain.slot_sharing_group] = max(slots[chain.slot_sharing_group], chain.parallelism)
    return ChainingStats(
        operators_before=len(graph.vertices),
        chains_after=len(chains),
        tasks_before=sum(vertex.parallelism for vertex in graph.vertices),
        tasks_after=sum(chain.task_count for chain in chains),
        slot_sharing_groups=len(slots),
        min_slots_needed=sum(slots.values()),
        min_slots_without_sharing=sum(chain.task_count for chain in chains),
    )
