"""The commands list, status and info.

They apply to running and ended jobs of this machine, or with ``--service`` of another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from bicycle_runtime.cli.access import reached_jobs
from bicycle_runtime.cli.parameters import job_names, service_options
from bicycle_runtime.cli.rendering import (
    lag_text,
    metric_texts,
    phase_text,
    time_text,
    watermark_text,
)
from bicycle_runtime.cli.status_lines import stuck_lines, waiting_lines
from bicycle_runtime.jobs.epoch_ages import activity_text, fixed_text
from bicycle_runtime.jobs.status import JobState, JobStatus, OperatorStatus, RestartNote
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.quantities import amount, byte_text, count_text, duration_text, share_text
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.exit_codes import FAILED
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, location_text, show_table, show_text

_AGE_SHOWN_MIN_MS = 5_000
_LAGS_SHOWN_MAX = 8
_RESTARTS_SHOWN_MAX = 5
_SHARE_SHOWN_MIN = 0.05
_SKEW_SHOWN_MIN = 1.2
_SPARE_COLUMNS = ("pid", "plugin", "epoch", "records/s", "started")
_STATES = [state.value.lower() for state in JobState]


@command("list", "bicycle list", "bicycle list --state running --state failed")
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Show only jobs in this state. Repeatable.",
)
@service_options
@answers
def list_command(*, states: tuple[str, ...], as_json: bool) -> None:
    """List the jobs of this machine, newest first."""
    wanted = {state.lower() for state in states or _STATES}
    found = [status for status in reached_jobs().statuses() if status.state.value.lower() in wanted]
    if as_json:
        answer_json([status.to_json() for status in found])
    elif not found:
        click.echo("no jobs")
    else:
        headings = ("job", "state", "plugin", "epoch", "records", "records/s", "started", "pid")
        show_table(headings, map(_row, found), spare=_SPARE_COLUMNS)


@command("status", "bicycle status wordcount", "bicycle status wordcount --json", "bicycle status")
@click.argument("job", required=False, shell_complete=job_names)
@click.option("--exit-code", is_flag=True, help="Exit with code 1 if the job is FAILED.")
@service_options
@answers
def status_command(*, job: str | None, exit_code: bool, as_json: bool) -> None:
    """Show the state and progress of a job.

    JOB is the id that `bicycle submit` printed. Without JOB, the command shows totals over all
    jobs, as `bicycle info` does.
    """
    if exit_code and job is None:
        raise click.UsageError("--exit-code needs a JOB")
    state = _show(job, as_json=as_json)
    if exit_code and state is JobState.FAILED:
        click.get_current_context().exit(FAILED)


@command("info", "bicycle info", "bicycle info --service URL --json", "bicycle info wordcount")
@click.argument("job", required=False, shell_complete=job_names)
@service_options
@answers
def info_command(*, job: str | None, as_json: bool) -> None:
    """Show totals over all jobs, and which service answered.

    With JOB, the command is the same as `bicycle status JOB`.
    """
    _show(job, as_json=as_json)


def _show(job: str | None, *, as_json: bool) -> JobState | None:
    """Show a job, and return its state; or all of them together."""
    jobs = reached_jobs()
    if job is None:
        totals = jobs.totals()
        if as_json:
            answer_json(totals)
        else:
            show_text("\n".join(_totals(totals)))
        return None
    status = jobs.status(job)
    if as_json:
        answer_json(status.to_json())
    else:
        show_text("\n".join(_details(status, is_supervised=jobs.is_supervised(status))))
    return status.state


def _totals(found: Mapping[str, Any]) -> list[str]:
    states = [f"{count} {state}" for state, count in found["states"].items() if count]
    uptime_ms, lag = found["uptime_ms"], found["lag_records"]
    rows = [
        ("version", found["version"]),
        ("home", found["home"]),
        ("service", "none" if uptime_ms is None else f"up for {duration_text(uptime_ms)}"),
        ("jobs", ", ".join(states) or "none"),
        ("attention", count_text(found["attention"]) if found["attention"] else ""),
        ("records/s", count_text(found["records_per_second"])),
        ("lag", "" if lag is None else amount(lag, "record")),
        ("tasks", f"{found['tasks_running']} of {found['tasks_total']} run"),
    ]
    return [f"{name:<11}{text}" for name, text in rows if text]


def _row(status: JobStatus) -> tuple[str, ...]:
    is_running = not status.state.is_final
    return (
        status.id,
        f"{status.state.value}, frozen" if status.is_frozen else status.state.value,
        f"{status.plugin} {status.plugin_version}".strip(),
        str(status.epoch),
        count_text(status.record_count),
        count_text(status.records_per_second) if is_running else "",
        time_text(status.started_ms),
        str(status.pid) if is_running else "",
    )


def _details(status: JobStatus, *, is_supervised: bool | None) -> list[str]:
    rows = [
        ("state", status.state.value),
        ("as of", _age(status)),
        ("plugin", f"{status.plugin} {status.plugin_version}".strip()),
        ("process", _process(status)),
        ("supervisor", _supervisor(status, is_there=is_supervised)),
        ("phase", "" if status.phase is None else phase_text(status.phase)),
        ("started", time_text(status.started_ms)),
        ("ran", duration_text(_ran_ms(status))),
        ("epoch", f"{status.epoch} ({status.epoch_count} in this run)"),
        ("now", activity_text(status, SystemClock().now_ms())),
        ("epochs", fixed_text(status)),
        ("records", _records(status)),
        ("lag", _lag(status)),
        ("state size", byte_text(status.state_bytes)),
        ("watermark", watermark_text(status.watermark_ms)),
        ("workers", _ended_workers(status)),
        ("dropped", count_text(status.dropped_count) if status.dropped_count else ""),
        ("checkpoint", _checkpoint(status)),
    ]
    lines = [f"job {status.id}", *(f"  {name:<11}{text}" for name, text in rows if text)]
    for uid, operator in status.operators.items():
        lines.append(f"  operator   {uid}: {_operator_text(operator)}")
        lines += [f"  metric     {uid}: {text}" for text in metric_texts(operator.metrics)]
    lines += waiting_lines(status)
    for uid, lags in status.lags.items():
        behind = [(shard, lag) for shard, lag in lags.items() if lag.records or lag.bytes]
        for shard, lag in behind[:_LAGS_SHOWN_MAX]:
            text = lag_text(lag.records, lag.bytes, lag.waiting_ms)
            is_old = uid in status.silent_sources
            lines.append(f"  lag        {shard}: {text}{' when last known' if is_old else ''}")
    lines += [f"  restart    {_restart(note)}" for note in status.restarts[-_RESTARTS_SHOWN_MAX:]]
    lines += stuck_lines(status)
    if status.late_dropped_count:
        lines.append(
            f"  warning    dropped {amount(status.late_dropped_count, 'late record')}: collect "
            "them with late_to(...), or allow more out-of-orderness"
        )
    if status.error is not None:
        location = location_text(status.error)
        lines.append(f"error: {status.error['code']} {status.error['message']}{location}")
        lines.append(f"  fix: {status.error['fix']}")
    return lines


def _age(status: JobStatus) -> str:
    """Return the time since a running job's last status, if long, else an empty text."""
    age_ms = SystemClock().now_ms() - status.updated_ms
    if status.state.is_final or age_ms < _AGE_SHOWN_MIN_MS:
        return ""
    return f"{duration_text(age_ms)} ago: no report since"


