"""The stage plan of a job graph: chains, levels, routes. A pure function of the graph.

A chain behind an exchange is one level below its deepest input; forward edges of equal parallelism
cross no level when both ends fit into one. So an epoch is one linear Spark job, whatever the shape
of the graph. Keyed streams are not divided on their way into a union that is keyed again.

Event time reaches some operators: from sources and assigners to the operators that wait for it. A
watermark passes through every operator but an assigner of timestamps, which begins its own. Times
of records are carried through an exchange only if an operator behind it reads them. Feedback edges
carry times, but hold no watermark back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from bicycle_runtime.contract import Sink
from bicycle_runtime.engine.errors import KEY_GROUP_CONFLICT, PARTITION_CONFLICT
from bicycle_runtime.operators.spec import (
    ChainSpec,
    Link,
    OperatorSpec,
    RouteSpec,
    StagePlan,
    StateScope,
    WatermarkSpec,
)
from bicycle_sdk.chaining import Chain, optimize
from bicycle_sdk.graph import Edge, Inputs, JobGraph, OperatorKind, Partitioning, StateShape, Vertex
from bicycle_sdk.time import IDLE_TIMEOUT_MS, OUT_OF_ORDERNESS_MS

_EXCHANGES = frozenset(Partitioning) - {Partitioning.FORWARD}


def plan_stages(graph: JobGraph, *, sinks: Mapping[str, Sink] | None = None) -> StagePlan:
    """Return the stage plan of a valid graph.

    Args:
        graph: The graph.
        sinks: The form of records that they take; None if unknown.

    Raises:
        KEY_GROUP_CONFLICT: consumers of one keyed stream require different numbers of key groups.
        PARTITION_CONFLICT: a partitioner of the job has no one number of subtasks.
    """
    return _Planner(graph, sinks or {}).plan()


def group_count_of(graph: JobGraph, vertex: Vertex) -> int:
    """Return an operator's number of key groups: its max parallelism, else the job's."""
    return vertex.max_parallelism or graph.config.max_parallelism


def parallelisms_of(graph: JobGraph) -> dict[str, int]:
    """Return the parallelism of each vertex."""
    return {vertex.id: vertex.parallelism for vertex in graph.vertices}


def with_parallelism(graph: JobGraph, parallelism: int, limits: Mapping[str, int]) -> JobGraph:
    """Return the graph with each operator at a parallelism, up to its limit.

    Args:
        graph: A valid graph.
        parallelism: 1 or more.
        limits: Largest parallelism of vertices that have one, such as sources that cannot be
            divided.
    """
    parallelisms = {
        vertex.id: min(parallelism, limits.get(vertex.id, parallelism)) for vertex in graph.vertices
    }
    return with_parallelisms(graph, parallelisms)


def with_parallelisms(graph: JobGraph, parallelisms: Mapping[str, int]) -> JobGraph:
    """Return the graph with these vertices at this parallelism; others keep theirs.

    Forward edges whose ends then differ become rebalance edges.

    Args:
        graph: A valid graph. For a graph that was changed by this function before, pass the
            original: a rebalance edge does not become a forward edge again.
        parallelisms: Parallelism by vertex, 1 or more.

    Raises:
        GraphError: a parallelism is over the vertex's maximum.
    """
    vertices = tuple(
        dataclasses.replace(vertex, parallelism=parallelisms.get(vertex.id, vertex.parallelism))
        for vertex in graph.vertices
    )
    parallelism = {vertex.id: vertex.parallelism for vertex in vertices}
    edges = tuple(
        dataclasses.replace(edge, partitioning=Partitioning.REBALANCE)
        if edge.partitioning is Partitioning.FORWARD
        and parallelism[edge.source_id] != parallelism[edge.target_id]
        else edge
        for edge in graph.edges
    )
    widened = dataclasses.replace(graph, vertices=vertices, edges=edges)
    widened.validate()
    return widened


class _Planner:
    """Draws the plan of one graph."""

    def __init__(self, graph: JobGraph, sinks: Mapping[str, Sink]) -> None:
        self._graph = graph = _divided_once(graph)
        self._timed_sinks = {uid for uid, sink in sinks.items() if sink.takes_times}
        self._accepts = {uid: sink.accepts for uid, sink in sinks.items()}
        self._vertices = {vertex.id: vertex for vertex in graph.vertices}
        self._chains = {chain.id: chain for chain in optimize(graph).chains}
        self._chain_of = {
            operator: chain.id for chain in self._chains.values() for operator in chain.operator_ids
        }
        self._order = self._topological_order()
        self._index = {chain_id: index for index, chain_id in enumerate(self._order)}
        self._level = self._levels()
        level_of = {uid: self._level[chain_id] for uid, chain_id in self._chain_of.items()}
        self._time = TimeReach(graph, level_of, timed_sinks=self._timed_sinks)

    def plan(self) -> StagePlan:
        chains = tuple(self._chain_spec(chain_id) for chain_id in self._order)
        depth = max(self._level.values()) + 1
        parallelisms = tuple(
            max(chain.parallelism for chain in chains if chain.level == level)
            for level in range(depth)
        )
        return StagePlan(
            chains=chains, level_parallelism=parallelisms, is_timed=self._time.is_timed
        )

    def _inputs(self, chain_id: str) -> list[Edge]:
        head = self._chains[chain_id].operator_ids[0]
        return [edge for edge in self._graph.inputs_of(head) if not edge.feedback]

    def _topological_order(self) -> list[str]:
        order: list[str] = []
        waiting = list(self._chains)
        while waiting:
            ready = [
                chain_id
                for chain_id in waiting
                if all(self._chain_of[edge.source_id] in order for edge in self._inputs(chain_id))
            ]
            order += ready
            waiting = [chain_id for chain_id in waiting if chain_id not in ready]
        return order

    def _levels(self) -> dict[str, int]:
        levels: dict[str, int] = {}
        for chain_id in self._order:
            levels[chain_id] = max(
                (
                    levels[self._chain_of[edge.source_id]] + (not self._is_direct(edge))
                    for edge in self._inputs(chain_id)
                ),
                default=0,
            )
        return levels

    def _is_direct(self, edge: Edge) -> bool:
        source, target = self._vertices[edge.source_id], self._vertices[edge.target_id]
        return (
            edge.partitioning is Partitioning.FORWARD and source.parallelism == target.parallelism
        )

    def _chain_spec(self, chain_id: str) -> ChainSpec:
        chain = self._chains[chain_id]
        return ChainSpec(
            index=self._index[chain_id],
            name=chain.name,
            level=self._level[chain_id],
            parallelism=chain.parallelism,
            operators=tuple(self._operator_spec(operator) for operator in chain.operator_ids),
            routes=tuple(self._routes(chain)),
        )

    def _routes(self, chain: Chain) -> list[RouteSpec]:
        inner = set(chain.operator_ids)
        return [
            self._route(number, edge, chain.operator_ids.index(edge.source_id))
            for number, edge in enumerate(self._graph.edges)
            if (edge.source_id in inner and self._chain_of[edge.target_id] != chain.id)
            or self._is_own_loop(edge, chain)
        ]

    def _is_own_loop(self, edge: Edge, chain: Chain) -> bool:
        return edge.feedback and edge.source_id in chain.operator_ids

    def _route(self, number: int, edge: Edge, position: int) -> RouteSpec:
        source, target = self._vertices[edge.source_id], self._vertices[edge.target_id]
        target_chain = self._chain_of[edge.target_id]
        same_level = self._level[target_chain] == self._level[self._chain_of[edge.source_id]]
        near = Link.DIRECT if same_level else Link.SHUFFLE
        link = Link.FEEDBACK if edge.feedback else near
        typed = edge.output_tag is None and "output_type" in source.payloads
        return RouteSpec(
            edge=number,
            link=link,
            partitioning=edge.partitioning,
            operator=position,
            tag=edge.output_tag,
            target_chain=self._index[target_chain],
            target_level=self._level[target_chain],
            target_parallelism=target.parallelism,
            group_count=group_count_of(self._graph, target),
            type_payload=source.payload_id("output_type") if typed else None,
            input_ordinal=edge.input_ordinal,
            carries_time=self._time.needs_times(edge.target_id),
        )

    def _operator_spec(self, operator: str) -> OperatorSpec:
        vertex = self._vertices[operator]
        key_by = self._key_by(vertex)
        source = self._giver(operator)
        typed = source is not None and "output_type" in source.payloads
        return OperatorSpec(
            vertex=vertex,
            group_count=self._group_count(vertex),
            scope=_scope_of(vertex),
            key_selector=key_by.payload_id("function") if key_by else None,
            input_selectors=self._input_selectors(vertex),
            input_type=source.payload_id("output_type") if source and typed else None,
            watermarks=self._time.strategy(operator),
            generators=self._time.generators(operator),
            lag_ms=self._time.lag_ms(operator),
            takes_times=operator in self._timed_sinks,
            accepts=self._accepts.get(operator, "records"),
        )

    def _key_by(self, vertex: Vertex) -> Vertex | None:
        for edge in self._graph.inputs_of(vertex.id):
            source = self._vertices[edge.source_id]
            if source.descriptor.packs_records:
                return self._key_by(source)
            is_keyed = edge.partitioning is Partitioning.HASH or vertex.descriptor.packs_records
            if is_keyed and source.kind is OperatorKind.KEY_BY:
                return source
        return None

    def _input_selectors(self, vertex: Vertex) -> tuple[str | None, ...]:
        """Return the key selector of each input of an operator, by ordinal."""
        if vertex.descriptor.inputs is not Inputs.APART:
            return ()
        edges = sorted(self._graph.inputs_of(vertex.id), key=lambda edge: edge.input_ordinal)
        return tuple(
            self._vertices[edge.source_id].payload_id("function")
            if edge.partitioning is Partitioning.HASH
            else None
            for edge in edges
        )

    def _giver(self, uid: str) -> Vertex | None:
        """Return the vertex that produces an operator's records, before any packing."""
        inputs = self._graph.inputs_of(uid)
        if not inputs:
            return None
        source = self._vertices[inputs[0].source_id]
        return self._giver(source.id) if source.descriptor.packs_records else source

    def _group_count(self, vertex: Vertex) -> int:
        if vertex.descriptor.divides_by is Partitioning.CUSTOM:
            return self._subtasks_behind(vertex)
        if vertex.kind is not OperatorKind.KEY_BY:
            return group_count_of(self._graph, vertex)
        consumers = [self._vertices[edge.target_id] for edge in self._graph.outputs_of(vertex.id)]
        counts = sorted({group_count_of(self._graph, consumer) for consumer in consumers})
        if len(counts) > 1:
            raise KEY_GROUP_CONFLICT(vertex=vertex.id, counts=counts)
        return counts[0]

    def _subtasks_behind(self, vertex: Vertex) -> int:
        """Return how many subtasks a partitioner of the job can choose from."""
        outputs = self._graph.outputs_of(vertex.id)
        edges = [edge for edge in outputs if edge.partitioning is Partitioning.CUSTOM]
        counts = sorted({self._vertices[edge.target_id].parallelism for edge in edges})
        problem = ""
        if len(counts) > 1:
            problem = f"the consumers have {counts} subtasks"
        if any(edge.feedback for edge in edges):
            problem = (
                "fed-back records arrive in the next epoch, which may have another number of "
                "subtasks"
            )
        if problem:
            raise PARTITION_CONFLICT(operator=vertex.id, made=vertex.made, problem=problem)
        return counts[0] if counts else vertex.parallelism


