"""Lines about the status of a job that several commands print."""

from __future__ import annotations

import click
import msgspec

from bicycle_runtime.cli.rendering import waiting_texts
from bicycle_runtime.jobs.status import JobStatus
from bicycle_sdk.clock import SystemClock

_STUCK_CALLS_SHOWN_MAX = 8


def show_status(status: JobStatus) -> None:
    """Print the state of a job, its unpublished output and its stuck threads."""
    click.echo(f"{status.id}: {status.state.value}, epoch {status.epoch}")
    for line in (*waiting_lines(status), *stuck_lines(status)):
        click.echo(line)


def waiting_lines(status: JobStatus) -> list[str]:
    """Return the output that is sealed and not yet visible."""
    now_ms = None if status.state.is_final else SystemClock().now_ms()
    plain = {uid: msgspec.to_builtins(each) for uid, each in status.waiting.items()}
    return [f"  sealed     {text}" for text in waiting_texts(plain, now_ms=now_ms)]


def stuck_lines(status: JobStatus) -> list[str]:
    """Return the threads that kept a job which was ended by force, with their calls."""
    lines = []
    for thread in status.stuck:
        frozen = ", stopped by a signal" if thread.was_frozen else ""
        where = f" on {thread.host}" if thread.host else ""
        lines.append(f"  stuck      {thread.role} {thread.pid}{where}{frozen}: {thread.location}")
        lines += [f"               {call}" for call in thread.stack[-_STUCK_CALLS_SHOWN_MAX:]]
    return lines
