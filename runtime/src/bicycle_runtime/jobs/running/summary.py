"""The summary of a run that has ended: for people and as data."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bicycle_runtime.engine.planning.setup import JobSetup
from bicycle_runtime.jobs.home import JobLocation
from bicycle_runtime.jobs.options import JobRequest
from bicycle_runtime.jobs.status import JobStatus, OperatorStatus
from bicycle_runtime.operators.metrics import MetricValues
from bicycle_sdk.graph import ErrorAction, OperatorKind, Vertex
from bicycle_sdk.joins import EVICTED_ROWS
from bicycle_sdk.quantities import amount, duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSummary:
    """One sink: its connector, its target, and its records in this run."""

    operator: str
    connector: str
    target: str
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run that ended without an error. Counts are of this run, ``event_count`` of all runs.

    ``failures`` has a line for each kind of failed records: their number, their location, and an
    example. ``late_count`` are the late records of operators, ``metrics`` the counters of
    functions, by operator, ``warnings`` sentences about losses that no option allows, and about
    functions that blocked the event loop.

    ``waiting`` is the sealed but invisible output: the next start makes it visible.

    ``was_aborted`` means that a stop came in the middle of an epoch that took too long; its input
    is read again by the next start.
    """

    id: str
    job: str
    plugin: str
    plugin_version: str
    state: str
    epoch: int
    epoch_count: int
    record_count: int
    event_count: int
    duration_ms: int
    records_per_second: float
    outputs: tuple[OutputSummary, ...]
    skipped_count: int
    dead_letter_count: int
    dead_letters: str | None
    dropped_count: int
    state_bytes: int
    was_aborted: bool
    checkpoint: str
    resume_command: str
    late_count: int = 0
    metrics: Mapping[str, MetricValues] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    waiting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_read(self) -> bool:
        """True if any record was read in this run."""
        return self.record_count > 0


def summarize(
    status: JobStatus,
    setup: JobSetup,
    *,
    location: JobLocation,
    request: JobRequest,
    was_aborted: bool,
) -> RunSummary:
    """Return the summary of a run that has just ended."""
    duration_ms = (status.ended_ms or 0) - (status.running_ms or status.ended_ms or 0)
    failed = _failed_by_action(setup, status)
    dead_letter_count = failed[ErrorAction.DEAD_LETTER]
    # It continues with its own checkpoint, whatever it began with.
    command = request.command_words(
        "run", name=location.job, checkpoint_dir=location.checkpoint_dir, from_=None
    )
    if request.options.checkpoint_dir is not None and request.options.name is None:
        command = request.command_words("run", from_=None)
    return RunSummary(
        id=status.id,
        job=status.job,
        plugin=status.plugin,
        plugin_version=status.plugin_version,
        state=status.state.value,
        epoch=status.epoch,
        epoch_count=status.epoch_count,
        record_count=status.record_count,
        event_count=status.event_count,
        duration_ms=duration_ms,
        records_per_second=round(status.record_count * 1_000 / max(duration_ms, 1), 1),
        outputs=tuple(_outputs(setup, status)),
        skipped_count=failed[ErrorAction.SKIP],
        dead_letter_count=dead_letter_count,
        dead_letters=location.dead_letters_dir if dead_letter_count else None,
        dropped_count=status.dropped_count,
        late_count=sum(operator.late for operator in status.operators.values()),
        metrics={
            uid: operator.metrics for uid, operator in status.operators.items() if operator.metrics
        },
        failures=tuple(_failures(setup, status)),
        warnings=(
            *_failure_warnings(setup, status),
            *_late_warnings(setup, status),
            *_eviction_warnings(setup, status),
            *_unread_warnings(setup, status),
            *_call_warnings(setup, status),
        ),
        waiting={uid: msgspec.to_builtins(each) for uid, each in status.waiting.items()},
        state_bytes=status.state_bytes,
        was_aborted=was_aborted,
        checkpoint=setup.storage.url,
        resume_command=shlex.join(command),
    )


