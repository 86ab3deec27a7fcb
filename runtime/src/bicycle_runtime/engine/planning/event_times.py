"""Operators that need event time where none can come: refused before anything starts.

A pure function of the graph and its sources. A source that does not say whether its records have
times is taken to give them; what is missed here is an error of the first record.
"""

from __future__ import annotations

from collections.abc import Mapping

from bicycle_runtime.contract import Source
from bicycle_runtime.operators.errors import NO_EVENT_TIME
from bicycle_sdk.graph import JobGraph, OperatorKind

__all__ = ["require_event_times"]


def require_event_times(graph: JobGraph, sources: Mapping[str, Source]) -> None:
    """Refuse a graph in which records without event time reach an operator that needs it.

    Raises:
        NO_EVENT_TIME: with the first such operator.
    """
    for vertex in graph.vertices:
        if vertex.descriptor.needs_event_time and _is_reached_without(graph, vertex.id, sources):
            raise NO_EVENT_TIME(operator=vertex.id, made=vertex.made)


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
            if sender.descriptor.keeps_times:
                waiting.append(sender.id)
    return False
