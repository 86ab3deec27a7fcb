"""Orders: the driver's instructions for the tasks of a level in one epoch."""

from __future__ import annotations

import msgspec

from bicycle_runtime.contract import ReadOn, Slice, StagedFile
from bicycle_runtime.layouts.manifest import ShardTimes
from bicycle_runtime.layouts.state import RangeState
from bicycle_sdk.contexts import WATERMARK_MIN


class LetterOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter that is fed once more to the operator that refused it.

    ``value`` is the pickled record, which came in on input ``ordinal``; ``request`` identifies the
    request. A record came from ``offset`` of ``shard`` of ``source``, if known.
    """

    id: str
    operator: str
    value: bytes
    ordinal: int = 0
    event_time_ms: int | None = None
    source: str | None = None
    shard: str = ""
    offset: int = 0
    end_offset: int | None = None
    request: str = ""


class TaskOrder(msgspec.Struct, kw_only=True):
    """The order for one task: slices, states, feedback files and dead letters.

    ``turns`` has the next subtask of edges that take turns; a task without a turn begins with the
    subtask of its own number.
    """

    slices: dict[str, list[Slice]] = {}
    states: dict[str, RangeState] = {}
    feedback: dict[int, list[StagedFile]] = {}
    turns: dict[int, int] = {}
    letters: list[LetterOrder] = []


class TimeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The event time at the start of an epoch.

    ``clock_ms`` is the job's own clock, ``times`` the shards of all generators, ``watermarks`` the
    watermarks of operators, ``finished`` the generators whose input has ended. No watermark stays
    below ``floor_ms``.
    """

    clock_ms: int = 0
    times: ShardTimes = {}
    watermarks: dict[str, int] = {}
    finished: list[str] = []
    floor_ms: int = WATERMARK_MIN


class EpochOrder(msgspec.Struct, kw_only=True):
    """The order for all tasks of one level in one epoch.

    ``reached`` are the watermarks that operators come to, where these are known before: of an epoch
    that was sealed already, and is followed. ``read_on`` is how far tasks read behind their slices.
    """

    epoch: int
    now_ms: int
    is_interval_over: bool
    tasks: list[TaskOrder]
    time: TimeOrder = TimeOrder()
    reached: dict[str, int] = {}
    read_on: ReadOn | None = None