_NOTHING = OperatorStatus()


def _failed_by_action(setup: JobSetup, status: JobStatus) -> dict[ErrorAction, int]:
    totals = dict.fromkeys(ErrorAction, 0)
    for vertex in setup.graph.vertices:
        totals[vertex.on_error.action] += status.operators.get(vertex.id, _NOTHING).failed
    return totals


def _failures(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    """Yield a line per kind of failed records, the most frequent of an operator first."""
    for vertex in setup.graph.vertices:
        found = status.operators.get(vertex.id, _NOTHING).failures
        for kind, failure in sorted(found.items(), key=lambda item: (-item[1].count, item[0])):
            count = amount(failure.count, "record")
            yield f"{count} of {vertex.id!r}: {kind}, such as {failure.example}"


def _failure_warnings(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    for vertex in setup.graph.vertices:
        found = status.operators.get(vertex.id, _NOTHING)
        if found.is_all_failed:
            yield (
                f"EVERY RECORD FAILED: {vertex.id!r} emitted no records, but received "
                f"{amount(found.records_in, 'record')}; on_error with max_error_rate ends such a "
                "job"
            )


def _late_warnings(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    for vertex in setup.graph.vertices:
        late = status.operators.get(vertex.id, _NOTHING).late
        if late and "late_tag" not in vertex.details:
            yield (
                f"{vertex.id!r} dropped {amount(late, 'late record')}: collect them with "
                "late_to(...), or allow more out-of-orderness"
            )


def _eviction_warnings(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    for vertex in setup.graph.vertices:
        if "max_buffered" in vertex.details.get("settings", {}):
            counters = status.operators.get(vertex.id, _NOTHING).metrics.get("counters", {})
            if evicted := counters.get(EVICTED_ROWS, 0):
                yield (
                    f"{vertex.id!r} evicted {amount(evicted, 'row')} before a match: raise "
                    "max_buffered if that is too many"
                )


def _unread_warnings(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    for vertex in setup.graph.vertices:
        for tag, count in status.operators.get(vertex.id, _NOTHING).unread.items():
            yield (
                f"{vertex.id!r} sent {amount(count, 'record')} to the side output {tag!r}, which "
                f"has no consumer: read it with side_output({tag!r}), or after split with "
                f"select({tag!r})"
            )


def _call_warnings(setup: JobSetup, status: JobStatus) -> Iterator[str]:
    for vertex in setup.graph.vertices:
        found = status.operators.get(vertex.id, _NOTHING)
        if found.timed_out:
            yield (
                f"{vertex.id!r} omitted {amount(found.timed_out, 'record')} because their calls "
                "timed out: define timeout(value) in the function, or increase the timeout"
            )
        if found.blocked:
            calls = "a call" if found.blocked == 1 else f"{found.blocked:,} calls"
            yield (
                f"{vertex.id!r} blocked the event loop in {calls}, for at most "
                f"{duration_text(found.blocked_ms)}, at {found.blocked_at}: use await there, or "
                "make the function a plain def"
            )


def _outputs(setup: JobSetup, status: JobStatus) -> list[OutputSummary]:
    return [
        OutputSummary(
            operator=vertex.id,
            connector=vertex.details["connector"]["connector_type"],
            target=_target(vertex),
            record_count=found.records_in - found.failed,
        )
        for vertex in setup.graph.vertices
        if vertex.kind is OperatorKind.SINK
        for found in [status.operators.get(vertex.id, _NOTHING)]
    ]


def _target(vertex: Vertex) -> str:
    properties = vertex.details["connector"].get("properties", {})
    for name in ("path", "topic"):
        if name in properties:
            return str(properties[name])
    if "port" in properties:
        return f"{properties.get('host', '')}:{properties['port']}"
    return str(properties.get("name", ""))
