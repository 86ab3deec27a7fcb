"""A job in the foreground: signals, log lines or status line, console, summary."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, cast

from bicycle_runtime.cli.rendering import metric_texts, waiting_texts
from bicycle_runtime.jobs.running.driver import run_job
from bicycle_runtime.jobs.running.services import DoorServices
from bicycle_runtime.jobs.running.spark_starts import spark_starts
from bicycle_runtime.jobs.supervision.stopping import StopRequest
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.logging import configure
from bicycle_sdk.quantities import amount, byte_text, count_text, duration_text
from bicycle_sdk.random_source import system_random
from bicycle_streams.cli.rendering import answer_json, show_text, write_line

if TYPE_CHECKING:
    from bicycle_runtime.cli.live import LiveStatus
    from bicycle_runtime.jobs.home import Home
    from bicycle_runtime.jobs.options import JobRequest
    from bicycle_runtime.jobs.running.early_java import EarlyJava
    from bicycle_runtime.jobs.running.summary import RunSummary
    from bicycle_runtime.jobs.status import JobStatus
    from bicycle_sdk.clock import Clock


def run_in_foreground(
    request: JobRequest, home: Home, early: EarlyJava | None, *, as_json: bool
) -> None:
    """Run a job until it ends. Records and the answer go to stdout, all else to stderr."""
    records = sys.stderr if as_json else sys.stdout
    clock = SystemClock()
    is_json = as_json or request.logs_json
    with StopRequest().on_signals() as stop, _live_status(clock, as_json=is_json) as live:
        write = write_line if live is None else live.write
        services = DoorServices(
            clock=clock,
            source=system_random(),
            console=partial(write, records),
            announce=partial(write, sys.stderr),
            listener=_ignore if live is None else live.show,
            stop=stop,
            worker_log=None if live is None else cast(IO[bytes], live.line_writer()),
        )
        summary = run_job(request, home, services, new_executor=spark_starts(services, early))
    if as_json:
        answer_json(asdict(summary))
    elif sys.stdout.isatty():
        show_text("\n".join(summary_lines(summary)))
    else:
        write_line(sys.stdout, "\n".join(summary_lines(summary)))


def _live_status(clock: Clock, *, as_json: bool) -> AbstractContextManager[LiveStatus | None]:
    """Return the status line of a terminal, or None, and configure log lines."""
    if as_json or not sys.stderr.isatty():
        configure(sys.stderr, as_json=as_json)
        return nullcontext()
    # Slow to import, and needed on a terminal only.
    from bicycle_runtime.cli.live import LiveStatus

    live = LiveStatus(sys.stderr, clock)
    log = TextIOWrapper(cast(IO[bytes], live.line_writer()), "utf-8", write_through=True)
    configure(log, level="WARNING")
    return live


def _ignore(_status: JobStatus) -> None:
    """Ignore a status: log lines show the progress of the job."""


def summary_lines(summary: RunSummary) -> list[str]:
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
            f"  read      no new input; epochs up to {summary.epoch} read "
            f"{amount(summary.event_count, 'record')}"
        )
    else:
        lines.append("  read      no records: the input is empty")
    lines += [_output_line(output) for output in summary.outputs]
    for uid, metrics in summary.metrics.items():
        lines += [f"  metric    {uid}: {text}" for text in metric_texts(metrics)]
    lines += _loss_lines(summary)
    lines += [f"  failed    {line}" for line in summary.failures]
    lines += [f"  warning   {warning}" for warning in summary.warnings]
    lines += [f"  sealed    {text}" for text in waiting_texts(summary.waiting, now_ms=None)]
    if summary.was_aborted:
        lines.append("  aborted   the last epoch took too long; the next run reads its input again")
    state = f", {byte_text(summary.state_bytes)} of state" if summary.state_bytes else ""
    lines.append(f"  state     epoch {summary.epoch} in {summary.checkpoint}{state}")
    lines.append(f"  resume    {summary.resume_command}")
    return lines


def _output_line(output: Any) -> str:
    target = f" {output.target}" if output.target else ""
    return f"  wrote     {amount(output.record_count, 'record')} to {output.connector}{target}"


def _loss_lines(summary: RunSummary) -> list[str]:
    counts = (
        (summary.skipped_count, "skipped   {} that failed", "record"),
        (summary.dead_letter_count, f"letters   {{}} in {summary.dead_letters}", "dead letter"),
        (summary.dropped_count, "dropped   {} without a connected client", "record"),
    )
    return [f"  {text.format(amount(count, noun))}" for count, text, noun in counts if count]
