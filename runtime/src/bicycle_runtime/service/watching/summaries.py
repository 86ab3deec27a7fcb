"""A job in one row, made from its status, for lists and the API."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from bicycle_runtime.jobs.epoch_ages import activity_text, is_stalled
from bicycle_runtime.jobs.status import JobStatus
from bicycle_runtime.service.watching.paces import Paces
from bicycle_runtime.service.watching.states import State

# Problems that need attention until the next run, unless they are dismissed.
DISMISSIBLE = frozenset({"failed", "errors", "late"})
# Problems that need attention, the most severe first; the index is the rank.
Attention = (
    "stalled", "failed", "failing", "restarting", "frozen", "silent_source", "silent_storage",
    "lag_growing", "errors", "late",
)  # fmt: skip
NOTHING_RANK = len(Attention)
_BEGINNING = (State.CREATED, State.RESTARTING)


class Dismissal(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run when a user dismissed its need for attention.

    ``run`` is when the run began. More errors or late records than then, and another run, need
    attention again.
    """

    run: int
    is_failed: bool
    errors: int
    late: int

    @classmethod
    def of(cls, status: JobStatus, *, is_failed: bool) -> Dismissal:
        """Return the facts of a status."""
        operators = status.operators.values()
        return cls(
            run=status.started_ms,
            is_failed=is_failed,
            errors=sum(operator.failed for operator in operators),
            late=sum(operator.late for operator in operators),
        )

    def hidden(self, now: Dismissal) -> frozenset[str]:
        """Return the problems that need no attention, given the present facts."""
        if self.run != now.run:
            return frozenset()
        is_known = {
            "failed": self.is_failed,
            "errors": now.errors <= self.errors,
            "late": now.late <= self.late,
        }
        return frozenset(word for word, is_old in is_known.items() if is_old)


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One job as lists show it. Times are in ms since 1970, counts of this run.

    ``reason`` is the reason for the state, or empty. ``owner`` is the owner of a job that a service
    started, or empty. ``tasks_running`` are the subtasks of a job that has started to read.
    ``attention`` has the words of its problems, the most severe first; ``attention_rank`` is 0 for
    the most severe of all.
    """

    job_id: str
    name: str
    plugin: str
    plugin_version: str
    state: str
    reason: str
    start_time: int
    end_time: int | None
    updated_ms: int
    tasks_total: int
    tasks_running: int
    epoch: int
    records: int
    records_total: int
    records_per_second: float
    lag_records: int | None
    lag_bytes: int | None
    lag_ms: int | None
    errors: int
    late: int
    restarts: int
    state_bytes: int
    watermark_ms: int | None
    is_frozen: bool
    owner: str
    attention: tuple[str, ...]
    attention_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """One job of the snapshot: row, status, paces, and the last changing revision."""

    summary: JobSummary
    status: JobStatus
    revision: int
    paces: Paces = field(default_factory=Paces)


def summary_of(
    status: JobStatus, state: State, *, is_lag_growing: bool, owner: str = "",
    dismissed: Dismissal | None = None,
) -> JobSummary:  # fmt: skip
    """Return the row of a job.

    Args:
        status: The last status; the reader sets ``is_frozen``.
        state: The shown state.
        is_lag_growing: Whether the lag has grown for some time.
        owner: The owner of the job.
        dismissed: The dismissed problems.
    """
    operators = status.operators.values()
    tasks_total = sum(operator.parallelism or 1 for operator in operators)
    is_over = state.is_final
    known = Dismissal.of(status, is_failed=state is State.FAILED)
    hidden = frozenset() if dismissed is None else dismissed.hidden(known)
    found = _attention(status, state, is_lag_growing=is_lag_growing)
    attention = tuple(word for word in found if word not in hidden)
    return JobSummary(
        job_id=status.id,
        name=status.job,
        plugin=status.plugin,
        plugin_version=status.plugin_version,
        state=state.value,
        reason=_reason(status, state),
        start_time=status.started_ms,
        end_time=(status.ended_ms or status.updated_ms) if is_over else None,
        updated_ms=status.updated_ms,
        tasks_total=tasks_total,
        tasks_running=tasks_total if state is State.RUNNING and status.has_begun else 0,
        epoch=status.epoch,
        records=status.record_count,
        records_total=status.event_count,
        records_per_second=0.0 if is_over else round(status.records_per_second, 1),
        lag_records=status.lag_records,
        lag_bytes=status.lag_bytes,
        lag_ms=status.lag_ms,
        errors=known.errors,
        late=known.late,
        restarts=status.restart_count,
        state_bytes=status.state_bytes,
        watermark_ms=status.watermark_ms,
        is_frozen=status.is_frozen,
        owner=owner,
        attention=attention,
        attention_rank=Attention.index(attention[0]) if attention else NOTHING_RANK,
    )


def one_line(message: str) -> str:
    r"""Return the message of an error in one line, without the lines of code below it.

    Example:
        >>> one_line("ValueError: no\n  at job.py:3 in parse\n  File \"job.py\", line 3\n    ^^^")
        'ValueError: no at job.py:3 in parse'
    """
    lines = []
    for line in message.splitlines():
        if line.lstrip().startswith('File "'):
            break
        lines.append(line.strip())
    return " ".join(lines)


def _attention(status: JobStatus, state: State, *, is_lag_growing: bool) -> tuple[str, ...]:
    is_over = state.is_final
    found = {
        "stalled": is_stalled(status, status.updated_ms),
        "failed": state is State.FAILED,
        "failing": state is State.FAILING,
        "restarting": state is State.RESTARTING,
        "frozen": status.is_frozen and not is_over,
        "silent_source": bool(status.silent_sources) and not is_over,
        "silent_storage": status.silent_storage_ms is not None and not is_over,
        "lag_growing": is_lag_growing and not is_over,
        "errors": any(operator.failed for operator in status.operators.values()),
        "late": any(operator.late for operator in status.operators.values()),
    }
    return tuple(word for word in Attention if found[word])


def _reason(status: JobStatus, state: State) -> str:
    if status.error is not None:
        return f"{status.error['code']} {one_line(status.error['message'])}"
    return "" if state.is_final else _trouble(status, state)


def _trouble(status: JobStatus, state: State) -> str:
    """Return the problem that delays a running job."""
    if status.is_frozen:
        return f"process {status.pid} is suspended by a signal"
    if state is State.RESTARTING and status.restarts:
        last = status.restarts[-1]
        return f"{last.code} {last.message}"
    if state in _BEGINNING and status.phase is not None:
        return " ".join(filter(None, (status.phase.name, status.phase.target)))
    if is_stalled(status, status.updated_ms):
        return activity_text(status, status.updated_ms)
    if status.silent_sources:
        return f"no response for {', '.join(sorted(status.silent_sources))}"
    return status.storage_reason
