"""The parts of a job graph as frozen data: vertices, edges, settings.

The lists of words are closed. Nothing here reads, writes or checks a graph; ``json_form`` and
``rules`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bicycle_sdk.graph.kinds import (
    KindDescriptor,
    OperatorKind,
    Partitioning,
    descriptor_of,
)

__all__ = [
    "KEY_GROUP_COUNT_MAX",
    "Edge",
    "ErrorAction",
    "ErrorPolicy",
    "JobConfig",
    "RestartKind",
    "RestartStrategy",
    "RuntimeMode",
    "Vertex",
]

KEY_GROUP_COUNT_MAX = 32_768
_CONNECTED = frozenset({"broadcast", "co_map", "co_process"})


class RestartKind(Enum):
    """The kinds of restart strategies."""

    NONE = "None"
    FIXED_DELAY = "FixedDelay"
    EXPONENTIAL_BACKOFF = "ExponentialBackoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStrategy:
    """The rule for restarts of a failed job: at most ``max_attempts``, with delays.

    The first attempt comes at once. Later ones wait for ``delay_ms``, which doubles each time when
    the kind is exponential.
    """

    kind: RestartKind = RestartKind.FIXED_DELAY
    max_attempts: int = 3
    delay_ms: int = 5_000

    @classmethod
    def none(cls) -> RestartStrategy:
        """Return a strategy that never restarts a failed job."""
        return cls(kind=RestartKind.NONE, max_attempts=0, delay_ms=0)

    @classmethod
    def fixed_delay(cls, *, max_attempts: int = 3, delay_ms: int = 5_000) -> RestartStrategy:
        """Start again up to ``max_attempts`` times, from the second on after ``delay_ms``."""
        return cls(kind=RestartKind.FIXED_DELAY, max_attempts=max_attempts, delay_ms=delay_ms)

    @classmethod
    def exponential_backoff(
        cls, *, max_attempts: int = 3, delay_ms: int = 5_000
    ) -> RestartStrategy:
        """Return a strategy of up to ``max_attempts`` restarts with doubling delays."""
        kind = RestartKind.EXPONENTIAL_BACKOFF
        return cls(kind=kind, max_attempts=max_attempts, delay_ms=delay_ms)


class RuntimeMode(Enum):
    """The mode of a job: it follows its input forever, or reads finite input once."""

    STREAMING = "streaming"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Settings of a whole job."""

    parallelism: int = 1
    max_parallelism: int = 128
    checkpoint_interval_ms: int = 60_000
    restart_strategy: RestartStrategy = RestartStrategy()
    properties: Mapping[str, str] = field(default_factory=dict)
    mode: RuntimeMode = RuntimeMode.STREAMING


class ErrorAction(Enum):
    """The action on a record whose function raised (after the retries, if any)."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """The ``on_error`` setting of a vertex: retries with back-off, then an action.

    ``max_error_rate`` (0 to 1, None = no limit) stops the job when a larger share of an epoch's
    records failed.
    """

    action: ErrorAction = ErrorAction.FAIL
    retries: int = 0
    backoff_ms: int = 100
    max_error_rate: float | None = None

    @property
    def goes_on(self) -> bool:
        """Return whether the epoch may continue after a failed attempt, so undo is needed."""
        return self.action is not ErrorAction.FAIL or self.retries > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """One operator of the graph.

    ``details`` are the settings of the kind, for every reader (connector, tag, ``is_rich`` …);
    ``config`` is the operator's own settings; ``payloads`` are the roles of the objects beside the
    graph. ``location`` is the ``file:line`` of the call that created it. The JSON omits it, since a
    moved line does not change the graph.
    """

    id: str
    kind: OperatorKind
    uid: str | None = None
    name: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    parallelism: int = 1
    max_parallelism: int | None = None
    slot_sharing_group: str = "default"
    chaining_enabled: bool = True
    starts_new_chain: bool = False
    plugin_function: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    output_type: str | None = None
    on_error: ErrorPolicy = ErrorPolicy()
    payloads: tuple[str, ...] = ()
    location: str | None = field(default=None, compare=False)

    @property
    def descriptor(self) -> KindDescriptor:
        """The descriptor of the operator's kind."""
        return descriptor_of(self.kind, self.details)

    @property
    def is_keyed(self) -> bool:
        """Return whether the operator works per key."""
        fixed = self.descriptor.is_keyed
        return bool(self.details.get("is_keyed", False)) if fixed is None else fixed

    @property
    def title(self) -> str:
        """The operator as errors name it: id, kind, location, and whether it has a uid."""
        return f"{self.id!r} ({self.made})" if self.made else repr(self.id)

    @property
    def made(self) -> str:
        """The kind, uid and code location of the vertex, empty without a location."""
        if self.location is None:
            return ""
        uid = " without uid" if self.uid is None else ""
        return f"{self.kind.value}{uid}, {self.location}"

    @property
    def label(self) -> str:
        """The name shown to people: the given name, else the id."""
        return self.name or self.id

    @property
    def words(self) -> tuple[str, ...]:
        """The operator's words in the shared graph language.

        There a count is a kind of its own, and streams that are connected meet in a vertex before
        the function that reads both; here these are ways of Reduce and CoProcess.

        Example:
            >>> both = {"is_rich": True, "function_kind": "co_map"}
            >>> Vertex(id="pair", kind=OperatorKind.CO_PROCESS, details=both).words
            ('Connect', 'CoProcess')
        """
        if self.details.get("aggregation") == "count":
            return ("Count",)
        if self.details.get("function_kind") in _CONNECTED:
            return ("Connect", self.kind.value)
        return (self.kind.value,)

    def payload_id(self, role: str) -> str:
        """Return the id of the object of ``role`` beside the graph."""
        return f"{self.id}/{role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A connection for records between two operators.

    ``output_tag`` selects a side output; records on a ``feedback`` edge are input of the next
    epoch.
    """

    source_id: str
    target_id: str
    partitioning: Partitioning = Partitioning.FORWARD
    input_ordinal: int = 0
    output_tag: str | None = None
    feedback: bool = False
