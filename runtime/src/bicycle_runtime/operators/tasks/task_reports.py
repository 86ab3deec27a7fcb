"""A task's report to the driver at the end of an epoch: references, counts, error."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.contract import StagedFile
from bicycle_runtime.layouts.manifest import ShardTimes
from bicycle_runtime.layouts.state import RangeState, StateMetadata
from bicycle_runtime.operators.errors import TaskMemoryError
from bicycle_runtime.operators.metrics import KeySample, OperatorCounts
from bicycle_runtime.operators.spec import StagePlan
from bicycle_runtime.records.blobs import BlockKind, Envelope, open_block, seal_block


class TaskReport(msgspec.Struct, kw_only=True):
    """The result of one task.

    ``source_ends`` is next offset per shard per source vertex, ``states`` the state of each
    stateful operator including this epoch, ``staged`` the finished files of each sink, ``feedback``
    the files of each feedback edge, ``senders`` the attempt of each task of the level before whose
    shuffle blocks were read, ``turns`` the subtask whose turn is next on each edge that takes
    turns. ``times`` are the shards that generators of this task followed; ``next_event_ms`` and
    ``next_timer_ms`` are the watermark and the processing time for which operators wait;
    ``state_metadata`` has the metadata of states that functions requested and that were not known
    before, by operator; ``loaded`` is the size of each range that was loaded again, by operator, in
    the process ``worker_cache``; ``keys`` is a sample of the keys of each ``key_by``,
    ``state_keys`` counts keys with state, by operator. With a ``failure`` (an error as JSON data)
    the rest is void.
    """

    level: int
    subtask: int
    attempt: str
    source_ends: dict[str, dict[str, int]] = {}
    source_counts: dict[str, int] = {}
    states: dict[str, RangeState] = {}
    staged: dict[str, list[StagedFile]] = {}
    feedback: dict[int, list[StagedFile]] = {}
    senders: dict[int, str] = {}
    turns: dict[int, int] = {}
    counts: dict[str, OperatorCounts] = {}
    times: ShardTimes = {}
    next_event_ms: dict[str, int] = {}
    next_timer_ms: dict[str, int] = {}
    state_metadata: dict[str, list[StateMetadata]] = {}
    loaded: dict[str, int] = {}
    worker: int = 0
    keys: dict[str, KeySample] = {}
    state_keys: dict[str, int] = {}
    busy_ms: float = 0.0
    failure: dict[str, Any] | None = None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=dict)
_DECODER = msgspec.msgpack.Decoder(prepare_type(TaskReport))


def encode_report(report: TaskReport) -> bytes:
    """Return the report as bytes."""
    return _ENCODER.encode(report)


def decode_report(data: bytes | memoryview) -> TaskReport:
    """Return the report that ``encode_report`` wrote."""
    return _DECODER.decode(data)


def report_block(plan: StagePlan, report: TaskReport) -> tuple[int, bytes]:
    """Return a report as a shuffle block that passes all levels to the driver."""
    levels = plan.level_parallelism
    parallelism = levels[report.level + 1] if report.level + 1 < len(levels) else 1
    envelope = Envelope(BlockKind.REPORT, len(levels), report.subtask)
    return (report.subtask % parallelism, seal_block(envelope, encode_report(report)))


def reports_in(blocks: Iterable[bytes]) -> list[bytes]:
    """Return the bytes of the task reports among the blocks of the last level."""
    opened = map(open_block, blocks)
    return [bytes(body) for envelope, body in opened if envelope.kind is BlockKind.REPORT]


def memory_failure(report: TaskReport, epoch: int) -> dict[str, Any]:
    """Return the failure of a task whose process has no memory left."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    known = "" if limit == resource.RLIM_INFINITY else f", whose limit is {limit:,} bytes"
    error = TaskMemoryError(
        level=report.level, subtask=report.subtask, epoch=epoch, limit_text=known
    )
    return error.to_json()
