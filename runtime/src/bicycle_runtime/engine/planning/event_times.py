"""Operators that need event time where none can come: refused before anything starts.

A pure function of the graph and its sources. A source that does not say whether its records have
times is taken to give them; what is missed here is an error of the first record.
"""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.connectors.contract import Source
from bicycle_runtime.operators.errors import NoEventTimeError
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex

__all__ = ["require_event_times"]

_TIMED_WINDOWS = frozenset({"Tumbling", "Sliding", "Session"})
_TIMED_JOINS = frozenset({"interval_join", "as_of_join", "window_join", "merge_by_time"})
# Kinds whose results have the times of what came in.
_PASSING = frozenset(
    {
        OperatorKind.MAP,
        OperatorKind.FLAT_MAP,
        OperatorKind.FILTER,
        OperatorKind.MAP_BATCHES,
        OperatorKind.KEY_BY,
        OperatorKind.UNION,
        OperatorKind.WINDOW_COMBINE,
        OperatorKind.ASYNC_IO,
    }
)


def require_event_times(graph: JobGraph, sources: Mapping[str, Source]) -> None:
    """Refuse a graph in which records without event time reach an operator that needs it.

    Raises:
        NoEventTimeError: with the first such operator.
    """
    for vertex in graph.vertices:
        if _needs_times(vertex) and _is_reached_without(graph, vertex.id, sources):
            raise NoEventTimeError(operator=vertex.id, made=vertex.made)


def _needs_times(vertex: Vertex) -> bool:
    if vertex.kind is OperatorKind.WINDOW:
        return not _TIMED_WINDOWS.isdisjoint(vertex.details["window_type"])
    is_join = vertex.kind is OperatorKind.CO_PROCESS
    return is_join and vertex.details.get("function_kind") in _TIMED_JOINS


def _is_reached_without(graph: JobGraph, uid: str, sources: Mapping[str, Source]) -> bool:
    """Tell whether records of a source without times come in, through whatever keeps them so."""
    waiting, seen = [uid], {uid}
    while waiting:
        for edge in graph.inputs_of(waiting.pop()):
            sender = graph.vertex(edge.source_id)
            if edge.output_tag is not None or edge.feedback or sender.id in seen:
                continue
            seen.add(sender.id)
            if sender.kind is OperatorKind.SOURCE and sources[sender.id].gives_times is False:
                return True
            if _passes_times(sender):
                waiting.append(sender.id)
    return False


def _passes_times(vertex: Vertex) -> bool:
    is_plain = vertex.kind is OperatorKind.PROCESS and vertex.details.get("function_kind") in (
        "async",
        "rich",
    )
    return vertex.kind in _PASSING or is_plain