def _divided_once(graph: JobGraph) -> JobGraph:
    """Return the graph with forward edges into unions whose output is divided again."""
    vertices = {vertex.id: vertex for vertex in graph.vertices}

    def divides_again(vertex: Vertex) -> bool:
        outputs = graph.outputs_of(vertex.id)
        return vertex.kind in (OperatorKind.UNION, OperatorKind.KEY_BY) and all(
            not edge.feedback
            and (edge.partitioning in _EXCHANGES or divides_again(vertices[edge.target_id]))
            for edge in outputs
        )

    def passed_on(edge: Edge) -> Edge:
        source, target = vertices[edge.source_id], vertices[edge.target_id]
        is_passed_on = (
            edge.partitioning is Partitioning.HASH
            and not edge.feedback
            and source.parallelism == target.parallelism
            and target.kind is OperatorKind.UNION
            # One of a single stream may become a part of the chain that it ends now.
            and len(graph.inputs_of(target.id)) > 1
            and divides_again(target)
        )
        if not is_passed_on:
            return edge
        return dataclasses.replace(edge, partitioning=Partitioning.FORWARD)

    return dataclasses.replace(graph, edges=tuple(map(passed_on, graph.edges)))


def _scope_of(vertex: Vertex) -> StateScope:
    if vertex.descriptor.state is StateShape.NONE:
        return StateScope.NONE
    # Broadcast state is stored with all key groups, so that every subtask finds a copy of it.
    is_divided = vertex.is_keyed or vertex.details.get("has_broadcast")
    return StateScope.KEY_GROUPS if is_divided else StateScope.SUBTASK


