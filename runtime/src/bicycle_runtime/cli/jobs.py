"""``bicycle jobs``: the stored files of jobs on this machine."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import click

from bicycle_runtime.cli.parameters import home
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.quantities import amount, byte_text
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers, duration_ms
from bicycle_streams.cli.rendering import answer_json, show_table

jobs_command = command_group(
    "jobs",
    "Remove the files of ended jobs.\n\n`bicycle list` lists the jobs.",
    "bicycle jobs prune --older-than 30d",
)


@command(
    "prune",
    "bicycle jobs prune --dry-run",
    "bicycle jobs prune --older-than 30d --checkpoints",
    group=jobs_command,
)
@click.option(
    "--older-than",
    "older_than_ms",
    metavar="DURATION",
    default="7d",
    show_default=True,
    callback=duration_ms,
    help="Remove only jobs that ended at least this long ago; 0 for all ended jobs.",
)
@click.option(
    "--checkpoints",
    "with_checkpoints",
    is_flag=True,
    help=(
        "Also remove the checkpoints of the jobs in BICYCLE_HOME. Jobs without checkpoints cannot "
        "continue."
    ),
)
@click.option(
    "--dry-run",
    "is_trial",
    is_flag=True,
    help="Show the jobs that would be removed, without removing them.",
)
@answers
def prune_command(
    *, older_than_ms: int, with_checkpoints: bool, is_trial: bool, as_json: bool
) -> None:
    """Remove status, options and logs of ended jobs.

    Checkpoints are kept unless --checkpoints is set. Checkpoints in a --checkpoint-dir are
    always kept, so the same command can continue the job. Jobs with dead letters in their
    folder, and paused jobs, are kept.
    """
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.jobs.control.pruning import prune_jobs

    found = prune_jobs(
        home(), clock=SystemClock(), older_than_ms=older_than_ms,
        with_checkpoints=with_checkpoints, is_trial=is_trial,
    )  # fmt: skip
    if as_json:
        jobs = [dataclasses.asdict(job) for job in found]
        answer_json({"is_trial": is_trial, "jobs": jobs})
        return
    if found:
        show_table(
            ("job", "state", "ended", "size", "what"), [_row(job, is_trial) for job in found]
        )
    gone = [job for job in found if not job.kept]
    size = byte_text(sum(job.byte_count for job in gone))
    verb = "would be removed" if is_trial else "removed"
    click.echo(f"{amount(len(gone), 'job')} {verb}, {size}")


def _row(job: Any, is_trial: bool) -> tuple[str, ...]:
    if job.kept:
        what = f"kept: {job.kept}"
    else:
        what = "would be removed" if is_trial else "removed"
        if job.checkpoint is not None:
            what += f"; its checkpoint in {job.checkpoint} is kept"
    ended = f"{datetime.fromtimestamp(job.ended_ms / 1_000, tz=UTC):%Y-%m-%d %H:%M:%S}"
    return job.job, job.state, ended, byte_text(job.byte_count), what
