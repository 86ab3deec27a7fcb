"""Operator kinds and partitionings: their words in the graph, and descriptors.

Rules, chaining, JSON, the planner, the ids of operators, workers and inspection read the
descriptors, so that a new kind is one row here, the call that adds it to a stream, and its
operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

__all__ = [
    "PREPARED",
    "Inputs",
    "KindDescriptor",
    "OperatorKind",
    "Partitioning",
    "StateShape",
    "descriptor_of",
]


class OperatorKind(Enum):
    """The closed list of node kinds that the runtime knows; shortcuts expand to them."""

    SOURCE = "Source"
    SINK = "Sink"
    MAP = "Map"
    FLAT_MAP = "FlatMap"
    FILTER = "Filter"
    MAP_BATCHES = "MapBatches"
    KEY_BY = "KeyBy"
    PARTITION_CUSTOM = "PartitionCustom"
    RATE_LIMIT = "RateLimit"
    REDUCE = "Reduce"
    UNION = "Union"
    SIDE_OUTPUT = "SideOutput"
    PROCESS = "Process"
    ASYNC_IO = "AsyncIO"
    CO_PROCESS = "CoProcess"
    ASSIGN_TIMESTAMPS = "AssignTimestamps"
    WINDOW = "Window"
    WINDOW_COMBINE = "WindowCombine"


class Partitioning(Enum):
    """The choice of a subtask for each record of an edge."""

    FORWARD = "Forward"
    REBALANCE = "Rebalance"
    SHUFFLE = "Shuffle"
    HASH = "Hash"
    BROADCAST = "Broadcast"
    GLOBAL = "Global"
    CUSTOM = "Custom"


class Inputs(Enum):
    """The streams that an operator takes, and whether it distinguishes them."""

    NONE = "none"
    ONE = "one"
    MIXED = "mixed"
    APART = "apart"


class StateShape(Enum):
    """The state that an operator stores across epochs for the job's author."""

    NONE = "none"
    ACCUMULATOR = "accumulator"  # one value for each key
    WINDOWS = "windows"  # records or accumulators for each key and window
    FUNCTION = "function"  # attributes, declared states and timers of a function


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDescriptor:
    """The properties of a kind for all code except the operator itself.

    Attributes:
        description: The work of the operator, for people.
        inputs: How many streams it takes.
        required: Types of the ``details`` that the JSON form must have, by name.
        optional: Types of the optional inputs.
        is_bare: Whether the JSON form without details is the bare word.
        method: The method of its one-method function classes; None where it has no such classes.
        gives_many: Whether this method returns any number of records.
        keeps_type: Whether results have the type of the input.
        is_keyed: Whether it works per key; None if ``details["is_keyed"]`` decides.
        divides_by: The partitioning that only edges out of such kinds can have; their records carry
            the data that the edge needs.
        packs_records: Whether its results are packed records of the input stream.
        ends_chain: Whether no operator can follow it in its chain.
        can_fail: Whether it runs code that may fail for a record, so that ``on_error`` applies.
        may_change_records: Whether its function may change the records that it gets, or keep them.
        has_side_outputs: Whether its function can write to side outputs.
        state: The kind of its state.
        keeps_times: Whether results have the event times of the input.
        begins_time: Whether watermarks begin here.
        waits_for_time: Whether it may wait for event time or for processing time.
        asks_for_watermark: Whether its function may ask how far event time has come.
        reads_times: Whether it reads the event time of each record, though it waits for no time.
        needs_event_time: Whether records without event time are an error.
        lag_ms: Maximum distance of the time of a result from the watermark at its emission.
        can_be_ordered: Whether its function can see records in the order of event time.
        mixes: The input whose order for the function depends on the cuts of epochs; None: no input.
        is_prompt: Whether it emits results at once: no record waits in it, neither for other
            records, for responses or for time.
    """

    description: str
    inputs: Inputs = Inputs.ONE
    required: Mapping[str, type] = field(default_factory=dict)
    optional: Mapping[str, type] = field(default_factory=dict)
    is_bare: bool = False
    method: str | None = None
    gives_many: bool = False
    keeps_type: bool = False
    is_keyed: bool | None = False
    divides_by: Partitioning | None = None
    packs_records: bool = False
    ends_chain: bool = False
    can_fail: bool = True
    may_change_records: bool = False
    has_side_outputs: bool = False
    state: StateShape = StateShape.NONE
    keeps_times: bool = False
    begins_time: bool = False
    waits_for_time: bool = False
    asks_for_watermark: bool = False
    reads_times: bool = False
    needs_event_time: bool = False
    lag_ms: int = 0
    can_be_ordered: bool = False
    mixes: str | None = None
    is_prompt: bool = False

    @property
    def passes_on(self) -> bool:
        """Return whether a kind keeps no state between epochs, and leaves event times."""
        return self.keeps_times and self.state is StateShape.NONE


