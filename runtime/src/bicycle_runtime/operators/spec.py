"""The stage plan: the work of each task of each level, as plain data for workers.

The engine makes it from the job graph; this room executes it. A *level* is one Spark stage; task i
of a level hosts instance i of every chain of that level. Routes have the target of a chain's
output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from bicycle_runtime.base.storage import Storage
from bicycle_runtime.contract import Accepts, SourceReader, WriterFactory
from bicycle_runtime.layouts.state import OperatorStateMetadata
from bicycle_runtime.records.keys import range_of
from bicycle_runtime.state.settings import StateSettings
from bicycle_sdk.graph import Partitioning, Vertex

DEAD_LETTERS = "$dead_letters"
REPLAYED_LETTERS = "$replayed_letters"


class StateScope(Enum):
    """The division of an operator's state: by key group, by subtask, or not divided."""

    NONE = "none"
    KEY_GROUPS = "key_groups"
    SUBTASK = "subtask"


class Link(Enum):
    """The link by which records get from one chain to another."""

    DIRECT = "direct"  # same level, same subtask: passed as Python objects
    SHUFFLE = "shuffle"  # a deeper level: through the exchange
    FEEDBACK = "feedback"  # staged, and read by the next epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkSpec:
    """The watermark settings of one generator.

    ``is_by_shard`` is true in the chain of a source, with a time per shard of the source, and false
    behind an exchange, with a time per subtask. ``sources`` are the sources of its records.
    """

    uid: str
    kind: Literal["ascending", "bounded", "punctuated", "custom"]
    delay_ms: int
    idle_timeout_ms: int | None
    is_by_shard: bool
    sources: tuple[str, ...]
    alignment_group: str | None = None
    max_drift_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """One operator of a chain; ``key_selector`` is the payload id of its key selector.

    ``input_selectors`` are the selectors of an operator with several inputs, by ordinal.
    ``group_count`` is the number of key groups; of a partitioner of the job, the number of subtasks
    behind it.

    ``watermarks`` is set for generators whose watermarks an operator below needs; ``generators``
    are the uids of the generators whose watermarks reach its input, and ``lag_ms`` how far its own
    stays behind theirs. ``takes_times`` is set for sinks whose writers need the event times of
    records; ``accepts`` is the input of the writers of a sink.
    """

    vertex: Vertex
    group_count: int
    scope: StateScope
    key_selector: str | None = None
    input_selectors: tuple[str | None, ...] = ()
    input_type: str | None = None  # payload id of the type of its input records
    watermarks: WatermarkSpec | None = None
    generators: tuple[str, ...] = ()
    lag_ms: int = 0
    takes_times: bool = False
    accepts: Accepts = "records"

    @property
    def uid(self) -> str:
        """The stable id: names state, metrics and errors."""
        return self.vertex.id

    def ranges(self) -> list[range]:
        """Return the key groups of each subtask, empty if state is not divided by them."""
        if self.scope is not StateScope.KEY_GROUPS:
            return []
        parallelism = self.vertex.parallelism
        return [
            range_of(subtask, group_count=self.group_count, parallelism=parallelism)
            for subtask in range(parallelism)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """One edge as the sending chain sees it.

    ``operator`` is the position in the sending chain whose output it takes, ``tag`` its side
    output, ``input_ordinal`` the input of the target that it feeds. ``carries_time`` means that
    event times are needed at the target or behind it.
    """

    edge: int
    link: Link
    partitioning: Partitioning
    operator: int
    tag: str | None
    target_chain: int
    target_level: int
    target_parallelism: int
    group_count: int
    type_payload: str | None
    input_ordinal: int = 0
    carries_time: bool = False

    @property
    def takes_turns(self) -> bool:
        """Return whether the subtasks of the target get records in turn."""
        return self.partitioning is Partitioning.REBALANCE and self.target_parallelism > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSpec:
    """Operators that hand records to each other in one task."""

    index: int
    name: str
    level: int
    parallelism: int
    operators: tuple[OperatorSpec, ...]
    routes: tuple[RouteSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The chains of a job, each after its inputs, and the parallelism of each level.

    ``is_timed`` means that an operator may wait for time: then idle time and the end of the input
    can fire timers.
    """

    chains: tuple[ChainSpec, ...]
    level_parallelism: tuple[int, ...]
    is_timed: bool = False

    @property
    def level_count(self) -> int:
        """The number of Spark stages of an epoch."""
        return len(self.level_parallelism)

    @property
    def has_timed_loops(self) -> bool:
        """Return whether fired records may pass a loop."""
        routes = (route for chain in self.chains for route in chain.routes)
        return self.is_timed and any(route.link is Link.FEEDBACK for route in routes)

    def chains_at(self, level: int) -> list[ChainSpec]:
        """Return the chains of a level, in topological order."""
        return [chain for chain in self.chains if chain.level == level]

    def sender_of(self, edge: int) -> str:
        """Return the uid of the operator whose output goes along an edge."""
        for chain in self.chains:
            for route in chain.routes:
                if route.edge == edge:
                    return chain.operators[route.operator].uid
        raise KeyError(edge)

    def edges_with_turns(self) -> dict[int, str]:
        """Return the edges along which records go to each subtask in turn.

        By number, each with texts that identify it in graphs of later code, too.
        """
        heads = {chain.index: chain.operators[0].uid for chain in self.chains}
        return {
            route.edge: (
                f"{chain.operators[route.operator].uid} {route.tag or ''}"
                f" > {heads[route.target_chain]} {route.input_ordinal}"
            )
            for chain in self.chains
            for route in chain.routes
            if route.takes_turns
        }

    def operators(self) -> list[OperatorSpec]:
        """Return all operators, in topological order."""
        return [operator for chain in self.chains for operator in chain.operators]

    def generators(self) -> dict[str, WatermarkSpec]:
        """Return the generators of watermarks, by uid."""
        return {
            operator.uid: operator.watermarks
            for operator in self.operators()
            if operator.watermarks is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """The plugin that contains the functions, for errors and dead letters.

    ``dist`` is the name and version of its wheel.
    """

    name: str
    version: str
    dist: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobImage:
    """The constant data of a job that workers need. Sent once.

    ``state_metadata`` has the schema versions in which values of states may be sealed, by operator.
    ``properties`` are the properties of the job.
    """

    job_id: str
    run_id: str
    plugin: PluginInfo
    plan: StagePlan
    payloads: Mapping[str, bytes]
    storage: Storage
    readers: Mapping[str, SourceReader]
    writers: Mapping[str, WriterFactory]
    blocking_call_ms: int = 1_000
    state: StateSettings = field(default_factory=StateSettings)
    state_metadata: Mapping[str, OperatorStateMetadata] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def with_state_folder(self, choose: Callable[[], str]) -> JobImage:
        """Return the image with a local state folder, if one is needed and not set."""
        if self.state.backend == "memory" or self.state.folder is not None:
            return self
        return replace(self, state=replace(self.state, folder=choose()))
