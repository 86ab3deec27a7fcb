"""A job's graph at run time, as data, text and Mermaid drawing.

Everything here follows from the graph alone, so no function of the plugin is loaded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.engine.planning.stages import plan_stages, with_parallelism
from bicycle_runtime.operators.spec import ChainSpec, Link, RouteSpec
from bicycle_sdk.chaining import Chain, ChainingStats, optimize
from bicycle_sdk.graph import JobGraph, OperatorKind
from bicycle_sdk.quantities import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """One operator of a chain.

    Attributes:
        description: The work of its kind.
        words: The work of this operator, as in ``Vertex.words``.
    """

    id: str
    uid: str | None
    name: str
    kind: str
    description: str
    words: tuple[str, ...]
    parallelism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    """Operators in one task; ``stage`` is the Spark stage that hosts the chain.

    ``id`` is that of the first operator, ``max_parallelism`` the smallest that any of them sets.
    """

    index: int
    id: str
    name: str
    stage: int
    parallelism: int
    max_parallelism: int | None
    task_count: int
    slot_sharing_group: str
    is_source: bool
    is_sink: bool
    operators: tuple[OperatorView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeView:
    """Records that go from one chain to another.

    Attributes:
        exchange: ``direct``, ``shuffle`` or ``feedback``.
        link: The same, with ``parcel`` for ``shuffle``: the name of version 0.1.
    """

    source_chain: int
    target_chain: int
    source: str
    target: str
    partitioning: str
    exchange: str
    link: str
    tag: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEdgeView:
    """The exchanges between two chains; ``edge_count`` is the number of their edges."""

    source_chain: int
    target_chain: int
    edge_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A whole job at run time, and the savings of chaining."""

    job: str
    stages: tuple[int, ...]
    chains: tuple[ChainView, ...]
    exchanges: tuple[ExchangeView, ...]
    operator_count: int
    chaining: ChainingStats
    chain_edges: tuple[ChainEdgeView, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data; ``stages`` holds the number of tasks of each.

        ``chaining`` has the savings of chaining; ``tasks_without_chaining`` is one figure of it.
        """
        saved = round(self.chaining.task_reduction_percent, 1)
        plain = asdict(self)
        plain["chaining"]["task_reduction_percent"] = saved
        return {**plain, "tasks_without_chaining": self.chaining.tasks_before}

    def to_text(self) -> str:
        """Return the stages with their chains, one below the other."""
        lines = [
            f"job {self.job}: {amount(self.operator_count, 'operator')} in "
            f"{amount(len(self.chains), 'chain')}, {amount(len(self.stages), 'stage')}, "
            f"{amount(sum(self.stages), 'task')} "
            f"({self.chaining.tasks_before} without chaining)",
            f"chaining saves {self.chaining.task_reduction_percent:.1f}% of the tasks; "
            f"{amount(self.chaining.min_slots_needed, 'slot')} needed in "
            f"{amount(self.chaining.slot_sharing_groups, 'slot sharing group')}",
        ]
        for stage, task_count in enumerate(self.stages):
            lines.append(f"stage {stage} ({amount(task_count, 'task')})")
            for chain in (chain for chain in self.chains if chain.stage == stage):
                words = ", ".join(word for operator in chain.operators for word in operator.words)
                lines.append(f"  [{chain.index}] {chain.name} (p={chain.parallelism}): {words}")
                lines += [
                    f"      --{_label(exchange)}--> [{exchange.target_chain}]"
                    for exchange in self.exchanges
                    if exchange.source_chain == chain.index
                ]
        return "\n".join(lines)

    def to_mermaid(self) -> str:
        """Return the drawing in Mermaid's language, one box for each stage."""
        lines = ["flowchart LR"]
        for stage, task_count in enumerate(self.stages):
            lines.append(f'  subgraph stage{stage}["stage {stage}, {amount(task_count, "task")}"]')
            lines += [
                f'    c{chain.index}["{_quote(chain.name)}<br/>p={chain.parallelism}"]'
                for chain in self.chains
                if chain.stage == stage
            ]
            lines.append("  end")
        lines += [
            f'  c{each.source_chain} {_arrow(each)}|"{_quote(_label(each))}"| c{each.target_chain}'
            for each in self.exchanges
        ]
        return "\n".join(lines)


def graph_view(graph: JobGraph, *, parallelism: int | None = None) -> GraphView:
    """Return a valid graph as it will run.

    Args:
        graph: A valid graph.
        parallelism: Takes the place of every operator's, as ``bicycle run --parallelism`` does.

    Raises:
        GraphError: the graph is not valid at this parallelism.
        UNKNOWN_CONNECTOR: a source is of a kind that is not installed.
    """
    if parallelism is not None:
        graph = with_parallelism(graph, parallelism, _limits(graph))
    plan, optimized = plan_stages(graph), optimize(graph)
    index_of = {chain.operators[0].vertex.id: chain.index for chain in plan.chains}
    return GraphView(
        job=graph.name,
        stages=plan.level_parallelism,
        chains=tuple(
            _chain_view(chain, optimized.chain_of(chain.operators[0].vertex.id))
            for chain in plan.chains
        ),
        exchanges=tuple(
            _exchange_view(graph, chain, route) for chain in plan.chains for route in chain.routes
        ),
        operator_count=len(graph.vertices),
        chaining=optimized.stats,
        chain_edges=tuple(
            ChainEdgeView(
                source_chain=index_of[edge.source_chain_id],
                target_chain=index_of[edge.target_chain_id],
                edge_count=len(edge.edges),
            )
            for edge in optimized.edges
        ),
    )


def _limits(graph: JobGraph) -> dict[str, int]:
    """Return the maximum parallelism of sources that have a limit."""
    registry = default_registry()
    found = {}
    for vertex in graph.vertices:
        if vertex.kind is OperatorKind.SOURCE:
            word = vertex.details["connector"]["connector_type"]
            limit = registry.source_class(word, vertex.id).default_parallelism_max
            if limit is not None:
                found[vertex.id] = limit
    return found


def _chain_view(chain: ChainSpec, found: Chain) -> ChainView:
    return ChainView(
        index=chain.index,
        id=found.id,
        name=chain.name,
        stage=chain.level,
        parallelism=chain.parallelism,
        max_parallelism=found.max_parallelism,
        task_count=found.task_count,
        slot_sharing_group=found.slot_sharing_group,
        is_source=found.is_source,
        is_sink=found.is_sink,
        operators=tuple(
            OperatorView(
                id=spec.vertex.id,
                uid=spec.vertex.uid,
                name=spec.vertex.label,
                kind=spec.vertex.kind.value,
                description=spec.vertex.descriptor.description,
                words=spec.vertex.words,
                parallelism=spec.vertex.parallelism,
            )
            for spec in chain.operators
        ),
    )


def _exchange_view(graph: JobGraph, chain: ChainSpec, route: RouteSpec) -> ExchangeView:
    edge = graph.edges[route.edge]
    return ExchangeView(
        source_chain=chain.index,
        target_chain=route.target_chain,
        source=edge.source_id,
        target=edge.target_id,
        partitioning=route.partitioning.value,
        exchange=route.link.value,
        link="parcel" if route.link is Link.SHUFFLE else route.link.value,
        tag=edge.output_tag,
    )


def _label(exchange: ExchangeView) -> str:
    words = [exchange.partitioning.lower()]
    if exchange.tag is not None:
        words.append(f"tag {exchange.tag}")
    if exchange.exchange == "feedback":
        words.append("feedback")
    return ", ".join(words)


def _arrow(exchange: ExchangeView) -> str:
    return {"shuffle": "==>", "feedback": "-.->"}.get(exchange.exchange, "-->")


def _quote(text: str) -> str:
    return text.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