def descriptor_of(kind: OperatorKind, details: Mapping[str, Any] | None = None) -> KindDescriptor:
    """Return the descriptor of a kind.

    Args:
        kind: The kind.
        details: The details of a vertex: functions and windows of one kind differ in them.

    Example:
        >>> descriptor_of(OperatorKind.PROCESS, {"function_kind": "async"}).state.value
        'none'
    """
    if details:
        words = (details.get("function_kind"), *details.get("window_type", ()))
        for word in words:
            if (kind, word) in _VARIANTS:
                return _VARIANTS[kind, word]
    return _DESCRIPTORS[kind]


_DESCRIPTORS: Mapping[OperatorKind, KindDescriptor] = {
    OperatorKind.SOURCE: KindDescriptor(
        description="reads records from another system",
        inputs=Inputs.NONE,
        required={"connector": dict},
        begins_time=True,
        is_prompt=True,
    ),
    OperatorKind.SINK: KindDescriptor(
        description="writes records to another system",
        required={"connector": dict},
        ends_chain=True,
        is_prompt=True,
    ),
    OperatorKind.MAP: KindDescriptor(
        description="replaces each record by one record",
        is_bare=True,
        method="map",
        may_change_records=True,
        keeps_times=True,
        is_prompt=True,
    ),
    OperatorKind.FLAT_MAP: KindDescriptor(
        description="replaces each record by any number of records",
        is_bare=True,
        method="flat_map",
        gives_many=True,
        may_change_records=True,
        keeps_times=True,
        is_prompt=True,
    ),
    OperatorKind.FILTER: KindDescriptor(
        description="keeps some of the records",
        is_bare=True,
        method="filter",
        keeps_type=True,
        keeps_times=True,
        is_prompt=True,
    ),
    OperatorKind.MAP_BATCHES: KindDescriptor(
        description="replaces whole batches of records",
        is_bare=True,
        method="map_batches",
        gives_many=True,
        may_change_records=True,
        keeps_times=True,
    ),
    OperatorKind.KEY_BY: KindDescriptor(
        description="assigns a key to each record",
        required={"key_selector": str},
        method="get_key",
        keeps_type=True,
        divides_by=Partitioning.HASH,
        keeps_times=True,
    ),
    OperatorKind.PARTITION_CUSTOM: KindDescriptor(
        description="chooses the subtask for each record with a function of the job",
        required={"partitioner": str},
        method="get_key",
        keeps_type=True,
        divides_by=Partitioning.CUSTOM,
        keeps_times=True,
    ),
    OperatorKind.RATE_LIMIT: KindDescriptor(
        description="limits the rate of records; excess records wait",
        required={"per_second": float, "burst": int},
        can_fail=False,
        keeps_times=True,
    ),
    OperatorKind.REDUCE: KindDescriptor(
        description="aggregates the records of each key into a running result",
        optional={"aggregation": str, "emits_key": bool},
        is_bare=True,
        method="reduce",
        keeps_type=True,
        is_keyed=True,
        may_change_records=True,
        state=StateShape.ACCUMULATOR,
    ),
    OperatorKind.UNION: KindDescriptor(
        description="merges streams of the same type into one",
        inputs=Inputs.MIXED,
        is_bare=True,
        can_fail=False,
        keeps_times=True,
        is_prompt=True,
    ),
    OperatorKind.SIDE_OUTPUT: KindDescriptor(
        description="forwards the side output of a function",
        required={"tag": str},
        can_fail=False,
        keeps_times=True,
        is_prompt=True,
    ),
    OperatorKind.PROCESS: KindDescriptor(
        description="calls a function with state",
        required={"is_rich": bool},
        optional={
            "function_kind": str,
            "is_keyed": bool,
            "in_event_time_order": bool,
            "reads_times": bool,
        },
        is_keyed=None,
        may_change_records=True,
        has_side_outputs=True,
        state=StateShape.FUNCTION,
        asks_for_watermark=True,
    ),
    OperatorKind.ASYNC_IO: KindDescriptor(
        description="calls an external system for each record",
        required={"ordered": bool, "timeout_ms": int, "capacity": int},
        optional={"batch_size": int, "retries": int, "backoff_ms": int},
        may_change_records=True,
        keeps_times=True,
    ),
    OperatorKind.CO_PROCESS: KindDescriptor(
        description="calls a function with several inputs",
        inputs=Inputs.APART,
        required={"is_rich": bool},
        optional={
            "function_kind": str,
            "is_keyed": bool,
            "has_broadcast": bool,
            "settings": dict,
            "in_event_time_order": bool,
        },
        is_keyed=None,
        may_change_records=True,
        has_side_outputs=True,
        state=StateShape.FUNCTION,
        waits_for_time=True,
        asks_for_watermark=True,
    ),
    OperatorKind.ASSIGN_TIMESTAMPS: KindDescriptor(
        description="assigns timestamps and watermarks to records",
        required={"watermarks": str, "delay_ms": int},
        optional={"idle_timeout_ms": int, "alignment_group": str, "max_drift_ms": int},
        begins_time=True,
        reads_times=True,
        is_prompt=True,
    ),
    OperatorKind.WINDOW: KindDescriptor(
        description="computes results over windows of the records of each key",
        required={"window_type": dict},
        optional={
            "is_keyed": bool,
            "is_combined": bool,
            "allowed_lateness_ms": int,
            "late_tag": str,
            "trigger": str,
            "evictor": str,
        },
        is_keyed=True,
        may_change_records=True,
        has_side_outputs=True,
        state=StateShape.WINDOWS,
        waits_for_time=True,
        asks_for_watermark=True,
    ),
    OperatorKind.WINDOW_COMBINE: KindDescriptor(
        description="combines the records of each key and window before the shuffle",
        required={"window_type": dict},
        divides_by=Partitioning.HASH,
        packs_records=True,
        may_change_records=True,
        keeps_times=True,
        reads_times=True,
    ),
}

