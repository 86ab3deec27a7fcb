"""A job in the foreground: signals, log lines or a status line, console sinks, the summary."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any, cast

from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.ids import system_random
from bicycle_runtime.base.logging import configure
from bicycle_runtime.base.quantities import amount
from bicycle_runtime.cli.live import LineWriter, LiveLine, Ticker, status_line
from bicycle_runtime.cli.rendering import (
    answer_json,
    byte_text,
    count_text,
    duration_text,
    metric_texts,
    waiting_texts,
)
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.supervision.stopping import StopRequest

if TYPE_CHECKING:
    from bicycle_runtime.jobs.home import Home
    from bicycle_runtime.jobs.options import JobRequest
    from bicycle_runtime.jobs.running.summary import JobSummary
    from bicycle_runtime.jobs.status import JobStatus

__all__ = ["run_in_foreground", "summary_lines"]


def run_in_foreground(request: JobRequest, home: Home, *, as_json: bool) -> None:
    """Run a job until it ends. Records and the answer go to stdout, all else to stderr."""
    is_live = sys.stderr.isatty() and not as_json
    live = LiveLine(sys.stderr, is_shown=is_live)
    configure(cast(IO[str], live), as_json=as_json, level="WARNING" if is_live else "INFO")
    records = sys.stderr if as_json else sys.stdout

    clock = SystemClock()
    shown: list[JobStatus] = []

    def line() -> str:
        return status_line(shown[0], now_ms=clock.now_ms()) if shown else ""

    def show(status: JobStatus) -> None:
        shown[:] = [status]
        live.show(line())

    with StopRequest().on_signals() as stop, live, Ticker(line, live):
        services = DoorServices(
            clock=clock,
            source=system_random(),
            console=lambda line: live.above(records, line),
            announce=lambda line: live.above(sys.stderr, line),
            listener=show,
            stop=stop,
            worker_log=cast(IO[bytes], LineWriter(live)) if is_live else None,
        )
        summary = run_job(request, home, services)
    if as_json:
        answer_json(summary.to_json())
    else:
        live.above(sys.stdout, "\n".join(summary_lines(summary)))


def summary_lines(summary: JobSummary) -> list[str]:
    """Return the summary of a run for people."""
    name = f"{summary.plugin} {summary.plugin_version}"
    lines = [f"job {summary.job} ({name}): {summary.state}"]
    if summary.has_read:
        lines.append(
            f"  read      {amount(summary.record_count, 'record')} in "
            f"{amount(summary.epoch_count, 'epoch')}, {duration_text(summary.duration_ms)}, "
            f"{count_text(summary.records_per_second)} records/s"
        )
    elif summary.event_count:
        lines.append(
            f"  read      nothing new to read; {count_text(summary.event_count)} records were read "
            f"up to epoch {summary.epoch}"
        )
    else:
        lines.append("  read      nothing: the input is empty")
    lines += [_output_line(output) for output in summary.outputs]
    for uid, metrics in summary.metrics.items():
        lines += [f"  metric    {uid}: {text}" for text in metric_texts(metrics)]
    lines += _loss_lines(summary)
    lines += [f"  failed    {line}" for line in summary.failures]
    lines += [f"  warning   {warning}" for warning in summary.warnings]
    lines += [f"  sealed    {text}" for text in waiting_texts(summary.waiting, now_ms=None)]
    if summary.was_aborted:
        lines.append("  aborted   the last epoch took too long; its input will be read again")
    state = f", {byte_text(summary.state_bytes)} of state" if summary.state_bytes else ""
    lines.append(f"  state     epoch {summary.epoch} in {summary.checkpoint}{state}")
    lines.append(f"  resume    {summary.resume_command}")
    return lines


def _output_line(output: Any) -> str:
    place = f" {output.place}" if output.place else ""
    return f"  wrote     {amount(output.record_count, 'record')} to {output.connector}{place}"


def _loss_lines(summary: JobSummary) -> list[str]:
    counts = (
        (summary.skipped_count, "skipped   {} that failed", "record"),
        (summary.dead_letter_count, f"letters   {{}} in {summary.dead_letters}", "dead letter"),
        (summary.dropped_count, "dropped   {} that no client was there to take", "record"),
    )
    return [f"  {text.format(amount(count, noun))}" for count, text, noun in counts if count]
