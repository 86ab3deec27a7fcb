"""Which operators event time reaches: from sources and assigners to those that wait for it.

Pure functions of the graph. A watermark passes through every operator but one that assigns
timestamps, which begins its own. Times of records are carried through an exchange only where
somebody behind it reads them. Feedback edges carry times, but hold no watermark back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bicycle_runtime.operators.spec import WatermarkSpec
from bicycle_sdk.graph import JobGraph, OperatorKind, Vertex
from bicycle_sdk.time import IDLE_TIMEOUT_MS, OUT_OF_ORDERNESS_MS

__all__ = ["TimeReach", "waits_for_time"]


def waits_for_time(vertex: Vertex) -> bool:
    """Tell whether an operator may wait for event time or processing time."""
    return vertex.descriptor.waits_for_time or bool(vertex.details.get("in_event_time_order"))


class TimeReach:
    """Where event time goes in one graph.

    Args:
        graph: A valid graph.
        level_of: The level of each vertex, for telling who stands in the chain of a source.
        timed_sinks: Sinks that take the event times of records.
    """

    def __init__(
        self, graph: JobGraph, level_of: Mapping[str, int], *, timed_sinks: Collection[str] = ()
    ) -> None:
        self._graph = graph
        self._level_of = level_of
        self._timed_sinks = timed_sinks
        self._vertices = {vertex.id: vertex for vertex in graph.vertices}
        self._below: dict[str, frozenset[str]] = {}
        self._lags: dict[str, int] = {}
        self._readers = self._find_readers()
        self._used = self._find_used()

    @property
    def is_timed(self) -> bool:
        """Whether any operator may wait for time."""
        return any(map(waits_for_time, self._graph.vertices))

    def generators(self, uid: str) -> tuple[str, ...]:
        """Return the generators whose watermarks reach the input of a vertex."""
        return tuple(sorted(self._above(uid) & self._used))

    def lag_ms(self, uid: str) -> int:
        """Return how far the watermark of a vertex stays behind those of its generators."""
        return max(
            (self._lag_behind(e.source_id) for e in self._graph.inputs_of(uid) if not e.feedback),
            default=0,
        )

    def needs_times(self, uid: str) -> bool:
        """Tell whether a vertex, or one behind it, reads the event times of what comes in."""
        return uid in self._readers

    def strategy(self, uid: str) -> WatermarkSpec | None:
        """Return how a generator follows event time; None when nobody below needs it."""
        if uid not in self._used:
            return None
        vertex = self._vertices[uid]
        details = vertex.details
        is_source = vertex.kind is OperatorKind.SOURCE
        return WatermarkSpec(
            uid=uid,
            kind="bounded" if is_source else details["watermarks"],
            delay_ms=OUT_OF_ORDERNESS_MS if is_source else details["delay_ms"],
            idle_timeout_ms=IDLE_TIMEOUT_MS if is_source else details.get("idle_timeout_ms"),
            is_by_shard=self._level_of[uid] == 0,
            sources=tuple(sorted(self._sources_of(uid))),
            alignment_group=details.get("alignment_group"),
            max_drift_ms=details.get("max_drift_ms", 0),
        )

    def _above(self, uid: str) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for edge in self._graph.inputs_of(uid):
            if not edge.feedback:
                found |= self._passed_on(edge.source_id)
        return found

    def _passed_on(self, uid: str) -> frozenset[str]:
        """Return the generators whose watermarks leave a vertex."""
        if uid not in self._below:
            begins = self._vertices[uid].descriptor.begins_time
            self._below[uid] = frozenset({uid}) if begins else self._above(uid)
        return self._below[uid]

    def _lag_behind(self, uid: str) -> int:
        if uid not in self._lags:
            descriptor = self._vertices[uid].descriptor
            begins = descriptor.begins_time
            self._lags[uid] = 0 if begins else self.lag_ms(uid) + descriptor.lag_ms
        return self._lags[uid]

    def _sources_of(self, uid: str) -> set[str]:
        if self._vertices[uid].kind is OperatorKind.SOURCE:
            return {uid}
        inputs = self._graph.inputs_of(uid)
        return set().union(*(self._sources_of(e.source_id) for e in inputs if not e.feedback))

    def _find_used(self) -> set[str]:
        """Return the generators that are aligned, or above what can ask for a watermark."""
        used = {v.id for v in self._graph.vertices if "alignment_group" in v.details}
        for vertex in self._graph.vertices:
            if _asks_for_watermark(vertex):
                used |= self._above(vertex.id)
        return used

    def _find_readers(self) -> set[str]:
        """Return the vertices that read event times, and those that lead to one."""
        waiting = [vertex.id for vertex in self._graph.vertices if _reads_times(vertex)]
        waiting += self._timed_sinks
        found = set(waiting)
        while waiting:
            here = waiting.pop()
            for edge in self._graph.inputs_of(here):
                source = edge.source_id
                if source not in found and not _makes_times(self._vertices[source]):
                    found.add(source)
                    waiting.append(source)
        return found


def _asks_for_watermark(vertex: Vertex) -> bool:
    """Tell whether a function may call ``current_watermark()``, or the operator waits for it."""
    return waits_for_time(vertex) or vertex.descriptor.asks_for_watermark


def _reads_times(vertex: Vertex) -> bool:
    asks = bool(vertex.details.get("reads_times", False))  # a rich function for its states
    reads = vertex.descriptor.reads_times and not _makes_times(vertex)
    return asks or reads or waits_for_time(vertex)


def _makes_times(vertex: Vertex) -> bool:
    return vertex.kind is OperatorKind.ASSIGN_TIMESTAMPS and "function" in vertex.payloads
