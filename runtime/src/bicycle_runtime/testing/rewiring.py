"""Changes of a job graph for a test: scripts, captured sinks, taps, parts.

Pure functions from graph to graph. They change ends only: the vertices between stay as they are,
except that a tap makes its vertex end a chain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bicycle_runtime.testing.script import SCRIPT_TYPE
from bicycle_sdk.graph import Edge, JobGraph, OperatorKind, Partitioning, Vertex

COLLECT_TYPE = "collect"
Tap = str | tuple[str, str]


def script_sources(graph: JobGraph, uids: Iterable[str]) -> JobGraph:
    """Return the graph with scripts in place of these sources."""
    wanted = set(uids)
    vertices = tuple(
        dataclasses.replace(
            vertex,
            details=_stand_in(SCRIPT_TYPE, {}, _connector_type(vertex)),
            payloads=tuple(role for role in vertex.payloads if role == "output_type"),
        )
        if vertex.id in wanted
        else vertex
        for vertex in graph.vertices
    )
    return dataclasses.replace(graph, vertices=vertices)


def scripted_sources(graph: JobGraph) -> list[str]:
    """Return the sources that are scripts, by uid."""
    return [
        vertex.id
        for vertex in graph.vertices
        if vertex.kind is OperatorKind.SOURCE and _connector_type(vertex) == SCRIPT_TYPE
    ]


def capture_sinks(graph: JobGraph, kept: Iterable[str]) -> JobGraph:
    """Return the graph with collect sinks under their ids, except for ``kept``."""
    real = set(kept)
    vertices = tuple(
        dataclasses.replace(
            vertex, details=_collect(vertex.id, _connector_type(vertex)), payloads=()
        )
        if vertex.kind is OperatorKind.SINK
        and vertex.id not in real
        and _connector_type(vertex) != COLLECT_TYPE
        else vertex
        for vertex in graph.vertices
    )
    return dataclasses.replace(graph, vertices=vertices)


def add_taps(graph: JobGraph, taps: Iterable[Tap]) -> JobGraph:
    """Return the graph with a collect sink at each of these vertices or side outputs."""
    vertices, edges = list(graph.vertices), list(graph.edges)
    for tap in taps:
        uid, tag = (tap, None) if isinstance(tap, str) else tap
        parallelism = graph.vertex(uid).parallelism
        sink = f"$tap-{tap_name(tap)}"
        vertices.append(
            Vertex(
                id=sink,
                kind=OperatorKind.SINK,
                name=sink,
                parallelism=parallelism,
                details=_collect(tap_name(tap), COLLECT_TYPE),
            )
        )
        edges.append(
            Edge(source_id=uid, target_id=sink, partitioning=Partitioning.FORWARD, output_tag=tag)
        )
    return dataclasses.replace(graph, vertices=tuple(vertices), edges=tuple(edges))


def tap_name(tap: Tap) -> str:
    """Return the name under which a tap collects: the uid, or ``uid.tag``."""
    return tap if isinstance(tap, str) else ".".join(tap)


def part_before(graph: JobGraph, uid: str) -> JobGraph:
    """Return the part of a graph that a vertex's records come from, with that vertex."""
    wanted, waiting = {uid}, [uid]
    while waiting:
        here = waiting.pop()
        for edge in graph.inputs_of(here):
            if edge.source_id not in wanted:
                wanted.add(edge.source_id)
                waiting.append(edge.source_id)
    return dataclasses.replace(
        graph,
        vertices=tuple(vertex for vertex in graph.vertices if vertex.id in wanted),
        edges=tuple(e for e in graph.edges if {e.source_id, e.target_id} <= wanted),
    )


def used_payloads(graph: JobGraph, payloads: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payloads that the graph still names."""
    names = {vertex.payload_id(role) for vertex in graph.vertices for role in vertex.payloads}
    return {name: value for name, value in payloads.items() if name in names}


def sink_names(graph: JobGraph) -> list[str]:
    """Return the names of a graph's collect sinks, without taps."""
    names = [
        vertex.details["connector"]["properties"].get("name", "collected")
        for vertex in graph.vertices
        if vertex.kind is OperatorKind.SINK
        and _connector_type(vertex) == COLLECT_TYPE
        and not vertex.id.startswith("$tap-")
    ]
    return list(dict.fromkeys(names))


def _connector_type(vertex: Vertex) -> str:
    return str(vertex.details["connector"]["connector_type"])


def _collect(name: str, former: str) -> dict[str, Any]:
    return _stand_in(COLLECT_TYPE, {"name": name}, former)


def _stand_in(word: str, properties: dict[str, Any], former: str) -> dict[str, Any]:
    connector = {"connector_type": word, "properties": properties, "stands_for": former}
    return {"connector": connector}