def waits_for_time(vertex: Vertex) -> bool:
    """Return whether an operator may wait for event time or processing time."""
    return vertex.descriptor.waits_for_time or bool(vertex.details.get("in_event_time_order"))


class TimeReach:
    """The flow of event time in one graph.

    Args:
        graph: A valid graph.
        level_of: The level of each vertex, to identify the chain of a source.
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
        """Return whether any operator may wait for time."""
        return any(map(waits_for_time, self._graph.vertices))

    def generators(self, uid: str) -> tuple[str, ...]:
        """Return the generators whose watermarks reach the input of a vertex."""
        return tuple(sorted(self._above(uid) & self._used))

    def lag_ms(self, uid: str) -> int:
        """Return how far a vertex's watermark is behind its generators' watermarks."""
        return max(
            (self._lag_behind(e.source_id) for e in self._graph.inputs_of(uid) if not e.feedback),
            default=0,
        )

    def needs_times(self, uid: str) -> bool:
        """Return whether a vertex or one downstream reads event times."""
        return uid in self._readers

    def strategy(self, uid: str) -> WatermarkSpec | None:
        """Return the strategy of a generator, or None if no operator downstream needs it."""
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
        """Return the generators that are aligned, or upstream of a watermark's reader."""
        used = {v.id for v in self._graph.vertices if "alignment_group" in v.details}
        for vertex in self._graph.vertices:
            if _asks_for_watermark(vertex):
                used |= self._above(vertex.id)
        return used

    def _find_readers(self) -> set[str]:
        """Return the vertices that read event times, and vertices upstream of them."""
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
    """Return whether a function may read the watermark, or its operator waits for it."""
    return waits_for_time(vertex) or vertex.descriptor.asks_for_watermark


def _reads_times(vertex: Vertex) -> bool:
    asks = bool(vertex.details.get("reads_times", False))  # a rich function for its states
    reads = vertex.descriptor.reads_times and not _makes_times(vertex)
    return asks or reads or waits_for_time(vertex)


def _makes_times(vertex: Vertex) -> bool:
    return vertex.kind is OperatorKind.ASSIGN_TIMESTAMPS and "function" in vertex.payloads
