"""A job graph under construction: mutable vertices, edges, and live objects.

Streams write here; ``build_graph`` turns the draft into frozen data. Defaults are applied only
then, so the order of calls does not matter. A draft runs nothing and checks only errors that the
finished graph could not show: uids that are used twice and chains whose types do not fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bicycle_sdk.errors import GraphError
from bicycle_sdk.graph import (
    Edge,
    ErrorPolicy,
    JobConfig,
    JobGraph,
    OperatorKind,
    Partitioning,
    Vertex,
)
from bicycle_sdk.locations import calling_location
from bicycle_sdk.record_types import clash, type_name

__all__ = ["EdgeDraft", "GraphDraft", "VertexDraft"]


@dataclass(slots=True, kw_only=True)
class VertexDraft:
    """A vertex whose settings may still change. ``payloads`` are the live objects by role.

    ``follows`` is the vertex whose parallelism is taken over when no parallelism is set.
    ``input_type`` and ``output_type`` are record types, None when unknown. ``serves`` is the vertex
    that this vertex is a part of: id, key groups and error policy follow it. ``location`` is the
    location of the call that made it.
    """

    kind: OperatorKind
    name: str
    id: str = ""
    uid: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    parallelism: int | None = None
    max_parallelism: int | None = None
    slot_sharing_group: str = "default"
    chaining_enabled: bool = True
    starts_new_chain: bool = False
    plugin_function: str | None = None
    on_error: ErrorPolicy = field(default_factory=ErrorPolicy)
    payloads: Mapping[str, Any] = field(default_factory=dict)
    input_type: Any = None
    output_type: Any = None
    follows: VertexDraft | None = None
    serves: VertexDraft | None = None
    location: str | None = None

    @property
    def final_id(self) -> str:
        """The id in the finished graph: the uid when there is one."""
        if self.serves is not None:
            return f"{self.serves.final_id}-combine"
        return self.uid or self.id

    @property
    def title(self) -> str:
        """The vertex as errors of the graph name it."""
        made = f", {self.location}" if self.location else ""
        return f"{self.final_id!r} ({self.name}{'' if self.uid else ' without uid'}{made})"

    def final_parallelism(self, default: int) -> int:
        """Return the parallelism in the finished graph of a job with this default."""
        if self.parallelism is not None:
            return self.parallelism
        return default if self.follows is None else self.follows.final_parallelism(default)


@dataclass(slots=True, kw_only=True)
class EdgeDraft:
    """An edge; a ``partitioning`` of None is forward if possible, else rebalance."""

    source: VertexDraft
    target: VertexDraft
    partitioning: Partitioning | None = None
    input_ordinal: int = 0
    output_tag: str | None = None
    feedback: bool = False


class GraphDraft:
    """Vertices and edges in the order of the calls that made them.

    ``payloads`` maps payload ids to live objects; it is filled by ``build_graph``.
    """

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.vertices: list[VertexDraft] = []
        self.edges: list[EdgeDraft] = []
        self.payloads: dict[str, Any] = {}

    def add_vertex(self, vertex: VertexDraft) -> VertexDraft:
        """Add a vertex and assign the next id: ``vertex_1``, ``vertex_2``, …."""
        own = sum(other.serves is None for other in self.vertices) + (vertex.serves is None)
        vertex.id = f"vertex_{own}"
        vertex.location = calling_location()
        self.vertices.append(vertex)
        return vertex

    def add_edge(self, edge: EdgeDraft) -> None:
        """Take an edge in."""
        self.edges.append(edge)

    def connect(self, source: VertexDraft, target: VertexDraft, partitioning: Partitioning) -> None:
        """Add an edge from the main output of one vertex to another."""
        self.add_edge(EdgeDraft(source=source, target=target, partitioning=partitioning))

    def build_graph(self, name: str) -> JobGraph:
        """Return the graph as frozen data and put the objects beside it into ``payloads``.

        Default parallelism is applied, and uids replace ids. The result is not validated;
        ``execute`` validates it.

        Raises:
            GraphError: two vertices have the same uid, or the input type of a function differs from
                the type of its records.
        """
        problems = [*self._uid_problems(), *self._type_problems()]
        if problems:
            raise GraphError(job=name, problems=problems, problem_text="; ".join(problems))
        self.payloads = {
            f"{vertex.final_id}/{role}": value
            for vertex in self.vertices
            for role, value in _payloads_of(vertex).items()
        }
        return JobGraph(
            name=name,
            vertices=tuple(self._built_vertex(vertex) for vertex in self.vertices),
            edges=tuple(self._built_edge(edge) for edge in self.edges),
            config=self.config,
        )

    def _built_vertex(self, vertex: VertexDraft) -> Vertex:
        setting = vertex.serves or vertex
        return Vertex(
            id=vertex.final_id,
            kind=vertex.kind,
            uid=vertex.uid,
            name=vertex.name,
            details=dict(vertex.details),
            parallelism=vertex.final_parallelism(self.config.parallelism),
            max_parallelism=setting.max_parallelism,
            slot_sharing_group=vertex.slot_sharing_group,
            chaining_enabled=vertex.chaining_enabled,
            starts_new_chain=vertex.starts_new_chain,
            plugin_function=vertex.plugin_function,
            config=dict(vertex.config),
            output_type=type_name(vertex.output_type),
            on_error=setting.on_error,
            payloads=tuple(sorted(_payloads_of(vertex))),
            location=vertex.location,
        )

    def _built_edge(self, edge: EdgeDraft) -> Edge:
        partitioning = edge.partitioning
        if partitioning is None:
            default = self.config.parallelism
            is_equal = edge.source.final_parallelism(default) == edge.target.final_parallelism(
                default
            )
            partitioning = Partitioning.FORWARD if is_equal else Partitioning.REBALANCE
        return Edge(
            source_id=edge.source.final_id,
            target_id=edge.target.final_id,
            partitioning=partitioning,
            input_ordinal=edge.input_ordinal,
            output_tag=edge.output_tag,
            feedback=edge.feedback,
        )

    def _uid_problems(self) -> Iterator[str]:
        owners: defaultdict[str, list[str]] = defaultdict(list)
        for vertex in self.vertices:
            made = f", {vertex.location}" if vertex.location else ""
            owners[vertex.final_id].append(f"{vertex.id} ({vertex.name}{made})")
        for uid, labels in owners.items():
            if len(labels) > 1:
                yield f"vertices {' and '.join(labels)} have the same uid {uid!r}"

    def _type_problems(self) -> Iterator[str]:
        for edge in self.edges:
            produced = None if edge.output_tag is not None else edge.source.output_type
            consumed = edge.target.input_type
            if clash(produced, consumed):
                source, target = edge.source, edge.target
                yield (
                    f"{source.title} outputs {type_name(produced)}, but {target.title} takes "
                    f"{type_name(consumed)}"
                )


def _payloads_of(vertex: VertexDraft) -> dict[str, Any]:
    payloads = dict(vertex.payloads)
    if vertex.output_type is not None:
        payloads["output_type"] = vertex.output_type
    return payloads
