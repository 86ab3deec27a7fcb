"""A whole job graph: look-ups, validation, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bicycle_sdk.errors import GraphError
from bicycle_sdk.graph.json_fields import Fields, compact_json, unreadable
from bicycle_sdk.graph.json_form import (
    config_from_dict,
    config_to_dict,
    edge_from_dict,
    edge_to_dict,
    vertex_from_dict,
    vertex_to_dict,
)
from bicycle_sdk.graph.parts import Edge, JobConfig, Vertex
from bicycle_sdk.graph.rules import problems_of
from bicycle_sdk.graph.shared_words import in_own_words

__all__ = ["JobGraph", "graph_from_dict", "graph_to_dict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGraph:
    """A job: vertices and edges, each in the order of the calls that added them."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    config: JobConfig = field(default_factory=JobConfig)

    def vertex(self, vertex_id: str) -> Vertex:
        """Return the vertex with this id; raise KeyError if it is missing."""
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def inputs_of(self, vertex_id: str) -> list[Edge]:
        """Return the edges into a vertex, in order of their ordinal."""
        edges = [edge for edge in self.edges if edge.target_id == vertex_id]
        return sorted(edges, key=lambda edge: edge.input_ordinal)

    def outputs_of(self, vertex_id: str) -> list[Edge]:
        """Return the edges out of a vertex, in graph order."""
        return [edge for edge in self.edges if edge.source_id == vertex_id]

    def validate(self) -> None:
        """Check every rule of a runnable graph.

        Raises:
            GraphError: one or more rules are broken; all of them are named at once.
        """
        problems = problems_of(self.vertices, self.edges, self.config)
        if problems:
            raise GraphError(job=self.name, problems=problems, problem_text="; ".join(problems))

    def locations(self) -> dict[str, str]:
        """Return the code locations of the calls that created vertices, by id, if known."""
        return {
            vertex.id: vertex.location for vertex in self.vertices if vertex.location is not None
        }

    def with_locations(self, locations: Mapping[str, str]) -> JobGraph:
        """Return the graph with code locations from ``locations``."""
        vertices = tuple(replace(each, location=locations.get(each.id)) for each in self.vertices)
        return replace(self, vertices=vertices)

    def to_json(self) -> str:
        """Return the canonical JSON text, equal for equal graphs."""
        return compact_json(graph_to_dict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> JobGraph:
        """Read the JSON of a graph; absent optional fields take their defaults.

        Raises:
            GraphFormatError: not JSON, an unknown kind or word, a missing or unknown field.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise unreadable(f"{type(error).__name__}: {error}") from error
        return graph_from_dict(data)


def graph_to_dict(graph: JobGraph) -> dict[str, Any]:
    """Return the graph as plain data of the shared shape."""
    return {
        "name": graph.name,
        "vertices": [vertex_to_dict(vertex) for vertex in graph.vertices],
        "edges": [edge_to_dict(edge) for edge in graph.edges],
        "config": config_to_dict(graph.config),
    }


def graph_from_dict(data: object) -> JobGraph:
    """Read the result of ``graph_to_dict``; absent optional fields get their defaults.

    The shared graph language's vertices `Count` and `Connect` are read as the kinds that do the
    same.

    Raises:
        GraphFormatError: an unknown kind, word or field, a missing field, or a value of the wrong
            type.
    """
    fields = Fields(data, "job graph")
    name = fields.take("name", str)
    vertices, edges = in_own_words(fields.take("vertices", list), fields.take("edges", list))
    graph = JobGraph(
        name=name,
        vertices=tuple(vertex_from_dict(item) for item in vertices),
        edges=tuple(edge_from_dict(item) for item in edges),
        config=config_from_dict(fields.take("config", dict, default={})),
    )
    fields.finish()
    return graph
