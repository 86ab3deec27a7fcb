"""The stored manifest of an epoch: entries of a checkpoint state, by prefix.

``BICM`` ends a manifest, ``BICC`` a checkpoint of a stream that is no job.
"""

from __future__ import annotations

import msgspec

from bicycle_runtime.layouts.state import RangeState
from bicycle_sdk.contexts import WATERMARK_MIN

__all__ = [
    "CHECKPOINT_MAGIC",
    "CHECKPOINT_VERSION",
    "CONNECTOR",
    "HELD",
    "MANIFEST_MAGIC",
    "MANIFEST_VERSION",
    "PREFIXES",
    "SEPARATOR",
    "STATE_VERSION",
    "TIME_FORM",
    "OperatorIds",
    "OperatorState",
    "PlanRecord",
    "ShardTime",
    "ShardTimes",
    "TimeRecord",
]


class ShardTime(msgspec.Struct, frozen=True, kw_only=True):
    """The event time of one shard.

    ``watermark_ms`` as the strategy says, ``event_ms`` of the newest record, ``active_ms`` when (on
    the job's clock) there was a record or unread input last.
    """

    watermark_ms: int = WATERMARK_MIN
    event_ms: int = WATERMARK_MIN
    active_ms: int = 0


# Generator -> shard -> time.
ShardTimes = dict[str, dict[str, ShardTime]]


MANIFEST_MAGIC = b"BICM"
MANIFEST_VERSION = 1
PREFIXES = (
    "plan", "time", "turns", "replay", "pins", "state", "forms", "sink", "source", "feedback",
)  # fmt: skip
SEPARATOR = "\x1f"
TIME_FORM = 2
STATE_VERSION = "bicycle.state_version"  # In the state of a source or sink, where it is not 1.
CONNECTOR = "bicycle.connector"  # In the state of a source or sink: the word of its connector.
HELD = "bicycle.held"  # In the state of a sink with output that a later epoch publishes.


class OperatorState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one operator, a range per subtask, with its ``StateScope``."""

    scope: str
    group_count: int
    ranges: tuple[RangeState, ...]


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The graph that ran the epoch, and the parallelism of each operator."""

    bundle_digest: str
    parallelism: dict[str, int]
    now_ms: int
    is_finished: bool = False


class TimeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The event time at the end of an epoch.

    ``clock_ms`` is the job's own clock; ``shards`` are those of each generator of watermarks,
    ``watermarks`` those of the operators that have one. ``next_event_ms`` and ``next_timer_ms`` say
    for which watermark, and for which processing time, operators wait. ``form`` says what its
    watermarks mean: 1 that nothing before them comes (and stands for none), 2 nothing at them
    either.
    """

    clock_ms: int = 0
    shards: ShardTimes = {}
    watermarks: dict[str, int] = {}
    next_event_ms: dict[str, int] = {}
    next_timer_ms: dict[str, int] = {}
    form: int = TIME_FORM


class OperatorIds(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptions of operators and loops of the graph, to match later code.

    ``operators`` are those without a uid, as pairs of id and words, in the order of the graph;
    ``loops`` the numbers of the feedback edges, by words.
    """

    operators: tuple[tuple[str, str], ...] = ()
    loops: dict[str, int] = {}


CHECKPOINT_MAGIC = b"BICC"
CHECKPOINT_VERSION = 1