_PROCESS = _DESCRIPTORS[OperatorKind.PROCESS]
_CO_PROCESS = _DESCRIPTORS[OperatorKind.CO_PROCESS]
_WINDOW = _DESCRIPTORS[OperatorKind.WINDOW]
_BY_TIME = replace(_CO_PROCESS, needs_event_time=True)

# Where functions and windows of one kind differ: by ``function_kind``, or the word of the windows.
_VARIANTS: Mapping[tuple[OperatorKind, Any], KindDescriptor] = {
    (OperatorKind.PROCESS, "async"): replace(
        _PROCESS,
        description="calls a function without state",
        state=StateShape.NONE,
        keeps_times=True,
        asks_for_watermark=False,
    ),
    (OperatorKind.PROCESS, "rich"): replace(_PROCESS, keeps_times=True, can_be_ordered=True),
    (OperatorKind.PROCESS, "process"): replace(
        _PROCESS,
        description="calls a function with state and timers",
        waits_for_time=True,
        can_be_ordered=True,
        mixes="records and timers",
    ),
    (OperatorKind.CO_PROCESS, "co_map"): replace(
        _CO_PROCESS, waits_for_time=False, asks_for_watermark=False
    ),
    (OperatorKind.CO_PROCESS, "co_process"): replace(
        _CO_PROCESS, can_be_ordered=True, mixes="records of two streams"
    ),
    (OperatorKind.CO_PROCESS, "table_join"): replace(
        _CO_PROCESS,
        description="joins each row with the latest row of a table",
        can_be_ordered=True,
        mixes="records of two streams",
    ),
    (OperatorKind.CO_PROCESS, "interval_join"): replace(
        _BY_TIME, description="joins rows whose times are close"
    ),
    (OperatorKind.CO_PROCESS, "window_join"): replace(
        _BY_TIME, description="joins rows of the same window"
    ),
    (OperatorKind.CO_PROCESS, "co_group"): replace(
        _BY_TIME, description="passes all rows of both sides of a window to a function"
    ),
    (OperatorKind.CO_PROCESS, "as_of_join"): replace(
        _BY_TIME, description="joins each row with the latest row that is not later"
    ),
    (OperatorKind.CO_PROCESS, "merge_by_time"): replace(
        _BY_TIME, description="sorts the records of several streams by event time"
    ),
    (OperatorKind.WINDOW, "Tumbling"): replace(_WINDOW, needs_event_time=True),
    (OperatorKind.WINDOW, "Sliding"): replace(_WINDOW, needs_event_time=True),
    (OperatorKind.WINDOW, "Cumulative"): replace(_WINDOW, needs_event_time=True),
    # A session fires when the watermark is at its end, and its result is 1 ms older than that.
    (OperatorKind.WINDOW, "Session"): replace(_WINDOW, needs_event_time=True, lag_ms=1),
}

# The partitionings that need a kind of operator before them.
PREPARED = frozenset(row.divides_by for row in _DESCRIPTORS.values() if row.divides_by is not None)
