"""What a person has to know when a job has begun: where to connect to its sockets."""

from __future__ import annotations

from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

__all__ = ["socket_lines"]

_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


def socket_lines(graph: JobGraph) -> list[str]:
    """Return a line with the command that connects for each socket, sources first.

    A socket on any free port (0) has none here: its port is in the log.
    """
    return [
        f"{word}: nc {_host(vertex)} {_properties(vertex)['port']}"
        for kind, word in ((OperatorKind.SOURCE, "Input"), (OperatorKind.SINK, "Output"))
        for vertex in graph.vertices
        if vertex.kind is kind and _is_socket(vertex) and _properties(vertex).get("port")
    ]


def _is_socket(vertex: Vertex) -> bool:
    return bool(vertex.details["connector"]["connector_type"] == "socket")


def _properties(vertex: Vertex) -> dict[str, object]:
    return dict(vertex.details["connector"].get("properties", {}))


def _host(vertex: Vertex) -> str:
    host = str(_properties(vertex).get("host", ""))
    return "localhost" if host in _ANY_ADDRESS else host