def _checkpoint(status: JobStatus) -> str:
    """Return the location of checkpoints, and how long it has not responded."""
    if status.silent_storage_ms is None or status.state.is_final:
        return status.checkpoint
    silent_ms = max(status.updated_ms - status.silent_storage_ms, 0)
    since = f"{time_text(status.silent_storage_ms)} ({duration_text(silent_ms)})"
    if status.storage_reason:
        return f"{status.checkpoint}: refused since {since}: {status.storage_reason}"
    return f"{status.checkpoint}: waiting for storage since {since}"


def _lag(status: JobStatus) -> str:
    """Return the unread input, or the silent sources with their last known lag."""
    if not status.silent_sources:
        return lag_text(status.lag_records, status.lag_bytes, status.lag_ms)
    texts = []
    for uid, since_ms in status.silent_sources.items():
        silent_ms = max(status.updated_ms - since_ms, 0)
        texts.append(f"{uid} has not responded for {duration_text(silent_ms)}")
        lags = status.lags.get(uid, {}).values()
        known = [lag.records for lag in lags if lag.records is not None]
        if known:
            texts[-1] += f" ({amount(sum(known), 'record')} when last known)"
    return f"unknown: {', '.join(texts)}"


def _operator_text(operator: OperatorStatus) -> str:
    text = f"{count_text(operator.records_in)} in, {count_text(operator.records_out)} out"
    words = (
        (operator.on_columns, "on columns"),
        (operator.failed, "failed"),
        (operator.late, "late"),
    )
    for count, word in words:
        text += f", {count_text(count)} {word}" if count else ""
    if operator.parallelism is not None:
        text += f", parallelism {operator.parallelism}"
    if operator.watermark_ms is not None:
        text += f", watermark {watermark_text(operator.watermark_ms)}"
    if operator.slowest_input is not None:
        limited = f"limited by {operator.slowest_input}"
        text += f", watermark {limited}" if operator.watermark_ms is None else f" ({limited})"
    if operator.skew is not None and operator.skew >= _SKEW_SHOWN_MIN:
        text += f", busiest subtask {operator.skew:g} times the mean"
    hot = [found for found in operator.hot_keys if found.share >= _SHARE_SHOWN_MIN]
    if hot:
        keys = ", ".join(f"{found.key} {share_text(found.share)}" for found in hot)
        text += f", frequent keys {keys}"
    return text


def _process(status: JobStatus) -> str:
    if not status.pid:
        return ""
    text = f"{status.pid} (detached)" if status.is_detached else str(status.pid)
    if status.is_frozen:
        text += f", stopped by a signal: kill -CONT {status.pid} continues it"
    return text


def _supervisor(status: JobStatus, *, is_there: bool | None) -> str:
    """Return the supervisor of the driver; ``is_there`` is None if unknown."""
    if not status.supervisor_pid or status.state.is_final:
        return ""
    if is_there is not False:
        return str(status.supervisor_pid)
    return "gone: no supervisor restarts the job if its process ends"


def _ended_workers(status: JobStatus) -> str:
    """Return how many workers ended unasked, and how the last one did."""
    if not status.ended_workers:
        return ""
    last, count = status.ended_workers[-1], status.ended_worker_count
    at_most = "" if last.peak_bytes is None else f", {byte_text(last.peak_bytes)} at most"
    where = f" on {last.host}" if last.host else ""
    operator = f", in {last.operator!r}" if last.operator else ""
    return (
        f"{count_text(count)} ended unexpectedly, the last at {time_text(last.time_ms)}: pid "
        f"{last.pid}{where}, {last.how}{at_most}{operator}"
    )


def _restart(note: RestartNote) -> str:
    then = "not restarted"
    if note.delay_ms is not None:
        then = f"restarted after {duration_text(note.delay_ms)}"
    text = f"{time_text(note.time_ms)} {note.code} {note.message}"
    return f"{text}; attempt {note.attempt} since epoch {note.epoch}, {then}"


def _records(status: JobStatus) -> str:
    rate = "" if status.state.is_final else f", {count_text(status.records_per_second)}/s"
    return (
        f"{count_text(status.record_count)} in this run{rate}, "
        f"{count_text(status.event_count)} since the beginning"
    )


def _ran_ms(status: JobStatus) -> int:
    return max(0, (status.ended_ms or status.updated_ms) - status.started_ms)
